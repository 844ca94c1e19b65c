"""nisa.max8: the 8 largest values of each partition."""

from __future__ import annotations

import numpy as np

from nki_dist.arch import Arch
from nki_dist.errors import NkiValidationError
from nki_dist.isa import broadcast as b
from nki_dist.isa.checks import same_partitions
from nki_dist.isa.effects import Effects, MaskOf, Results, flattened, moves, passes_on, union
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import read, write
from nki_dist.isa.rows import private_rows, save_rows
from nki_dist.isa.spec import Cost, instruction
from nki_dist.isa.timing_rules import issue_cycles
from nki_dist.ops.function import function
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Access, Instruction

EIGHT = 8


def check_row_length(name: str, a: Access, arch: Arch) -> None:
    """A tile of up to 3 dimensions with 8 to `max8_max` elements per partition.

    Raises:
        NkiValidationError: it isn't.
    """
    if len(a.shape) > 3:
        raise NkiValidationError(
            f"{name} has {len(a.shape)} dimensions; allowed: up to 3",
            code="shape-rank",
            numbers={"got": len(a.shape), "most": 3},
        )
    most = arch.max8_max
    if not EIGHT <= a.free_size <= most:
        raise NkiValidationError(
            f"{name} has {a.free_size} elements per partition; allowed: {EIGHT} to {most}",
            code="free-limit",
            numbers={"got": a.free_size, "least": EIGHT, "most": most},
        )


def check_eight(name: str, a: Access) -> None:
    """Exactly 8 elements per partition.

    Raises:
        NkiValidationError: there are others.
    """
    if a.free_size != EIGHT:
        raise NkiValidationError(
            f"{name} has {a.free_size} elements per partition; allowed: exactly {EIGHT}",
            code="free-size",
            numbers={"got": a.free_size, "allowed": EIGHT},
        )


@passes_on
def _largest(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    """Every result depends on the whole row."""
    m = mask_of(i.args[sources[0]])
    return {} if m is None else {"dst": union(flattened(m), 1)[:, None].repeat(EIGHT, axis=1)}


@instruction(
    engines="vector",
    effects=Effects(_largest("src"), partial=False, bits=moves("dst src"), state=None),
)
def max8(dst=write(), src=read(), name=None):
    """The 8 largest values of each partition, largest first.

    Args:
        dst: tile (P, 8).
        src: tile of up to 3 dimensions with 8 to 16384 elements per partition.

    Equal values count as often as they occur. Compared as float32; NaN comes after everything
    else, which the documentation leaves open.

    Raises:
        NkiValidationError: shapes or dtypes don't fit.
    """
    return locals()


@max8.check
def _check(i: Instruction, arch: Arch) -> None:
    same_partitions(dst=i["dst"], src=i["src"])
    check_row_length("src", i["src"], arch)
    check_eight("dst", i["dst"])
    b.check_not_packed(dst=i["dst"], src=i["src"])


@max8.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    values, load = private_rows(kit, i["src"])
    result = kit.scratch((values.shape[0], EIGHT))
    return [load, op(_largest_of, values, result), save_rows(kit, i["dst"], result)]


@function(reads="values", writes="values result", name="eight largest")
def _largest_of(values: np.ndarray, result: np.ndarray) -> None:
    """Of each row, the largest first."""
    # NaN sorts last, so it has to be the descending order that is sorted.
    np.negative(values, values)
    if values.shape[1] > EIGHT:
        values.partition(EIGHT - 1, axis=1)
    np.copyto(result, values[:, :EIGHT])
    result.sort(axis=1)
    np.negative(result, result)


@max8.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    return Cost(cycles=issue_cycles(i["src"].free_size, arch))
