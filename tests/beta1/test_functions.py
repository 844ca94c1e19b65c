"""Operators and functions on tiles, with NumPy as reference."""

import operator

import ml_dtypes
import numpy as np
import pytest

from nki_dist.compat.beta1 import isa as nisa
from nki_dist.compat.beta1 import language as nl
from nki_dist.compat.beta1.promotion import promoted
from nki_dist.errors import NkiValidationError
from tests.beta1.helpers import close, normal, run

UNARY = {
    "exp": np.exp, "tanh": np.tanh, "square": np.square, "abs": np.abs, "sin": np.sin,
    "negative": np.negative, "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc,
    "sign": np.sign, "relu": lambda x: np.maximum(x, 0), "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}  # fmt: skip
BINARY = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "maximum": np.maximum, "minimum": np.minimum, "less": np.less,
    "greater_equal": np.greater_equal,
}  # fmt: skip


def out_of(tile):
    out = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary(name):
    def kernel(a):
        i, j = nl.mgrid[0:9, 0:7]
        return out_of(getattr(nl, name)(nl.load(a))), out_of(
            getattr(nl, name)(nl.load(a), mask=(i < 9) & (j < 7), dtype=nl.float32)
        )

    a = normal(9, 7)
    for got in run(kernel, a):
        close(got, UNARY[name](a.astype(np.float64)), 1e-5)


@pytest.mark.parametrize("name", sorted(BINARY))
@pytest.mark.parametrize("shapes", [((9, 7), (9, 7)), ((9, 1), (1, 7)), ((9, 3, 1), (9, 1, 7))])
def test_binary_broadcasts(name, shapes):
    def kernel(a, b):
        return out_of(getattr(nl, name)(nl.load(a), nl.load(b)))

    a, b = normal(*shapes[0]), normal(*shapes[1], seed=1)
    close(run(kernel, a, b), BINARY[name](a.astype(np.float64), b.astype(np.float64)), 1e-5)


OPERATORS = ["add", "sub", "mul", "truediv", "lt", "le", "gt", "ge", "eq", "ne"]


@pytest.mark.parametrize("name", OPERATORS)
def test_python_operators(name):
    op = getattr(operator, name)

    def kernel(a, b):
        x, y = nl.load(a), nl.load(b)
        return out_of(op(x, y)), out_of(op(x, 2.0)), out_of(op(np.float32(3), x)), out_of(-x)

    a, b = np.round(normal(5, 6)) + 4, np.round(normal(5, 6, seed=1)) + 4
    got = run(kernel, a, b)
    for g, wanted in zip(got, (op(a, b), op(a, 2.0), op(3.0, a), -a)):
        close(g, wanted)


@pytest.mark.parametrize("name", ["pow", "mod", "and_", "or_", "xor", "lshift", "rshift"])
def test_python_operators_without_a_reverse(name):
    op = getattr(operator, name)
    dtype = np.float32 if name == "pow" else np.int32

    def kernel(a, b):
        x, y = nl.load(a), nl.load(b)
        return out_of(op(x, y)), out_of(op(x, 3))

    a, b = ((np.arange(30).reshape(5, 6) * n % 11 + 1).astype(dtype) for n in (3, 7))
    for g, wanted in zip(run(kernel, a, b), (op(a, b), op(a, 3))):
        close(g, wanted)


def test_in_place_operators_keep_the_tile():
    def kernel(a):
        x = nl.load(a)
        y = x
        x += 1.0
        x *= y
        x[:, 1:3] -= nl.load(a)[:, 0:2]
        x /= 2.0
        return out_of(y)

    a = normal(5, 6)
    wanted = (a + 1) ** 2
    wanted[:, 1:3] -= a[:, 0:2]
    close(run(kernel, a), wanted / 2)


def test_results_survive_writes_to_where_they_were_assigned():
    def kernel(a):
        keep = nl.ndarray((5, 6), dtype=a.dtype)
        x = nl.load(a)
        result = nl.exp(x)
        keep[...] = result
        first = out_of(keep)
        keep[...] = 0.0
        keep += result
        keep[:, 0:3] = x[:, 3:6]
        return first, out_of(result), out_of(keep)

    a = normal(5, 6)
    first, result, keep = run(kernel, a)
    close(first, np.exp(a))
    close(result, np.exp(a))
    close(keep, np.concatenate([a[:, 3:], np.exp(a)[:, 3:]], 1))


