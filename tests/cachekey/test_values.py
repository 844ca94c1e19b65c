"""Arguments: told apart type for type, whatever they are, and found again when they are equal."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import types
from typing import Any

import numpy as np

from nki_dist import dtypes
from nki_dist.launcher.cachekey import Fingerprinter
from tests.cachekey.kernels import key_of, namespace


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass(frozen=True)
class Signature:
    shape: tuple[int, ...]
    dtype: Any


class Point(collections.namedtuple("Point", "x y")):
    pass


VALUES = [
    *(0, False, 0.0, -0.0, float("nan"), "0", b"0", None, 0j, -0j, ..., 1, True, 1.0, "1"),
    *(((1,), 2), ((1, 2),), [[1], 2], [[1, 2]]),
    *([], (), {}, set(), frozenset(), [0], (0,), [[0]], [False], {0: 1}, {0: True}, {"0": 1}),
    *(np.int8(0), np.int16(0), np.float32(0), np.float32(-0.0), np.bool_(False)),
    *(np.dtype("int8"), np.dtype("int16"), np.int8, np.zeros(2, np.int8), np.zeros(2, np.int16)),
    *(np.zeros((1, 2), np.int8), np.zeros(0, np.int8), np.array(0, np.int8)),
    *(Color.RED, Color, Point(1, 2), (1, 2), Point(2, 1), Signature((1, 2), np.dtype("int8"))),
    *(Signature((1, 2), np.dtype("uint8")), Signature((1, True), np.dtype("int8"))),
    *(
        [1].index,
        [2].index,
        [1].count,
        range(3),
        range(4),
        slice(1, 2),
        slice(1, 3),
        len,
        max,
        "len",
        np.floor,
    ),
    *(lambda: 1, lambda: 2, functools.partial(max, 1), functools.partial(max, 2)),
    *(collections.deque([1]), collections.deque([1], 3), collections.Counter("ab")),
    *(dtypes.uint32, dtypes.float8_e4m3fn_x4, dtypes.float32, dtypes.tfloat32),
    *(types.SimpleNamespace(a=1), collections.defaultdict(int), collections.defaultdict(list)),
]


def test_values_are_told_apart(keys: Fingerprinter) -> None:
    kernel = namespace("def kernel(x): return x")["kernel"]
    seen = {key_of(keys, kernel, {"x": value}): value for value in VALUES}
    assert len(seen) == len(VALUES)
    for value in VALUES:
        assert keys.fingerprint(kernel, {"x": value}) == keys.fingerprint(kernel, {"x": value})


def test_equal_values_have_equal_keys(keys: Fingerprinter) -> None:
    kernel = namespace("def kernel(x): return x")["kernel"]

    def arguments() -> Any:
        return [Signature((1, 2), np.dtype("int8")), {"a": [1.5, Point(1, 2)]}, Color.RED]

    assert key_of(keys, kernel, arguments()) == key_of(keys, kernel, arguments())


def test_constants_are_the_same_wherever_they_are(keys: Fingerprinter) -> None:
    """Which of several equal immutable objects it is doesn't count."""
    kernel = namespace("def kernel(x): return x")["kernel"]
    for make in (lambda: range(3), lambda: 1.5, lambda: np.int8(3), lambda: np.dtype("i4,f4")):
        one = make()
        assert key_of(keys, kernel, [one, one]) == key_of(keys, kernel, [make(), make()])


def test_sharing_and_cycles_in_values(keys: Fingerprinter) -> None:
    kernel = namespace("def kernel(x): return x")["kernel"]
    shared, loop = [1], [1]
    loop.append(loop)
    assert key_of(keys, kernel, [shared, shared]) != key_of(keys, kernel, [[1], [1]])
    assert key_of(keys, kernel, loop) != key_of(keys, kernel, [1, [1]])


def test_argument_that_is_a_global_differs_from_an_equal_one(keys: Fingerprinter) -> None:
    names = namespace("BOX = [1]\ndef kernel(x): return x is BOX")
    assert key_of(keys, names["kernel"], names["BOX"]) != key_of(keys, names["kernel"], [1])


def test_argument_of_a_class_that_was_redefined(keys: Fingerprinter) -> None:
    source = "class C: pass\ndef kernel(x): return isinstance(x, C)"
    names, twin = namespace(source), namespace(source)
    mine = key_of(keys, names["kernel"], names["C"]())
    assert mine != key_of(keys, names["kernel"], twin["C"]())


def test_function_arguments_follow_their_globals(keys: Fingerprinter) -> None:
    names = namespace("T = 1\ndef act(x): return x * T\ndef kernel(f): return f(1)")
    before = key_of(keys, names["kernel"], (names["act"],))
    names["T"] = 2
    assert key_of(keys, names["kernel"], (names["act"],)) != before
