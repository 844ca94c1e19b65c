"""nisa.max8: the 8 largest values of each partition."""

from __future__ import annotations

import numpy as np

from nki_dist.arch import Arch
from nki_dist.errors import NkiValidationError
from nki_dist.isa.checks import dimensions, free_size, rule, same_partitions, unpacked
from nki_dist.isa.effects import Effects, MaskOf, Results, flattened, moves, passes_on, union
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import read, write
from nki_dist.isa.rows import private_rows, save_rows
from nki_dist.isa.spec import instruction
from nki_dist.isa.timing_rules import per_element
from nki_dist.ops.function import function
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Instruction

EIGHT = 8


@rule
def row_length(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """Tiles with 8 to `max8_max` elements per partition."""
    for name in names:
        got, most = i[name].free_size, arch.max8_max
        if not EIGHT <= got <= most:
            raise NkiValidationError(
                f"{name} has {got} elements per partition; allowed: {EIGHT} to {most}",
                code="free-limit",
                numbers={"got": got, "least": EIGHT, "most": most},
            )


@passes_on
def _largest(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    """Every result depends on the whole row."""
    m = mask_of(i.args[sources[0]])
    return {} if m is None else {"dst": union(flattened(m), 1)[:, None].repeat(EIGHT, axis=1)}


@instruction(
    engines="vector",
    effects=Effects(_largest("src"), partial=False, bits=moves("dst src"), state=None),
    checks=[
        same_partitions("dst src"),
        dimensions("src", 3),
        row_length("src"),
        free_size("dst", EIGHT, "exactly 8"),
        unpacked("dst src"),
    ],
    cost=per_element("src"),
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
