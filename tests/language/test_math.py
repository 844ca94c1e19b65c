"""Every computing function of the language against NumPy in float64."""

from math import erf, erfc, pi, sqrt

import ml_dtypes
import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError
from tests.language.run import on_tiles, run

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

RNG = np.random.default_rng(7)
A = RNG.normal(size=(5, 11)).astype(np.float32) * 3
B = RNG.normal(size=(5, 11)).astype(np.float32) * 3
POSITIVE = np.abs(A) + 0.1
K = RNG.integers(-50, 50, size=(5, 11)).astype(np.int32)
J = RNG.integers(-50, 50, size=(5, 11)).astype(np.int32)


def close(got, expected, ulp=2, kind=np.float32):
    """`got` within some units in the last place of a float64 reference."""
    expected = np.asarray(expected, np.float64)
    assert got.shape == expected.shape
    space = np.spacing(np.abs(expected).astype(np.float32)).astype(np.float64)
    if kind is ml_dtypes.bfloat16:
        space = space * 2**16
    np.testing.assert_array_less(np.abs(got.astype(np.float64) - expected), ulp * space + 1e-45)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def phi(x):
    return np.vectorize(erfc)(-x / sqrt(2)) / 2


def density(x):
    return np.exp(-x * x / 2) / sqrt(2 * pi)


def gelu_tanh(x):
    # 0.5 * (1 + tanh(u)) without its cancellation
    return x * sigmoid(2 * sqrt(2 / pi) * (x + 0.044715 * x**3))


BINARY = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "fmod": np.fmod,
    "mod": np.mod,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
}

UNARY = {
    "abs": np.abs,
    "square": np.square,
    "sign": np.sign,
    "reciprocal": lambda x: 1 / x,
    "negative": np.negative,
    "copy": lambda x: x,
    "ceil": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "arctan": np.arctan,
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * phi(x),
    "gelu_dx": lambda x: phi(x) + x * density(x),
    "gelu_apprx_tanh": gelu_tanh,
    "gelu_apprx_sigmoid": lambda x: x * sigmoid(1.702 * x),
    "gelu_apprx_sigmoid_dx": lambda x: (
        sigmoid(1.702 * x) * (1 + 1.702 * x * (1 - sigmoid(1.702 * x)))
    ),
    "silu": lambda x: x * sigmoid(x),
    "silu_dx": lambda x: sigmoid(x) * (1 + x * (1 - sigmoid(x))),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "erf": np.vectorize(erf),
    "erf_dx": lambda x: 2 / sqrt(pi) * np.exp(-x * x),
    "logical_not": np.logical_not,
}

POSITIVE_ONLY = {"log": np.log, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x)}

BITS = {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
}


# ---- element by element -------------------------------------------------------------------------


@pytest.mark.parametrize("name", BINARY)
def test_binary_functions(name):
    function, reference = getattr(nl, name), BINARY[name]
    a, b = (np.round(x) for x in (A, B)) if name in ("equal", "not_equal") else (A, B)
    x, y = a.astype(np.float64), b.astype(np.float64)
    close(on_tiles(function, a, b), reference(x, y))
    close(on_tiles(lambda t: function(t, 2.0), a), reference(x, 2.0))
    close(on_tiles(lambda t: function(2.0, t), a), reference(2.0, x))
    close(on_tiles(lambda t: function(t, t), a), reference(x, x))


@pytest.mark.parametrize("name", UNARY)
def test_unary_functions(name):
    close(on_tiles(getattr(nl, name), A), UNARY[name](A.astype(np.float64)), ulp=4)


@pytest.mark.parametrize("name", POSITIVE_ONLY)
def test_functions_of_positive_numbers(name):
    reference = POSITIVE_ONLY[name](POSITIVE.astype(np.float64))
    close(on_tiles(getattr(nl, name), POSITIVE), reference, ulp=4)


def test_power():
    x, y = POSITIVE.astype(np.float64), B.astype(np.float64)
    close(on_tiles(nl.power, POSITIVE, B), x**y, ulp=4)
    close(on_tiles(lambda t: nl.power(t, 2.0), A), A.astype(np.float64) ** 2)
    close(on_tiles(lambda t: nl.power(2.0, t), B), 2.0**y, ulp=4)


