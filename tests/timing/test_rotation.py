"""Buffers in turn: how many tensors of one line of a kernel are in SBUF at once."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

import nki_dist as nki
from nki_dist.compat import beta1
from nki_dist.compat.beta1 import isa as old_isa
from nki_dist.compat.beta1 import language as old
from nki_dist.timing.compiled.rotation import Stay, shares

KIB = 1 << 10


@dataclass(frozen=True)
class Made:
    """What `shares` asks of a storage: the line that made it."""

    location: int
    called: str = ""


def stay(line: int, size: int, first: int, last: int) -> Stay:
    made: Any = Made(line)
    return Stay(made, (0, size), size, first, last)


def rounds(count: int, *sizes: int) -> list[Stay]:
    """A loop: each line makes a tensor that lasts to the end of its round."""
    width = len(sizes)
    return [
        stay(line, size, width * n + line, width * (n + 1) - 1)
        for n in range(count)
        for line, size in enumerate(sizes)
    ]


def depths(stays: list[Stay], capacity: int) -> dict[int, int]:
    """How many buffers each line has; every stay has a place in one room."""
    found = shares(stays, range(len(stays)), capacity)
    assert sorted(n for _, sharing in found for n in sharing) == list(range(len(stays)))
    assert all(sharing == sorted(sharing) for _, sharing in found)
    return {
        stays[sharing[0]].storage.location: size // stays[sharing[0]].size
        for size, sharing in found
    }


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ((25, 25), {0: 2, 1: 2}),  # a quarter each: both twice
        ((28, 28), {0: 2, 1: 1}),  # one of them twice
        ((40, 40), {0: 1, 1: 1}),  # neither
        ((10, 60), {0: 4, 1: 1}),  # what is left goes to the line that can use it
        ((5, 10), {0: 8, 1: 6}),  # no more than there are
    ],
)
def test_what_is_left_goes_round_the_lines(sizes, expected):
    assert depths(rounds(8, *sizes), 100) == expected


def test_tensors_in_use_at_once_have_a_buffer_each():
    held = [stay(0, 10, n, 20) for n in range(5)] + [stay(1, 10, 10 + n, 10 + n) for n in range(8)]
    assert depths(held, 70) == {0: 5, 1: 2}


def test_lines_share_what_is_too_small_for_all_of_them():
    stays = rounds(3, 60) + [stay(1, 60, 10 + n, 10 + n) for n in range(3)]
    assert shares(stays, range(6), 100) == [(100, [0, 1, 2, 3, 4, 5])]


def test_no_line_has_less_than_it_uses_at_once_nor_all_together_more_than_there_is():
    random = Random(5)
    for _ in range(300):
        stays, at = [], 0
        for _ in range(random.randrange(1, 30)):
            line = random.randrange(4)
            stays.append(stay(line, 3 + line, at, at + random.randrange(6)))
            at += random.randrange(1, 3)
        capacity = random.randrange(5, 120)
        found = shares(stays, range(len(stays)), capacity)
        assert sum(size for size, _ in found) <= capacity
        if len(found) == 1:
            continue
        for size, sharing in found:
            for moment in range(at + 6):
                alive = [n for n in sharing if stays[n].first <= moment <= stays[n].last]
                assert sum(stays[n].size for n in alive) <= size


def scaled(x: Any, tiles: int) -> Any:
    """Load, scale, store: two tensors a round."""
    out = old.ndarray(x.shape, dtype=x.dtype, buffer=old.shared_hbm)
    for n in old.affine_range(tiles):
        tile = old.load(x[n])
        old.store(out[n], value=old_isa.activation(op=old.copy, data=tile, scale=2.0))
    return out


def profile_of_tiles(kib: int) -> Any:
    """Of 224 MiB in tiles that have so many KiB in each partition."""
    tiles = 1792 // kib
    x = nki.TensorSpec((tiles, 128, kib * KIB // 4), "float32")
    with nki.World(host="inprocess", platform="trn2") as world:
        return world.estimate(beta1.jit(lambda x: scaled(x, tiles)), x)


def test_tiles_too_large_to_take_turns_wait_for_each_other():
    """Two lines in 208 KiB: of 28 KiB each three and more, of 56 KiB two and one."""
    small, large = profile_of_tiles(28), profile_of_tiles(56)
    assert small.critical["scalar"] < 0.02 * small.device_us
    assert large.critical["scalar"] > 0.2 * large.device_us
    assert 1.1 * small.device_us < large.device_us < 1.5 * small.device_us


def test_what_is_kept_while_others_of_its_line_come_and_go_takes_no_turn():
    """Three of eight stay: they have room of their own, and the others two buffers."""
    kept = [stay(0, 20, n, 100) for n in range(3)]
    others = [stay(0, 20, 10 + 2 * n, 11 + 2 * n) for n in range(5)]
    found = shares([*kept, *others], range(8), 100, 2)
    assert sorted((size, len(sharing)) for size, sharing in found) == [(40, 5), (60, 3)]
