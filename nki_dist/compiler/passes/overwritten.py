"""Refuse reads of a tensor whose bytes were overwritten through another tensor.

Kernels place tensors by hand (`address=`) and reuse addresses on purpose; here every tensor has
storage of its own, so a read of a tensor that the hardware would find overwritten must not pass
silently. Only tensors whose lifetimes and bytes both overlap are followed, byte by byte; that is
rare, so programs without hand-placed tensors pay nothing.

A byte is lost when it was written through one tensor and then through another that lies over it;
writing it through the first again repairs it. Loop bodies are walked twice, so that what one
iteration overwrites is known to the next. Accesses with run-time offsets are given the benefit of
the doubt.

Doesn't look at bytes that the tensor itself never wrote: that is the uninitialised-data check.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import numpy as np

from nki_dist.compiler.passes.allocate import in_time
from nki_dist.compiler.passes.elements import Elements, covers
from nki_dist.errors import NkiValidationError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Block, Instruction, Loop, MemoryRegion, Program, Storage

CURRENT: Final = 1  # last written through this tensor
LOST: Final = 2  # then overwritten through another
BUCKET: Final = 2048  # bytes; only speeds up the search for overlaps


class Rival(NamedTuple):
    """Another storage over the same bytes, and where the common rectangle lies in either."""

    storage: Storage
    mine: tuple[slice, slice]  # in the writer
    theirs: tuple[slice, slice]  # in the rival


def check_overwritten(program: Program) -> None:
    """Check one core's program.

    Raises:
        NkiValidationError: an instruction reads bytes of a placed tensor that were last written
            through another placed tensor.
    """
    placed = [s for s in program.storages if s.placed and s.first >= 0]
    rivals = find_rivals(placed)
    if rivals:
        _Tracker(program, rivals).block(program.body)


def find_rivals(placed: Iterable[Storage]) -> dict[int, list[Rival]]:
    """Storages that are alive together and overlap, by storage number."""
    found: dict[int, list[Rival]] = {}
    buckets: dict[tuple[MemoryRegion, int], dict[int, Storage]] = {}
    for s, ended in in_time(placed):
        for done in ended:
            for key in _buckets(done):
                del buckets[key][done.number]
        near: dict[int, Storage] = {}
        for key in _buckets(s):
            bucket = buckets.setdefault(key, {})
            near.update(bucket)
            bucket[s.number] = s
        for other in near.values():
            common = _common(s, other)
            if common is not None:
                mine, theirs = common
                found.setdefault(s.number, []).append(Rival(other, mine, theirs))
                found.setdefault(other.number, []).append(Rival(s, theirs, mine))
    return found


def _buckets(s: Storage) -> list[tuple[MemoryRegion, int]]:
    assert s.address is not None
    first, last = s.address[1] // BUCKET, (s.address[1] + s.partition_bytes - 1) // BUCKET
    return [(s.region, n) for n in range(first, last + 1)]


def _common(a: Storage, b: Storage) -> tuple[tuple[slice, slice], tuple[slice, slice]] | None:
    """The rectangle (partitions, bytes) that two storages share, as slices of either."""
    assert a.address is not None and b.address is not None
    (first_a, byte_a), (first_b, byte_b) = a.address, b.address
    low, high = max(byte_a, byte_b), min(byte_a + a.partition_bytes, byte_b + b.partition_bytes)
    top, end = max(first_a, first_b), min(first_a + a.partitions, first_b + b.partitions)
    if low >= high or top >= end:
        return None
    return (
        (slice(top - first_a, end - first_a), slice(low - byte_a, high - byte_a)),
        (slice(top - first_b, end - first_b), slice(low - byte_b, high - byte_b)),
    )


class _Tracker:
    """Who wrote each byte of the storages that have rivals."""

    def __init__(self, program: Program, rivals: dict[int, list[Rival]]) -> None:
        self.program = program
        self.rivals = rivals
        self.states: dict[int, Elements] = {}
        self.culprits: dict[int, tuple[Storage, Instruction]] = {}

    def block(self, block: Block) -> None:
        for item in block:
            if isinstance(item, Loop):
                for _ in range(1 if item.rounds in (0, 1) else 2):
                    for number in [n for n in self.states if n >= item.outside]:
                        del self.states[number]  # new in every iteration
                    self.block(item.body)
            else:
                self._instruction(item)

    def _instruction(self, i: Instruction) -> None:
        spec = INSTRUCTIONS[i.opcode]
        for a in spec.reads(i):
            self._read(i, a)
        if i.accumulation == "add":
            self._read(i, i.args["dst"])
        for a in spec.writes(i):
            if a.storage.number in self.rivals:
                self._write(i, a)

    def _state(self, s: Storage) -> Elements:
        state = self.states.get(s.number)
        if state is None:
            state = self.states[s.number] = Elements(s, 0, np.uint8, 1)
        return state

    def _write(self, i: Instruction, a: Access) -> None:
        s = a.storage
        state = self._state(s)
        if a.dynamic is not None:
            state.mask.fill(CURRENT)
            return
        touched = None
        if not covers(a):
            canvas = Elements(s, False, bool, 1)
            canvas.units(a)[...] = True
            touched = canvas.mask.reshape(s.partitions, -1)
        state.units(a)[...] = CURRENT
        for rival in self.rivals[s.number]:
            other = self.states.get(rival.storage.number)
            if other is None:
                continue
            theirs = other.mask.reshape(rival.storage.partitions, -1)[rival.theirs]
            hit = theirs == CURRENT
            if touched is not None:
                hit &= touched[rival.mine]
            if hit.any():
                theirs[hit] = LOST
                self.culprits[rival.storage.number] = (s, i)

    def _read(self, i: Instruction, a: Access) -> None:
        state = self.states.get(a.storage.number)
        if state is None or a.storage.number not in self.culprits:
            return
        lost = state.mask == LOST if a.dynamic is not None else state.units(a) == LOST
        if not (lost.all() if a.dynamic is not None else lost.any()):
            return
        other, writer = self.culprits[a.storage.number]
        where = self.program.where
        raise NkiValidationError(
            f"{i.opcode} reads {_placed(a.storage)}, but its bytes were overwritten through "
            f"{_placed(other)} by nisa.{writer.opcode} at "
            f"{where(writer.location) or 'unknown line'} and not written again; they were "
            f"allocated at {where(a.storage.location) or 'unknown line'} and "
            f"{where(other.location) or 'unknown line'}. Write it again before reading, or give "
            "one of them another address",
            **self.program.at(i),
            code="overwritten",
        )


def _placed(s: Storage) -> str:
    return f"{s.label} at address {s.address}"
