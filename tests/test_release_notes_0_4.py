"""What AWS's simulator had to be corrected in (release notes of NKI 0.4.0).

One test per note, named by release; docs/releases.md lists them all.
"""

from __future__ import annotations

import dataclasses

import ml_dtypes
import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.dtypes.mx import pack_x4, unpack_x4
from nki_dist.errors import NkiValidationError
from tests.isa.helpers import numbers, output, run

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

BF16 = ml_dtypes.bfloat16
FP32_MIN = float(np.finfo(np.float32).min)


def test_0_4_0_dma_copy_skip_keeps_integer_bits():
    table = np.array([[2**31 - 1, 16777217, -5], [7, -(2**31), 2**24 + 3]], np.int32)
    rows = np.array([[1], [9], [0]], np.int32)

    def kernel(table, rows):
        index, dst = nl.load(rows), nl.ndarray((3, 3), dtype=nl.int32)
        nisa.memset(dst=dst, value=-1)
        source = table.ap(pattern=[[3, 3], [1, 3]], vector_offset=index, indirect_dim=0)
        nisa.dma_copy(dst=dst, src=source, oob_mode=nisa.oob_mode.skip)
        return output(dst)

    got = run(kernel, table, rows)
    assert got.dtype == np.int32
    assert np.array_equal(got, [table[1], [-1, -1, -1], table[0]])


def test_0_4_0_stream_shuffle_255_keeps_dst():
    x, before = numbers(1, (32, 6)), numbers(2, (32, 6))
    mask = [255] * 32
    mask[3], mask[30] = 5, 0

    def kernel(x, before):
        dst = nl.load(before)
        nisa.nc_stream_shuffle(dst=dst, src=nl.load(x), shuffle_mask=mask)
        return output(dst)

    want = before.copy()
    want[3], want[30] = x[5], x[0]
    assert np.array_equal(run(kernel, x, before), want)


@pytest.mark.parametrize("pattern", [False, True])
def test_0_4_0_local_gather_into_a_part_of_a_tile(pattern):
    x = numbers(3, (32, 40))
    index = np.random.default_rng(4).integers(0, 40, (32, 2)).astype(np.uint16)

    def kernel(x, index):
        whole = nl.ndarray((32, 64), dtype=nl.float32)
        nisa.memset(dst=whole, value=9.0)
        dst = whole.ap([[64, 32], [1, 32]], offset=16) if pattern else whole[:, 16:48]
        nisa.local_gather(dst, nl.load(x), nl.load(index))
        return output(whole)

    got = run(kernel, x, index)
    want = np.full((32, 64), 9, np.float32)
    for p in range(32):
        order = index[p // 16 * 16 : p // 16 * 16 + 16].T.reshape(-1)
        want[p, 16:48] = x[p, order]
    assert np.array_equal(got, want)


def test_0_4_0_matmul_of_three_and_four_dimensions_copies_everything():
    a, b = numbers(5, (24, 2, 3, 5)), numbers(6, (24, 4, 7))

    def kernel(a, b):
        dst = nl.ndarray((30, 4, 7), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=dst, stationary=nl.load(a), moving=nl.load(b))
        return output(nl.copy(dst))

    want = a.reshape(24, 30).astype(np.float64).T @ b.reshape(24, 28)
    assert np.allclose(run(kernel, a, b).reshape(30, 28), want, rtol=1e-5, atol=1e-4)


def test_0_4_0_quantize_to_float8_e4m3fn_x4():
    x = numbers(7, (32, 16), BF16)

    def kernel(x):
        packed = nl.ndarray((32, 4), dtype=nl.float8_e4m3fn_x4)
        scale = nl.ndarray((4, 4), dtype=nl.uint8)
        nisa.quantize_mx(dst=packed, src=nl.load(x), dst_scale=scale)
        return output(packed.view(nl.uint32)), output(scale)

    packed, scale = run(kernel, x, platform="trn3")
    values = unpack_x4(packed, nl.float8_e4m3fn_x4).reshape(4, 8, 4, 4)
    back = values * 2.0 ** (scale.astype(np.float64) - 127)[:, None, :, None]
    groups = x.astype(np.float64).reshape(4, 8, 4, 4)
    peak = np.abs(groups).max(axis=(1, 3), keepdims=True)
    assert (np.abs(back - groups) <= peak / 16).all()


@pytest.mark.parametrize("start", [0, 5, -3, 2**31 - 2])
def test_0_4_0_iota_and_affine_select_at_an_offset_in_a_register(start):
    x = numbers(8, (6, 8))

    def kernel(x, start):
        register = nisa.register_alloc(nl.load(start))
        count, kept = nl.ndarray((6, 2, 4), dtype=nl.int32), nl.ndarray((6, 8), dtype=nl.float32)
        nisa.iota(count, [[10, 2], [1, 4]], offset=register, channel_multiplier=-2)
        select = {"on_true_tile": nl.load(x), "on_false_value": -7, "cmp_op": nl.greater}
        nisa.affine_select(kept, [[-1, 8]], 1, offset=register, **select)
        return output(count), output(kept)

    count, kept = run(kernel, x, np.array([[start]], np.int32))
    p, w, c = np.ogrid[:6, :2, :4]
    assert np.array_equal(count, (start + 10 * w + c - 2 * p).astype(np.int64).astype(np.int32))
    p, c = np.ogrid[:6, :8]
    affine = (start + p - c).astype(np.int64).astype(np.int32)
    assert np.array_equal(kept, np.where(affine > 0, x, np.float32(-7)))


@pytest.mark.parametrize("dtype", [nl.float8_e4m3fn_x4, nl.float8_e5m2_x4])
def test_0_4_0_packed_types_multiply_on_trn3(dtype):
    a, b = numbers(9, (32, 64)), numbers(10, (32, 80))
    packed_a, packed_b = pack_x4(a, dtype), pack_x4(b, dtype)

    def kernel(a, b):
        dst = nl.ndarray((16, 20), dtype=nl.float32, buffer=nl.psum)
        tiles = []
        for t in (a, b):
            tile = nl.ndarray(t.shape, dtype=nl.uint32)
            nisa.dma_copy(dst=tile, src=t)
            scale = nl.ndarray((4, t.shape[1]), dtype=nl.uint8)
            nisa.memset(dst=scale, value=128)
            tiles += [tile.view(dtype), scale]
        nisa.nc_matmul_mx(dst, tiles[0], tiles[2], tiles[1], tiles[3])
        return output(nl.copy(dst))

    got = run(kernel, packed_a, packed_b, platform="trn3")
    ua, ub = (unpack_x4(p, dtype).astype(np.float64) for p in (packed_a, packed_b))
    want = 4 * np.einsum("kms,kns->mn", ua.reshape(32, 16, 4), ub.reshape(32, 20, 4))
    assert np.allclose(got, want, rtol=1e-5, atol=1e-3)


def test_0_4_0_dma_compute_scales_multiply_only():
    """No additive mode: scales other than 1 are refused."""
    a, b = numbers(11, (16, 8)), numbers(12, (16, 8))

    def kernel(a, b, scales):
        dst = nl.ndarray((16, 8), dtype=nl.float32)
        nisa.dma_compute(dst, [nl.load(a), nl.load(b)], nl.add, scales=scales)
        return output(dst)

    assert np.array_equal(run(kernel, a, b, [1.0, 1.0]), a + b)
    with pytest.raises(NkiValidationError, match="scale"):
        run(kernel, a, b, [1.0, 2.0])


def test_0_4_0_logical_and():
    a = np.array([[0.0, 0.0, 2.0, -3.0, np.nan]], np.float32)
    b = np.array([[0.0, 5.0, 0.0, 0.5, 1.0]], np.float32)

    def kernel(a, b):
        return output(nl.logical_and(nl.load(a), nl.load(b)))

    assert np.array_equal(run(kernel, a, b), [[0, 0, 0, 1, 1]])


def test_0_4_0_low_precision_is_exact_by_default():
    """bfloat16 rounds at every instruction, as on hardware (NKI_PRECISE_FP=1)."""
    x = np.array([[1.0, 3.0]], BF16)

    def kernel(x):
        tile = nl.load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=2.0**-8)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=2.0**-8)
        return output(tile)

    assert np.array_equal(run(kernel, x).astype(np.float32), [[1.0, 3.0]])


