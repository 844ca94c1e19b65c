"""nisa.nc_match_replace8: replaces the first occurrences of 8 values."""

from __future__ import annotations

import numpy as np

from nki_dist.isa import broadcast as b
from nki_dist.isa.checks import free_size, free_up_to, same_partitions, same_tile, unpacked
from nki_dist.isa.effects import OPTIMISTIC, Effects, moves
from nki_dist.isa.kit import Kit
from nki_dist.isa.max8 import EIGHT
from nki_dist.isa.nc_find_index8 import INDEX_DTYPES, find_eight, save_indices
from nki_dist.isa.operands import Number, read, write
from nki_dist.isa.rows import load_rows, private_rows, save_rows
from nki_dist.isa.spec import instruction
from nki_dist.isa.timing_rules import per_element
from nki_dist.ops.function import copy, function
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Instruction


@instruction(
    engines="vector",
    effects=Effects(OPTIMISTIC, partial=False, bits=moves("dst data vals"), state=None),
    checks=[
        same_tile("dst data"),
        same_partitions("data vals"),
        free_size("vals", EIGHT, "exactly 8"),
        unpacked("dst data vals"),
        free_up_to("data", "max8_max"),
        same_partitions("data dst_idx"),
        free_size("dst_idx", EIGHT, "exactly 8"),
    ],
    cost=per_element("data"),
)
def nc_match_replace8(
    dst=write(),
    data=read(),
    vals=read(),
    imm=Number(),
    dst_idx=write(dtypes=INDEX_DTYPES, optional=True).default(None),
    name=None,
):
    """`dst = data`, with one occurrence of each of 8 values per partition replaced by `imm`.

    Args:
        dst, data: tiles with the same partitions and up to 16384 elements per partition.
        vals: tile with 8 elements per partition.
        imm: a number.
        dst_idx: (P, 8) tile of uint16 or uint32 for the positions found; all ones where a value
            doesn't occur (not documented; as nisa.nc_find_index8).

    Values are taken from the last to the first, so of equal ones the last gets the first
    occurrence. A position that was replaced isn't found again, even by a value equal to imm.

    Raises:
        NkiValidationError: shapes or dtypes don't fit.
    """
    return locals()


@nc_match_replace8.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    values, load = private_rows(kit, i["data"])
    wanted, load_wanted = load_rows(kit, i["vals"])
    wanted, result = wanted.reshape(-1, EIGHT), kit.scratch(values.shape)
    found = kit.scratch(wanted.shape, np.uint32)
    ops = [
        load,
        *load_wanted,
        op(copy, result, values),
        op(find_eight, values, wanted, True, found),
        op(_replace, found, b.single(i["imm"]), result),
        save_rows(kit, i["dst"], result),
    ]
    if i["dst_idx"] is not None:
        ops.append(save_indices(kit, i["dst_idx"], found))
    return ops


@function(reads="found result", writes="result", partial=True, name="replace found")
def _replace(found: np.ndarray, imm: np.float32, result: np.ndarray) -> None:
    """Another value where something was found."""
    lane, slot = np.nonzero(found < result.shape[1])
    result[lane, found[lane, slot]] = imm