@pytest.mark.parametrize("name", BITS)
def test_bit_functions(name):
    function, reference = getattr(nl, name), BITS[name]
    np.testing.assert_array_equal(on_tiles(function, K, J), reference(K, J))
    np.testing.assert_array_equal(on_tiles(lambda t: function(t, 12), K), reference(K, 12))
    np.testing.assert_array_equal(on_tiles(lambda t: function(12, t), K), reference(12, K))


def test_shifts_and_invert():
    u = np.abs(K).astype(np.uint32)
    np.testing.assert_array_equal(on_tiles(lambda t: nl.left_shift(t, 3), u), u << 3)
    np.testing.assert_array_equal(on_tiles(lambda t: nl.right_shift(t, 2), u), u >> 2)
    np.testing.assert_array_equal(
        on_tiles(lambda t: nl.right_shift(1 << 20, t), u % 20), (1 << 20) >> u % 20
    )
    np.testing.assert_array_equal(on_tiles(nl.left_shift, u, u % 7), u << u % 7)
    for kind in (np.int32, np.uint32, np.int16, np.uint16, np.int8, np.uint8):
        x = K.astype(kind)
        np.testing.assert_array_equal(on_tiles(nl.invert, x), np.invert(x))


def test_abs_max_and_abs_min_keep_the_sign_and_take_y_on_a_tie():
    x, y = np.array([[-5, 1, 2, -3]], np.float32), np.array([[3, -1, -7, 3]], np.float32)
    got = on_tiles(nl.abs_max, x, y, platform="trn3")
    np.testing.assert_array_equal(got, [[-5, -1, -7, 3]])
    got = on_tiles(nl.abs_min, x, y, platform="trn3")
    np.testing.assert_array_equal(got, [[3, -1, 2, 3]])
    with pytest.raises(NkiValidationError, match="needs NeuronCore-v4"):
        on_tiles(lambda t: nl.abs_max(t, 1.0), x)


def test_infinities_and_integers_in_rounding_functions():
    x = np.array([[np.inf, -np.inf, -0.5, 2.5, 1e30, np.nan, -3.0]], np.float32)
    for name in ("ceil", "floor", "trunc"):
        np.testing.assert_array_equal(on_tiles(getattr(nl, name), x), getattr(np, name)(x))


# ---- dtypes and broadcasting --------------------------------------------------------------------


def test_the_result_has_the_tiles_dtype_unless_told_otherwise():
    half = A.astype(ml_dtypes.bfloat16)
    got = on_tiles(lambda x: nl.multiply(x, 0.3), half)
    assert got.dtype == half.dtype
    close(got, half.astype(np.float64) * np.float32(0.3), ulp=0.51, kind=ml_dtypes.bfloat16)
    assert on_tiles(nl.exp, half).dtype == half.dtype
    assert on_tiles(lambda x: nl.exp(x, dtype=nl.float32), half).dtype == np.float32
    assert on_tiles(lambda x: nl.less(x, 0, nl.uint8), A).dtype == np.uint8
    assert on_tiles(lambda x: nl.sum(x, 1, nl.float32), half).dtype == np.float32


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (np.float32, ml_dtypes.bfloat16, np.float32),
        (np.float16, ml_dtypes.bfloat16, np.float32),
        (np.int32, ml_dtypes.bfloat16, ml_dtypes.bfloat16),
        (np.int8, np.int32, np.int32),
        (np.uint32, np.int32, np.int32),
    ],
)
def test_tiles_of_two_dtypes_give_the_wider_float(left, right, expected):
    a, b = np.ones((3, 4), left), np.full((3, 4), 2, right)
    for x, y in ((a, b), (b, a)):
        got = on_tiles(nl.add, x, y)
        assert got.dtype == expected
        assert (got.astype(np.float32) == 3).all()


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((5, 11), (5, 1)),
        ((5, 1), (5, 11)),
        ((1, 11), (5, 11)),
        ((5, 1, 4), (5, 3, 1)),
        ((1, 1), (4, 6)),
    ],
)
def test_operands_broadcast_as_in_numpy(left, right):
    a, b = RNG.normal(size=left).astype(np.float32), RNG.normal(size=right).astype(np.float32)
    np.testing.assert_array_equal(on_tiles(nl.subtract, a, b), a - b)


def test_a_column_broadcasts_over_all_free_dimensions():
    a, b = RNG.normal(size=(5, 3, 4)).astype(np.float32), A[:, 0:1]
    np.testing.assert_array_equal(on_tiles(nl.add, a, b), a + b[:, :, None])


