"""nisa.bn_stats and bn_aggr: mean and variance of rows, from parts of them."""

from __future__ import annotations

import numpy as np

from nki_dist.errors import invalid
from nki_dist.isa.checks import free_size, free_up_to, same_partitions, unpacked
from nki_dist.isa.effects import Effects, Mask, flattened, of_one, tile_of, union
from nki_dist.isa.operands import read, write
from nki_dist.isa.rows import private_rows
from nki_dist.isa.spec import Arch, Cost, Instruction, Kit, Operation, instruction, op
from nki_dist.isa.timing_rules import issue_cycles, per_element
from nki_dist.ops.arrays import fill
from nki_dist.ops.function import copy, function

STATISTICS = 6


@of_one
def _counted(i: Instruction, m: np.ndarray) -> Mask:
    """Counts are known; the rest depends on the elements at even, or odd, positions."""
    out = np.zeros(tile_of(i), bool)
    for n in range(2):
        out[:, 3 * n + 1 : 3 * n + 3] = union(flattened(m)[:, n::2], 1)[:, None]
    return out


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
def _bn_stats_meaning(i: Instruction, kit: Kit) -> list[Operation]:
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
    return [*ops, kit.save(i["dst"], result)]


@function(reads="values", writes="values out", name="statistics")
def _statistics(values: np.ndarray, out: np.ndarray) -> None:
    count = np.float32(values.shape[1])
    mean = values.sum(axis=1, keepdims=True) / count
    np.subtract(values, mean, values)
    np.multiply(values, values, values)
    out[:, 0] = count
    out[:, 1] = mean[:, 0]
    out[:, 2] = values.sum(axis=1)


@of_one
def _aggregated(i: Instruction, m: np.ndarray) -> Mask:
    """The mean depends on counts and means, the variance on everything."""
    triples = m.reshape(len(m), -1, 3)
    return np.stack([triples[..., :2].any((1, 2)), triples.any((1, 2))], axis=1)


def _triples(i: Instruction, arch: Arch) -> None:
    if i["data"].free_size % 3:
        message = f"data has {i['data'].free_size} elements per partition; allowed: multiples of 3"
        raise invalid(message, code="free-multiple", got=i["data"].free_size, multiple=3)


@instruction(
    engines="vector",
    effects=Effects(_aggregated("data"), partial=False, bits=None, state=None),
    checks=[
        same_partitions("dst data"),
        unpacked("dst data"),
        _triples,
        free_size("dst", 2, "2 (mean, variance)"),
    ],
)
def bn_aggr(dst=write(), data=read(), name=None):
    """`dst = (mean, variance)` per partition, of everything the statistics count.

    Args:
        dst: tile with 2 elements per partition.
        data: tile with triples (count, mean, variance * count) per partition, from one or several
            nisa.bn_stats.

    The variance is the population's. Computed in float32, rounded once to `dst.dtype`.

    Raises:
        NkiValidationError: shapes or dtypes don't fit.
    """
    return locals()


@bn_aggr.meaning
def _bn_aggr_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    triples, load = private_rows(kit, i["data"])
    shape = (triples.shape[0], triples.shape[1] // 3)
    parts = [kit.scratch(shape) for _ in range(3)]
    result = kit.scratch((shape[0], 2))
    taken = [op(copy, part, triples[:, n::3]) for n, part in enumerate(parts)]
    return [load, *taken, op(_aggregate, *parts, result), kit.save(i["dst"], result)]


@function(reads="counts means squares", writes="means squares out", name="aggregate")
def _aggregate(counts: np.ndarray, means: np.ndarray, squares: np.ndarray, out: np.ndarray) -> None:
    total = counts.sum(axis=1, keepdims=True)
    mean = (counts * means).sum(axis=1, keepdims=True) / total
    np.subtract(means, mean, means)
    np.add(squares, counts * (means * means), squares)
    out[:, 0] = mean[:, 0]
    out[:, 1] = squares.sum(axis=1) / total[:, 0]


@bn_aggr.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    n = i["data"].free_size
    return Cost(cycles=issue_cycles(13 * (n // 3), arch), flops=4 * i["data"].size)
