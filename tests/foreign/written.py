"""Kernels of our own with constructs of published ones that aren't built around one instruction.

Each is a `Written`: a kernel, its arrays, and what has to come out. The kernels are as those are
that have the construct, and smaller.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.dtypes.mx import unpack_x4
from tests.foreign import syntax

BF16 = ml_dtypes.bfloat16


@dataclass
class Written:
    """A kernel with its check.

    Attributes:
        wanted: of the arrays: what it returns, as an array or a tuple of them.
        tolerance: relative and absolute.
    """

    kernel: Callable[..., Any]
    arrays: tuple[Any, ...]
    wanted: Callable[..., Any]
    tolerance: float = 0.0
    lnc: int = 1
    platform: str = "trn2"

    def launch(self) -> Any:
        return nki.simulate(nki.jit(self.kernel, platform_target=self.platform))[self.lnc]

    def run(self) -> Any:
        """Compare its results; the compiled kernel."""
        kernel, arrays = self.launch(), self.arrays
        compiled = kernel.compile(*arrays)
        got = kernel(*arrays)
        wanted = self.wanted(*arrays)
        got = got if isinstance(got, (tuple, list)) else (got,)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        for found, want in zip(got, wanted, strict=True):
            found, want = np.asarray(found).astype(np.float64), np.asarray(want, np.float64)
            assert found.shape == want.shape
            np.testing.assert_allclose(found, want, rtol=self.tolerance, atol=self.tolerance)
        return compiled


def whole(*shape: int, seed: int = 0, dtype: Any = np.float32, below: int = 6) -> np.ndarray:
    """Small whole numbers from 1 on."""
    return np.random.default_rng(seed).integers(1, below, shape).astype(dtype)


# ---- two cores -----------------------------------------------------------------------------------


def exchanges(x):
    """Each core sends its tile of three and of four dimensions, and adds what it gets."""
    me = nl.program_id(0)
    out = nl.ndarray((2, 8, 12), dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((8, 12), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(total, x[me])
    for shape in ((8, 3, 4), (8, 2, 2, 3)):
        mine = nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)
        theirs = nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(mine, x[me].reshape(shape))
        nisa.sendrecv(
            src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0
        )
        nisa.tensor_tensor(total, total, theirs.reshape((8, 12)), nl.add)
    nisa.dma_copy(out[me], total)
    return out


def waits_with_an_index(x):
    """A barrier that names a tile of SBUF: what the other core stored is there afterwards."""
    me = nl.program_id(0)
    shared = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    index = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(index, value=3)
    tile = nl.ndarray((8, 12), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x[me])
    nisa.dma_copy(shared[me], tile)
    nisa.core_barrier(index, (0, 1))
    nisa.dma_copy(tile, shared[1 - me])
    nki.isa.dma_copy(out[me], tile)
    return out


# ---- packed types --------------------------------------------------------------------------------

LEFT, RIGHT = nl.float4_e2m1fn_x4, nl.float8_e5m2_x4


def multiplies_packed(a, b, sa, sb):
    """Operands and scales of three dimensions, the result in bfloat16."""
    k = a.shape[0]
    stationary = nl.ndarray((k, 2, 4), dtype=LEFT, buffer=nl.sbuf)
    moving = nl.ndarray((k, 3, 4), dtype=RIGHT, buffer=nl.sbuf)
    scale_a = nl.ndarray((k, 2, 4), dtype=nl.uint8, buffer=nl.sbuf)
    scale_b = nl.ndarray((k, 3, 4), dtype=nl.uint8, buffer=nl.sbuf)
    nisa.dma_copy(stationary, a.reshape((k, 2, 4)))
    nisa.dma_copy(moving, b.reshape((k, 3, 4)))
    nisa.dma_copy(scale_a, sa.reshape((k, 2, 4)))
    nisa.dma_copy(scale_b, sb.reshape((k, 3, 4)))
    bank = nl.ndarray((8, 12), dtype=nl.bfloat16, buffer=nl.psum)
    nisa.nc_matmul_mx(bank, stationary, moving, scale_a, scale_b)
    tile = nl.ndarray((8, 12), dtype=nl.bfloat16, buffer=nl.sbuf)
    nisa.tensor_copy(tile, bank)
    out = nl.ndarray((8, 12), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def product(a, b, sa, sb, left=LEFT, right=RIGHT):
    """Sums over groups of 8 rows, which share a scale for each column."""
    k = len(a)
    parts = [
        unpack_x4(values.view(dtype.storage), dtype).astype(np.float64).reshape(k // 8, 8, -1, 4)
        for values, dtype in ((a, left), (b, right))
    ]
    rows = [g // 4 * 32 + g % 4 for g in range(k // 8)]
    x, y = (2.0 ** (scales[rows].astype(np.float64) - 127) for scales in (sa, sb))
    return np.einsum("gmn,gm,gn->mn", np.einsum("gpmx,gpnx->gmn", *parts), x, y)


def views_bytes_as_packed(a, b, sa, sb):
    """float8 tiles, four of whose elements are seen as one packed one."""
    k = a.shape[0]
    left = nl.ndarray((k, 32), dtype=nl.float8_e4m3fn, buffer=nl.sbuf)
    right = nl.ndarray((k, 48), dtype=nl.float8_e4m3fn, buffer=nl.sbuf)
    scale_a = nl.ndarray((k, 8), dtype=nl.uint8, buffer=nl.sbuf)
    scale_b = nl.ndarray((k, 12), dtype=nl.uint8, buffer=nl.sbuf)
    nisa.dma_copy(left, a)
    nisa.dma_copy(right, b)
    nisa.dma_copy(scale_a, sa)
    nisa.dma_copy(scale_b, sb)
    bank = nl.ndarray((8, 12), dtype=nl.float32, buffer=nl.psum)
    kind = nl.float8_e4m3fn_x4
    nisa.nc_matmul_mx(bank, left.view(kind), right.view(kind), scale_a, scale_b)
    tile = nl.ndarray((8, 12), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(tile, bank)
    out = nl.ndarray((8, 12), dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def eights(a, b, sa, sb):
    return product(
        a.view(np.uint32), b.view(np.uint32), sa, sb, nl.float8_e4m3fn_x4, nl.float8_e4m3fn_x4
    )


def scales(columns: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(125, 130, (32, columns)).astype(np.uint8)


# ---- names of the language -----------------------------------------------------------------------


def asks_the_platform(x):
    """What kernels ask before they choose: the generation, the tile's sizes, a mode."""
    mode = nisa.matmul_perf_mode.none
    newest = nisa.get_nc_version() >= nisa.nc_version.gen3
    assert newest and mode not in (nisa.matmul_perf_mode.double_row,)
    columns, rest = divmod(x.shape[1], nl.tile_size.pmax)
    print("columns", columns, rest)
    tile = nl.ndarray((8, 12), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x, dge_mode=nisa.dge_mode.none)
    nisa.tensor_copy(tile, tile, engine=nisa.scalar_engine)
    least = nl.minimum(tile, tile)
    nisa.tensor_tensor(tile, least, tile, nl.add, engine=nisa.gpsimd_engine)
    out = nl.ndarray((8, 12), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


def activates(x):
    """Functions of the Scalar engine, as a kernel picks them from a table."""
    out = nl.ndarray((2, 8, 12), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((8, 12), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    functions = {"silu": nl.silu, "gelu": nl.gelu_apprx_sigmoid}
    names = ("silu", "gelu")
    for n in range(2):
        result = nl.ndarray((8, 12), dtype=x.dtype, buffer=nl.sbuf)
        nisa.activation(result, functions[names[n]], tile, scale=0.25)
        nisa.dma_copy(out[n], result)
    return out


def activated(x):
    y = 0.25 * x.astype(np.float64)
    return np.stack([y / (1 + np.exp(-y)), y / (1 + np.exp(-1.702 * y))])


def of_five_dimensions(x):
    """Tensors of five dimensions in SBUF and HBM, and a float8 tile on the way."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    small = nl.ndarray(x.shape, dtype=nl.float8_e4m3, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    nisa.tensor_copy(small, tile)
    nisa.tensor_copy(tile, small)
    nisa.dma_copy(out, tile)
    return out


KERNELS = {
    "exchanges": Written(
        exchanges, (whole(2, 8, 12, dtype=BF16),), lambda x: x + 2 * x[::-1], lnc=2
    ),
    "waits_with_an_index": Written(
        waits_with_an_index, (whole(2, 8, 12),), lambda x: x[::-1], lnc=2
    ),
    "multiplies_packed": Written(
        multiplies_packed,
        (
            whole(32, 8, dtype=np.uint16, below=1 << 15).view(LEFT.dtype),
            (whole(32, 12, dtype=np.uint32, below=1 << 30) & np.uint32(0x33333333)).view(RIGHT.dtype),
            scales(8, 1),
            scales(12, 2),
        ),
        product,
        tolerance=1e-2,
        platform="trn3",
    ),
    "views_bytes_as_packed": Written(
        views_bytes_as_packed,
        (
            whole(32, 32).astype(ml_dtypes.float8_e4m3fn),
            whole(32, 48, seed=1).astype(ml_dtypes.float8_e4m3fn),
            scales(8, 1),
            scales(12, 2),
        ),
        eights,
        tolerance=1e-5,
        platform="trn3",
    ),
    "asks_the_platform": Written(asks_the_platform, (whole(8, 12),), lambda x: 2 * x),
    "activates": Written(activates, (whole(8, 12),), activated, tolerance=2e-2),
    "adds_halves": Written(syntax.adds_halves, (whole(8, 12),), lambda x: 2 * x + 3),
    "walks": Written(syntax.walks, (whole(8, 13),), lambda x: x + 1),
    "of_five_dimensions": Written(of_five_dimensions, (whole(4, 2, 3, 2, 5),), lambda x: x),
}