def test_both_operands_may_be_in_psum():
    def both(x, y):
        inside = [nl.ndarray(t.shape, t.dtype, buffer=nl.psum) for t in (x, y)]
        for pair in zip(inside, (x, y), strict=True):
            dst, src = pair
            nisa.tensor_copy(dst, src)
        return nl.add(*inside)

    np.testing.assert_array_equal(on_tiles(both, A, B), A + B)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda x: nl.add(1.0, 2.0), "at least one of them must be a tile"),
        (lambda x: nl.add(x, x[:, 0:3]), r"shapes \(5, 11\) and \(5, 3\) don't broadcast"),
        (lambda x: nl.exp(2.0), "allowed: a tile in SBUF or PSUM"),
        (lambda x: nl.add(x, "y"), "y is 'y' of type str; allowed: a tile"),
        (lambda x: nl.exp(nl.ndarray((2, 2), nl.float32, buffer=nl.hbm)), "x is in private_hbm"),
        (lambda x: nl.bitwise_and(x, x), "takes integer types"),
        (lambda x: nl.invert(x), "x has dtype float32; allowed: integer types"),
        (lambda x: nl.sum(x, 0), "dimension 0 counts partitions"),
        (lambda x: nl.max(x, (0, 1)), "dimension 0 counts partitions"),
        (lambda x: nl.max(x.expand_dim(1), 1), "allowed: the last free dimensions"),
        (lambda x: nl.min(x, 2), "axis=2 of a tile with 2 dimensions"),
        (lambda x: nl.average(x), "can't be called on tiles; it is an operator of"),
        (lambda x: nl.expand_dims(x, 4), "axis=4 of a result with 3 dimensions"),
        (lambda x: nl.broadcast_to(x, (5, 12)), r"shape \(5, 11\) to \(5, 12\)"),
        (lambda x: nl.broadcast_to(x, (5, 1, 11)), "need the same number of dimensions"),
        (lambda x: nl.matmul(x, x), r"x contracts 11 elements and y 5"),
        (lambda x: nl.transpose(x.expand_dim(1)), "allowed: a tile of 2 dimensions"),
        (lambda x: nl.gather_flattened(x, x, 1), "axis=1; allowed: 0"),
        (lambda x: nl.gather_flattened(x, x), "indices have dtype float32; allowed: integer"),
    ],
)
def test_refused(act, message):
    with pytest.raises(NkiValidationError, match=message) as caught:
        on_tiles(act, A)
    assert caught.value.location is not None and "test_math.py" in caught.value.location


# ---- reductions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [2, -1, (1, 2), [1, 2]])
@pytest.mark.parametrize("keepdims", [False, True])
def test_reductions(axis, keepdims):
    x = RNG.normal(size=(5, 3, 7)).astype(np.float32)
    over = tuple(axis) if isinstance(axis, list) else axis
    for name in ("sum", "max", "min", "mean", "prod"):
        got = on_tiles(lambda t, n=name: getattr(nl, n)(t, axis, keepdims=keepdims), x)
        expected = getattr(np, name)(x.astype(np.float64), over, keepdims=keepdims)
        shape = expected.shape if expected.ndim > 1 else (*expected.shape, 1)
        np.testing.assert_allclose(got, expected.reshape(shape), rtol=2e-6, atol=2e-6)


def test_variance_always_keeps_the_axes():
    x = (RNG.normal(size=(5, 3, 7)) + 100).astype(np.float32)
    got = on_tiles(lambda t: nl.var(t, (1, 2)), x)
    np.testing.assert_allclose(got, x.astype(np.float64).var((1, 2), keepdims=True), rtol=1e-5)


def test_all():
    x = np.array([[1, 1, 1], [1, 0, 1], [2, 3, -1]], np.float32)
    np.testing.assert_array_equal(on_tiles(lambda t: nl.all(t, 1), x), [[1], [0], [1]])


def test_integer_reductions():
    np.testing.assert_array_equal(on_tiles(lambda t: nl.sum(t, 1), K), K.sum(1, keepdims=True))
    np.testing.assert_array_equal(on_tiles(lambda t: nl.max(t, 1), K), K.max(1, keepdims=True))


# ---- larger functions ---------------------------------------------------------------------------


