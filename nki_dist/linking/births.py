"""Fills memory that may be read before it is written, when the first instruction touches it."""

from __future__ import annotations

from nki_dist.isa.kit import Kit
from nki_dist.ops.arrays import fill
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Access, Program


def births(program: Program) -> dict[int, list[int]]:
    """By ordinal of the instruction that touches them first, the storages to be filled before it.

    Of PSUM storages where matmuls decide at run time, it is also forgotten what they hold.
    """
    found: dict[int, list[int]] = {}
    poisoned = program.facts.get("poison")
    poisoned = None if poisoned is None else frozenset(poisoned)
    for s in program.storages:
        if s.role == "local" and s.first >= 0 and (poisoned is None or s.number in poisoned):
            found.setdefault(s.first, []).append(s.number)
    for number in program.facts.get("runtime_psum", ()):
        first = program.storages[number].first
        if number not in found.setdefault(first, []):
            found[first].append(number)
    return found


def birth(program: Program, number: int, kit: Kit) -> list[Operation]:
    """Fill a storage nobody wrote as its life begins, and forget what was accumulated in it."""
    storage = program.storages[number]
    dtype, count = storage.dtype, storage.nbytes // storage.dtype.itemsize
    bits = kit.raw(Access(storage, 0, (count,), (1,), dtype))
    filled = [op(fill, bits, dtype.raw.type(program.unwritten(dtype)))]
    if number in program.facts.get("runtime_psum", ()):
        filled.append(op(fill, kit.mask(storage), False))
    return filled
