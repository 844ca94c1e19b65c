"""Direct allocation: addresses by function, modulo allocation, reuse."""

from __future__ import annotations

import numpy as np
import pytest

from nki_dist.compat.beta1 import compiler as ncc
from nki_dist.compat.beta1 import isa as nisa
from nki_dist.compat.beta1 import language as nl
from nki_dist.errors import NkiValidationError
from tests.beta1.helpers import close, normal, run


def addresses(tensor):
    return [t.access.storage.address for t in tensor.tiles.flat]


def test_modulo_allocation_gives_documented_addresses():
    seen = {}

    def kernel(a):
        sbuf = ncc.sbuf.mod_alloc(base_addr=256, num_free_tiles=(2,))
        seen["sbuf"] = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.bfloat16, buffer=sbuf)
        psum = ncc.psum.mod_alloc(base_bank=1, num_bank_tiles=(3,))
        seen["psum"] = nl.ndarray((4, nl.par_dim(128), 512), dtype=nl.float32, buffer=psum)
        both = ncc.sbuf.mod_alloc(base_addr=4096, num_par_tiles=(1, 2), num_free_tiles=(3, 1))
        seen["both"] = nl.ndarray((3, 2, nl.par_dim(64), 8), dtype=nl.float32, buffer=both)

    run(kernel, normal(2, 2))
    assert addresses(seen["sbuf"]) == [(0, 256 + n % 2 * 1024) for n in range(4)]
    assert addresses(seen["psum"]) == [(0, (1 + n % 3) * 2048) for n in range(4)]
    assert addresses(seen["both"]) == [
        (64 * (j % 2), 4096 + 32 * i) for i in range(3) for j in range(2)
    ]


def test_a_double_buffered_loop():
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tiles = nl.ndarray(
            (4, nl.par_dim(32), 16), dtype=a.dtype,
            buffer=ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(2,)),
        )  # fmt: skip
        results = nl.ndarray(
            (4, nl.par_dim(32), 16), dtype=a.dtype,
            buffer=ncc.sbuf.alloc(lambda idx, pdim, fdim: (32 * (idx[0] % 4), 8192)),
        )  # fmt: skip
        for n in nl.affine_range(4):
            tiles[n] = nl.load(a[n])
            results[n] = nl.exp(tiles[n])
            nl.store(out[n], results[n])
        return out

    a = normal(4, 32, 16)
    close(run(kernel, a), np.exp(a))


def test_addresses_counted_in_a_loop_advance_once():
    """AWS's tracer runs a loop body once, so `at` below doesn't grow with the iterations."""
    seen = []

    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        at = 0
        for n in nl.sequential_range(3):
            for half in nl.static_range(2):
                place = ncc.sbuf.mod_alloc(base_addr=at)
                tile = nl.ndarray((nl.par_dim(32), 8), dtype=a.dtype, buffer=place)
                seen.append(tile.access.storage.address)
                at += 64
                tile[...] = nl.load(a[n, :, nl.ds(half * 8, 8)])
                nl.store(out[n, :, nl.ds(half * 8, 8)], tile)
        return out

    a = normal(3, 32, 16)
    close(run(kernel, a), a)
    assert seen == [(0, 0), (0, 64)] * 3


def test_automatic_allocation_by_its_long_name():
    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=ncc.sbuf.auto_alloc())
        tile[...] = nl.load(a)
        product = nl.ndarray((16, 16), dtype=nl.float32, buffer=ncc.psum.auto_alloc())
        product[...] = nisa.nc_matmul(tile, tile)
        nl.store(out[0:16, :], product)
        nl.store(out[16:32, :], tile[16:32, :])
        return out

    a = normal(32, 16)
    close(run(kernel, a), np.concatenate([a.T @ a, a[16:]]), 1e-5)


@pytest.mark.parametrize(
    "place, message",
    [
        (lambda: ncc.sbuf.alloc(lambda i, p, f: (0, 0, 0)), "must be \\(start_partition, byte"),
        (lambda: ncc.sbuf.alloc(lambda i, p, f: (16, 0)), "placed at partition 16; allowed: 0, 64"),
        (lambda: ncc.sbuf.alloc(lambda i, p, f: (0, -4)), "none negative"),
        (lambda: ncc.psum.alloc(lambda i, p, f: (8, 0, 0)), "8 banks of 2048 bytes"),
        (lambda: ncc.psum.alloc(lambda i, p, f: (0, 0, 2000)), "can't leave its bank"),
        (lambda: ncc.sbuf.mod_alloc(base_addr=0, num_free_tiles=(1, 2)), "one per dimension"),
    ],
)
def test_impossible_places(place, message):
    def kernel(a):
        nl.ndarray((2, nl.par_dim(64), 16), dtype=nl.float32, buffer=place())

    with pytest.raises(NkiValidationError, match=message) as caught:
        run(kernel, normal(2, 2))
    assert "test_allocation.py:" in caught.value.location
