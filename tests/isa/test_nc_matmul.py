"""nc_matmul against float64 NumPy, its transpose mode bit by bit, and its limits."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from helpers import numbers, run

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import dtypes
from nki_dist.errors import NkiValidationError

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning")

BF16 = ml_dtypes.bfloat16
E4M3 = ml_dtypes.float8_e4m3
E5M2 = ml_dtypes.float8_e5m2


def matmul(
    *operands, dst=None, dst_dtype=nl.float32, platform="trn2", times=1, body=None, **options
):
    """`times` matmuls of tiles into a fresh PSUM tile of shape `dst`; what it then holds."""

    def kernel(a, b):
        tiles = []
        for source in (a, b):
            tile = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=source)
            tiles.append(tile)
        shape, element = dst or (a.shape[-1], b.shape[-1]), dtypes.of(dst_dtype)
        psum = nl.ndarray(shape, dtype=element, buffer=nl.psum)
        if body is not None:
            body(psum, *tiles)
        for _ in range(times if body is None else 0):
            nisa.nc_matmul(psum, *tiles, **options)
        out = nl.ndarray(shape, dtype=element, buffer=nl.shared_hbm)
        copy = nl.ndarray(shape, dtype=element, buffer=nl.sbuf)
        nisa.tensor_copy(dst=copy, src=psum)
        nisa.dma_copy(dst=out, src=copy)
        return out

    return np.asarray(run(kernel, *operands, platform=platform))


def reference(a, b):
    return a.astype(np.float64).reshape(len(a), -1).T @ b.astype(np.float64).reshape(len(b), -1)


def close(got, want, terms=128):
    """Within the rounding of a float32 sum."""
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=terms * 1e-6 * np.abs(want).max())


@pytest.mark.parametrize(
    "dtypes", [(np.float32,) * 2, (BF16, BF16), (np.float16, BF16), (E4M3, E5M2), (E5M2, BF16)]
)
@pytest.mark.parametrize(
    "sizes", [(128, 128, 512), (1, 1, 1), (77, 3, 1), (128, 1, 33), (31, 100, 257)]
)
def test_product(dtypes, sizes):
    k, m, n = sizes
    a, b = numbers(k, (k, m), dtypes[0]), numbers(n, (k, n), dtypes[1])
    close(matmul(a, b), reference(a, b))


def test_operands_of_more_than_two_dimensions_are_flattened():
    a, b = numbers(1, (50, 3, 7)), numbers(2, (50, 2, 5, 9))
    close(matmul(a, b, dst=(21, 90)), reference(a, b))
    close(matmul(a, b, dst=(21, 9, 10)).reshape(21, 90), reference(a, b))


@pytest.mark.parametrize("sizes", [(128, 1, 3), (127, 1, 1), (64, 5, 1), (128, 1, 512)])
def test_the_bits_of_a_single_row_or_column_do_not_depend_on_strides(sizes):
    k, m, n = sizes
    a, b = numbers(k, (k, m)), numbers(n, (k, n))

    def strided(psum, ta, tb):
        wide = nl.ndarray((k, m + 9), dtype=nl.float32)
        cut = nl.ndarray((k, n + 21), dtype=nl.float32)
        nisa.tensor_copy(wide[:, 3 : m + 3], ta)
        nisa.tensor_copy(cut[:, 1 : n + 1], tb)
        nisa.nc_matmul(psum, wide[:, 3 : m + 3], cut[:, 1 : n + 1])

    assert np.array_equal(matmul(a, b, body=strided), matmul(a, b))


def test_first_replaces_and_later_ones_add():
    a, b = numbers(6, (40, 20)), numbers(7, (40, 30))
    product = reference(a, b)
    close(matmul(a, b, times=3), 3 * product)
    close(matmul(a, b, times=3, accumulate=False), product)


def test_the_decision_is_taken_per_element():
    a, b = numbers(8, (40, 20)), numbers(9, (40, 30))

    def body(psum, ta, tb):
        nisa.nc_matmul(psum[:, 5:15], ta, tb[:, 5:15])
        nisa.nc_matmul(psum, ta, tb)  # adds in columns 5 to 14, replaces elsewhere

    want = reference(a, b)
    want[:, 5:15] *= 2
    close(matmul(a, b, body=body), want)


def test_accumulation_in_a_dynamic_loop_starts_anew_with_each_tile():
    a, b = numbers(10, (40, 20)), numbers(11, (40, 30))
    count = np.array([[3]], np.int32)

    def kernel(a, b, count):
        ta, tb = nl.load(a), nl.load(b)
        trips = nisa.register_alloc()
        nisa.register_load(trips, nl.load(count))
        psum = nl.ndarray((20, 30), dtype=nl.float32, buffer=nl.psum)
        for _ in nl.dynamic_range(0, trips, 1):
            nisa.nc_matmul(psum, ta, tb)
        out = nl.ndarray((20, 30), dtype=nl.float32, buffer=nl.shared_hbm)
        copy = nl.ndarray((20, 30), dtype=nl.float32)
        nisa.tensor_copy(copy, psum)
        nisa.dma_copy(out, copy)
        return out

    close(run(kernel, a, b, count), 3 * reference(a, b))
    close(run(kernel, a, b, count), 3 * reference(a, b))


def test_a_dynamic_loop_accumulates_in_bfloat16_on_trn3():
    a, b = numbers(10, (40, 20), BF16), numbers(11, (40, 30), BF16)

    def kernel(a, b):
        ta, tb = nl.load(a), nl.load(b)
        psum = nl.ndarray((20, 2, 30), dtype=nl.bfloat16, buffer=nl.psum)
        for _ in nl.dynamic_range(0, 2, 1):
            nisa.nc_matmul(psum[:, 1], ta, tb)
        nisa.nc_matmul(psum[:, 0], ta, tb)
        nisa.nc_matmul(psum[:, 1], ta, tb, accumulate=np.bool_(False))
        nisa.nc_matmul(psum, ta, tb.expand_dim(1).broadcast(1, 2))
        out = nl.ndarray((20, 2, 30), dtype=nl.bfloat16, buffer=nl.shared_hbm)
        copy = nl.ndarray((20, 2, 30), dtype=nl.bfloat16)
        nisa.tensor_copy(copy, psum)
        nisa.dma_copy(out, copy)
        return out

    once = reference(a, b).astype(np.float32)
    want = (once.astype(BF16).astype(np.float32) + once).astype(BF16)
    got = run(kernel, a, b, platform="trn3").astype(np.float32)
    for half in (0, 1):
        np.testing.assert_allclose(got[:, half], want.astype(np.float32), rtol=2**-7, atol=1e-3)


def test_adding_to_what_no_matmul_wrote_is_refused_before_trn3():
    a, b = numbers(11, (40, 20)), numbers(12, (40, 30))

    def after_memset(psum, ta, tb):
        nisa.memset(psum, 2.0)
        nisa.nc_matmul(psum, ta, tb, accumulate=True)

    def in_part(psum, ta, tb):
        nisa.nc_matmul(psum, ta, tb)
        nisa.memset(psum[:, 7:9], 2.0)
        nisa.nc_matmul(psum, ta, tb, accumulate=True)

    def beside(psum, ta, tb):
        nisa.nc_matmul(psum, ta, tb)
        nisa.memset(psum[:, 7:9], 2.0)
        nisa.nc_matmul(psum[:, 9:], ta, tb[:, 9:], accumulate=True)
        nisa.nc_matmul(psum[:, 7:9], ta, tb[:, 7:9])

    def restarted(psum, ta, tb):
        nisa.memset(psum, 2.0)
        nisa.nc_matmul(psum, ta, tb, accumulate=False)
        nisa.nc_matmul(psum, ta, tb, accumulate=True)

    for body in (after_memset, in_part):
        for platform in ("trn1", "trn2"):
            with pytest.raises(
                NkiValidationError, match=r"accumulate=True adds to .* nisa\.memset"
            ) as caught:
                matmul(a, b, body=body, platform=platform)
            assert caught.value.instruction == "nisa.nc_matmul" and caught.value.location
    close(matmul(a, b, body=after_memset, platform="trn3"), reference(a, b) + 2)
    close(matmul(a, b, body=restarted), 2 * reference(a, b))
    want = reference(a, b)
    want[:, 9:] *= 2
    close(matmul(a, b, body=beside), want)


def test_accumulate_is_a_flag():
    a = numbers(12, (40, 20))
    with pytest.raises(NkiValidationError, match="accumulate='yes'; allowed: True, False or None"):
        matmul(a, a, accumulate="yes")


def test_bfloat16_destination_rounds_each_write_on_trn3():
    a, b = numbers(14, (64, 32), BF16), numbers(15, (64, 48), BF16)
    got = matmul(a, b, dst_dtype=nl.bfloat16, platform="trn3", times=2)
    once = reference(a, b).astype(np.float32).astype(BF16).astype(np.float32)
    want = (once + reference(a, b)).astype(np.float32)
    np.testing.assert_allclose(got.astype(np.float32), want, rtol=2**-7, atol=1e-3)
    with pytest.raises(
        NkiValidationError, match="dst has dtype bfloat16; allowed on trn2: float32"
    ):
        matmul(a, b, dst_dtype=nl.bfloat16)


def test_double_row_contracts_256_rows():
    a, b = numbers(16, (128, 2, 50), E4M3), numbers(17, (128, 2, 70), E5M2)
    want = np.einsum("krm,krn->mn", a.astype(np.float64), b.astype(np.float64))
    close(matmul(a, b, dst=(50, 70), perf_mode="double_row"), want, 256)
    close(matmul(a, b, dst=(50, 70), perf_mode=nisa.matmul_perf_mode.double_row), want, 256)


def test_double_row_constraints():
    a, b = numbers(16, (128, 2, 50), E4M3), numbers(17, (128, 2, 70), E4M3)
    with pytest.raises(NkiValidationError, match="column size must be 128"):
        matmul(
            a, b, dst=(50, 70), perf_mode="double_row", tile_size=(128, 64), tile_position=(0, 0)
        )
    with pytest.raises(NkiValidationError, match="is_transpose can't be combined"):
        matmul(a, b, dst=(50, 70), perf_mode="double_row", is_transpose=True)
