"""What a dry run says of accesses of both cores that nothing orders."""

from __future__ import annotations

import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.hosts import kernels as H
from tests.runtime.test_dry_run import F32, C, world


@nki.jit
def both_store(x):
    """Both cores store to all of `out`."""
    out = C.hbm(x.shape, x.dtype)
    tile = C.sbuf(x.shape, x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    nisa.dma_copy(dst=out, src=tile)
    return out


def test_overlaps_are_left_to_a_full_run():
    dry = world(1).dry_run(both_store, nki.TensorSpec((4, 6), F32))
    assert len(dry.overlaps) == 1
    assert "test_dry_overlaps.py" in dry.overlaps[0]
    assert "in no order" in str(dry)
    assert dry.may_overlap == ()
    halves = world(1).dry_run(H.add_halves, np.ones((4, 6), F32), np.ones((4, 6), F32))
    assert halves.overlaps == halves.may_overlap == ()


@nki.jit
def own_heads(x):
    """Each core goes through heads of its own, whose numbers are registers."""
    out = C.hbm(x.shape, x.dtype)
    half = x.shape[0] // 2

    def body(head):
        tile = C.sbuf((x.shape[1], x.shape[2]), x.dtype)
        nisa.dma_copy(dst=tile, src=x[nl.ds(head, 1)])
        nisa.dma_copy(dst=out[nl.ds(head, 1)], src=tile)

    nl.fori_loop(nl.program_id(0) * half, (nl.program_id(0) + 1) * half, body)
    return out


def test_run_time_addresses_may_overlap():
    """That heads are disjoint isn't known before a run: no more is said than that."""
    x = np.arange(4 * 6 * 5, dtype=F32).reshape(4, 6, 5)
    np.testing.assert_array_equal(world(1).run(own_heads, x)[0], x)
    dry = world(1).dry_run(own_heads, nki.TensorSpec(x.shape, F32))
    assert dry.overlaps == () and len(dry.may_overlap) == 1
    assert "maybe touched by both cores of a rank in no order" in str(dry)
