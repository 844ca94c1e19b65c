"""bn_stats, bn_aggr, max8, nc_find_index8, nc_match_replace8, tensor_partition_reduce and
tensor_copy_predicated."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from helpers import numbers, on_tiles

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError

BF16 = ml_dtypes.bfloat16
X = np.ones((8, 16), np.float32)
F32 = np.float32


def refuse(message, body, inputs, outputs, **where):
    with pytest.raises(NkiValidationError, match=message):
        on_tiles(body, inputs, outputs, **where)


# ---- batch norm -------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 7, 512])
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_bn_stats(n, dtype):
    x = numbers(1, (19, n), dtype)

    def body(data, dst):
        nisa.bn_stats(dst, data)

    got = on_tiles(body, [x], [((19, 6), F32)], psum=(0,))[0]
    for part, at in ((x[:, ::2], 0), (x[:, 1::2], 3)):
        wide = part.astype(np.float64)
        count = wide.shape[1]
        np.testing.assert_array_equal(got[:, at], count)
        mean = wide.mean(1) if count else np.zeros(19)
        np.testing.assert_allclose(got[:, at + 1], mean, rtol=1e-4, atol=1e-5)
        variance = wide.var(1) * count if count else np.zeros(19)
        np.testing.assert_allclose(got[:, at + 2], variance, rtol=1e-4, atol=1e-5)


def test_bn_aggr_over_tiles_of_different_size():
    x = numbers(2, (23, 700))

    def body(data, stats, dst):
        nisa.bn_stats(stats[:, 0:6], data[:, 0:512])
        nisa.bn_stats(stats[:, 6:12], data[:, 512:700])
        nisa.bn_aggr(dst, stats)

    got = on_tiles(body, [x], [((23, 12), F32), ((23, 2), F32)])[1]
    wide = x.astype(np.float64)
    np.testing.assert_allclose(got[:, 0], wide.mean(1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(got[:, 1], wide.var(1), rtol=1e-5)


def test_batch_norm_refused():
    refuse("allowed: 6", lambda a, d: nisa.bn_stats(d, a), [X], [((8, 5), F32)])
    refuse("same number of partitions", lambda a, d: nisa.bn_stats(d, a), [X], [((7, 6), F32)])
    refuse("allowed: 2", lambda a, d: nisa.bn_aggr(d, a), [X[:, :6]], [((8, 3), F32)])


# ---- top 8 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", [(31, 8), (31, 3, 67), (5, 1000)])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32])
def test_max8(shape, dtype):
    x = numbers(3, shape, dtype)

    def body(src, dst):
        nisa.max8(dst, src)

    got = on_tiles(body, [x], [((shape[0], 8), dtype)], psum=(0,))[0]
    flat = x.reshape(shape[0], -1).astype(np.float64)
    np.testing.assert_array_equal(got.astype(np.float64), np.sort(flat, axis=1)[:, :-9:-1])


def test_max8_puts_nan_last():
    x = np.arange(10, dtype=F32).reshape(1, 10)
    x[0, [4, 9]] = np.nan
    got = on_tiles(lambda src, dst: nisa.max8(dst, src), [x], [((1, 8), F32)])[0]
    np.testing.assert_array_equal(got[0], [8, 7, 6, 5, 3, 2, 1, 0])


@pytest.mark.parametrize("index", [np.uint16, np.uint32])
def test_find_index8(index):
    x = np.random.default_rng(4).integers(0, 30, (40, 25)).astype(F32)
    vals = np.random.default_rng(5).integers(0, 30, (40, 2, 4)).astype(BF16)

    def body(data, wanted, dst):
        nisa.nc_find_index8(dst, data, wanted)

    got = on_tiles(body, [x, vals], [((40, 8), index)])[0]
    for lane in range(40):
        seen: dict[float, int] = {}
        for slot, value in enumerate(vals.reshape(40, 8)[lane].astype(F32)):
            places = np.flatnonzero(x[lane] == value)
            n = seen.get(value, 0)
            seen[value] = n + 1
            expected = places[n] if n < len(places) else np.iinfo(index).max
            assert got[lane, slot] == expected


def test_find_index8_with_values_broadcast_from_one_column():
    x = np.array([[3, 1, 3, 2, 0, 0, 0, 0, 3]] * 4, F32)

    def body(data, value, dst):
        nisa.nc_find_index8(dst=dst, data=data, vals=value.ap([[1, 4], [0, 8]]))

    got = on_tiles(body, [x, x[:, :1].copy()], [((4, 8), np.uint32)])[0]
    np.testing.assert_array_equal(got[0, :4], [0, 2, 8, 2**32 - 1])


def test_match_replace8_pairs_equal_values_from_the_end():
    x = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], F32)
    vals = np.array([[3, 8, 8, 8, 8, 8, 8, 8]], F32)

    def body(data, wanted, dst, idx):
        nisa.nc_match_replace8(dst, data, wanted, float("-inf"), dst_idx=idx)

    got, idx = on_tiles(body, [x, vals], [((1, 11), F32), ((1, 8), np.uint32)])
    np.testing.assert_array_equal(idx[0], [2, 10, 9, 8, 7, 6, 5, 4])
    np.testing.assert_array_equal(got[0], [1, 2, *[-np.inf] * 1, 4, *[-np.inf] * 7])


def test_match_replace8_in_place_random():
    x = np.random.default_rng(6).integers(0, 9, (33, 20)).astype(F32)
    vals = np.random.default_rng(7).integers(0, 12, (33, 8)).astype(F32)

    def body(data, wanted, out, idx):
        nisa.nc_match_replace8(data, data, wanted, -5.0, idx)
        nisa.tensor_copy(out, data)

    got, idx = on_tiles(body, [x, vals], [((33, 20), F32), ((33, 8), np.uint16)])
    expected, places = x.copy(), np.full((33, 8), 65535)
    for lane in range(33):
        for slot in range(7, -1, -1):
            at = np.flatnonzero(expected[lane] == vals[lane, slot])
            if len(at):
                expected[lane, at[0]], places[lane, slot] = -5, at[0]
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(idx, places)


def test_top_8_refused():
    eight = [((8, 8), F32)]
    refuse("exactly 8", lambda a, d: nisa.max8(d, a), [X], [((8, 7), F32)])
    four = X.reshape(8, 2, 4, 2)
    refuse("allowed: up to 3", lambda a, d: nisa.max8(d, a), [four], eight)

    def replace(a, v, d):
        nisa.nc_match_replace8(d, a, v, 0.0)

    refuse("same number of elements", replace, [X, X[:, :8]], [((8, 15), F32)])


# ---- across partitions ------------------------------------------------------------------------


@pytest.mark.parametrize("op", ["add", "average", "max"])
def test_partition_reduce(op):
    x = numbers(8, (77, 3, 5), BF16)

    def body(data, dst):
        nisa.tensor_partition_reduce(dst, op if op == "average" else getattr(nl, op), data)

    got = on_tiles(body, [x], [((1, 15), F32)])[0]
    wide = x.reshape(77, 15).astype(np.float64)
    expected = {"add": wide.sum, "average": wide.mean, "max": wide.max}[op](0)
    np.testing.assert_allclose(got[0], expected, rtol=1e-5, atol=1e-5)


def test_partition_reduce_bitwise_and_refused():
    x = np.random.default_rng(9).integers(0, 2**31, (50, 7)).astype(np.int32)

    def body(data, dst):
        nisa.tensor_partition_reduce(dst, nl.bitwise_or, data)

    got = on_tiles(body, [x], [((1, 7), np.int32)])[0]
    np.testing.assert_array_equal(got[0], np.bitwise_or.reduce(x, axis=0))
    refuse("takes integer types", body, [X], [((1, 16), F32)])
    refuse("is in PSUM", body, [x], [((1, 7), np.int32)], psum=(0,))


# ---- predicated copy --------------------------------------------------------------------------


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("mask_dtype", [np.uint8, np.uint16, np.uint32])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32])
def test_predicated_copy(reverse, mask_dtype, dtype):
    x = numbers(10, (13, 4, 6), dtype)
    if dtype == np.int32:
        x[0, 0] = 2**24 + 1
    p = np.random.default_rng(11).integers(0, 3, (13, 8, 3)).astype(mask_dtype)

    def body(src, predicate, dst, number):
        nisa.tensor_copy_predicated(dst, src, predicate, reverse)
        nisa.tensor_copy_predicated(number, 3, predicate, reverse)

    outputs = [((13, 24), dtype), ((13, 24), dtype)]
    got, number = on_tiles(body, [x, p], outputs, psum=(0,))
    chosen = (p.reshape(13, 24) == 0) if reverse else (p.reshape(13, 24) != 0)
    seven = np.array(7).astype(dtype)
    np.testing.assert_array_equal(got, np.where(chosen, x.reshape(13, 24), seven))
    np.testing.assert_array_equal(number, np.where(chosen, np.array(3).astype(dtype), seven))


def test_predicated_copy_refused():
    mask = X.astype(np.uint8)

    def body(src, predicate, dst):
        nisa.tensor_copy_predicated(dst, src, predicate)

    same = [(X.shape, F32)]
    refuse("they must be equal", body, [X, mask], [(X.shape, BF16)])
    refuse("same number of elements", body, [X, mask[:, :8]], same)
    refuse("both in PSUM", body, [X, mask], same, psum=(0, 1))

    def half(predicate, dst):
        nisa.tensor_copy_predicated(dst, 0.5, predicate)

    refuse("allowed: whole numbers", half, [mask], [(X.shape, np.int32)])
