"""Stacks that have to grow in an object store that is nearly full."""

from __future__ import annotations

from typing import Any

import pytest

from nki_dist.core_actor.world_stacks import WorldStacks
from nki_dist.errors import OutOfMemoryError
from nki_dist.hbm.layout import Layout
from nki_dist.hbm.stacks import NodeStacks, make_fill
from tests.clusters import printed
from tests.programs import python


def plan_of(nbytes: int) -> Layout:
    return Layout({}, nbytes, 0, (), (), frozenset(), (), ())


# Nobody is asked through Ray, so nobody is waited for.
NO_NODES_AWAY: Any = None


class FullNode:
    """Node stacks that have room for 100 bytes."""

    ranks = (0,)

    def fill(self, fill: Any) -> list[Any]:
        if fill.layout.stack_bytes > 100:
            raise OutOfMemoryError("full")
        return []


def test_after_a_failure_the_next_larger_stack_is_a_move():
    """Or cores that still have the small one would keep it in the store."""
    stacks = WorldStacks({}, "", {})
    stacks._mine = FullNode()
    stacks.fill(plan_of(50), [[]], NO_NODES_AWAY)
    assert not stacks.may_move(plan_of(50))
    with pytest.raises(OutOfMemoryError):
        stacks.fill(plan_of(300), [[]], NO_NODES_AWAY)
    stacks.fill(plan_of(50), [[]], NO_NODES_AWAY)
    assert stacks.may_move(plan_of(80))  # it is smaller than what was tried, not than what is there
    stacks.fill(plan_of(80), [[]], NO_NODES_AWAY)
    assert not stacks.may_move(plan_of(80))


def test_the_message_adds_up_what_is_needed(monkeypatch):
    """Several objects on a node: what one of them lacks isn't what has to be set."""

    def full(self: Any, need: int) -> None:
        raise OutOfMemoryError("no room for one object")

    monkeypatch.setattr("nki_dist.hbm.arena.Arena.ensure", full)
    stacks = NodeStacks([[0, 1], [2]], "world")
    with pytest.raises(OutOfMemoryError) as caught:
        stacks.fill(make_fill(plan_of(1000), [[], [], []], (0, 1, 2), travels=False))
    assert (
        "no room for one object. This launch needs 3,000 bytes on this node: 3 ranks of 1,000"
        in (str(caught.value))
    )


@pytest.mark.slow
def test_old_stacks_make_room_for_larger_ones():
    done = python("-m", "tests.launcher.full_store")
    assert done.returncode == 0, done.stderr[-3000:]
    found = printed(done.stdout, done.stderr)
    assert found["grows"] == ["ok"] * 4
    assert found["less"] == found["less beside others"] == found["alone again"] == "ok"
    for name, need in (("too large", 300), ("beside others", 200)):
        error = found[name]
        assert error.startswith("OutOfMemoryError")
        assert f"needs {need << 20:,} bytes on this node: 1 ranks" in error
        assert "NKI_DIST_OBJECT_STORE_BYTES" in error
        assert "object store of" in error or "this node's object store holds" in error
