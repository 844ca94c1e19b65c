"""nc_matmul's transpose mode bit by bit, and what it refuses."""

import ml_dtypes
import numpy as np
import pytest
from helpers import numbers
from test_nc_matmul import BF16, E4M3, close, matmul, reference

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiError, NkiValidationError

# ---- transpose mode ---------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16])
def test_transpose_moves_bits_and_nan_stays_where_it_is(dtype):
    a = numbers(18, (96, 50), dtype)
    a[3, 5], a[90, 0], a[0, 0], a[7, 7] = np.nan, np.inf, -np.inf, -0.0
    got = matmul(a, np.eye(96, dtype=dtype), dst_dtype=a.dtype, is_transpose=True)
    raw = f"u{a.dtype.itemsize}"
    assert np.array_equal(got.view(raw), a.T.view(raw))


def test_transpose_of_a_tile_with_unwritten_columns():
    a = numbers(19, (128, 8))

    def body(psum, ta, identity):
        tile = nl.ndarray((128, 128), dtype=nl.float32)
        nisa.tensor_copy(tile[:, :8], ta)
        whole = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(whole, tile, identity, is_transpose=True)
        nisa.tensor_copy(psum, whole[:8])

    assert np.array_equal(matmul(a, np.eye(128, dtype=np.float32), dst=(8, 128), body=body), a.T)


def test_transpose_widens_exactly_to_float32_and_pads_fp8():
    a = numbers(20, (64, 30), BF16)
    got = matmul(a, np.eye(64, dtype=BF16), is_transpose=True)
    assert np.array_equal(got, a.T.astype(np.float32))
    a = numbers(21, (64, 30), E4M3)
    got = matmul(a, np.eye(64, dtype=E4M3), dst_dtype=nl.bfloat16, is_transpose=True)
    assert np.array_equal(got.view(np.uint16), a.T.view(np.uint8))


def test_transpose_with_a_permutation_picks_columns():
    a = numbers(22, (40, 30))
    order = np.random.default_rng(0).permutation(40)[:25]
    picker = np.zeros((40, 26), np.float32)
    picker[order, np.arange(25)] = 1
    want = np.concatenate([a[order].T, np.zeros((30, 1), np.float32)], axis=1)
    assert np.array_equal(matmul(a, picker, is_transpose=True), want)


def test_transpose_replaces_and_refuses_what_it_would_have_to_multiply():
    a, identity = numbers(23, (40, 30)), np.eye(40, dtype=np.float32)
    assert np.array_equal(matmul(a, identity, is_transpose=True, times=2), a.T)
    with pytest.raises(
        NkiValidationError, match="column 0 has 1 elements other than 0, the largest 2"
    ):
        matmul(a, 2 * identity, is_transpose=True)
    with pytest.raises(NkiValidationError, match="accumulate=True with is_transpose=True"):
        matmul(a, identity, is_transpose=True, accumulate=True)
    with pytest.raises(NkiValidationError, match="dst has dtype float16, stationary bfloat16"):
        matmul(a.astype(BF16), identity.astype(BF16), dst_dtype=nl.float16, is_transpose=True)


def test_trn1_transposes_by_multiplying():
    a = numbers(24, (40, 30))
    identity = np.eye(40, dtype=np.float32)
    assert np.array_equal(matmul(a, identity, is_transpose=True, platform="trn1"), a.T)
    a[3, 5] = np.inf
    got = matmul(a, identity, is_transpose=True, platform="trn1")
    assert np.isnan(got[5]).sum() == 39 and not np.isnan(got[4]).any()


# ---- limits -----------------------------------------------------------------------------------


def test_moving_free_size():
    a, b = numbers(25, (32, 16)), numbers(26, (32, 1024))
    with pytest.raises(NkiError, match=r"moving has 1024 .* at most 512 on trn2") as caught:
        matmul(a, b)
    assert caught.value.location is not None
    close(matmul(a, b, platform="trn3"), reference(a, b))


def test_destination_stays_inside_one_bank():
    a, b = numbers(27, (32, 16)), numbers(28, (32, 512))

    def into(start):
        def body(psum, ta, tb):
            nisa.nc_matmul(psum[:, :512], ta, tb)
            nisa.nc_matmul(psum[:, start : start + 512], ta, tb)

        return body

    close(matmul(a, b, dst=(16, 1024), body=into(512))[:, 512:], reference(a, b))
    with pytest.raises(
        NkiValidationError, match=r"bytes \[1024, 3072\).*bank has 2048 bytes \(512"
    ):
        matmul(a, b, dst=(16, 1024), body=into(256))


def test_shapes_that_do_not_fit():
    with pytest.raises(NkiValidationError, match=r"dst has 9 partitions and 9 elements .* 9 and 8"):
        matmul(numbers(1, (32, 9)), numbers(2, (32, 8)), dst=(9, 9))


def test_float8_e4m3fn_on_trn3():
    fn = numbers(29, (32, 16)).astype(ml_dtypes.float8_e4m3fn)
    close(matmul(fn, fn, platform="trn3"), reference(fn, fn))


def test_tiling():
    a, b = numbers(30, (32, 24)), numbers(31, (32, 40))
    want = reference(a, b)
    close(matmul(a, b, tile_position=(64, 32), tile_size=(32, 32)), want)
    close(matmul(a, b, tile_position=(64, 0), tile_size=(64, 128)), want)
    close(matmul(a, b, tile_position=None, tile_size=None), want)
    for options, message in [
        (
            {"tile_size": (144, 128), "tile_position": (0, 0)},
            "tile_size row 144; allowed: 32, 64, 128",
        ),
        ({"tile_size": (32, 0), "tile_position": (0, 0)}, "tile_size column 0; allowed"),
        ({"tile_size": (32, 128), "tile_position": (128, 0)}, "tile_position row 128"),
        ({"tile_size": (32, 64), "tile_position": (0, 32)}, "tile_position column 32"),
        ({"tile_size": (32, 64), "tile_position": (0, 128)}, "tile_position column 128"),
        (
            {"tile_size": (32, 128), "tile_position": 3},
            r"tile_position=3; allowed: \(row, column\)",
        ),
    ]:
        with pytest.raises(NkiValidationError, match=message):
            matmul(a, b, **options)
    with pytest.raises(
        NkiValidationError, match="use 40 columns of the array, tile_size allows 32"
    ):
        matmul(numbers(1, (32, 40)), b, tile_size=(32, 32), tile_position=(0, 0))
    with pytest.raises(NkiValidationError, match="use 40 rows of the array, tile_size allows 32"):
        matmul(numbers(1, (40, 8)), numbers(2, (40, 8)), tile_size=(32, 32), tile_position=(0, 0))
    with pytest.raises(NkiValidationError, match="tile_size row 32; allowed: 64, 128 on trn1"):
        matmul(a, b, tile_size=(32, 128), tile_position=(0, 0), platform="trn1")
