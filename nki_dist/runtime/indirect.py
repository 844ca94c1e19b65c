"""Linking instructions with `.indirect()` operands: gather before, scatter after.

The instruction is linked with tiles of its own in place of such operands; the columns that the
index tile chooses are brought there first and taken back afterwards. All indices are read before
anything is written. Of two columns scattered to one place the later stays.

Follows isa.indirection; which columns a matmul accumulates in is moved along with the data.
"""

from __future__ import annotations

import numpy as np

from nki_dist.compiler.passes.accumulate import mask_view
from nki_dist.errors import OutOfBoundsError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.indirection import is_indirect, table
from nki_dist.isa.kit import Kit
from nki_dist.ops.calls import Step, chain
from nki_dist.program import Access, Instruction

Masks = dict[int, np.ndarray]


def has_indirection(i: Instruction) -> bool:
    """Whether some operand is an indirect view; asked of every instruction that is linked."""
    args = i.args
    for name in INSTRUCTIONS[i.opcode].indirect:
        if args[name].dynamic is not None and is_indirect(args[name]):
            return True
    return False


def link_indirect(i: Instruction, kit: Kit, masks: Masks) -> Step:
    """The instruction's step.

    Args:
        masks: which elements of PSUM storages the next matmul adds to, by storage number; the
            tiles made here get one where a matmul decides at run time.
    """
    spec = INSTRUCTIONS[i.opcode]
    fixed = i.with_args(dict(i.args))
    reads: list[Step] = []
    before: list[Step] = []
    after: list[Step] = []
    for name in spec.indirect:
        a = i.args[name]
        if not is_indirect(a):
            continue
        tile = fixed.args[name] = kit.lend(a.shape, a.dtype, a.region)
        column = _Columns(a, tile, kit)
        reads.append(column.read)
        mode = spec.roles[name].mode
        adds = i.accumulation in ("add", "runtime")  # to the only operand it writes
        if "r" in mode or adds:
            before.append(column.gather)
        if "w" in mode:
            after.append(column.scatter)
            before += column.masked(masks, i, after)
    step = kit.step(spec.lower(fixed, kit))
    return chain([*reads, *before, step, *after])


class _Columns:
    """The chosen columns of one operand, and the tile that stands for them."""

    def __init__(self, a: Access, tile: Access, kit: Kit) -> None:
        assert a.dynamic is not None
        self.access, self.tile = a, tile
        self.count, self.limit = a.shape[1], a.dynamic.limit
        self.source = kit.view(a.dynamic.source)
        self.columns, self.copy = kit.raw(table(a)), kit.raw(tile)
        self.index = np.zeros(self.count, np.int64)

    def read(self) -> None:
        """Look the offsets up; raises OutOfBoundsError."""
        np.copyto(self.index, self.source.T.reshape(-1)[: self.count], casting="unsafe")
        bad = (self.index < 0) | (self.index >= self.limit)
        if bad.any():
            n = int(np.flatnonzero(bad)[0])
            raise OutOfBoundsError(
                f"offset {int(self.index[n])} (number {n}) is outside [0, {self.limit}) of the "
                f".indirect() view of {self.access.storage.label}",
                code="data-index-range",
                hint="repair the offsets",
                numbers={"got": self.index[n], "least": 0, "most": self.limit - 1},
            )

    def gather(self) -> None:
        np.take(self.columns, self.index, 1, self.copy, "clip")

    def scatter(self) -> None:
        self.columns[:, self.index] = self.copy

    def masked(self, masks: Masks, i: Instruction, after: list[Step]) -> list[Step]:
        """Keep the storage's mask up to date; steps to run before, others are added to `after`."""
        number = self.access.storage.number
        if number not in masks:
            return []
        whole = mask_view(masks[number], table(self.access))

        def mark() -> None:
            whole[:, self.index] = bool(i.accumulation)

        after.append(mark)
        if i.accumulation != "runtime":
            return []
        masks[self.tile.storage.number] = np.zeros(self.tile.nbytes // 2, bool)
        mine = mask_view(masks[self.tile.storage.number], self.tile)

        def holds() -> None:
            mine[...] = whole[:, self.index]

        return [holds]
