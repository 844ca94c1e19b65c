"""Places against NumPy's views of real memory: the same slices, shapes and types of both."""

from __future__ import annotations

import random
from math import prod
from typing import Any

import numpy as np
import pytest

from nki_dist.ops.operation import is_contiguous, reshaped, share_memory
from nki_dist.ops.place import Place

MEMORY = np.zeros(1 << 13, np.uint8)
SPACE = ("storage", 3)
TYPES = [[np.uint8, np.int8], [np.uint16, np.float16], [np.float32, np.int32, np.uint32]]


def both(shape: tuple[int, ...], offset: int, dtype: Any) -> tuple[Place, np.ndarray]:
    array = np.ndarray(shape, dtype, MEMORY, offset)
    return Place(SPACE, offset, shape, array.strides, dtype), array


def some(rng: random.Random) -> tuple[Place, np.ndarray]:
    shape = tuple(rng.choice((1, 2, 3, 4, 6)) for _ in range(rng.randrange(1, 5)))
    kinds = rng.choice(TYPES)
    return both(shape, 4 * rng.randrange(100), kinds[0])


def assert_same(place: Place, array: np.ndarray) -> None:
    assert place.shape == array.shape
    assert (place.ndim, place.size, place.dtype) == (array.ndim, array.size, array.dtype)
    if array.size:
        at = array.__array_interface__["data"][0] - MEMORY.__array_interface__["data"][0]
        assert place.offset == at
        # Of a dimension of one element the stride is nobody's affair.
        moved = [(p, a) for n, p, a in zip(place.shape, place.strides, array.strides) if n > 1]
        assert all(p == a for p, a in moved), (place, array.strides)
        low, high = np.lib.array_utils.byte_bounds(array)
        start = MEMORY.__array_interface__["data"][0]
        assert place.span() == (low - start, high - start)
    assert place.contiguous == is_contiguous(place) == array.flags.c_contiguous


def _key(rng: random.Random, shape: tuple[int, ...]) -> Any:
    lead = rng.randrange(len(shape) + 1)
    behind = rng.randrange(len(shape) - lead + 1)
    keys = [_of_dimension(rng, n) for n in shape[:lead]]
    if behind or lead == len(shape) or rng.random() < 0.3:  # without it NumPy may give a scalar
        keys.append(...)
    keys += [_of_dimension(rng, n) for n in shape[len(shape) - behind :]]
    if rng.random() < 0.3:
        keys.insert(rng.randrange(len(keys) + 1), None)
    return keys[0] if len(keys) == 1 else tuple(keys)


def _of_dimension(rng: random.Random, n: int) -> Any:
    if n and rng.random() < 0.3:
        return rng.randrange(-n, n)
    ends = [rng.choice((None, *range(-n - 1, n + 2))) for _ in range(2)]
    return slice(*ends, rng.choice((None, 1, 2, -1, -2, 3)))


def _shape(rng: random.Random, size: int) -> tuple[int, ...]:
    found = []
    while size > 1 and rng.random() < 0.8:
        n = rng.choice([d for d in range(1, size + 1) if size % d == 0])
        found.append(n)
        size //= n
    found.insert(rng.randrange(len(found) + 1), size)
    if rng.random() < 0.3 and 0 not in found:
        found[rng.randrange(len(found))] = -1
    return tuple(found)


def _step(rng: random.Random, place: Place, array: np.ndarray, refused: list[Any]) -> Any:
    kind = rng.randrange(5)
    if kind == 0:
        key = _key(rng, array.shape)
        return place[key], array[key]
    if kind == 1:
        order = rng.sample(range(array.ndim), array.ndim)
        return place.transpose(*order), array.transpose(order)
    if kind == 2:
        return place.T, array.T
    if kind == 3:
        (kinds,) = [k for k in TYPES if array.dtype in k]
        dtype = rng.choice(kinds)
        return place.view(dtype), array.view(dtype)
    shape = _shape(rng, array.size)
    view = array.reshape(shape)
    if array.size and not np.shares_memory(view, array):
        refused.append(shape)
        with pytest.raises(ValueError, match="has no view of shape"):
            place.reshape(shape)
        assert reshaped(place, view.shape) is None
        assert reshaped(array, view.shape) is None
        return place, array
    return place.reshape(shape), view


@pytest.mark.parametrize("block", range(8))
def test_whatever_is_done_to_both_gives_the_same_elements(block: int) -> None:
    refused: list[Any] = []
    for seed in range(block * 100, block * 100 + 100):
        rng = random.Random(seed)
        place, array = some(rng)
        for _ in range(6):
            place, array = _step(rng, place, array, refused)
            assert_same(place, array)
            if array.ndim == 0:
                break
    assert len(refused) > 5


def test_places_meet_where_views_of_one_memory_may_share_it() -> None:
    rng, met = random.Random(2), 0
    for _ in range(500):
        (one, first), (two, second) = some(rng), some(rng)
        for _ in range(2):
            one, first = _step(rng, one, first, [])
            two, second = _step(rng, two, second, [])
        if not (first.size and second.size):
            continue
        want = np.may_share_memory(first, second)
        assert one.meets(two) == two.meets(one) == share_memory(one, two) == want
        assert not one.meets(two.moved(("storage", 4), 0))
        met += want
    assert 50 < met < 450


def test_a_place_that_is_moved_lies_as_before_in_the_other_space() -> None:
    place, array = both((4, 6), 8, np.uint16)
    moved = place[::2, 1:].moved(("operand", 1), 30)
    assert (moved.space, moved.offset) == (("operand", 1), 8 + 2 + 30)
    assert (moved.shape, moved.strides) == ((2, 5), array[::2, 1:].strides)
    over = moved.over((3,), (-2,), np.int16)
    assert over == Place(("operand", 1), 40, (3,), (-2,), np.int16)
    assert hash(over) == hash(Place(("operand", 1), 40, (3,), (-2,), np.int16))
    assert over.span() == (36, 42)
    assert len({over, moved, place}) == 3
    assert prod(moved.shape) == moved.size


def test_an_empty_place_meets_nobody() -> None:
    place, _ = both((3, 4), 8, np.uint16)
    assert place[1:1].span() == (8, 8)
    assert not place[1:1].meets(place)
    assert not place.meets(place[:, 2:2])
