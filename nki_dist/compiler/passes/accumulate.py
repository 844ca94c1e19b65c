"""Decide for every matmul without `accumulate=` whether it replaces or adds.

Rule: the first matmul that writes a PSUM element since its storage was allocated, or since anything
but a matmul wrote it, replaces; later ones add. The state is kept per element, because tiled
matmuls write parts of a storage. Where trip counts are only known at run time (a storage that
outlives a dynamic loop in which it is accumulated) or one matmul covers elements of both kinds, the
decision is left to the executor ("runtime"), which keeps the same state.

`accumulate=True` on what something else than a matmul wrote is refused before NeuronCore-v4, where
the documentation calls it undefined. Not seen: addresses known only at run time, and what an
earlier round of a dynamic loop left.
"""

from __future__ import annotations

import numpy as np

from nki_dist import arch
from nki_dist.errors import NkiValidationError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import (
    Access,
    Block,
    Instruction,
    Loop,
    MemoryRegion,
    Program,
    Storage,
    instructions,
)


class Sums:
    """Which elements of one PSUM storage hold a matmul's result, which the next one adds to."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.uniform: bool | None = False
        self.mask: np.ndarray | None = None
        self.equal = True  # the mask is of one partition: all have been written alike so far

    def elements(self, a: Access) -> np.ndarray:
        """The part of the mask that says it of an access, in one partition or in all of its."""
        partitions, unit = self.storage.shape[0], a.dtype.itemsize // 2 or 1
        units = self.storage.nbytes // 2 // partitions
        if self.mask is None:
            self.mask, self.equal = np.full(units, bool(self.uniform)), True
            self.uniform = None
        of_all = a.shape[0] == partitions and (partitions == 1 or a.strides[0] * unit == units)
        if self.equal and not of_all:
            self.mask, self.equal = np.tile(self.mask, partitions), False
        return mask_view(self.mask, a, 1 if self.equal else None)

    def covers(self, a: Access) -> bool:
        s = self.storage
        same = a.shape == s.shape and a.dtype is s.dtype
        return (same or a.nbytes == s.nbytes) and a.dynamic is None

    def read(self, a: Access) -> bool | None:
        """True or False if uniform over the access, None if mixed."""
        if self.uniform is not None:
            return self.uniform
        view = self.elements(a)
        if view.all():
            return True
        return None if view.any() else False

    def write(self, a: Access, value: bool) -> None:
        if self.covers(a):
            self.uniform, self.mask = value, None
        elif self.uniform is not value:
            self.elements(a)[...] = value


def mask_view(mask: np.ndarray, a: Access, partitions: int | None = None) -> np.ndarray:
    """Part of a mask with one entry per two bytes of a storage: PSUM types have 16 bits or more.

    Args:
        partitions: that the mask has an entry for; None for those of the access.
    """
    unit = a.dtype.itemsize // 2 or 1
    shape = a.shape if partitions is None else (partitions, *a.shape[1:])
    return np.ndarray(shape, bool, mask, a.offset * unit, tuple(s * unit for s in a.strides))


def resolve_accumulation(program: Program) -> None:
    """Set `accumulation` of every matmul to "replace", "add" or "runtime".

    Raises:
        NkiValidationError: a matmul with accumulate=True finds other than matmuls' results.
    """
    program.facts["runtime_psum"] = []
    if not any(s.region is MemoryRegion.psum for s in program.storages):
        return  # no matmul
    runtime = _decided_at_run_time(program.body)
    states: dict[int, Sums] = {}
    filled: dict[int, Instruction] = {}  # who wrote it last, other than matmuls
    unsure = set(runtime)
    for i in instructions(program.body):
        spec = INSTRUCTIONS[i.opcode]
        for name in spec.in_psum:
            a = i.args[name]
            if not isinstance(a, Access) or a.storage.region is not MemoryRegion.psum:
                continue
            number = a.storage.number
            if spec.accumulates:
                if number in filled and number not in unsure:
                    _check_start(i, a, states.get(number), filled[number], program)
                _resolve(i, a, states, runtime)
            else:
                filled[number] = i
                if a.dynamic is not None:
                    unsure.add(number)
                if number in states:
                    states[number].write(a, False)
    program.facts["runtime_psum"] = sorted(runtime)


def _check_start(
    i: Instruction, a: Access, state: Sums | None, writer: Instruction, program: Program
) -> None:
    """Refuse to add to what isn't a matmul's result, where hardware doesn't define it."""
    if i.args["accumulate"] is not True or arch.get(program.platform).generation >= 4:
        return
    if state is not None and state.read(a):
        return
    raise NkiValidationError(
        f"accumulate=True adds to {a.storage.label}, parts of which nisa.{writer.opcode} at "
        f"{program.where(writer.location)} wrote; on {program.platform} a matmul can only add to "
        "what another matmul left there: start with accumulate=False, or add with "
        "nisa.tensor_tensor",
        **program.at(i),
        code="accumulate-onto-other",
    )


def _resolve(i: Instruction, a: Access, states: dict[int, Sums], runtime: set[int]) -> None:
    state = states.get(a.storage.number)
    if state is None:
        state = states[a.storage.number] = Sums(a.storage)
    adds, number = i.args["accumulate"], a.storage.number
    if adds is None:
        adds = None if a.dynamic is not None or number in runtime else state.read(a)
        if adds is None:
            runtime.add(number)
    i.accumulation = "runtime" if adds is None else "add" if adds else "replace"
    state.write(a, True)


def _decided_at_run_time(block: Block) -> set[int]:
    """Storages accumulated in a dynamic loop that they outlive, or addressed at run time."""
    found: set[int] = set()
    for item in block:
        if not isinstance(item, Loop):
            # No operand of an instruction that has a kind is addressed at run time.
            if item.kind is None and INSTRUCTIONS[item.opcode].accumulates:
                dst = item.args["dst"]
                if dst.dynamic is not None:
                    found.add(dst.storage.number)
            continue
        for i in instructions(item.body):
            if (spec := INSTRUCTIONS[i.opcode]).accumulates:
                for a in spec.writes(i):
                    if a.storage.number < item.outside or a.dynamic is not None:
                        found.add(a.storage.number)
        found |= _decided_at_run_time(item.body)
    return found
