"""Helpers of tests of matmuls that add to one tile: kernels' pieces, and sums by NumPy."""

from itertools import pairwise

import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.linking.blas import one_blas_thread

PARTS, M, N = 5, 67, 133


def numbers(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def loaded(src):
    tile = nl.ndarray(src.shape, dtype=src.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=src)
    return tile


def stored(dst, src):
    tile = nl.ndarray(src.shape, dtype=dst.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=src)
    nisa.dma_copy(dst=dst, src=tile)


def output(*shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm)


def tile_of(columns=N, rows=M):
    return nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.psum)


def tiles(x):
    """All of a (parts, 128, columns) input in SBUF."""
    return [loaded(x[n]) for n in range(x.shape[0])]


def product(a, b):
    """What BLAS makes of a contraction (K, M), (K, N) with one thread."""
    a, b = (np.ascontiguousarray(x.reshape(-1, x.shape[-1]), np.float32) for x in (a, b))
    with one_blas_thread():
        return a.T @ b


def added(a, b, *cuts):
    """The same, with the contraction cut before these parts."""
    edges = [0, *cuts, len(a)]
    total = product(a[: edges[1]], b[: edges[1]])
    for low, high in pairwise(edges[1:]):
        total = total + product(a[low:high], b[low:high])
    return total


def everywhere(kernel, *args, **options):
    """What it returns, which is the same on every host that runs in this process."""
    results = []
    for run in (nki.simulate, nki.debug, nki.record):
        out = run(kernel)(*[np.copy(x) if isinstance(x, np.ndarray) else x for x in args])
        out = out.outputs if run is nki.record else out
        results.append(out if isinstance(out, tuple) else (out,))
    for other in results[1:]:
        assert [x.tobytes() for x in other] == [x.tobytes() for x in results[0]]
    return results[0]


A, B = numbers(PARTS, 128, M), numbers(PARTS, 128, N, seed=1)
ONE, CUTS = added(A, B), {n: added(A, B, n) for n in range(1, PARTS)}
