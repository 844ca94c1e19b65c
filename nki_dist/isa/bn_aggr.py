"""nisa.bn_aggr: mean and variance from the statistics of bn_stats."""

from __future__ import annotations

import numpy as np

from nki_dist.arch import Arch
from nki_dist.errors import NkiValidationError
from nki_dist.isa.checks import free_size, same_partitions, unpacked
from nki_dist.isa.effects import Effects, MaskOf, Results, passes_on
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import read, write
from nki_dist.isa.rows import private_rows, save_rows
from nki_dist.isa.spec import Cost, instruction
from nki_dist.isa.timing_rules import issue_cycles
from nki_dist.ops.function import copy, function
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Instruction


@passes_on
def _aggregated(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    """The mean depends on counts and means, the variance on everything."""
    m = mask_of(i.args[sources[0]])
    if m is None:
        return {}
    triples = m.reshape(len(m), -1, 3)
    return {"dst": np.stack([triples[..., :2].any((1, 2)), triples.any((1, 2))], axis=1)}


def _triples(i: Instruction, arch: Arch) -> None:
    if i["data"].free_size % 3:
        raise NkiValidationError(
            f"data has {i['data'].free_size} elements per partition; allowed: multiples of 3",
            code="free-multiple",
            numbers={"got": i["data"].free_size, "multiple": 3},
        )


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
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    triples, load = private_rows(kit, i["data"])
    shape = (triples.shape[0], triples.shape[1] // 3)
    parts = [kit.scratch(shape) for _ in range(3)]
    result = kit.scratch((shape[0], 2))
    taken = [op(copy, part, triples[:, n::3]) for n, part in enumerate(parts)]
    return [load, *taken, op(_aggregate, *parts, result), save_rows(kit, i["dst"], result)]


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
