"""tensor_tensor, tensor_copy and memset: values, exact integers, bits, engines, refusals."""

import ml_dtypes
import numpy as np
import pytest
from helpers import numbers, on_tiles, rounded

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError

BF16 = ml_dtypes.bfloat16
E = nisa.engine
X = np.ones((8, 6), np.float32)
N = np.ones((8, 6), np.int32)


def pair(x, y, op, dtype=None, psum=(), shape=None, platform="trn2", **options):
    def body(a, b, dst):
        nisa.tensor_tensor(dst=dst, data1=a, data2=b, op=op, **options)

    outputs = [(shape or x.shape, dtype or x.dtype)]
    return on_tiles(body, [x, y], outputs, psum=psum, platform=platform)[0]


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "maximum", "less_equal", "power"])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16, np.int16])
def test_float32_with_one_rounding(op, dtype):
    x, y = numbers(1, (30, 3, 7), dtype), numbers(2, (30, 21), BF16)
    if op == "power":
        x, y = np.abs(x), (y * 0 + 2).astype(BF16)
    got = pair(x, y, getattr(nl, op), dtype, shape=(30, 21))
    wide = x.reshape(30, 21).astype(np.float64)
    expected = getattr(np, op)(wide, y.astype(np.float64)).astype(np.float64)
    np.testing.assert_array_equal(got.astype(np.float64), rounded(expected, dtype))


@pytest.mark.parametrize("op", ["add", "subtract", "multiply", "maximum", "minimum", "less"])
@pytest.mark.parametrize("kinds", [("i4", "i4"), ("u4", "u4"), ("i4", "u4"), ("u4", "i4")])
def test_32_bit_integers_are_exact_on_gpsimd(op, kinds):
    rng = np.random.default_rng(3)
    x, y = (rng.integers(0, 2**32, (9, 2, 8), np.uint64).astype("u4").view(k) for k in kinds)
    got = pair(x, y.reshape(9, 16), getattr(nl, op), np.int32, shape=(9, 16))
    wide = getattr(np, op)(x.reshape(9, 16).astype("i8"), y.reshape(9, 16).astype("i8"))
    np.testing.assert_array_equal(got, wide.astype("u4" if op != "less" else "i4").view("i4"))


def test_32_bit_integers_on_vector_and_in_psum_go_through_float32():
    x = np.full((4, 5), 2**24 + 1, np.int32)
    y = np.zeros((4, 5), np.int32)
    assert (pair(x, y, nl.add) == 2**24 + 1).all()
    assert (pair(x, y, nl.add, engine=E.vector) == 2**24).all()
    assert (pair(x, y, nl.add, psum=(0,)) == 2**24).all()


@pytest.mark.parametrize("kinds", [("i4", "u4", "u4"), ("u2", "i2", "i2"), ("i1", "i1", "u1")])
def test_bitwise_operators_never_convert(kinds):
    rng = np.random.default_rng(4)
    bits = f"u{np.dtype(kinds[0]).itemsize}"
    x, y = (rng.integers(0, 2**32, (6, 11), np.uint64).astype(bits).view(k) for k in kinds[:2])
    got = pair(x, y, nl.bitwise_xor, np.dtype(kinds[2]))
    np.testing.assert_array_equal(got.view(bits), x.view(bits) ^ y.view(bits))


PAIRS = [
    ("need one width", N, N.astype(np.int8), nl.bitwise_or, {}),
    ("nl.power on the vector engine", X, X, nl.power, {"engine": E.vector}),
    ("is in PSUM, which the GpSimd", N, N, nl.add, {"psum": (2,), "engine": E.gpsimd}),
    ("bitwise_or on the gpsimd", N, N, nl.bitwise_or, {"engine": E.gpsimd}),
    ("engine=scalar; allowed", X, X, nl.add, {"engine": E.scalar}),
    ("nl.abs_max needs NeuronCore-v4", X, X, nl.abs_max, {}),
]


@pytest.mark.parametrize("message, x, y, op, options", PAIRS)
def test_refused(message, x, y, op, options):
    with pytest.raises(NkiValidationError, match=message):
        pair(x, y, op, **options)


def copy(x, dtype, psum=(), platform="trn2", shape=None, **options):
    def body(src, dst):
        nisa.tensor_copy(dst=dst, src=src, **options)

    return on_tiles(body, [x], [(shape or x.shape, dtype)], platform=platform, psum=psum)[0]


@pytest.mark.parametrize("engine", [E.unknown, E.vector, E.scalar, E.gpsimd])
def test_copy_of_one_type_keeps_bits(engine):
    x = np.array([[0x7F800001, 0xFFC12345, 2**31 + 1, 5]], np.uint32)
    got = copy(x.view(np.float32), np.float32, engine=engine)
    np.testing.assert_array_equal(got.view(np.uint32), x)
    big = np.array([[2**31 - 1, -(2**31) + 1, 2**24 + 1]], np.int32)
    np.testing.assert_array_equal(copy(big, np.int32, engine=engine), big)


@pytest.mark.parametrize("to", [BF16, np.float16, np.int8, np.uint16, ml_dtypes.float8_e5m2])
def test_copy_converts_through_float32(to):
    x = numbers(7, (20, 3, 4))
    got = copy(x, to, psum=(0,), shape=(20, 12))
    expected = rounded(x.reshape(20, 12).astype(np.float64), to)
    np.testing.assert_array_equal(got.astype(np.float64), expected)


def test_copy_refused():
    with pytest.raises(NkiValidationError, match="is in PSUM, which the GpSimd"):
        copy(X, np.float32, psum=(1,), engine=E.gpsimd)

    def packed(src, dst):
        tile = nl.ndarray((8, 6), nl.float8_e4m3fn_x4)
        nisa.tensor_copy(tile, src)

    with pytest.raises(NkiValidationError, match="packed dtype float8_e4m3fn_x4"):
        on_tiles(packed, [X], [((8, 6), np.float32)])


def fill(value, dtype, psum=(), **options):
    def body(dst):
        nisa.memset(dst, value, **options)

    return on_tiles(lambda a, dst: body(dst), [X], [((5, 3), dtype)], psum=psum)[0]


@pytest.mark.parametrize(
    "value, dtype, expected",
    [
        (0, np.float32, 0),
        (float("-inf"), BF16, -np.inf),
        (1.00390625, BF16, 1.0),
        (-1, np.uint32, 2**32 - 1),
        (-1, np.int32, -1),
        (3, np.uint8, 3),
        (2**31 - 1, np.int32, 2**31 - 1),
        (1, np.bool_, 1),
        (0.0, np.uint8, 0),  # as kernels of AWS's library fill integers
        (-3.0, np.int16, -3),
        (0.0, np.uint32, 0),
    ],
)
def test_memset(value, dtype, expected):
    for psum, engine in (((), E.unknown), ((), E.gpsimd), ((1,), E.vector)):
        got = fill(value, dtype, psum, engine=engine)
        np.testing.assert_array_equal(got.astype(np.float64), np.full((5, 3), expected))


def test_memset_refused():
    with pytest.raises(NkiValidationError, match=r"value=256 for dtype uint8; .* -1 to 255"):
        fill(256, np.uint8)
    with pytest.raises(NkiValidationError, match="is in PSUM, which the GpSimd"):
        fill(1, np.float32, psum=(1,), engine=E.gpsimd)
