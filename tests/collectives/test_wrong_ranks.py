"""One rank of many does something else: it is named first, whatever the host, in a few lines."""

from __future__ import annotations

import contextlib
import inspect
import json
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import (
    CoreLostError,
    DeadlockError,
    LaunchError,
    NkiError,
    NkiValidationError,
    RaceError,
)
from nki_dist.ranges import named, ranges, shown
from nki_dist.runtime import dry_report
from nki_dist.runtime.deadlock import deadlock
from nki_dist.runtime.messages import Wait
from nki_dist.runtime.overdue import Position, overdue
from tests.collectives.kernels import hbm
from tests.collectives.odd_ranks import (
    KERNELS,
    SPEC,
    X,
    any_order,
    counts_of,
    leaves_out,
    rows_and_columns,
)

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.NkiWarning")

LINES = 40
each = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.fn.__name__)


def told(kernel: Any) -> str:
    """The line that the error must name."""
    code = kernel.fn.__code__
    lines, first = inspect.getsourcelines(code)
    (n,) = [n for n, line in enumerate(lines, first) if line.endswith("# told\n")]
    return f"{code.co_filename}:{n}"


def failure(launch: Callable[[], Any]) -> NkiError:
    with pytest.raises(NkiError) as caught:
        launch()
    return caught.value


def one_is_named(error: NkiError, kernel: Any, ranks: int, odd: int) -> None:
    assert type(error) is KERNELS[kernel]
    assert error.core == f"rank {odd} core 0"
    assert error.location == told(kernel)
    text = str(error)
    assert len(text.splitlines()) <= LINES and len(text) < 4000
    first = text.splitlines()[1] if type(error) is DeadlockError else text
    assert first.removeprefix("  - ").startswith(f"rank {odd} core 0 ")
    assert f"ranks {ranges({*range(ranks)} - {odd})} core 0" in text
    data = error.to_dict()
    assert len(json.dumps(data)) < 6000 and data["numbers"]["at_fault"] == f"rank {odd}"


@each
@pytest.mark.parametrize("ranks", [256, 1024])
def test_dry(kernel: Any, ranks: int) -> None:
    odd = ranks * 2 // 3
    world = nki.World.trn2_ultraserver(ranks=ranks)
    groups = [list(range(ranks))]
    error = failure(lambda: world.dry_run(kernel, SPEC, counts_of(ranks, odd), groups))
    one_is_named(error, kernel, ranks, odd)


@each
def test_in_process_says_the_same_as_dry(kernel: Any) -> None:
    groups = [list(range(16))]
    with nki.World(ranks=16, lnc=2, host="inprocess") as world:
        error = failure(lambda: world.run(kernel, X, counts_of(16, 5), groups))
        dry = failure(lambda: world.dry_run(kernel, SPEC, counts_of(16, 5), groups))
    one_is_named(error, kernel, 16, 5)
    assert error.to_dict() == dry.to_dict()


@pytest.fixture(scope="module")
def actors():
    with nki.World(ranks=8, lnc=1, host="ray", cores_per_actor=2) as world:
        yield world


@each
def test_on_ray(kernel: Any, actors: nki.World) -> None:
    error = failure(lambda: actors.run(kernel, X, counts_of(8, 6), [list(range(8))]))
    one_is_named(error, kernel, 8, 6)


def test_the_cause_is_named_through_groups() -> None:
    """Rank 21 leaves out a sum of its row; almost all others wait, but not for rank 21."""
    grid = np.arange(64).reshape(8, 8)
    rows, columns = grid.tolist(), grid.T.tolist()
    with nki.World.trn2_ultraserver(ranks=64, host="inprocess") as world:
        for run in (world.run, world.dry_run):
            arguments = (rows_and_columns, X, counts_of(64, 21), rows, columns)
            error = failure(partial(run, *arguments))
            assert error.core == "rank 21 core 0"
            assert str(error).startswith("rank 21 core 0 and ranks 16-20, 22, 23 core 0 disagree")
            assert len(str(error).splitlines()) <= LINES


KINDS = ("reduce", "other groups", "gather", "pairs", "ring")


def outcome(launch: Callable[[], Any]) -> dict[str, Any] | None:
    try:
        launch()
    except NkiError as error:
        return error.to_dict()
    return None