@pytest.mark.parametrize("axis", [-1, (1, 2)])
def test_softmax(axis):
    x = (RNG.normal(size=(5, 3, 7)) * 5 + 200).astype(np.float32)
    powers = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    expected = powers / powers.sum(axis, keepdims=True)
    np.testing.assert_allclose(on_tiles(lambda t: nl.softmax(t, axis), x), expected, rtol=1e-5)


@pytest.mark.parametrize("weights", [(5, 11), (1, 11)])
def test_rms_norm(weights):
    w = RNG.normal(size=weights).astype(np.float32)
    x = A.astype(np.float64)
    expected = x / np.sqrt((x * x).sum(1, keepdims=True) / 11 + 1e-3) * w
    got = on_tiles(lambda t, v: nl.rms_norm(t, v, 1, 11, epsilon=1e-3), A, w)
    np.testing.assert_allclose(got, expected, rtol=2e-6)


def test_where():
    condition = (RNG.random((5, 11)) < 0.5).astype(np.float32)
    c = condition.astype(bool)
    np.testing.assert_array_equal(on_tiles(nl.where, condition, A, B), np.where(c, A, B))
    got = on_tiles(lambda t, x: nl.where(t, x, -1.0), condition, A)
    np.testing.assert_array_equal(got, np.where(c, A, np.float32(-1)))
    got = on_tiles(lambda t, y: nl.where(t, 2.0, y), condition, A[:, 0:1])
    np.testing.assert_array_equal(got, np.where(c, np.float32(2), A[:, 0:1]))
    got = on_tiles(lambda t: nl.where(t, 3, 4, nl.int32), condition[:, 0:1])
    np.testing.assert_array_equal(got, np.where(c[:, 0:1], 3, 4))


def test_where_keeps_what_isnt_chosen_out_of_the_result():
    bad = np.full((3, 4), np.nan, np.float32)
    chosen = np.ones((3, 4), np.float32)
    np.testing.assert_array_equal(on_tiles(nl.where, chosen, chosen, bad), chosen)


def test_expand_dims_is_a_view():
    def kernel(x):
        tile = nl.load(x)
        for pair in ((1, (5, 1, 11)), (2, (5, 11, 1)), (-1, (5, 11, 1)), (-2, (5, 1, 11))):
            axis, shape = pair
            view = nl.expand_dims(tile, axis)
            assert view.shape == shape and id(view.storage) == id(tile.storage)

    run(kernel, A)


@pytest.mark.parametrize("shape", [(5, 11), (7, 11)])
def test_broadcast_to(shape):
    row = A[0:1] if shape[0] == 7 else A[:, 0:1]
    got = on_tiles(lambda x: nl.broadcast_to(x, shape), np.ascontiguousarray(row))
    np.testing.assert_array_equal(got, np.broadcast_to(row, shape))
    half = on_tiles(lambda x: nl.broadcast_to(x, shape, nl.bfloat16), np.ascontiguousarray(row))
    assert half.dtype == ml_dtypes.bfloat16


@pytest.mark.parametrize("kind", [np.float32, ml_dtypes.bfloat16])
def test_transpose(kind):
    x = RNG.normal(size=(37, 70)).astype(kind)
    np.testing.assert_array_equal(on_tiles(nl.transpose, x), x.T)


def test_matmul():
    x = RNG.normal(size=(19, 70)).astype(np.float32)
    y = RNG.normal(size=(70, 130)).astype(np.float32)
    expected = x.astype(np.float64) @ y
    np.testing.assert_allclose(on_tiles(nl.matmul, x, y), expected, rtol=1e-4, atol=1e-4)
    turned = np.ascontiguousarray(x.T)
    got = on_tiles(lambda a, b: nl.matmul(a, b, transpose_x=True), turned, y)
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)


def test_load_transpose2d():
    x = RNG.normal(size=(33, 20)).astype(ml_dtypes.bfloat16)

    def kernel(src):
        tile = nl.load_transpose2d(src)
        out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    np.testing.assert_array_equal(run(kernel, x), x.T)


def test_gather_flattened():
    index = RNG.integers(0, 11, size=(5, 3, 4)).astype(np.int32)
    expected = np.take_along_axis(A, index.reshape(5, 12), 1).reshape(5, 3, 4)
    np.testing.assert_array_equal(on_tiles(nl.gather_flattened, A, index), expected)
