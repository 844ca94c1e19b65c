"""nisa.nc_match_replace8: replaces the first occurrences of 8 values."""

from __future__ import annotations

import numpy as np

from nki_dist.arch import Arch
from nki_dist.errors import NkiValidationError
from nki_dist.isa import broadcast as b
from nki_dist.isa.checks import same_partitions, same_tile
from nki_dist.isa.effects import OPTIMISTIC, Effects, moves
from nki_dist.isa.kit import Kit
from nki_dist.isa.max8 import EIGHT, check_eight
from nki_dist.isa.nc_find_index8 import INDEX_DTYPES, find_eight, save_indices
from nki_dist.isa.operands import Number, read, write
from nki_dist.isa.rows import load_rows, private_rows, save_rows
from nki_dist.isa.spec import Cost, instruction
from nki_dist.isa.timing_rules import issue_cycles
from nki_dist.ops.function import copy, function
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Instruction


@instruction(
    engines="vector",
    effects=Effects(OPTIMISTIC, partial=False, bits=moves("dst data vals"), state=None),
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


@nc_match_replace8.check
def _check(i: Instruction, arch: Arch) -> None:
    same_tile(dst=i["dst"], data=i["data"])
    same_partitions(data=i["data"], vals=i["vals"])
    check_eight("vals", i["vals"])
    b.check_not_packed(**{n: i[n] for n in ("dst", "data", "vals")})
    if i["data"].free_size > arch.max8_max:
        raise NkiValidationError(
            f"data has {i['data'].free_size} elements per partition; allowed: up to "
            f"{arch.max8_max}",
            code="free-limit",
            numbers={"got": i["data"].free_size, "most": arch.max8_max},
        )
    if i["dst_idx"] is not None:
        same_partitions(data=i["data"], dst_idx=i["dst_idx"])
        check_eight("dst_idx", i["dst_idx"])


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


@nc_match_replace8.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    return Cost(cycles=issue_cycles(i["data"].free_size, arch))
