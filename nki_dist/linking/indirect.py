"""Instructions with `.indirect()` operands: gather before, scatter after.

The instruction gets tiles of its own in place of such operands; the columns that the index tile
chooses are brought there first and taken back afterwards. All indices are read before anything is
written. Of two columns scattered to one place the later stays.

Follows isa.indirection; which columns a matmul accumulates in is moved along with the data.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from nki_dist.codes.picture import outside
from nki_dist.errors import OutOfBoundsError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.indirection import is_indirect, table
from nki_dist.isa.kit import Array, Kit
from nki_dist.ops.arrays import fill
from nki_dist.ops.function import function
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Access, Instruction


def has_indirection(i: Instruction) -> bool:
    """Whether some operand is an indirect view; asked of every instruction that is linked."""
    args = i.args
    for name in INSTRUCTIONS[i.opcode].indirect:
        if args[name].dynamic is not None and is_indirect(args[name]):
            return True
    return False


def lowered(i: Instruction, kit: Kit, masked: Collection[int] = ()) -> list[Operation]:
    """The operations of an instruction whose scalar run-time offsets are known.

    Args:
        masked: numbers of the PSUM storages of which is recorded, where matmuls decide at run time,
            what the next one finds in their elements.
    """
    spec = INSTRUCTIONS[i.opcode]
    ops = _wrapped(i, kit, masked) if has_indirection(i) else spec.lower(i, kit)
    if masked:
        ops += [
            op(fill, kit.accumulating(a), bool(spec.accumulates))
            for a in spec.writes(i)
            if a.storage.number in masked and not is_indirect(a)
        ]
    return ops


def _wrapped(i: Instruction, kit: Kit, masked: Collection[int]) -> list[Operation]:
    spec = INSTRUCTIONS[i.opcode]
    fixed = i.with_args(dict(i.args))
    looked: list[Operation] = []
    before: list[Operation] = []
    after: list[Operation] = []
    for name in spec.indirect:
        a = i.args[name]
        if not is_indirect(a):
            continue
        tile = fixed.args[name] = kit.lend(a.shape, a.dtype, a.region)
        index = kit.scratch((a.shape[1],), np.int64)
        source, limit = kit.view(a.dynamic.source), a.dynamic.limit
        looked.append(op(_look_up, source, limit, kit.name(a), index))
        columns, copied, mode = kit.raw(table(a)), kit.raw(tile), spec.roles[name].mode
        adds = i.accumulation in ("add", "runtime")  # to the only operand it writes
        if "r" in mode or adds:
            before.append(op(take_columns, columns, index, copied))
        if "w" in mode:
            after.append(op(put_columns, copied, index, columns))
            if a.storage.number in masked:
                whole = kit.accumulating(table(a))
                after.append(op(_mark_columns, bool(i.accumulation), index, whole))
                if i.accumulation == "runtime":
                    before.append(op(take_columns, whole, index, _mask_of(tile, kit)))
    return [*looked, *before, *spec.lower(fixed, kit), *after]


def _mask_of(tile: Access, kit: Kit) -> Array:
    """The mask of a tile that was lent, made here."""
    kit.lend_mask(tile)
    return kit.accumulating(tile)


@function(reads="source", writes="index", raises=True, name="look up columns")
def _look_up(source: np.ndarray, limit: int, label: str, index: np.ndarray) -> None:
    """The offsets of an indirect view."""
    np.copyto(index, source.T.reshape(-1)[: len(index)], casting="unsafe")
    bad = (index < 0) | (index >= limit)
    if bad.any():
        n = int(np.flatnonzero(bad)[0])
        raise OutOfBoundsError(
            f"offset {int(index[n])} (number {n}) is outside [0, {limit}) of the .indirect() view "
            f"of {label}",
            code="data-index-range",
            hint="repair the offsets",
            numbers={"got": index[n], "least": 0, "most": limit - 1},
            picture=outside(f"what {label} offers", (limit,), 0, [(k, k + 1) for k in index[bad]]),
        )


@function(reads="columns index", writes="out", name="take columns")
def take_columns(columns: np.ndarray, index: np.ndarray, out: np.ndarray) -> None:
    """Those of dimension 1 with these numbers."""
    np.take(columns, index, 1, out, "clip")


@function(reads="inp index columns", writes="columns", name="put columns")
def put_columns(inp: np.ndarray, index: np.ndarray, columns: np.ndarray) -> None:
    """Writes those of dimension 1 with these numbers."""
    columns[:, index] = inp


@function(reads="index columns", writes="columns", name="mark columns")
def _mark_columns(value: bool, index: np.ndarray, columns: np.ndarray) -> None:
    """The same value in those of dimension 1 with these numbers."""
    columns[:, index] = value
