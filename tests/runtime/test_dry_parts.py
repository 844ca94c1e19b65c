"""Dry runs of which only a part is carried out: one result of two, counts that depend on counts."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from tests.collectives import kernels as C
from tests.runtime.test_dry_run import F32, same_as_full, world

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning"),
]


@nki.jit
def rounds_of_a_sum(x):
    """Of an activation the sums are wanted, and what they are sums of isn't."""
    tile, total = nl.load(x), C.sbuf((1, 1), F32)
    squares, rounds = C.sbuf(x.shape, F32), C.sbuf((1, 1), nl.int32)
    reset = nisa.reduce_cmd.reset_reduce
    nisa.activation(squares, nl.square, tile, reduce_op=nl.add, reduce_res=total, reduce_cmd=reset)
    nisa.tensor_copy(dst=rounds, src=total)
    out, count = C.hbm(x.shape, F32), nisa.register_alloc(rounds)
    for _ in nl.dynamic_range(count):
        nisa.core_barrier(data=out, cores=(0, 1))
    if nl.program_id(0) == 0:
        nl.store(out, squares)
    return out


def test_of_an_instruction_one_result_is_wanted():
    dry = same_as_full(world(1), rounds_of_a_sum, np.ones((1, 5), F32))
    assert dry.exchanges == {"nisa.core_barrier": 2 * 5}


@nki.jit
def there_and_back(x, counts, group):
    """Counts are made from an argument; what arrived decides what goes back."""
    n = counts.shape[1]
    src, there, back = (C.hbm((n, *x.shape[1:]), x.dtype) for _ in range(3))
    outward, homeward = C.hbm((3, n), nl.uint32), C.hbm((3, n), nl.uint32)
    starts, some = C.sbuf((1, n), nl.uint32), nl.load(counts)
    nisa.iota(dst=starts, pattern=[[x.shape[1], n]])
    nisa.dma_copy(dst=src, src=x)
    nisa.dma_copy(dst=outward[0:1], src=some)
    nisa.dma_copy(dst=outward[1:2], src=starts)
    nisa.dma_copy(dst=homeward[1:2], src=starts)
    ncc.all_to_all_v([src], [there], group, outward)
    nisa.dma_copy(dst=homeward[0:1], src=outward[2:3])
    ncc.all_to_all_v([there], [back], group, homeward)
    return back


def test_counts_that_depend_on_counts():
    """Known, they travel; of a TensorSpec nothing does, and everybody meets all the same."""
    x, made, group = np.ones((2, 5), F32), world(2), [[0, 1]]
    counts = nki.per_rank([np.array([[2, 3]], np.uint32), np.array([[4, 1]], np.uint32)])
    dry = same_as_full(made, there_and_back, x, counts, group)
    assert dry.exchanges == {"ncc.all_to_all_v": 8}
    unknown = nki.TensorSpec((1, 2), np.uint32)
    assert made.dry_run(there_and_back, x, unknown, group).exchanges == dry.exchanges
    too_many = nki.per_rank([np.array([[9, 3]], np.uint32), np.array([[4, 1]], np.uint32)])
    with pytest.raises(errors.OutOfBoundsError, match="the chunk from rank 0"):
        made.dry_run(there_and_back, nki.TensorSpec((2, 5), F32), too_many, group)
