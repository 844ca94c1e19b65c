"""quantize_mx and nc_matmul_mx against a float64 model of the scaling groups."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from helpers import numbers, run

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.dtypes.mx import unpack_x4
from nki_dist.errors import NkiValidationError

BF16 = ml_dtypes.bfloat16
E4M3, E5M2 = ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
TARGETS = {nl.float8_e4m3fn_x4: (E4M3, 8), nl.float8_e5m2_x4: (E5M2, 15)}


def rows_of(partitions):
    """Partition of the scale tile that belongs to each group of 8 partitions."""
    return [g // 4 * 32 + g % 4 for g in range(partitions // 8)]


def quantize(x, dtype, rows=None, start=0, scale_dtype=nl.uint8, platform="trn3", count=None):
    partitions, count = len(x), count or x[0].size // 4

    def kernel(x):
        tile = nl.load(x)
        packed = nl.ndarray((partitions, count), dtype=dtype)
        scales = nl.ndarray((128, count), dtype=scale_dtype)
        nisa.memset(scales, 9 if scale_dtype == nl.uint8 else 2)
        nisa.quantize_mx(packed, tile, scales[start : start + (rows or 128 - start)])
        out = nl.ndarray((partitions, count), dtype=nl.uint32, buffer=nl.shared_hbm)
        out_scales = nl.ndarray((128, count), dtype=nl.uint8, buffer=nl.shared_hbm)
        nisa.dma_copy(out, packed.view(nl.uint32))
        nisa.dma_copy(out_scales, scales.view(nl.uint8))
        return out, out_scales

    packed, scales = run(kernel, x, platform=platform)
    return np.asarray(packed), np.asarray(scales)


@pytest.mark.parametrize("dtype", TARGETS)
@pytest.mark.parametrize("source", [BF16, np.float16])
@pytest.mark.parametrize("partitions", [32, 96, 128])
def test_quantize(partitions, source, dtype):
    element, largest_exponent = TARGETS[dtype]
    x = numbers(partitions, (partitions, 7, 12), source)
    x = (x.astype(np.float32) * 2.0 ** np.arange(-7, 5).repeat(7).reshape(7, 12)).astype(source)
    x[8:16, 0, 4:8] = 0
    packed, scales = quantize(x, dtype)
    values = unpack_x4(packed, dtype).reshape(partitions // 8, 8, 21, 4)
    groups = x.astype(np.float64).reshape(partitions // 8, 8, 21, 4)
    peak = np.abs(groups).max(axis=(1, 3))
    exponent = np.full(peak.shape, -127.0)
    exponent[peak > 0] = np.floor(np.log2(peak[peak > 0])) - (largest_exponent - 1)
    assert np.array_equal(scales[rows_of(partitions)], exponent + 127)
    others = [r for r in range(128) if r not in rows_of(partitions)]
    assert (scales[others] == 9).all()
    want = (groups / 2.0 ** exponent[:, None, :, None]).astype(np.float32).astype(element)
    assert np.array_equal(values, want.astype(np.float32))


def test_scales_packed_at_an_offset_and_as_e8m0():
    x = numbers(1, (64, 16), BF16)
    plain = quantize(x, nl.float8_e4m3fn_x4)[1]
    shifted = quantize(x, nl.float8_e4m3fn_x4, start=12)[1]
    assert np.array_equal(shifted[12:16], plain[0:4])
    assert np.array_equal(shifted[44:48], plain[32:36]) and (shifted[:12] == 9).all()
    typed = quantize(x, nl.float8_e4m3fn_x4, scale_dtype=nl.float8_e8m0fnu)[1]
    assert np.array_equal(typed[:4], plain[:4]) and (typed[4:32] == 128).all()
    small = quantize(x[:32], nl.float8_e4m3fn_x4, rows=4)[1]
    assert np.array_equal(small[:4], plain[:4])


def test_quantize_extremes():
    x = np.zeros((32, 16), BF16)
    x[0, 0], x[1, 1] = 3.38e38, -1.0
    x[0, 4] = 1e-40
    x[0, 8] = np.inf
    x[0, 12] = -0.0
    packed, scales = quantize(x, nl.float8_e4m3fn_x4)
    assert scales[0].tolist() == [127 + 127 - 7, 0, 255, 0]
    values = unpack_x4(packed, nl.float8_e4m3fn_x4)
    assert values[0, 0] == 256.0  # 254.3 rounded to three bits, without saturating
    assert np.array_equal(values[:, 12:], np.zeros((32, 4), np.float32))


@pytest.mark.parametrize(
    "shape, options, message",
    [
        ((32, 16), {"count": 5}, r"dst has 32 partitions and 5 elements .* makes 32 and 4"),
        ((64, 16), {"rows": 32}, "dst_scale has 32 partitions; .* over 36"),
        ((32, 16), {"start": 6}, "dst_scale starts at partition 6, 6 into its quadrant"),
        ((32, 16), {"start": 16}, "16 into its quadrant; allowed: 0, 4, 8 or 12"),
    ],
)
def test_quantize_refuses(shape, options, message):
    with pytest.raises(NkiValidationError, match=message):
        quantize(numbers(2, shape, BF16), nl.float8_e4m3fn_x4, **options)


# ---- nc_matmul_mx -----------------------------------------------------------------------------


def bits(seed, shape, dtype):
    """Random packed elements without NaN and infinity, as integers."""
    code = np.random.default_rng(seed).integers(0, 256, (*shape, dtype.itemsize)).astype(np.uint8)
    if dtype is not nl.float4_e2m1fn_x4:
        code &= 0xB7 if dtype is nl.float8_e5m2_x4 else 0xBF
    return code.view(dtype.raw)[..., 0]


def matmul_mx(
    a, b, dtypes, sa, sb, dst_dtype=nl.float32, times=1, rows=None, platform="trn3", **options
):
    def kernel(a, b, sa, sb):
        ta, tb = [nl.load(t).view(d) for t, d in zip((a, b), dtypes, strict=True)]
        la, lb = nl.load(sa), nl.load(sb)
        if rows is not None:
            la, lb = la[:rows], lb[:rows]
        shape = (ta.free_size, tb.free_size)
        psum = nl.ndarray(shape, dtype=dst_dtype, buffer=nl.psum)
        for _ in range(times):
            nisa.nc_matmul_mx(psum, ta, tb, la, lb, **options)
        tile = nl.ndarray(shape, dtype=dst_dtype)
        nisa.tensor_copy(tile, psum)
        out = nl.ndarray(shape, dtype=dst_dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out

    return np.asarray(run(kernel, a, b, sa, sb, platform=platform))


def reference(a, b, dtypes, sa, sb):
    """Sum over groups of scale times scale times the dot product of their 32 values."""
    k = len(a)
    values = [
        unpack_x4(t, d).astype(np.float64).reshape(k // 8, 8, -1, 4)
        for t, d in zip((a, b), dtypes, strict=True)
    ]
    dots = np.einsum("gpmx,gpnx->gmn", *values)
    left, right = (2.0 ** (s[rows_of(k)].astype(np.float64) - 127) for s in (sa, sb))
    return np.einsum("gmn,gm,gn->mn", dots, left, right)


def operands(k, m, n, dtypes, seed=0):
    rng = np.random.default_rng(seed)
    scales = [rng.integers(120, 134, (k, size)).astype(np.uint8) for size in (m, n)]
    return bits(seed + 1, (k, m), dtypes[0]), bits(seed + 2, (k, n), dtypes[1]), *scales


PACKED = [nl.float8_e4m3fn_x4, nl.float8_e5m2_x4, nl.float4_e2m1fn_x4]


@pytest.mark.parametrize("left", PACKED)
@pytest.mark.parametrize("right", PACKED)
@pytest.mark.parametrize("sizes", [(32, 2, 1), (96, 30, 77), (128, 128, 512)])
def test_product(sizes, left, right):
    a, b, sa, sb = operands(*sizes, (left, right))
    want = reference(a, b, (left, right), sa, sb)
    got = matmul_mx(a, b, (left, right), sa, sb)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_unused_scale_partitions_do_not_matter():
    kinds = (PACKED[0], PACKED[0])
    a, b, sa, sb = operands(64, 8, 20, kinds)
    got = matmul_mx(a, b, kinds, sa, sb)
    for scale in (sa, sb):
        scale[[r for r in range(64) if r not in rows_of(64)]] = 255
    assert np.array_equal(got, matmul_mx(a, b, kinds, sa, sb))
    sa[33, 3] = 255
    got = matmul_mx(a, b, kinds, sa, sb)
    assert np.isnan(got[3]).all() and np.isnan(got).sum() == 20


def test_accumulation_destination_and_tiling():
    kinds = (PACKED[0], PACKED[2])
    a, b, sa, sb = operands(32, 8, 20, kinds)
    once = matmul_mx(a, b, kinds, sa, sb)
    np.testing.assert_allclose(matmul_mx(a, b, kinds, sa, sb, times=3), 3 * once, rtol=1e-6)
    assert np.array_equal(matmul_mx(a, b, kinds, sa, sb, times=3, accumulate=False), once)
    tiled = matmul_mx(a, b, kinds, sa, sb, tile_position=(96, 0), tile_size=(32, 128))
    assert np.array_equal(tiled, once)


def test_long_moving_operand():
    kinds = (PACKED[0], PACKED[0])
    a, b, sa, sb = operands(32, 2, 4096, kinds)
    want = reference(a, b, kinds, sa, sb)
    got = matmul_mx(a, b, kinds, sa, sb)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_quantize_then_multiply():
    x, y = numbers(4, (128, 64 * 4), BF16), numbers(5, (128, 96 * 4), BF16)

    def kernel(x, y):
        tiles = []
        for source in (x, y):
            count = source.shape[1] // 4
            packed = nl.ndarray((128, count), dtype=nl.float8_e4m3fn_x4)
            scale = nl.ndarray((128, count), dtype=nl.float8_e8m0fnu)[2 * len(tiles) :]
            nisa.quantize_mx(packed, nl.load(source), scale)
            tiles += [packed, scale]
        psum = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(psum, tiles[0], tiles[2], tiles[1], tiles[3])
        tile = nl.ndarray((64, 96), dtype=nl.float32)
        nisa.tensor_copy(tile, psum)
        out = nl.ndarray((64, 96), dtype=nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out

    got = run(kernel, x, y, platform="trn3")
    want = np.einsum(
        "pmx,pnx->mn",
        x.astype(np.float64).reshape(128, 64, 4),
        y.astype(np.float64).reshape(128, 96, 4),
    )
    assert np.abs(got - want).max() < 0.05 * np.abs(want).max()


@pytest.mark.parametrize(
    "sizes, options, message",
    [
        ((64, 8, 20), {"rows": 32}, "stationary_scale has 32 partitions; .* over 36"),
        ((32, 8, 20), {"tile_size": (32, 64), "tile_position": (0, 0)}, "column size must be 128"),
    ],
)
def test_matmul_mx_refuses(sizes, options, message):
    kinds = (PACKED[0], PACKED[0])
    a, b, sa, sb = operands(*sizes, kinds)
    with pytest.raises(NkiValidationError, match=message):
        matmul_mx(a, b, kinds, sa, sb, **options)


def test_matmul_mx_shapes_and_types():
    kinds = (PACKED[0], PACKED[0])
    a, b, sa, sb = operands(64, 8, 20, kinds)
    with pytest.raises(NkiValidationError, match="stationary has 32 partitions, moving 64"):
        matmul_mx(a[:32], b, kinds, sa, sb)
    with pytest.raises(NkiValidationError, match=r"moving_scale has 19 elements .* has 20 packed"):
        matmul_mx(a, b, kinds, sa, sb[:, :19])
    with pytest.raises(NkiValidationError, match="stationary_scale has dtype int8"):
        matmul_mx(a, b, kinds, sa.astype(np.int8), sb)
    with pytest.raises(NkiValidationError, match="moving has dtype uint32; allowed: float4"):
        matmul_mx(a, b, (PACKED[0], nl.uint32), sa, sb)
