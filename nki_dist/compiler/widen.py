"""Programs as `NKI_PRECISE_FP=0` runs them: tensors of low precision hold float32.

A program stays what the kernel says: it is checked, allocated, given costs, saved and sent with the
types that were declared. The fact `precise_fp` = 0 says that it is to be run in float32, and
`widened` makes what is linked then. Offsets and strides count elements, so they stay as they are.

Invariant: all accesses of a storage that is widened have its own type (passes.low_precision).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from nki_dist.compiler.passes.low_precision import Key, float32_storages, key_of
from nki_dist.dtypes import float32
from nki_dist.dtypes.casts import converter
from nki_dist.program import Access, Dynamic, Instruction, Program, Storage, rewritten

FACT: Final = "precise_fp"


def runs_in_float32(programs: Sequence[Program]) -> bool:
    """Whether the programs were compiled with NKI_PRECISE_FP=0."""
    return any(FACT in p.facts for p in programs)


def widened(programs: list[Program]) -> list[Program]:
    """The programs of a launch, one per core, as they are to be linked."""
    if not runs_in_float32(programs):
        return programs
    wide = float32_storages(programs)
    return [_with_float32(p, wide) for p in programs]


def _with_float32(program: Program, wide: frozenset[Key]) -> Program:
    """A program some of whose storages, by `low_precision.key_of`, hold float32."""
    storages = [in_float32(s) if key_of(program.core, s) in wide else s for s in program.storages]
    rewrite = Rewrite(storages, program.storages)
    return replace(program, storages=storages, body=rewritten(program.body, rewrite.instruction))


def in_float32(s: Storage) -> Storage:
    """The same tensor with float32 elements."""
    data = s.data
    if data is not None:
        values = np.empty(len(data) // s.dtype.itemsize, np.float32)
        converter(s.dtype, float32)(values, np.frombuffer(data, s.dtype.storage))
        data = values.tobytes()
    result = Storage(
        s.number, s.region, s.shape, float32, s.name, s.role, s.index, s.address, s.location, data
    )
    result.called = s.called
    result.placed, result.first, result.last, result.written = s.placed, s.first, s.last, s.written
    return result


class Rewrite:
    """Instructions with accesses to the storages that took others' places, and their types."""

    def __init__(self, new: Sequence[Storage], old: Sequence[Storage]) -> None:
        self._new = {a: b for a, b in zip(old, new) if a is not b}

    def instruction(self, i: Instruction) -> Instruction:
        """The same on the new storages."""
        return i.with_tensors(self.access)

    def access(self, a: Access) -> Access:
        """The same elements of the new storage, if there is one."""
        storage = self._new.get(a.storage)
        dtype = a.dtype if storage is None else storage.dtype
        return Access(
            storage or a.storage, a.offset, a.shape, a.strides, dtype, self._dynamic(a.dynamic)
        )

    def _dynamic(self, d: Dynamic | None) -> Dynamic | None:
        if d is None or not isinstance(d.source, Access):
            return d
        return d.of(self.access(d.source))
