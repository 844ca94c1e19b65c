"""What instructions touch, against the bytes one by one."""

from __future__ import annotations

import random

import pytest

from nki_dist.linking.needs import LOOKS, Touch, dependences
from nki_dist.ops.place import Space

SPACE: Space = ("storage", 1)


def rows(low: int, count: int, pitch: int, row: int, writes: bool = True) -> Touch:
    return Touch(SPACE, low, low + (count - 1) * pitch + row, pitch, row, writes)


def whole(low: int, high: int, writes: bool = True) -> Touch:
    return Touch(SPACE, low, high, 0, 0, writes)


def bytes_of(t: Touch) -> set[int]:
    if not t.pitch:
        return set(range(t.low, t.high))
    return {n + at for n in range(t.low, t.high, t.pitch) for at in range(t.row)}


def some(rng: random.Random) -> Touch:
    low, pitch = rng.randrange(60), rng.choice((0, 8, 8, 12))
    if not pitch:
        return whole(low, low + rng.randrange(1, 12), rng.random() < 0.5)
    return rows(low, rng.randrange(2, 6), pitch, rng.randrange(1, pitch), rng.random() < 0.5)


def test_what_is_apart_has_no_byte_in_common() -> None:
    rng, apart = random.Random(1), 0
    for _ in range(5000):
        one, other = some(rng), some(rng)
        assert one.apart(other) == other.apart(one)
        if one.apart(other):
            apart += 1
            assert not bytes_of(one) & bytes_of(other)
    assert apart > 1000


@pytest.mark.parametrize(
    ("one", "other", "apart"),
    [
        (rows(0, 4, 32, 8), rows(8, 4, 32, 24), True),
        (rows(0, 4, 32, 8), rows(4, 4, 32, 24), False),
        (rows(0, 4, 32, 8), whole(40, 64), True),
        (rows(0, 4, 32, 8), whole(39, 64), False),
        (rows(0, 4, 32, 8), whole(40, 65), False),  # it goes on in the next row
        (rows(0, 4, 32, 8), rows(8, 4, 16, 4), False),  # not known
        (whole(0, 8), whole(8, 9), True),
    ],
)
def test_columns_of_the_same_rows(one: Touch, other: Touch, apart: bool) -> None:
    assert one.apart(other) == other.apart(one) == apart


def needed(nodes: list[Touch]) -> list[set[int]]:
    """All before it whose bytes a node shares, one of the two writing, directly or through them."""
    found: list[set[int]] = []
    for k, t in enumerate(nodes):
        mine: set[int] = set()
        for n in range(k):
            if (t.writes or nodes[n].writes) and bytes_of(t) & bytes_of(nodes[n]):
                mine |= {n, *found[n]}
        found.append(mine)
    return found


def test_dependences_lead_to_all_that_share_bytes() -> None:
    rng = random.Random(2)
    for _ in range(300):
        nodes = [some(rng) for _ in range(12)]
        found: list[set[int]] = []
        for direct in dependences([[t] for t in nodes]):
            found.append({n for d in direct for n in (d, *found[d])})
        assert all(want <= got for want, got in zip(needed(nodes), found, strict=True))


def test_what_is_overwritten_is_forgotten() -> None:
    nodes = [whole(0, 8), whole(0, 8, False), whole(0, 16), whole(4, 6, False), rows(0, 2, 8, 4)]
    assert dependences([[t] for t in nodes]) == [[], [0], [0, 1], [2], [2]]


def test_finding_out_is_given_up_where_it_takes_too_long() -> None:
    """Many that store to parts of one tensor, each of which may meet any other."""

    def stores(count: int) -> list[list[Touch]]:
        return [[whole(8 * n, 8 * n + 8)] for n in range(count)]

    assert dependences(stores(2 * LOOKS)) == [[] for _ in range(2 * LOOKS)]
    assert dependences(stores(2 * LOOKS + 2)) is None
