"""Operands whose dimensions cut across each other, at random shapes: elements match in row-major
order within a partition, whatever the shapes are."""

import ml_dtypes
import numpy as np
from helpers import numbers, on_tiles
from hypothesis import given, settings
from hypothesis import strategies as st

import nki_dist.isa as nisa
import nki_dist.language as nl

BF16 = ml_dtypes.bfloat16
DTYPES = st.sampled_from([np.float32, BF16, np.int16])
FACTORS = st.permutations([2, 3, 5]).map(tuple)


def shapes(partitions, factors, split):
    """One of the ways to write 30 elements per partition as one, two or three dimensions."""
    a, b, c = factors
    return (partitions, *((30,), (a, b * c), (a * b, c), factors)[split])


SHAPE = st.tuples(FACTORS, st.integers(0, 3))
SETTINGS = settings(derandomize=True, max_examples=30, deadline=None)


@SETTINGS
@given(st.integers(1, 128), SHAPE, SHAPE, SHAPE, DTYPES, DTYPES)
def test_element_order(partitions, one, two, three, dtype0, dtype1):
    x = numbers(1, shapes(partitions, *one), dtype0)
    y = numbers(2, shapes(partitions, *two), dtype1)
    mask = np.random.default_rng(3).integers(0, 2, x.shape).astype(np.uint8)
    out = (shapes(partitions, *three), np.float32)

    def body(a, b, m, scaled, added, scanned, activated, total, copied):
        nisa.tensor_scalar(scaled, a, nl.multiply, 0.5, op1=nl.subtract, operand1=1.0)
        nisa.tensor_tensor(added, a, b, nl.add)
        nisa.scalar_tensor_tensor(scanned, a, nl.add, 1.0, nl.multiply, b)
        nisa.activation_reduce(activated, nl.square, a, nl.add, total, scale=2.0)
        nisa.tensor_copy_predicated(copied, scaled, m)

    column = ((partitions, 1), np.float32)
    got = on_tiles(body, [x, y, mask], [out, out, out, out, column, out])
    a, b = (t.reshape(partitions, 30).astype(np.float32) for t in (x, y))
    half = a * np.float32(0.5) - 1
    square = (2 * a) ** 2
    copied = np.where(mask.reshape(partitions, 30) != 0, half, np.float32(7))
    expected = [half, a + b, (a + 1) * b, square, None, copied]
    for result, wanted in zip(got, expected, strict=True):
        if wanted is not None:
            np.testing.assert_array_equal(result.reshape(partitions, 30), wanted)
    total = square.astype(np.float64).sum(1)
    np.testing.assert_allclose(got[4][:, 0], total, rtol=1e-5)


@SETTINGS
@given(st.integers(1, 64), st.integers(1, 40), st.integers(1, 3), DTYPES, DTYPES)
def test_strided_views_and_converted_destinations(partitions, n, step, dtype, to):
    x = numbers(4, (partitions, n * step), dtype)

    def body(a, dst):
        nisa.tensor_scalar(
            dst[:, 0 : n * step : step], a[:, 0 : n * step : step], nl.add, 2.0, reverse0=True
        )

    got = on_tiles(body, [x], [((partitions, n * step), to)])[0].astype(np.float64)
    expected = np.full((partitions, n * step), 7.0)
    single = x[:, ::step].astype(np.float32) + np.float32(2)
    rounded = np.rint(single) if to is np.int16 else single.astype(to).astype(np.float64)
    expected[:, ::step] = rounded
    np.testing.assert_array_equal(got, expected)
