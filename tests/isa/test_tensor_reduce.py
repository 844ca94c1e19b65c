"""tensor_reduce against float64 and integer NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from helpers import numbers, on_tiles

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError

BF16 = ml_dtypes.bfloat16


def call(x, shape, dtype=np.float32, psum=(), view=None, **options):
    def body(data, dst):
        nisa.tensor_reduce(dst=dst, data=data if view is None else view(data), **options)

    return on_tiles(body, [x], [(shape, dtype)], psum=psum)[0]


@pytest.mark.parametrize("axis, shape", [(3, (17, 3, 4)), ([2, 3], (17, 3)), ((1, 2, 3), (17, 1))])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32])
def test_sums_over_trailing_axes(axis, shape, dtype):
    x = numbers(1, (17, 3, 4, 37), dtype)
    got = call(x, shape, psum=(0,), op=nl.add, axis=axis)
    axes = axis if isinstance(axis, int) else tuple(axis)
    expected = x.astype(np.float64).sum(axis=axes).reshape(shape)
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize("op", [nl.maximum, nl.minimum, nl.max, nl.multiply, nl.subtract])
@pytest.mark.parametrize("negate", [False, True])
def test_other_operators_negated_and_not(op, negate):
    x = numbers(2, (29, 11), scale=1.5)
    got = call(x, (29, 1), op=op, axis=-1, negate=negate, keepdims=True)
    wide = x.astype(np.float64)
    expected = {
        "maximum": lambda: wide.max(1),
        "max": lambda: wide.max(1),
        "minimum": lambda: wide.min(1),
        "multiply": lambda: wide.prod(1),
        "subtract": lambda: wide[:, 0] - wide[:, 1:].sum(1),
    }[op.__name__]()
    np.testing.assert_allclose(got[:, 0], -expected if negate else expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32])
def test_bitwise(dtype):
    x = np.random.default_rng(5).integers(0, 200, (9, 2, 5)).astype(dtype)
    for op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
        got = call(x, (9, 2), dtype, op=getattr(nl, op), axis=2)
        np.testing.assert_array_equal(got, getattr(np, op).reduce(x, axis=2))


X = np.ones((8, 4, 6), np.float32)
N = np.ones((8, 4, 6), np.int32)
REFUSED = [
    ("axis='last'; allowed", X, (8, 4), {"axis": "last"}),
    ("same number of partitions", X, (7, 4), {"axis": 2}),
    ("negate with the bitwise", N, (8, 4), {"op": nl.bitwise_or, "negate": True}),
]


@pytest.mark.parametrize("message, x, shape, options", REFUSED)
def test_refused(message, x, shape, options):
    with pytest.raises(NkiValidationError, match=message):
        call(x, shape, x.dtype, **{"op": nl.add, "axis": 2, **options})
