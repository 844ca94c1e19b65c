"""What AWS's simulator had to be corrected in (release notes of NKI 0.5.0 and 0.6.0).

One test per note, named by release; docs/releases.md lists them all.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError, OutOfBoundsError, UninitializedReadError
from tests.isa.helpers import numbers, output, run

BF16 = ml_dtypes.bfloat16
FP32_MIN = float(np.finfo(np.float32).min)


# ---- 0.5.0 --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", nisa.oob_mode)
def test_0_5_0_dma_copy_of_packed_types_out_of_bounds(mode):
    bits = np.random.default_rng(17).integers(0, 2**31, (6, 5)).astype(np.uint32)
    rows = np.array([[5], [6], [0]], np.int32)

    def kernel(table, rows):
        dst = nl.ndarray((3, 5), dtype=nl.uint32)
        nisa.memset(dst=dst, value=7)
        source = table.view(nl.float8_e4m3fn_x4)
        source = source.ap([[5, 3], [1, 5]], vector_offset=nl.load(rows), indirect_dim=0)
        nisa.dma_copy(dst=dst.view(nl.float8_e4m3fn_x4), src=source, oob_mode=mode)
        return output(dst)

    if mode is nisa.oob_mode.error:
        with pytest.raises(OutOfBoundsError, match="6"):
            run(kernel, bits, rows, platform="trn3")
        return
    want = [bits[5], np.full(5, 7), bits[0]]
    assert np.array_equal(run(kernel, bits, rows, platform="trn3"), want)


def test_0_5_0_convolution_by_matmuls_of_shifted_windows():
    """Operands of three dimensions that are windows into a larger tile."""
    image, weight = numbers(18, (10, 9, 8)), numbers(19, (10, 3, 3, 6))

    def kernel(image, weight):
        x, w = nl.load(image), nl.load(weight)
        dst = nl.ndarray((6, 7, 6), dtype=nl.float32, buffer=nl.psum)
        for i in range(3):
            for j in range(3):
                window = x[:, i : i + 7, j : j + 6]
                nisa.nc_matmul(dst=dst, stationary=w[:, i, j], moving=window)
        return output(nl.copy(dst))

    windows = np.lib.stride_tricks.sliding_window_view(image.astype(np.float64), (3, 3), (1, 2))
    want = np.einsum("chwij,cijo->ohw", windows, weight)
    assert np.allclose(run(kernel, image, weight), want, rtol=1e-5, atol=1e-4)


def test_0_5_0_while_loop_terminates():
    def kernel(start):
        register, left = nisa.register_alloc(), nl.load(start)
        total = nl.zeros((1, 1), dtype=nl.int32)
        nisa.register_load(register, left)

        def body(_):
            nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=2.0)
            nisa.tensor_scalar(dst=left, data=left, op0=nl.subtract, operand0=1.0)
            nisa.register_load(register, left)
            return register

        nl.while_loop(register, body)
        return output(total)

    for n in (0, 1, 5):
        assert run(kernel, np.array([[n]], np.int32)) == 2 * n


def test_0_5_0_gathering_transpose_leaves_valid_results_alone():
    x = numbers(20, (40, 32), BF16)
    rows = np.arange(16, dtype=np.uint32)[:, None] * 2
    rows[3] = 4000

    def kernel(x, rows):
        dst = nl.ndarray((32, 16), dtype=nl.bfloat16)
        nisa.memset(dst=dst, value=5.0)
        source = x.ap([[32, 16], [1, 32]], vector_offset=nl.load(rows), indirect_dim=0)
        nisa.dma_transpose(dst=dst, src=source, oob_mode=nisa.oob_mode.skip)
        return output(dst)

    got, good = run(kernel, x, rows), rows[:, 0] < 40
    assert np.array_equal(got[:, good], x[rows[good, 0]].T)
    assert (got[:, ~good] == 5).all()


def test_0_5_0_accumulating_on_unwritten_psum_is_reported():
    x = numbers(21, (16, 8))

    def kernel(x):
        tile = nl.load(x)
        dst = nl.ndarray((8, 8), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=dst, stationary=tile, moving=tile, accumulate=True)
        return output(nl.copy(dst))

    with pytest.raises(UninitializedReadError, match="nc_matmul"):
        run(kernel, x)


def test_0_5_0_reshape_keeps_the_number_of_elements():
    def kernel(x):
        return output(nl.load(x).reshape((8, 5)))

    with pytest.raises(NkiValidationError, match="40 elements, it has 32"):
        run(kernel, numbers(22, (8, 4)))


# ---- 0.6.0 --------------------------------------------------------------------------------------


def test_0_6_0_integers_round_to_even_and_saturate():
    x = np.array([[0.5, 1.5, 2.5, -0.5, -1.5, 126.6, 127.5, 1e9, -1e9, np.nan]], np.float32)

    def kernel(x):
        dst = nl.ndarray(x.shape, dtype=nl.int8)
        nisa.tensor_copy(dst=dst, src=nl.load(x))
        return output(dst)

    assert run(kernel, x)[0].tolist() == [0, 2, 2, 0, -2, 127, 127, 127, -128, 0]


def test_0_6_0_match_replace_of_equal_values_goes_backwards():
    """Two equal search values: the later slot takes the first occurrence."""
    data = np.array([[1, 5, 2, 5, 3, 5, 4, 0]], np.float32)
    vals = np.array([[5, 9, 9, 9, 9, 9, 9, 5]], np.float32)

    def kernel(data, vals):
        dst = nl.ndarray(data.shape, dtype=nl.float32)
        index = nl.ndarray((1, 8), dtype=nl.uint32)
        nisa.nc_match_replace8(dst, nl.load(data), nl.load(vals), imm=-1.0, dst_idx=index)
        return output(dst), output(index)

    dst, index = run(kernel, data, vals)
    assert dst[0].tolist() == [1, -1, 2, -1, 3, 5, 4, 0]
    assert (index[0, 7], index[0, 0]) == (1, 3)


def test_0_6_0_find_index_advances_and_marks_what_is_missing():
    data = np.array([[4, 6, 4, 8, 4, 1, 1, 0]], np.float32)
    vals = np.array([[4, 4, 4, 4, 7, 1, 8, 1]], np.float32)

    def kernel(data, vals):
        dst = nl.ndarray((1, 8), dtype=nl.uint32)
        nisa.nc_find_index8(dst, nl.load(data), nl.load(vals))
        return output(dst)

    none = 2**32 - 1
    assert run(kernel, data, vals)[0].tolist() == [0, 2, 4, none, none, 5, 3, 6]


def test_0_6_0_activation_result_of_a_reduction_inside_dst():
    x = numbers(23, (9, 12))

    def kernel(x):
        dst = nl.ndarray(x.shape, dtype=nl.float32)
        nisa.activation(
            dst,
            nl.copy,
            nl.load(x),
            reduce_op=nl.add,
            reduce_res=dst[:, 4:5],
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        )
        return output(dst)

    got = run(kernel, x)
    assert np.allclose(got[:, 4], x.astype(np.float64).sum(1), rtol=1e-5, atol=1e-5)
    assert np.array_equal(np.delete(got, 4, 1), np.delete(x, 4, 1))


def test_0_6_0_scales_in_a_part_of_a_tile():
    """Two tensors share a scale tile: the second doesn't touch the first one's scales."""
    a, b = numbers(24, (32, 16), BF16), numbers(25, (32, 16), BF16)

    def kernel(a, b):
        packed = [nl.ndarray((32, 4), dtype=nl.float8_e5m2_x4) for _ in range(2)]
        scales = nl.ndarray((128, 4), dtype=nl.uint8)
        nisa.memset(dst=scales, value=0)
        nisa.quantize_mx(packed[0], nl.load(a), scales[0:4])
        nisa.quantize_mx(packed[1], nl.load(b), scales[4:8])
        dst = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(dst, packed[0], packed[1], scales[0:4], scales[4:8])
        return output(nl.copy(dst))

    got = run(kernel, a, b, platform="trn3")
    a64, b64 = (v.astype(np.float64).reshape(32, 4, 4) for v in (a, b))
    want = np.einsum("kms,kns->mn", a64, b64)
    bound = np.einsum("kms,kns->mn", np.abs(a64), np.abs(b64))
    assert (np.abs(got - want) <= bound / 4).all()


def test_0_6_0_double_row_has_the_size_of_one_result():
    a = numbers(26, (32, 2, 12), ml_dtypes.float8_e5m2)
    b = numbers(27, (32, 2, 20), ml_dtypes.float8_e5m2)

    def kernel(a, b, mode):
        dst = nl.ndarray((12, 20), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst, nl.load(a), nl.load(b), perf_mode=mode)
        return output(nl.copy(dst))

    want = np.einsum("kim,kin->mn", a.astype(np.float64), b.astype(np.float64))
    for mode in (nisa.matmul_perf_mode.double_row, "double_row"):
        assert np.allclose(run(kernel, a, b, mode), want, rtol=1e-5, atol=1e-3)


def test_0_6_0_overlapping_psum_regions_accumulate():
    """Each matmul adds where an earlier one wrote and replaces elsewhere."""
    w, x = numbers(28, (16, 3, 8)), numbers(29, (16, 10))

    def kernel(w, x):
        stationary, moving = nl.load(w), nl.load(x)
        dst = nl.ndarray((8, 12), dtype=nl.float32, buffer=nl.psum)
        for shift in range(3):
            nisa.nc_matmul(dst[:, shift : shift + 10], stationary[:, shift], moving)
        return output(nl.copy(dst))

    want = np.zeros((8, 12))
    for shift in range(3):
        want[:, shift : shift + 10] += w[:, shift].astype(np.float64).T @ x
    assert np.allclose(run(kernel, w, x), want, rtol=1e-5, atol=1e-4)


def test_0_6_0_predicated_copy_of_other_ranks():
    x, before = numbers(30, (6, 24)), numbers(31, (6, 2, 3, 4))
    predicate = (numbers(32, (6, 2, 3, 4)) > 0).astype(np.uint8)

    def kernel(x, before, predicate):
        dst = nl.load(before)
        nisa.tensor_copy_predicated(dst=dst, src=nl.load(x), predicate=nl.load(predicate))
        return output(dst)

    want = np.where(predicate, x.reshape(before.shape), before)
    assert np.array_equal(run(kernel, x, before, predicate), want)


def test_0_6_0_select_reduce_of_other_ranks():
    x, predicate = numbers(33, (6, 24)), (numbers(34, (6, 4, 6)) > 0).astype(np.uint8)

    def kernel(x, predicate):
        dst = nl.ndarray((6, 2, 3, 4), dtype=nl.float32)
        nisa.select_reduce(dst, nl.load(predicate), on_true=nl.load(x), on_false=-4.0)
        return output(dst)

    want = np.where(predicate.reshape(6, 24), x, np.float32(-4)).reshape(6, 2, 3, 4)
    assert np.array_equal(run(kernel, x, predicate), want)


def test_0_6_0_select_instructions_take_a_python_float():
    x, bounds = numbers(35, (7, 9)), np.tile(np.float32([2, 6]), (7, 1))

    def kernel(x, bounds):
        tile, b = nl.load(x), nl.load(bounds)
        ranged, affine = [nl.ndarray(x.shape, dtype=nl.float32) for _ in range(2)]
        nisa.range_select(
            ranged,
            tile,
            nl.greater_equal,
            nl.less,
            b[:, 0:1],
            b[:, 1:2],
            reduce_cmd=nisa.reduce_cmd.idle,
            on_false_value=FP32_MIN,
        )
        nisa.affine_select(affine, [[1, 9]], -1, tile, FP32_MIN, cmp_op=nl.less_equal)
        return output(ranged), output(affine)

    ranged, affine = run(kernel, x, bounds)
    columns = np.arange(9)
    low = np.float32(FP32_MIN)
    assert np.array_equal(ranged, np.where((columns >= 2) & (columns < 6), x, low))
    assert np.array_equal(affine, np.where(columns <= np.arange(7)[:, None], x, low))


def test_0_6_0_more_than_128_partitions_is_refused():
    def kernel(x):
        tile = nl.ndarray((129, 4), dtype=nl.float32)
        nisa.memset(dst=tile, value=0.0)
        return output(tile)

    with pytest.raises(NkiValidationError, match=r"129.*128"):
        run(kernel, numbers(36, (2, 2)))
