"""scalar_tensor_tensor, reciprocal and tensor_tensor_scan against float64 NumPy."""

import ml_dtypes
import numpy as np
import pytest
from helpers import numbers, on_tiles, rounded

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError

BF16 = ml_dtypes.bfloat16
X = np.ones((8, 6), np.float32)


@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("reverse1", [False, True])
@pytest.mark.parametrize("column", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int16])
def test_both_operators(reverse0, reverse1, column, dtype):
    x, y, c = numbers(1, (21, 2, 7), dtype), numbers(2, (21, 14), BF16), numbers(3, (21, 1))

    def body(data, other, col, dst):
        nisa.scalar_tensor_tensor(
            dst=dst,
            data=data,
            op0=nl.subtract,
            operand0=col if column else 2.5,
            op1=nl.multiply,
            operand1=other,
            reverse0=reverse0,
            reverse1=reverse1,
        )

    got = on_tiles(body, [x, y, c], [((21, 14), np.float32)], psum=(0,))[0]
    s = c if column else np.float32(2.5)
    flat = x.reshape(21, 14).astype(np.float32)
    expected = (s - flat if reverse0 else flat - s) * y.astype(np.float32)
    np.testing.assert_array_equal(got, expected)


def test_what_older_releases_took_is_let_pass():
    x, y = numbers(6, (16, 9)), numbers(7, (16, 9))

    def body(data, other, dst):
        nisa.scalar_tensor_tensor(data, data, nl.add, 0.5, nl.multiply, other, dtype=nl.bfloat16)
        nisa.tensor_copy(dst, data, dtype=nl.bfloat16)

    np.testing.assert_array_equal(
        on_tiles(body, [x, y], [((16, 9), np.float32)])[0], (x + np.float32(0.5)) * y
    )


STT = [
    (r"operand0 has shape \(8, 2\)", {"column": X[:, :2]}, (), {}),
    ("nl.power on the vector", {}, (), {"op1": nl.power}),
    ("for the unary nl.square", {}, (), {"op0": nl.square, "operand0": 3.0}),
]


@pytest.mark.parametrize("message, arrays, psum, options", STT, ids=[r[0] for r in STT])
def test_refused(message, arrays, psum, options):
    def body(data, other, col, dst):
        given = {"op0": nl.add, "operand0": col, "op1": nl.add, **options}
        nisa.scalar_tensor_tensor(dst=dst, data=data, operand1=other, **given)

    inputs = [X, arrays.get("operand1", X), arrays.get("column", X[:, :1])]
    with pytest.raises(NkiValidationError, match=message):
        on_tiles(body, inputs, [((8, 6), np.float32)], psum=psum)


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16])
def test_reciprocal(dtype):
    x = numbers(6, (31, 3, 5), dtype)
    x[0, 0, 0] = 0

    def body(data, dst):
        nisa.reciprocal(dst, data)

    got = on_tiles(body, [x], [((31, 15), dtype)], psum=(1,))[0]
    with np.errstate(divide="ignore"):
        expected = 1 / x.reshape(31, 15).astype(np.float64)
    np.testing.assert_array_equal(got.astype(np.float64), rounded(expected, dtype))
    with pytest.raises(NkiValidationError, match="same number of elements"):
        on_tiles(body, [x], [((31, 16), dtype)])


def scan(x, y, initial, op0, op1, reverse0, reverse1):
    out = np.empty(x.shape, np.float32)
    held = np.broadcast_to(np.float32(initial), (x.shape[0],))
    for n in range(x.shape[1]):
        first = op0(held, x[:, n]) if reverse0 else op0(x[:, n], held)
        held = op1(y[:, n], first) if reverse1 else op1(first, y[:, n])
        out[:, n] = held
    return out


@pytest.mark.parametrize("reverse0", [False, True])
@pytest.mark.parametrize("reverse1", [False, True])
@pytest.mark.parametrize("tile", [False, True])
@pytest.mark.parametrize("ones", [False, True])
@pytest.mark.parametrize(
    "op0, op1",
    [
        (nl.multiply, nl.add),
        (nl.subtract, nl.multiply),
        (nl.maximum, nl.subtract),
        (nl.multiply, nl.maximum),
    ],
)
def test_scan(reverse0, reverse1, tile, ones, op0, op1):
    x = np.ones((23, 18), np.float32) if ones else numbers(7, (23, 18), scale=0.7)
    y, c = numbers(8, (23, 3, 6), BF16), numbers(9, (23, 1))

    def body(data0, data1, col, dst):
        nisa.tensor_tensor_scan(
            dst=dst,
            data0=data0,
            data1=data1,
            initial=col if tile else 0.5,
            op0=op0,
            op1=op1,
            reverse0=reverse0,
            reverse1=reverse1,
        )

    got = on_tiles(body, [x, y, c], [((23, 18), np.float32)], psum=(1,))[0]
    ops = (getattr(np, op0.__name__), getattr(np, op1.__name__))
    flat = y.reshape(23, 18).astype(np.float32)
    expected = scan(x, flat, c[:, 0] if tile else 0.5, *ops, reverse0, reverse1)
    np.testing.assert_array_equal(got, expected)


def test_scan_in_place_continuing_from_its_own_last_column():
    x = np.ones((5, 6), np.float32)

    def body(tile, ones, out):
        for start in (0, 3):
            initial = 0.0 if start == 0 else tile[:, start - 1 : start]
            part = tile[:, start : start + 3]
            nisa.tensor_tensor_scan(part, ones[:, :3], part, initial, nl.multiply, nl.add)
        nisa.tensor_copy(dst=out, src=tile)

    got = on_tiles(body, [x, x], [((5, 6), np.float32)])[0]
    np.testing.assert_array_equal(got, np.cumsum(x, axis=1))


SCAN = [
    (r"initial has shape \(8, 6\)", (X, X, X), (), {}),
    ("nl.abs_max needs NeuronCore-v4", (X, X, X[:, :1]), (), {"op1": nl.abs_max}),
]


@pytest.mark.parametrize("message, arrays, psum, options", SCAN, ids=[r[0] for r in SCAN])
def test_scan_refused(message, arrays, psum, options):
    def body(data0, data1, col, dst):
        given = {"op0": nl.multiply, "op1": nl.add, **options}
        nisa.tensor_tensor_scan(dst=dst, data0=data0, data1=data1, initial=col, **given)

    with pytest.raises(NkiValidationError, match=message):
        on_tiles(body, list(arrays), [((8, 6), np.float32)], psum=psum)