def test_results_written_after_their_assignment_leave_the_destination_alone():
    def kernel(a):
        keep = nl.zeros((5, 12), dtype=a.dtype)
        x = nl.load(a)
        first, second, third = nl.exp(x), None, None
        keep[:, 0:6] = first
        first += 1.0
        second = nl.exp(x)
        keep[:, 6:12] = second
        second[:, 1:3] = 0.0
        third = nl.exp(x)
        keep[:, 0:6] = third
        nisa.tensor_copy_predicated(src=x, dst=third, predicate=nl.ones((5, 6), dtype=nl.uint8))
        return out_of(keep), out_of(first), out_of(second), out_of(third)

    a = normal(5, 6)
    e = np.exp(a)
    second = e.copy()
    second[:, 1:3] = 0
    for got, wanted in zip(run(kernel, a), (np.concatenate([e, e], 1), e + 1, second, a)):
        close(got, wanted)


def test_a_column_with_a_new_axis_is_the_column_itself():
    def kernel(a):
        keep = nl.ndarray((5, 1), dtype=a.dtype)
        total = nl.sum(nl.load(a), axis=1)
        keep[...] = total[:, None]
        return out_of(keep), out_of(total)

    a = normal(5, 6)
    for got in run(kernel, a):
        close(got, a.sum(1, keepdims=True))


def test_assignment_rounds_to_each_dtype_once():
    def kernel(a):
        narrow = nl.ndarray((5, 6), dtype=nl.bfloat16)
        wide = nl.ndarray((5, 6), dtype=nl.float32)
        x = nl.load(a)
        narrow[...] = nl.multiply(x, 1.01)
        wide[...] = nl.multiply(x, 1.01, dtype=nl.bfloat16)
        return out_of(narrow), out_of(wide), out_of(nl.static_cast(x, nl.bfloat16))

    a = normal(5, 6)
    once = (a * np.float32(1.01)).astype(ml_dtypes.bfloat16).astype(np.float32)
    narrow, wide, cast = run(kernel, a)
    np.testing.assert_array_equal(narrow, once)
    np.testing.assert_array_equal(wide, once)
    np.testing.assert_array_equal(cast, a.astype(ml_dtypes.bfloat16).astype(np.float32))


@pytest.mark.parametrize("axis", [[1], [2], (1, 2), -1, [1, 3], [2, 3], (1, 2, 3)])
@pytest.mark.parametrize("name", ["sum", "max", "min", "mean"])
def test_reductions_over_any_free_axes(name, axis):
    shape = (5, 3, 4, 2)[: 4 if 3 in np.atleast_1d(axis) else 3]

    def kernel(a):
        function = getattr(nl, name)
        return out_of(function(nl.load(a), axis=axis)), out_of(
            function(nl.load(a), axis=axis, keepdims=True)
        )

    a = normal(*shape)
    axes = tuple(np.atleast_1d(axis))
    plain, kept = run(kernel, a)
    wanted = getattr(np, name)(a.astype(np.float64), axis=axes, keepdims=True)
    close(kept, wanted, 1e-5)
    squeezed = wanted.squeeze(axes)
    close(plain, squeezed if squeezed.ndim > 1 else squeezed[:, None], 1e-5)


def test_where_softmax_transpose_matmul_and_shapes():
    def kernel(a, b):
        x, y = nl.load(a), nl.load(b)
        return (
            out_of(nl.where(x > 0.0, x, -1.0)),
            out_of(nl.softmax(x, axis=1)),
            out_of(nl.transpose(x)),
            out_of(nl.matmul(x, y)),
            out_of(nl.matmul(nl.transpose(x), y, transpose_x=True)),
            out_of(nl.broadcast_to(y[:, 0:1], shape=(6, 4))),
            out_of(nl.expand_dims(x, 1)),
        )

    a, b = normal(5, 6), normal(6, 7, seed=1)
    got = run(kernel, a, b)
    e = np.exp(a - a.max(1, keepdims=True))
    wanted = [np.where(a > 0, a, -1), e / e.sum(1, keepdims=True), a.T, a @ b, a @ b]
    wanted += [np.repeat(b[:, :1], 4, 1), a[:, None]]
    for g, w in zip(got, wanted):
        close(g, w, 1e-5)


