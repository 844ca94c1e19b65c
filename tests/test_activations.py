"""Activation functions against float64 references that are written another way.

The references use other formulas than the module (scipy.special instead of the module's
identities) and other precision (long double where a formula cancels).
"""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy import special

from nki_dist.errors import NkiValidationError
from nki_dist.isa.activations import ACTIVATIONS, MATH, Activation, activation

F32 = np.finfo(np.float32)
INF, NAN = np.inf, np.nan


@pytest.fixture(autouse=True)
def _executor_errstate():
    """What the executor holds around a program; any warning that still escapes is a failure."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        yield


def call(function: Activation, values, param=None) -> np.ndarray:
    x = np.asarray(values, dtype=np.float32)
    out = np.full_like(x, 77)
    function.f32(x, out, *([] if param is None else [param]))
    return out


def sweep(lo: float, hi: float, count: int = 200_000) -> np.ndarray:
    """Float32 points in [lo, hi]: evenly spread, and over all exponents of both signs."""
    rng = np.random.default_rng(20250)
    even = rng.uniform(lo, hi, count // 2)
    top = np.log2(max(abs(lo), abs(hi)))
    spread = np.exp2(rng.uniform(-149, top, count)) * rng.choice([-1.0, 1.0], count)
    x = np.concatenate([even, spread[(spread >= lo) & (spread <= hi)]])
    while x.size < count:
        x = np.concatenate([x, rng.uniform(lo, hi, count)])
    return x.astype(np.float32)


def ulps(got: np.ndarray, want: np.ndarray) -> float:
    """Largest distance in units of the last float32 place of the exact value."""
    rounded = want.astype(np.float32)
    finite = np.isfinite(rounded)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(rounded))
    # Where the exact value rounds to infinity, so does ours, or it's the last finite number.
    over = np.isinf(rounded)
    assert np.all(np.abs(got[over]) >= F32.max)
    unit = np.spacing(np.abs(rounded[finite])).astype(np.longdouble)
    return float(np.max(np.abs(got[finite].astype(np.longdouble) - want[finite]) / unit))


def _log_sigmoid(x):
    return special.log_expit(x)


def _silu_dx(x, k=1.0):
    y = (k * x).astype(np.longdouble)
    g = np.exp(_log_sigmoid(k * x)).astype(np.longdouble)
    return g + y * g * special.expit(-k * x)


def _gelu_dx(x):
    return special.ndtr(x) + x * np.exp(-0.5 * x * x) / np.sqrt(2 * np.pi)


def _gelu_tanh(x):
    u = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    return x * special.expit(2 * u)


REFERENCES = {
    "copy": (lambda x: x, -1e38, 1e38),
    "square": (lambda x: x * x, -1e19, 1e19),
    "sigmoid": (lambda x: np.exp(_log_sigmoid(x)), -86, 90),
    "relu": (lambda x: np.where(x > 0, x, 0.0), -1e38, 1e38),
    "gelu": (lambda x: x * 0.5 * special.erfc(-x / np.sqrt(2)), -12, 30),
    "gelu_dx": (_gelu_dx, -12, 30),
    "gelu_apprx_tanh": (_gelu_tanh, -9, 30),
    "gelu_apprx_sigmoid": (lambda x: x * special.expit(1.702 * x), -50, 100),
    "gelu_apprx_sigmoid_dx": (lambda x: _silu_dx(x, 1.702), -50, 100),
    "silu": (lambda x: x * special.expit(x), -86, 100),
    "silu_dx": (_silu_dx, -86, 100),
    "tanh": (np.tanh, -20, 20),
    "softplus": (lambda x: np.logaddexp(0.0, x), -86, 1e6),
    "mish": (lambda x: x * np.tanh(np.logaddexp(0.0, x)), -86, 1e6),
    "erf": (special.erf, -6, 6),
    "erf_dx": (lambda x: 2 / np.sqrt(np.pi) * np.exp(-(x * x)), -9, 9),
    "exp": (lambda x: np.exp(x.astype(np.longdouble)), -103, 88.8),
    "log": (lambda x: np.log(x.astype(np.longdouble)), 2.0**-64, 2.0**64),
    "sin": (np.sin, -np.float64(np.float32(3.1415925)), np.float64(np.float32(3.1415925))),
    "arctan": (lambda x: np.arctan2(x, 1.0), -1e30, 1e30),
    "sqrt": (np.sqrt, 0.0, 1e38),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 2.0**-87, 2.0**97),
    "reciprocal": (lambda x: 1 / x, -(2.0**42), 2.0**42),
    "sign": (np.sign, -1e38, 1e38),
    "abs": (np.abs, -1e38, 1e38),
}

MATH_REFERENCES = {
    "sin": (np.sin, -1e6, 1e6),
    "cos": (np.cos, -1e6, 1e6),
    "tan": (np.tan, -1e6, 1e6),
    "ceil": (np.ceil, -1e9, 1e9),
    "floor": (np.floor, -1e9, 1e9),
    "trunc": (np.trunc, -1e9, 1e9),
    "negative": (lambda x: -x, -1e38, 1e38),
}


def test_every_function_has_a_reference():
    assert set(REFERENCES) | {"prelu"} == set(ACTIVATIONS)
    assert set(MATH_REFERENCES) == set(MATH)


@pytest.mark.parametrize("name", sorted(REFERENCES))
def test_activation_accuracy(name):
    reference, lo, hi = REFERENCES[name]
    x = sweep(lo, hi)
    limit = 2.0 if name == "rsqrt" else 0.51
    assert ulps(call(ACTIVATIONS[name], x), reference(x.astype(np.float64))) <= limit


@pytest.mark.parametrize("name", sorted(MATH_REFERENCES))
def test_math_accuracy(name):
    reference, lo, hi = MATH_REFERENCES[name]
    x = sweep(lo, hi)
    assert ulps(call(MATH[name], x), reference(x.astype(np.float64))) <= 0.51


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_trigonometry_next_to_its_zeros_and_poles(name):
    x = (np.arange(1, 200_001) * np.pi / 2).astype(np.float32)
    reference = getattr(np, name)(x.astype(np.float64))
    assert ulps(call(MATH[name], x), reference) <= 0.51


def test_derivatives_next_to_their_zeros():
    for name, (lo, hi) in {
        "gelu_dx": (-0.76, -0.745),
        "silu_dx": (-1.3, -1.25),
        "gelu_apprx_sigmoid_dx": (-0.76, -0.74),
    }.items():
        x = np.linspace(lo, hi, 200_000, dtype=np.float32)
        assert ulps(call(ACTIVATIONS[name], x), REFERENCES[name][0](x.astype(np.float64))) <= 0.51


SPECIALS = {
    # name: values at -inf, -3e38, -0.0, 0.0, 3e38, inf; NaN gives NaN everywhere
    "copy": (-INF, -3e38, -0.0, 0.0, 3e38, INF),
    "square": (INF, INF, 0, 0, INF, INF),
    "sigmoid": (0, 0, 0.5, 0.5, 1, 1),
    "relu": (0, 0, 0, 0, 3e38, INF),
    "prelu": (0, 0, 0, 0, 3e38, INF),
    "gelu": (0, 0, 0, 0, 3e38, INF),
    "gelu_dx": (0, 0, 0.5, 0.5, 1, 1),
    "gelu_apprx_tanh": (0, 0, 0, 0, 3e38, INF),
    "gelu_apprx_sigmoid": (0, 0, 0, 0, 3e38, INF),
    "gelu_apprx_sigmoid_dx": (0, 0, 0.5, 0.5, 1, 1),
    "silu": (0, 0, 0, 0, 3e38, INF),
    "silu_dx": (0, 0, 0.5, 0.5, 1, 1),
    "tanh": (-1, -1, -0.0, 0.0, 1, 1),
    "softplus": (0, 0, np.log(2), np.log(2), 3e38, INF),
    "mish": (0, 0, 0, 0, 3e38, INF),
    "erf": (-1, -1, -0.0, 0.0, 1, 1),
    "erf_dx": (0, 0, 2 / np.sqrt(np.pi), 2 / np.sqrt(np.pi), 0, 0),
    "exp": (0, 0, 1, 1, INF, INF),
    "log": (NAN, NAN, -INF, -INF, np.log(3e38), INF),
    "sin": (-INF, -INF, -0.0, 0.0, INF, INF),
    "arctan": (-np.pi / 2, -np.pi / 2, -0.0, 0.0, np.pi / 2, np.pi / 2),
    "sqrt": (NAN, NAN, -0.0, 0.0, np.sqrt(3e38), INF),
    "rsqrt": (NAN, NAN, -INF, INF, 1 / np.sqrt(3e38), 0),
    "reciprocal": (-0.0, -1 / 3e38, -INF, INF, 1 / 3e38, 0.0),
    "sign": (-1, -1, 0, 0, 1, 1),
    "abs": (INF, 3e38, 0.0, 0.0, 3e38, INF),
}


@pytest.mark.parametrize("name", sorted(ACTIVATIONS))
def test_special_values(name):
    got = call(ACTIVATIONS[name], [-INF, -3e38, -0.0, 0.0, 3e38, INF, NAN])
    want = np.asarray([*SPECIALS[name], NAN], dtype=np.float32)
    np.testing.assert_allclose(got, want, rtol=3e-7, atol=0)


@pytest.mark.parametrize("name", ["copy", "tanh", "erf", "sin", "arctan", "sqrt"])
def test_signed_zero_is_kept(name):
    assert np.signbit(call(ACTIVATIONS[name], [-0.0, 0.0])).tolist() == [True, False]


def test_engine_sine_is_a_cubic_outside_its_range():
    x = np.array([9.0, -9.0, 4.0, -4.0, 5.5910845], dtype=np.float32)
    y = np.abs(x.astype(np.float64)) - np.pi
    got = call(ACTIVATIONS["sin"], x)
    np.testing.assert_allclose(got, np.sign(x) * (y**3 / 6 - y), rtol=1e-6, atol=1e-6)
    assert got[0] == pytest.approx(27.65, abs=0.01)  # the one value the document gives
    # The language's sine reduces its argument.
    np.testing.assert_allclose(call(MATH["sin"], x), np.sin(x.astype(np.float64)), rtol=1e-6)


def test_prelu_takes_its_slope_per_partition():
    x = np.array([[-2.0, 3.0, NAN, -INF], [-2.0, 3.0, -0.0, INF]])
    got = call(ACTIVATIONS["prelu"], x, np.array([[0.25], [-1.0]], dtype=np.float32))
    np.testing.assert_array_equal(got, [[-0.5, 3.0, NAN, -INF], [2.0, 3.0, 0.0, INF]])
    np.testing.assert_array_equal(call(ACTIVATIONS["prelu"], [-4.0, 5.0], 0.5), [-2.0, 5.0])
    np.testing.assert_array_equal(call(ACTIVATIONS["prelu"], [5.0], INF), [5.0])


@pytest.mark.parametrize("table", [ACTIVATIONS, MATH], ids=["activations", "math"])
def test_result_depends_on_the_values_only(table):
    """Bit for bit the same in place, strided, reversed, overlapping, in any shape or block."""
    rng = np.random.default_rng(3)
    x = (rng.standard_normal((37, 451)) * 3).astype(np.float32)
    for function in table.values():
        want = call(function, x).view(np.uint32)

        def same(got, want=want, name=function.name):
            np.testing.assert_array_equal(np.ascontiguousarray(got).view(np.uint32), want, name)

        same(np.stack([call(function, row) for row in x]))
        inplace = x.copy()
        function.f32(inplace, inplace)
        same(inplace)
        wide = np.zeros((37, 902), dtype=np.float32)
        wide[:, ::2] = x
        function.f32(wide[:, ::2], wide[:, ::2])
        same(wide[:, ::2])
        assert not wide[:, 1::2].any()
        transposed = np.asfortranarray(x)
        out = np.empty_like(transposed)
        function.f32(transposed, out)
        same(out)
        line = np.zeros(x.size + 5, dtype=np.float32)
        line[5:] = x.reshape(-1)
        function.f32(line[5:], line[:-5])
        same(line[:-5].reshape(x.shape))


def test_lookup_by_name_and_refusal():
    assert activation("gelu") is ACTIVATIONS["gelu"]
    assert activation("absolute") is ACTIVATIONS["abs"]
    with pytest.raises(NkiValidationError, match=r"'tan' is no activation function; there are abs"):
        activation("tan")
