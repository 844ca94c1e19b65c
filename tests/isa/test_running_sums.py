"""float32 sums along the free dimension: bit for bit those of a loop from first to last."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.isa.reductions import BLOCK, FEW, SHORT, running_sum
from tests.isa.helpers import numbers, on_tiles, output, run

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

BF16 = ml_dtypes.bfloat16
CMD = nisa.reduce_cmd


def looped(a: np.ndarray, first: Any = None) -> np.ndarray:
    """x0 + x1 + ... over the last axis, a rounding after each; or first + x0 + ..."""
    total = a[..., 0].astype(np.float32) if first is None else np.float32(first) + a[..., 0]
    with np.errstate(all="ignore"):
        for n in range(1, a.shape[-1]):
            total = np.add(total, a[..., n], dtype=np.float32)
    return total


def same_bits(got: np.ndarray, want: np.ndarray) -> bool:
    nan = np.isnan(want)
    assert got.dtype == want.dtype == np.float32 and got.shape == want.shape
    return bool(np.array_equal(np.isnan(got), nan)) and bool(
        np.array_equal(got[~nan].view(np.uint32), want[~nan].view(np.uint32))
    )


@pytest.mark.parametrize("rows", [1, 2, FEW - 1, FEW, FEW + 1, BLOCK, BLOCK + 1, 2 * BLOCK + FEW])
@pytest.mark.parametrize("length", [1, 2, 7, SHORT, SHORT + 1, 128, 333])
def test_every_number_of_rows_and_elements(rows: int, length: int) -> None:
    whole = numbers(rows + length, (rows, length + 16))
    for x in (whole[:, :length], np.ascontiguousarray(whole[:, 3 : 3 + length])):
        assert same_bits(running_sum(x), looped(x))
        into = np.full((rows, 2), 7, np.float32)
        assert running_sum(x, into[:, 0]).base is into
        assert same_bits(into[:, 0], looped(x)) and (into[:, 1] == 7).all()


@pytest.mark.parametrize("rows", [5, 64])
def test_infinities_nan_and_signed_zeros(rows: int) -> None:
    rng, inf = np.random.default_rng(rows), np.float32(np.inf)
    values = np.float32([0, -0.0, 1, -1, 1e-45, 3e38, -3e38, inf, -inf, np.nan])
    for length in (1, 2, 3, 50):
        for chosen in (values, values[:2], values[:4], values[:7], values[:9]):
            x = rng.choice(chosen, (rows, length))
            with np.errstate(all="ignore"):
                assert same_bits(running_sum(x), looped(x))
    zero = np.full((rows, 9), -0.0, np.float32)
    zero[1, 4] = 0.0
    got = running_sum(zero)
    assert np.signbit(got).tolist() == [True, False] + [True] * (rows - 2)


# ---- instructions ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16, np.int16])
@pytest.mark.parametrize("shape", [(128, 512), (40, 300), (5, 130), (1, 100)])
def test_tensor_reduce(dtype: Any, shape: tuple[int, int]) -> None:
    x = numbers(1, shape, dtype)
    outs = [((shape[0], 1), np.float32)] * 2

    def body(a, dst, negative):
        nisa.tensor_reduce(dst, nl.add, a, axis=1)
        nisa.tensor_reduce(negative, nl.add, a, axis=1, negate=True)

    got, negative = on_tiles(body, [x], outs)
    want = looped(x.astype(np.float32))
    assert same_bits(got[:, 0], want) and same_bits(negative[:, 0], -want)


@pytest.mark.parametrize("psum", [(), (0,)])
def test_dimensions_are_added_in_the_order_of_their_elements(psum: tuple[int, ...]) -> None:
    x = numbers(2, (40, 3, 5, 60))

    def body(a, last, two, every):
        nisa.tensor_reduce(last, nl.add, a, axis=3)
        nisa.tensor_reduce(two, nl.add, a, axis=[2, 3])
        nisa.tensor_reduce(every, nl.add, a, axis=(1, 2, 3))

    outs = [((40, 3, 5), np.float32), ((40, 3), np.float32), ((40, 1), np.float32)]
    last, two, every = on_tiles(body, [x], outs, psum=psum)
    assert same_bits(last, looped(x))
    assert same_bits(two, looped(x.reshape(40, 3, 300)))
    assert same_bits(every, looped(x.reshape(40, 1, 900)))


@pytest.mark.parametrize("width", [256, 250])
def test_views_that_arent_contiguous(width: int) -> None:
    """Also of lengths whose elements come into each other's way in a cache."""
    x = numbers(3, (64, 2 * width))

    def body(a, half, turned):
        nisa.tensor_reduce(half, nl.add, a[:, 0 : 2 * width : 2], axis=1)
        view = a.reshape((64, width, 2)).permute((0, 2, 1))
        nisa.tensor_reduce(turned, nl.add, view, axis=2)

    half, turned = on_tiles(body, [x], [((64, 1), np.float32), ((64, 2), np.float32)])
    assert same_bits(half[:, 0], looped(x[:, ::2]))
    assert same_bits(turned, looped(x.reshape(64, width, 2).transpose(0, 2, 1)))