def test_constants_and_creation():
    def kernel():
        table = nl.shared_constant(np.arange(12, dtype=np.float32).reshape(3, 4))
        x = nl.load(table)
        return (
            out_of(x), out_of(nl.zeros_like(x)), out_of(nl.ones((3, 2), dtype=nl.int32)),
            out_of(nl.full((2, 5), -1.5, dtype=nl.float16)),
            out_of(nl.load(nl.shared_identity_matrix(n=4, dtype=nl.bfloat16))),
        )  # fmt: skip

    wanted = [
        np.arange(12).reshape(3, 4), np.zeros((3, 4)), np.ones((3, 2)),
        np.full((2, 5), -1.5), np.eye(4),
    ]  # fmt: skip
    for g, w in zip(run(kernel), wanted):
        close(g, w)


def test_random_numbers_are_uniform_and_repeatable():
    def kernel():
        return out_of(nl.rand((64, 50)))

    first, again = run(kernel), run(kernel)
    np.testing.assert_array_equal(first, again)
    assert first.min() >= 0 and first.max() < 1 and abs(first.mean() - 0.5) < 0.02


PROMOTIONS = [
    ("int32", "float16", "float16"), ("uint16", "tfloat32", "tfloat32"),
    ("float32", "bfloat16", "float32"), ("float16", "bfloat16", "float32"),
    ("float8_e4m3", "bfloat16", "bfloat16"), ("float8_e4m3", "float8_e5m2", "bfloat16"),
    ("int16", "int32", "int32"), ("uint16", "int32", "int32"), ("int8", "uint8", "int16"),
    ("int8", "uint16", "int32"), ("int32", "uint32", "float32"), ("bool_", "int8", "int8"),
]  # fmt: skip


@pytest.mark.parametrize("a, b, wanted", PROMOTIONS)
def test_types_promote_as_documented(a, b, wanted):
    for x, y in ((a, b), (b, a)):
        assert promoted(getattr(nl, x), getattr(nl, y)) == getattr(nl, wanted)


@pytest.mark.parametrize(
    "tile, number, wanted",
    [
        ("int8", 2, "int32"),
        ("float16", 1.2, "float32"),
        ("int8", np.int8(2), "int8"),
        ("float16", np.float16(2), "float16"),
        ("float16", 3, "float16"),
        ("int32", 0.5, "float32"),
    ],
)
def test_numbers_promote_as_documented(tile, number, wanted):
    seen = []

    def kernel(a):
        x = nl.load(a, dtype=getattr(nl, tile))
        seen.extend([(x + number).dtype, (number * x).dtype, nl.less(x, number).dtype])
        return out_of(x + number)

    a = np.arange(-6, 6, dtype=np.float32).reshape(3, 4)
    close(run(kernel, a), a + float(np.float32(number)), 1e-6)
    assert seen == [getattr(nl, wanted)] * 2 + [nl.bool_]


def test_rows_can_be_iterated():
    def kernel(a):
        return [out_of(nl.load(part)) for part in a]

    a = normal(2, 3, 4)
    for got, wanted in zip(run(kernel, a), a, strict=True):
        close(got, wanted)


def refused(kernel, message):
    with pytest.raises(NkiValidationError, match=message) as caught:
        run(kernel, normal(8, 10))
    assert "test_functions.py:" in caught.value.location


def test_wrong_arguments():
    def partition(a):
        nl.sum(nl.load(a), axis=0)

    def shapes(a):
        nl.load(a) + nl.load(a)[:, 0:3]

    def kinds(a):
        nl.load(a) + "x"

    def index(a):
        nl.load(a) * nl.arange(10)[None, :]

    def hbm(a):
        nl.exp(a)

    def blocks(a):
        nl.exp(nl.zeros((2, nl.par_dim(8), 10), dtype=a.dtype))

    def matmul_mask(a):
        nl.matmul(nl.load(a)[0:8, 0:8], nl.load(a), mask=nl.arange(8)[:, None] < 3)

    refused(partition, "dimension 0 counts partitions")
    refused(shapes, "don't broadcast")
    refused(kinds, "allowed: tiles and numbers")
    refused(index, "nisa.iota")
    refused(hbm, "shared_hbm")
    refused(blocks, "index the blocks")
    refused(matmul_mask, "slice the operands")


def test_what_has_no_meaning_here_is_refused():
    def kernel(a):
        nl.all_reduce(1, np.add, (0,))

    refused(kernel, "isn't supported; return a tensor")
