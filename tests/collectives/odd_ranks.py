"""Programs in which one rank of many does something else; `# told` marks the line of the error.

Used by the tests, and by `python -m bench.wrong_ranks`, which measures what the errors take.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import CollectiveMismatchError, DeadlockError
from tests.collectives.kernels import hbm, staged

X = np.arange(8, dtype=np.float32).reshape(2, 4)
SPEC = nki.TensorSpec(X.shape, nl.float32)


def times(counts, column):
    """A register with a number of `counts` (1, 2)."""
    tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=counts[0:1, column : column + 1])
    register = nisa.register_alloc()
    nisa.register_load(register, tile)
    return register


@nki.jit
def leaves_out(x, counts, groups):
    src, dst = staged(x, "hbm"), hbm(x.shape, x.dtype)
    for _ in nl.dynamic_range(times(counts, 0)):
        ncc.all_reduce([src], [dst], groups, nl.add)  # told
    return dst


@nki.jit
def another_operation(x, counts, groups):
    src, dst = staged(x, "hbm"), hbm(x.shape, x.dtype)
    big = hbm((x.shape[0] * len(groups[0]), x.shape[1]), x.dtype)
    for _ in nl.dynamic_range(times(counts, 0)):
        ncc.all_reduce([src], [dst], groups, nl.add)
    ncc.all_gather([src], [big], groups, 0)  # told
    return big


@nki.jit
def another_size(x, counts, groups):
    src, dst = staged(x, "hbm"), hbm(x.shape, x.dtype)
    for _ in nl.dynamic_range(times(counts, 0)):
        ncc.all_reduce([src], [dst], groups, nl.add)
    ncc.all_reduce([src[0:1]], [dst[0:1]], groups, nl.add)  # told
    return dst


@nki.jit
def another_order(x, counts, groups):
    src, dst = staged(x, "hbm"), hbm(x.shape, x.dtype)
    for _ in nl.dynamic_range(times(counts, 0)):
        ncc.all_reduce([src], [dst], groups, nl.add)
    ncc.all_reduce([src], [dst], groups, nl.maximum)  # told
    for _ in nl.dynamic_range(times(counts, 1)):
        ncc.all_reduce([src], [dst], groups, nl.add)
    return dst


@nki.jit
def one_more(x, counts, groups):
    """Most have finished when one still waits."""
    src, dst = staged(x, "hbm"), hbm(x.shape, x.dtype)
    for _ in nl.dynamic_range(times(counts, 1)):
        ncc.all_reduce([src], [dst], groups, nl.add)  # told
    return dst


@nki.jit
def rows_and_columns(x, counts, groups, others):
    """Groups of both kinds in turn: who waits for whom goes through several groups."""
    src, dst = staged(x, "hbm"), hbm(x.shape, x.dtype)
    for _ in nl.dynamic_range(times(counts, 0)):
        ncc.all_reduce([src], [dst], groups, nl.add)
    ncc.all_reduce([dst], [src], others, nl.maximum)  # told
    ncc.all_gather([src], [hbm((x.shape[0] * len(groups[0]), x.shape[1]), x.dtype)], groups, 0)
    return dst


KERNELS = {
    leaves_out: DeadlockError,
    another_operation: CollectiveMismatchError,
    another_size: CollectiveMismatchError,
    another_order: CollectiveMismatchError,
    one_more: DeadlockError,
}


def counts_of(ranks: int, odd: int) -> Any:
    """The kernels' second argument; `odd` is the rank that differs, or -1 for none."""
    usual, other = np.array([[1, 0]], np.int32), np.array([[0, 1]], np.int32)
    return nki.per_rank([(other if r == odd else usual).copy() for r in range(ranks)])


@nki.jit
def any_order(x, counts, rounds, groups, others, pairs, kinds):
    """Collectives of several kinds, each as often as the rank's `counts` (1, n) say."""
    src, dst = staged(x, "hbm"), hbm(x.shape, x.dtype)
    big = hbm((x.shape[0] * len(groups[0]), x.shape[1]), x.dtype)
    for column in range(rounds):
        for _ in nl.dynamic_range(times(counts, column)):
            kind = kinds[column]
            if kind == "reduce":
                ncc.all_reduce([src], [dst], groups, nl.add)
            elif kind == "other groups":
                ncc.all_reduce([src], [dst], others, nl.add)
            elif kind == "gather":
                ncc.all_gather([src], [big], groups, 0)
            elif kind == "pairs":
                ncc.collective_permute([src], [dst], pairs)
            else:
                ncc.collective_permute_implicit([[src]], [[dst]], groups)
    return dst