def test_sums_and_means_of_the_language() -> None:
    x = numbers(4, (64, 300))

    def kernel(x):
        tile = nl.load(x)
        return output(nl.sum(tile, axis=1)), output(nl.mean(tile, axis=1))

    total, mean = run(kernel, x)
    assert same_bits(total[:, 0], looped(x))
    assert same_bits(mean[:, 0], looped(x) / np.float32(300))


@pytest.mark.parametrize("precise", ["0", "1"])
def test_bfloat16_is_added_in_float32(precise: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NKI_PRECISE_FP", precise)
    x = numbers(5, (64, 300), BF16)

    def kernel(x):
        total = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(total, nl.add, nl.load(x), axis=1)
        return output(total)

    assert same_bits(run(kernel, x)[:, 0], looped(x.astype(np.float32)))


# ---- accumulators ------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [128, 130])
def test_the_scalar_engine_goes_on_adding(length: int) -> None:
    """Elements come after what the registers hold, one by one."""
    x, y = numbers(6, (64, length)), numbers(7, (64, length))

    def body(a, b, dst, first, both):
        nisa.activation(dst, nl.copy, a, reduce_op=nl.add, reduce_cmd=CMD.reset_reduce,
                        reduce_res=first)  # fmt: skip
        nisa.activation(dst, nl.copy, b, reduce_op=nl.add, reduce_cmd=CMD.reduce, reduce_res=both)

    outs = [((64, length), np.float32), *[((64, 1), np.float32)] * 2]
    _, first, both = on_tiles(body, [x, y], outs)
    assert same_bits(first[:, 0], looped(x))
    assert same_bits(both[:, 0], looped(y, looped(x)))


@pytest.mark.parametrize("op", [nl.add, nl.multiply])
def test_the_vector_engine_begins_with_what_it_loads(op: Any) -> None:
    x, y = numbers(8, (64, 40), scale=1.0), numbers(9, (64, 30), scale=1.0)
    start = numbers(10, (64, 1))

    def body(a, b, first, dst, dst2, loaded, both):
        go = nisa.tensor_scalar_reduce
        go(dst, a, nl.multiply, 1.0, op, loaded, reduce_cmd=CMD.load_reduce, reduce_init=first)
        go(dst2, b, nl.multiply, 1.0, op, both, reduce_cmd=CMD.reduce)

    outs = [((64, n), np.float32) for n in (40, 30, 1, 1)]
    _, _, loaded, both = on_tiles(body, [x, y, start], outs)
    fold = np.add if op is nl.add else np.multiply
    want = fold.accumulate(np.concatenate([start, x, y], axis=1), axis=1, dtype=np.float32)
    assert same_bits(loaded[:, 0], want[:, 40]) and same_bits(both[:, 0], want[:, 70])