@pytest.mark.parametrize("seed", range(60))
def test_any_order_is_told_as_if_all_ranks_were_run(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run knows from single ranks what the run of all would say, right or wrong."""
    chosen = random.Random(seed)
    kinds = chosen.choices(KINDS, k=4)
    usual = [chosen.randint(0, 2) for _ in kinds]
    values = [list(usual) for _ in range(6)]
    for rank in chosen.sample(range(6), seed % 3):
        values[rank][chosen.randrange(4)] = chosen.randint(0, 2)
    groups, others = [[0, 2, 4], [1, 3, 5]], [list(range(6))]
    pairs = [[n, (n + 1) % 6] for n in range(chosen.choice((5, 6)))]
    world = nki.World(ranks=6, lnc=1 + seed % 2, host="inprocess")
    counts = nki.per_rank([np.array([v], np.int32) for v in values])
    launch = partial(world.dry_run, any_order, SPEC, counts, 4, groups, others, pairs, kinds)
    alone = outcome(launch)
    monkeypatch.setattr(dry_report, "run_classes", lambda *_: None)
    together = outcome(launch)
    assert alone == together


def test_what_a_mistake_takes_does_not_grow_faster_than_what_is_right() -> None:
    """Rounds of the same, so that one slow moment decides nothing."""
    sizes, took = [], {True: 1e9, False: 1e9}
    for ranks in (256, 1024):
        world = nki.World.trn2_ultraserver(ranks=ranks)
        groups = ncc.ReplicaGroup([list(range(ranks))])
        error = failure(partial(world.dry_run, leaves_out, SPEC, counts_of(ranks, 77), groups))
        sizes.append(len(str(error)))
    assert sizes[1] - sizes[0] < 20  # digits
    for odd in (77, -1) * 3:
        start = time.process_time()
        with contextlib.suppress(NkiError):
            world.dry_run(leaves_out, SPEC, counts_of(ranks, odd), groups)
        took[odd < 0] = min(took[odd < 0], time.process_time() - start)
    assert took[False] < 5 * took[True]


def test_ranks_with_equal_arguments_are_run_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from nki_dist.runtime import dry_classes

    made = []
    original = dry_classes.DryCores

    def counted(*args: Any) -> Any:
        made.append(args)
        return original(*args)

    monkeypatch.setattr(dry_classes, "DryCores", counted)
    nki.World.trn2_ultraserver(ranks=256).dry_run(
        leaves_out, SPEC, counts_of(256, -1), [list(range(256))]
    )
    assert len(made) == 1


# ---- other messages about many ranks ------------------------------------------------------------


@nki.jit
def both_cores_store(x):
    out = hbm(x.shape, x.dtype)
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(nl.program_id(0)))
    nl.store(out, tile)
    return out


def test_a_race_of_all_ranks_is_told_once() -> None:
    with nki.World(ranks=16, lnc=2, host="inprocess") as world:
        error = failure(lambda: world.run(both_cores_store, X))
    assert type(error) is RaceError and str(error).count("so on ranks 0-15") == 1


@pytest.mark.parametrize(("odd", "text"), [(5, "rank 5 and .* on ranks 0-4, 6-15"), (0, "rank 0")])
def test_a_rank_with_another_shape_is_named_first(odd: int, text: str) -> None:
    arrays = nki.per_rank([X[:1] if r == odd else X for r in range(16)])
    with nki.World(ranks=16, lnc=1, host="inprocess") as world:
        with pytest.raises(LaunchError, match=rf"is \(1, 4\) float32 on {text}"):
            world.run(both_cores_store, arrays)
        with pytest.raises(LaunchError, match=f"^rank {odd} has other .* than ranks"):
            world.run(both_cores_store.fn, nki.per_rank([r == odd for r in range(16)]))


def test_groups_are_cut_short() -> None:
    world = nki.World.trn2_ultraserver(ranks=256)
    for groups in ([list(range(200))], [list(range(256)), [3000]], [[0, 0]]):
        error = failure(lambda g=groups: world.dry_run(leaves_out, SPEC, counts_of(256, -1), g))
        assert isinstance(error, NkiValidationError) and len(str(error)) < 600
    error = failure(
        lambda: world.dry_run(
            leaves_out, SPEC, counts_of(256, -1), [[*range(200), *range(220, 256)]]
        )
    )
    assert str(error).startswith(
        "ranks 200-219 are in no group of replica_group=[[0-199, 220-255]]"
    )


def test_a_time_out_tells_equal_cores_once() -> None:
    running = [Position(r, 1, "nisa.iota", "k.py:3", r, (("k.py:2", 4 + r),)) for r in range(1, 64)]
    running.append(Position(0, 1, "nisa.exp", "k.py:9", 3))
    waits = [Wait(64 + r, 3, "c", {"op": "core_barrier"}, "k.py:5", 1) for r in range(4000)]
    error = overdue(1, running, waits)
    assert str(error).splitlines()[1:4] == [
        "  - rank 0 core 0 is in nisa.exp at k.py:9; 3 instructions done",
        "  - ranks 1-63 core 0 are in nisa.iota at k.py:3, in round 5 to 67 of the loop at k.py:2; "
        "1 to 63 instructions done",
        "  - ranks 64-4063 core 0 wait in nisa.core_barrier for rank 3 core 0 at k.py:5",
    ]
    assert (error.core, error.location) == ("rank 0 core 0", "k.py:9")


def test_many_states_are_cut_short() -> None:
    """Each core in an operation of its own: as many states as cores, and no more lines."""
    group = list(range(500))
    waits = [
        Wait(
            r,
            (r + 1) % 500,
            "collective",
            {"op": "all_reduce", "n": r, "group": group},
            "k.py:1",
            1,
        )
        for r in range(500)
    ]
    error = deadlock(waits, ())
    assert len(str(error).splitlines()) <= LINES and error.core == "rank 0 core 0"


def test_processes_that_die_together_are_told_together() -> None:
    pytest.importorskip("ray")
    from nki_dist.core_actor.orders import Answer
    from nki_dist.core_actor.supervise import finish

    answers = [Answer(1, error=CoreLostError(f"lost {n}", core=4 * n)) for n in range(1, 65)]
    with pytest.raises(CoreLostError, match="lost 4; 63 more processes were lost") as caught:
        finish([Answer(1), *answers[3:], *answers[:3]], print)
    assert len(str(caught.value).splitlines()) < 6


def test_ranges() -> None:
    assert ranges([3, 1, 2, 7, 9, 8, 12, 13]) == "1-3, 7-9, 12, 13"
    assert ranges(range(0, 60, 2)) == "0, 2, 4, 6, 8, 10, 12, 14, 16, 18 and 20 more"
    assert (named([4]), named([4, 5], "core")) == ("rank 4", "cores 4, 5")
    assert shown(list(range(4096))) == "[0-4095]" and shown([3, 1]) == "[3, 1]"
    assert shown([[0, 1], list(range(99))]) == "[[0, 1], [0-98]]"