def test_0_4_0_frozen_dataclasses_are_made_and_are_cache_keys():
    @dataclasses.dataclass(frozen=True)
    class Shape(nl.NKIObject):
        rows: int

    def kernel(x, shape):
        return output(nl.load(x[0 : shape.rows]))

    x = numbers(13, (8, 3))
    assert np.array_equal(run(kernel, x, Shape(5)), x[:5])
    assert np.array_equal(run(kernel, x, Shape(2)), x[:2])


def test_0_4_0_transpose_engine_is_honoured():
    """The Tensor engine writes PSUM only, so asking for it with an SBUF result is refused."""
    x = numbers(14, (32, 32))

    def kernel(x, engine):
        dst = nl.ndarray((32, 32), dtype=nl.float32)
        nisa.nc_transpose(dst=dst, data=nl.load(x), engine=engine)
        return output(dst)

    assert np.array_equal(run(kernel, x, nisa.engine.vector), x.T)
    with pytest.raises(NkiValidationError, match="from SBUF to PSUM"):
        run(kernel, x, nisa.engine.tensor)


def test_0_4_0_device_print_of_one_dimension(capsys):
    def kernel(x):
        nl.device_print("line", x)
        return output(nl.load(x))

    run(kernel, np.arange(6, dtype=np.float32))
    assert "line" in capsys.readouterr().out


def test_0_4_0_sendrecv_takes_any_number_of_partitions():
    x = numbers(15, (2, 5, 7))

    def kernel(x):
        me = nl.program_id(0)
        out = nl.ndarray((2, 5, 7), dtype=nl.float32, buffer=nl.shared_hbm)
        got = nl.ndarray((5, 7), dtype=nl.float32)
        nisa.sendrecv(nl.load(x[me]), got, 1 - me, 1 - me, 0)
        nisa.dma_copy(dst=out[me], src=got)
        return out

    assert np.array_equal(run(kernel, x, lnc=2), x[::-1])


def test_0_4_0_dma_transpose_wants_the_rank_of_its_result():
    x = numbers(16, (16, 1, 4, 24), BF16)

    def kernel(x, shape):
        dst = nl.ndarray(shape, dtype=nl.bfloat16)
        nisa.dma_transpose(dst=dst, src=x, axes=(3, 1, 2, 0))
        return output(dst)

    assert np.array_equal(run(kernel, x, (24, 1, 4, 16)), x.transpose(3, 1, 2, 0))
    with pytest.raises(NkiValidationError, match="shape"):
        run(kernel, x, (24, 4, 16))
