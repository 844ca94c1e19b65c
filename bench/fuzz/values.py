"""Changing bytes, and values in trees of lists and dicts, at random but by their kinds."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from copy import deepcopy
from functools import cache
from typing import Any, Final

from nki_dist import dtypes
from nki_dist.compiler.decode_tables import REGIONS, ROLES
from nki_dist.compiler.values import BIG_INT
from nki_dist.isa import INSTRUCTIONS, alu

INTS: Final = (
    0, 1, 2, 3, 4, 5, 7, 8, 15, 16, 31, 32, 33, 64, 100, 127, 128, 129, 255, 256, 512, 1000, 4096,
    65535, 65536, 1 << 20, 1 << 24, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 40, (1 << 48) - 1,
    1 << 62, (1 << 63) - 1, (1 << 64) - 1, -1, -2, -3, -8, -128, -65536, -(1 << 31), -(1 << 63),
)  # fmt: skip
HUGE: Final = [BIG_INT, "0x" + "f" * 400]
FLOATS: Final = (0.0, -0.0, 0.5, 1.0, -1.5, 3e38, 1e308, 5e-324, float("inf"), float("nan"))
OTHERS: Final = (None, True, False, "", b"", b"\xff" * 9, [], {}, HUGE, [0], [3])
STEPS: Final = (-4096, -128, -64, -8, -4, -2, -1, 1, 2, 3, 4, 8, 16, 64, 128, 4096)
DTYPES: Final = tuple(d.name for d in dtypes.ALL)


@cache
def words() -> tuple[str, ...]:
    """Names that mean something somewhere in a program."""
    engines = {e for spec in INSTRUCTIONS.values() for e in spec.engines}
    return (*DTYPES, *sorted(REGIONS), *sorted(ROLES), *INSTRUCTIONS, *sorted(engines),
            *sorted(alu.ALU), "trn1", "trn2", "trn3", "for", "while", "scalar", "vector", "tensor",
            "add", "replace", "runtime")  # fmt: skip


def damaged(data: bytes, rng: random.Random, edits: Sequence[int] = (1, 1, 2, 5)) -> bytes:
    """Bytes after a few random edits.

    Args:
        edits: how many, one of these.
    """
    changed = bytearray(data)
    for _ in range(rng.choice(edits)):
        at = rng.randrange(len(changed)) if changed else 0
        kind = rng.randrange(5)
        if kind == 0 and changed:
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == 1 and changed:
            changed[at] = rng.randrange(256)
        elif kind == 2:
            del changed[at:]
        elif kind == 3:
            changed[at:at] = rng.randbytes(rng.randrange(1, 9))
        else:
            del changed[at : at + rng.randrange(1, 9)]
    return bytes(changed)


def anywhere(tree: Any, rng: random.Random, body: Any) -> None:
    """One change at some place in a tree of lists and dicts."""
    at = tree
    while True:
        keys = list(at) if isinstance(at, dict) else range(len(at))
        key = rng.choice(keys) if keys else None
        if key is None or rng.random() < 0.15 or not isinstance(at[key], (list, dict)):
            break
        at = at[key]
    if isinstance(at, list) and rng.random() < 0.35:
        _list(at, rng, body)
    elif key is not None:
        at[key] = other_than(at[key], rng, body)


def _list(items: list[Any], rng: random.Random, body: Any) -> None:
    """A list with other elements, fewer, or many more."""
    at = rng.randrange(len(items)) if items else 0
    kind = rng.randrange(7)
    if kind == 0 and items:
        del items[at]
    elif kind == 1 and items:
        items.insert(at, deepcopy(items[at]))
    elif kind == 2 and items:
        other = rng.randrange(len(items))
        items[at], items[other] = items[other], items[at]
    elif kind == 3 and items:
        items[at:] = deepcopy(items[at:]) * rng.choice((2, 10, 300))
    elif kind == 4:
        del items[at:]
    elif kind == 5:
        items.reverse()
    else:
        items.insert(at, other_than(items[at] if items else 0, rng, body))


def other_than(value: Any, rng: random.Random, body: Any) -> Any:
    """Something else: near it, of its kind, from elsewhere in the program, or of another type."""
    kind = rng.random()
    if type(value) is int and kind < 0.4:
        return value + rng.choice(STEPS)
    if type(value) is int and kind < 0.7:
        return rng.choice(INTS)
    if type(value) is float and kind < 0.5:
        return rng.choice(FLOATS)
    if type(value) is str and kind < 0.7:
        return rng.choice(words())
    if kind < 0.8:
        found = list(leaves(body))
        if found:
            return rng.choice(found)
    if kind < 0.84:
        return _deep(value, rng.choice((1, 3, 23, 30, 250)))
    return deepcopy(rng.choice((*OTHERS, *INTS, *FLOATS, *words())))


def _deep(value: Any, levels: int) -> Any:
    for _ in range(levels):
        value = [0, value]
    return value


def leaves(tree: Any) -> Iterator[Any]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if not isinstance(tree, list):
        yield tree
        return
    for item in tree:
        yield from leaves(item)


def replace_all(tree: Any, old: Any, new: Any) -> None:
    if not isinstance(tree, (list, dict)):
        return
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        if type(tree[key]) is type(old) and tree[key] == old:
            tree[key] = deepcopy(new)
        else:
            replace_all(tree[key], old, new)
