"""nisa.bn_stats: count, mean and summed squared deviation of even and odd elements."""

from __future__ import annotations

import numpy as np

from nki_dist.isa.checks import free_size, free_up_to, same_partitions, unpacked
from nki_dist.isa.effects import Effects, MaskOf, Results, flattened, passes_on, tile_of, union
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import read, write
from nki_dist.isa.rows import private_rows, save_rows
from nki_dist.isa.spec import instruction
from nki_dist.isa.timing_rules import per_element
from nki_dist.ops.arrays import fill
from nki_dist.ops.function import copy, function
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Instruction

STATISTICS = 6


@passes_on
def _counted(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    """Counts are known; the rest depends on the elements at even, or odd, positions."""
    m = mask_of(i.args[sources[0]])
    if m is None:
        return {}
    out = np.zeros(tile_of(i), bool)
    for n in range(2):
        out[:, 3 * n + 1 : 3 * n + 3] = union(flattened(m)[:, n::2], 1)[:, None]
    return {"dst": out}


@instruction(
    engines="vector",
    effects=Effects(_counted("data"), partial=False, bits=None, state=None),
    checks=[
        same_partitions("dst data"),
        unpacked("dst data"),
        free_up_to("data", "bn_stats_fmax"),
        free_size("dst", STATISTICS),
    ],
    cost=per_element("data", flops=4),
)
def bn_stats(dst=write(), data=read(), name=None):
    """Six numbers per partition for nisa.bn_aggr.

    Args:
        dst: tile with 6 elements per partition: count, mean, variance * count of the elements at
            even positions, then the same of those at odd positions.
        data: tile with at most 512 elements per partition.

    Computed in float32, mean first, then the sum of squared deviations from it; rounded once to
    `dst.dtype`. With one element per partition the odd numbers are 0.

    Raises:
        NkiValidationError: shapes or dtypes don't fit.
    """
    return locals()


@bn_stats.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    values, load = private_rows(kit, i["data"])
    result = kit.scratch((values.shape[0], STATISTICS))
    ops = [load]
    for n in range(2):
        part = values[:, n::2]
        if part.size == 0:
            ops.append(op(fill, result[:, 3 * n :], 0))
            continue
        half = kit.scratch(part.shape)
        ops.append(op(copy, half, part))
        ops.append(op(_statistics, half, result[:, 3 * n : 3 * n + 3]))
    return [*ops, save_rows(kit, i["dst"], result)]


@function(reads="values", writes="values out", name="statistics")
def _statistics(values: np.ndarray, out: np.ndarray) -> None:
    count = np.float32(values.shape[1])
    mean = values.sum(axis=1, keepdims=True) / count
    np.subtract(values, mean, values)
    np.multiply(values, values, values)
    out[:, 0] = count
    out[:, 1] = mean[:, 0]
    out[:, 2] = values.sum(axis=1)
