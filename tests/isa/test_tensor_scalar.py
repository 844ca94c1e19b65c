"""tensor_scalar against float64 and integer NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from helpers import numbers, on_tiles, rounded

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

BF16 = ml_dtypes.bfloat16
NUMPY = {
    nl.add: np.add,
    nl.subtract: np.subtract,
    nl.multiply: np.multiply,
    nl.maximum: np.maximum,
    nl.minimum: np.minimum,
    nl.less: np.less,
    nl.greater_equal: np.greater_equal,
    nl.logical_and: lambda a, b: np.logical_and(a != 0, b != 0),
}


def call(x, outputs=None, columns=(), platform="trn2", psum=(), **options):
    """One tensor_scalar on a tile; `columns` become (P, 1) operands in order."""
    shape, dtype = outputs or (x.shape, x.dtype)

    def body(data, *rest):
        given = dict(options)
        for pair in enumerate(rest[:-1]):
            n, column = pair
            given[f"operand{n}"] = column
        nisa.tensor_scalar(dst=rest[-1], data=data, **given)

    return on_tiles(body, [x, *columns], [(shape, dtype)], platform=platform, psum=psum)[0]


@pytest.mark.parametrize("op", list(NUMPY), ids=lambda op: op.__name__)
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32, np.uint8, ml_dtypes.float8_e4m3])
def test_operators_in_float32_with_one_rounding(op, dtype):
    x = numbers(1, (37, 13), dtype)
    got = call(x, op0=op, operand0=2.5)
    expected = NUMPY[op](x.astype(np.float64), 2.5).astype(np.float64)
    np.testing.assert_array_equal(got.astype(np.float64), rounded(expected, dtype))


@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("reverse1", [False, True])
@pytest.mark.parametrize("tile0", [False, True])
@pytest.mark.parametrize("tile1", [False, True])
def test_two_operators_reversed_with_numbers_and_columns(reverse0, reverse1, tile0, tile1):
    x = numbers(2, (19, 3, 5))
    c0, c1 = numbers(3, (19, 1)), numbers(4, (19, 1)) + 5
    s0 = c0 if tile0 else np.float32(1.25)
    s1 = c1 if tile1 else np.float32(3.5)

    def body(data, col0, col1, dst):
        nisa.tensor_scalar(
            dst=dst,
            data=data,
            op0=nl.subtract,
            operand0=col0 if tile0 else 1.25,
            reverse0=reverse0,
            op1=nl.divide,
            operand1=col1 if tile1 else 3.5,
            reverse1=reverse1,
        )

    got = on_tiles(body, [x, c0, c1], [(x.shape, np.float32)])[0]
    s0, s1 = (s.reshape(-1, 1, 1) if s.ndim else s for s in (s0, s1))
    first = s0 - x if reverse0 else x - s0
    np.testing.assert_array_equal(got, s1 / first if reverse1 else first / s1)


def test_operands_read_before_the_destination_that_holds_them_is_written():
    x = numbers(5, (20, 9))

    def body(tile, out):
        nisa.tensor_scalar(
            dst=tile,
            data=tile,
            op0=nl.multiply,
            operand0=tile[:, 0:1],
            op1=nl.add,
            operand1=tile[:, 4:5],
        )
        nisa.tensor_copy(dst=out, src=tile)

    got = on_tiles(body, [x], [(x.shape, np.float32)])[0]
    np.testing.assert_array_equal(got, x * x[:, :1] + x[:, 4:5])


def test_one_column_destination_that_is_also_the_second_operand():
    x, y = numbers(6, (20, 1)), numbers(7, (20, 1))

    def body(a, b, out):
        nisa.tensor_scalar(dst=b, data=a, op0=nl.multiply, operand0=a, op1=nl.subtract, operand1=b)
        nisa.tensor_copy(dst=out, src=b)

    got = on_tiles(body, [x, y], [(y.shape, np.float32)])[0]
    np.testing.assert_array_equal(got, x * x - y)


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.uint32, np.int32])
def test_bitwise_operators_move_bit_patterns(dtype):
    info = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(info.min, info.max, (17, 7), dtype, endpoint=True)
    got = call(x, op0=nl.bitwise_and, operand0=0x5B, op1=nl.bitwise_xor, operand1=0x13)
    np.testing.assert_array_equal(got, (x & np.array(0x5B, dtype)) ^ np.array(0x13, dtype))
    unsigned = x.view(f"u{x.itemsize}")
    got = call(x, op0=nl.right_shift, operand0=3)
    np.testing.assert_array_equal(got.view(unsigned.dtype), unsigned >> np.array(3, unsigned.dtype))
    got = call(x, (x.shape, unsigned.dtype), op0=nl.invert, operand0=None)
    np.testing.assert_array_equal(got, ~unsigned)


def test_bitwise_column_and_reversed_shift():
    x = np.arange(12, dtype=np.int32).reshape(4, 3)
    column = np.array([[1], [2], [3], [4]], np.int32)
    got = call(x, columns=[column], op0=nl.left_shift, reverse0=True)
    np.testing.assert_array_equal(got, column << x)


def test_integer_column_and_missing_first_operator_as_published_kernels_use_them():
    x = np.arange(40, dtype=np.int32).reshape(8, 5)
    column = np.arange(8, dtype=np.int32).reshape(8, 1)
    got = call(x, columns=[column], op0=nl.add)
    np.testing.assert_array_equal(got, x + column)
    got = call(x, op0=None, operand0=None, op1=nl.maximum, operand1=11.0)
    np.testing.assert_array_equal(got, np.maximum(x, 11))


def test_unary_operators_and_rsqrt_on_gpsimd():
    x = np.abs(numbers(11, (9, 4))) + 1
    for nothing in (None, 0, 0.0):  # what the documentation allows
        np.testing.assert_array_equal(call(-x, op0=nl.abs, operand0=nothing), x)
    got = call(x, op0=nl.rsqrt, operand0=0.0, engine=nisa.engine.gpsimd)
    np.testing.assert_allclose(got, 1 / np.sqrt(x.astype(np.float64)), rtol=2e-7)


X = np.ones((8, 6), np.float32)
N = np.ones((8, 6), np.int32)
BITWISE = {"op0": nl.bitwise_or, "op1": nl.bitwise_or}
REFUSED = [
    ("same number of elements", X, {"outputs": ((8, 5), np.float32)}, {}),
    ("same number of partitions", X, {"outputs": ((7, 6), np.float32)}, {}),
    ("operand0 is None", X, {}, {"operand0": None}),
    ("need one width", N, {"outputs": ((8, 6), np.int8)}, {"op0": nl.bitwise_or, "operand0": 1}),
    ("takes whole numbers", N, {}, {"op0": nl.bitwise_or, "operand0": 1.5}),
    ("operand1 has dtype float32", N, {"columns": (N[:, :1], X[:, :1])}, BITWISE),
    ("allowed there: rsqrt", X, {}, {"engine": nisa.engine.gpsimd}),
    ("needs NeuronCore-v3", X, {"platform": "trn1"}, {"engine": nisa.engine.scalar}),
    ("is in PSUM, which the GpSimd", X, {"psum": (0,)}, {"op0": nl.rsqrt, "operand0": 0}),
    ("rsqrt on the vector engine", X, {}, {"op0": nl.rsqrt, "operand0": 0, "engine": "vector"}),
]


@pytest.mark.parametrize("message, x, setting, options", REFUSED, ids=[r[0] for r in REFUSED])
def test_refused(message, x, setting, options):
    options = {"op0": nl.add, "operand0": 2.0, **options}
    if options["op0"] is nl.bitwise_or:
        options["operand0"] = options["operand0"] if options["operand0"] != 2.0 else 2
    with pytest.raises(NkiValidationError, match=message):
        call(x, **setting, **options)


def test_accepted_on_the_scalar_engine():
    options = {"op0": nl.multiply, "operand0": 2.0, "op1": nl.add, "operand1": 1.0}
    got = call(X, engine=nisa.engine.scalar, **options)
    np.testing.assert_array_equal(got, X * 2 + 1)
    got = call(X, platform="trn3", engine=nisa.engine.scalar, op0=nl.abs_max, operand0=-3.0)
    np.testing.assert_array_equal(got, X * -3)


def test_run_time_patterns_that_only_dma_has_are_refused():
    index = np.zeros((8, 1), np.uint32)

    def vector(data, offsets, dst):
        rows = data.ap([[6, 8], [1, 6]], vector_offset=offsets)
        nisa.tensor_scalar(dst=dst, data=rows, op0=nl.add, operand0=1.0)

    with pytest.raises(NkiValidationError, match="vector offset"):
        on_tiles(vector, [X, index], [((8, 6), np.float32)], platform="trn3")
