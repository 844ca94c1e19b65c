"""ALU operators, reductions and scans against float64, Python-integer and loop references."""

from __future__ import annotations

import math
import operator
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki_dist.errors import NkiValidationError
from nki_dist.isa import alu
from nki_dist.isa.alu import ALU
from nki_dist.isa.reductions import reduce_f32, reduce_integer

INF, NAN = math.inf, math.nan
EDGES = [0.0, -0.0, 1.0, -1.0, 1.5, -2.5, 3.0, 1e-45, -1e38, 3e38, INF, -INF, NAN]


@pytest.fixture(autouse=True)
def _executor_errstate():
    """What the executor holds around a program; any warning that still escapes is a failure."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("error")
        yield


def f32(values) -> np.ndarray:
    return np.asarray(values, dtype=np.float32)


def run(name: str, a, b=None, dtype=np.float32) -> np.ndarray:
    op = ALU[name]
    shape = np.broadcast_shapes(np.shape(a), np.shape(b) if b is not None else ())
    out = np.full(shape, 99, dtype=dtype)
    (op.f32 if dtype == np.float32 else op.integer)(a, b, out)
    return out


def pairs(count: int = 200_000) -> tuple[np.ndarray, np.ndarray]:
    """Random pairs over many magnitudes, every pair of edge values, and some equal pairs."""
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(count) * np.exp2(rng.uniform(-20, 20, count)) for _ in range(2))
    a[: count // 8] = b[: count // 8]
    a[count // 8 : count // 4] = -b[count // 8 : count // 4]
    edges = np.array([(p, q) for p in EDGES for q in EDGES])
    return f32(np.concatenate([a, edges[:, 0]])), f32(np.concatenate([b, edges[:, 1]]))


def _truth(function):
    return lambda a, b: function(a != 0, b != 0).astype(np.float64)


FLOAT_REFERENCES = {
    # In float64 these are exact or as good as exact, and then rounded once.
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "maximum": lambda a, b: np.where(np.isnan(a) | np.isnan(b), NAN, np.where(a > b, a, b)),
    "minimum": lambda a, b: np.where(np.isnan(a) | np.isnan(b), NAN, np.where(a < b, a, b)),
    "abs_max": lambda a, b: np.where(np.abs(a) > np.abs(b), a, b),
    "abs_min": lambda a, b: np.where(np.abs(a) < np.abs(b), a, b),
    "equal": lambda a, b: (a == b) * 1.0,
    "not_equal": lambda a, b: (a != b) * 1.0,
    "less": lambda a, b: (a < b) * 1.0,
    "less_equal": lambda a, b: (a <= b) * 1.0,
    "greater": lambda a, b: (a > b) * 1.0,
    "greater_equal": lambda a, b: (a >= b) * 1.0,
    "logical_and": _truth(np.bitwise_and),
    "logical_or": _truth(np.bitwise_or),
    "logical_xor": _truth(np.not_equal),
    "mod": np.remainder,
    "fmod": np.fmod,
    "power": np.power,
    "bypass": lambda a, b: a,
    "abs": lambda a, b: np.abs(a),
    "square": lambda a, b: a * a,
    "relu": lambda a, b: np.where(a < 0, 0.0, a),
    "reciprocal": lambda a, b: 1 / a,
    "logical_not": lambda a, b: (a == 0) * 1.0,
}


def test_every_float_operator_has_a_reference():
    floats = {n for n, op in ALU.items() if not op.is_bitvec and op.arity}
    assert floats == set(FLOAT_REFERENCES) | {"rsqrt", "max", "min"}


@pytest.mark.parametrize("name", sorted(FLOAT_REFERENCES))
def test_float_operators_round_once(name):
    a, b = pairs()
    want = FLOAT_REFERENCES[name](a.astype(np.float64), b.astype(np.float64))
    np.testing.assert_array_equal(run(name, a, b), want.astype(np.float32))


def test_rsqrt_is_within_two_ulp():
    a = np.abs(pairs()[0])
    a = a[(a > 0) & np.isfinite(a)]
    want = 1 / np.sqrt(a.astype(np.float64))
    error = np.abs(run("rsqrt", a) - want) / np.spacing(want.astype(np.float32))
    assert error.max() <= 1.5
    np.testing.assert_array_equal(run("rsqrt", f32([0, INF, -1, NAN])), [INF, 0, NAN, NAN])


@pytest.mark.parametrize("name", sorted(n for n, op in ALU.items() if op.arity == 2))
def test_which_operators_commute(name):
    """Each of these does, and each of the others has a counter-example."""
    a, b = pairs(2000)
    if ALU[name].is_bitvec:
        a, b = np.arange(-50, 50, dtype=np.int32), np.arange(100, 0, -1, dtype=np.int32)
    # NaN and zeros of either sign are compared by value.
    same = np.array_equal(run(name, a, b, a.dtype), run(name, b, a, a.dtype), equal_nan=True)
    arithmetic = {"add", "multiply", "maximum", "minimum", "equal", "not_equal"}
    bits = {"bitwise_and", "bitwise_or", "bitwise_xor"}
    logic = {"logical_and", "logical_or", "logical_xor"}
    assert same == (ALU[name].name in arithmetic | bits | logic)


def test_scalar_operands_are_float32():
    """A Python float must act as the float32 the engine sees."""
    third = np.float32(1 / 3)
    for name in ("power", "abs_max", "equal", "add", "less_equal"):
        x = f32([[third, 2.0, -0.5]])
        np.testing.assert_array_equal(run(name, x, 1 / 3), run(name, x, third), name)
        np.testing.assert_array_equal(run(name, 1 / 3, x), run(name, third, x), name)


@pytest.mark.parametrize("name", sorted(n for n, op in ALU.items() if op.arity))
def test_result_depends_on_the_values_only(name):
    """The same in place of either operand, broadcast from a column, and strided."""
    dtype = np.dtype(np.int32 if ALU[name].is_bitvec else np.float32)
    rng = np.random.default_rng(5)
    a = rng.integers(1, 60, (13, 107)).astype(dtype)
    column = rng.integers(1, 30, (13, 1)).astype(dtype)
    b = np.repeat(column, 107, axis=1)
    apply = ALU[name].integer if ALU[name].is_bitvec else ALU[name].f32
    want = run(name, a, b, dtype)
    np.testing.assert_array_equal(run(name, a, column, dtype), want)
    for operands in ((x := a.copy(), b, x), (a, y := b.copy(), y)):
        apply(*operands)
        np.testing.assert_array_equal(operands[2], want)
    wide = np.zeros((13, 321), dtype)
    wide[:, ::3] = a
    apply(wide[:, ::3], b, wide[:, 1::3])
    np.testing.assert_array_equal(wide[:, 1::3], want)


# ---- integers ------------------------------------------------------------------------------

INTEGER_TYPES = [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32]


def _magnitude(chooses):
    return lambda a, b, bits: a if chooses(abs(a), abs(b)) else b


def _bit(function):
    return lambda a, b, bits: function(a % (1 << bits), b % (1 << bits))


INTEGER_REFERENCES = {
    "add": lambda a, b, bits: a + b,
    "subtract": lambda a, b, bits: a - b,
    "multiply": lambda a, b, bits: a * b,
    "maximum": lambda a, b, bits: max(a, b),
    "minimum": lambda a, b, bits: min(a, b),
    "abs_max": _magnitude(operator.gt),
    "abs_min": _magnitude(operator.lt),
    "mod": lambda a, b, bits: a % b if b else 0,
    "fmod": lambda a, b, bits: int(math.copysign(abs(a) % abs(b), a)) if b else 0,
    "equal": lambda a, b, bits: a == b,
    "not_equal": lambda a, b, bits: a != b,
    "less": lambda a, b, bits: a < b,
    "less_equal": lambda a, b, bits: a <= b,
    "greater": lambda a, b, bits: a > b,
    "greater_equal": lambda a, b, bits: a >= b,
    "logical_and": lambda a, b, bits: bool(a and b),
    "logical_or": lambda a, b, bits: bool(a or b),
    "logical_xor": lambda a, b, bits: bool(a) != bool(b),
    "logical_not": lambda a, b, bits: not a,
    "bypass": lambda a, b, bits: a,
    "abs": lambda a, b, bits: abs(a),
    "square": lambda a, b, bits: a * a,
    "relu": lambda a, b, bits: max(a, 0),
    "bitwise_and": _bit(operator.and_),
    "bitwise_or": _bit(operator.or_),
    "bitwise_xor": _bit(operator.xor),
    "invert": lambda a, b, bits: ~a,
    "left_shift": _bit(lambda a, b: a << b if b < 64 else 0),
    "right_shift": _bit(lambda a, b: a >> b),
}


def test_every_integer_operator_has_a_reference():
    exact = {op.name for op in ALU.values() if op.integer is not None}
    assert exact == set(INTEGER_REFERENCES)


@pytest.mark.parametrize("dtype", INTEGER_TYPES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("name", sorted(INTEGER_REFERENCES))
def test_integer_operators_are_exact_and_wrap(name, dtype):
    info = np.iinfo(dtype)
    rng = np.random.default_rng(11)
    edges = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 7, 8, 15, 16, 31, 32, 33]
    full = rng.integers(info.min, info.max, 300, endpoint=True).tolist()
    small = rng.integers(0, 33, 300).tolist()
    a = [p for p in edges for _ in edges] + full
    b = [q for _ in edges for q in edges] + small
    got = run(name, np.array(a, dtype), np.array(b, dtype), dtype)
    reference = INTEGER_REFERENCES[name]
    exact = [int(reference(p, q, info.bits)) % (1 << info.bits) for p, q in zip(a, b, strict=True)]
    np.testing.assert_array_equal(got.view(f"u{got.itemsize}"), exact)


def test_bit_operators_take_masks_beyond_the_signed_range():
    a = np.array([[-1, 5]], dtype=np.int32)
    np.testing.assert_array_equal(run("bitwise_and", a, 0xFFFF0000, np.int32), [[-65536, 0]])
    np.testing.assert_array_equal(run("left_shift", 1, a, np.int32), [[0, 32]])


def test_bit_operators_have_no_float_form():
    with pytest.raises(NkiValidationError, match="operands are integers"):
        run("bitwise_and", f32([1]), f32([2]))


# ---- the table -----------------------------------------------------------------------------


def test_reduction_sets_follow_the_documents():
    bits = {"bitwise_and", "bitwise_or", "bitwise_xor"}
    logic = {"logical_and", "logical_or", "logical_xor"}
    extremes = {"maximum", "minimum", "max", "min"}
    sums = {"add", "subtract", "multiply"}
    assert bits | logic | extremes | sums == alu.TENSOR_REDUCE
    assert {"add", "average", "maximum", "max", "bitwise_or", "bitwise_and"} == alu.PARTITION_REDUCE
    assert sums | extremes == alu.CUMULATIVE
    assert {"abs_max", "abs_min", "add"} | extremes == alu.ACTIVATE2_REDUCE
    assert len(alu.COMPARE) == 6
    assert ALU["abs_max"].generation == 4 and ALU["power"].engines == {"gpsimd"}


@pytest.mark.parametrize("name", [*sorted(alu.TENSOR_REDUCE - {"subtract"}), "abs_max", "abs_min"])
def test_identity_changes_nothing(name):
    op = ALU[name]
    if op.is_bitvec:
        x = np.array([5, -3, 0], dtype=np.int32)
        np.testing.assert_array_equal(run(name, op.identity, x, np.int32), x)
        return
    x = f32([0, 1] if op.kind == "logical" else [3, -4, 1e-30, 1e38])
    np.testing.assert_array_equal(run(name, op.identity, x), x)


# ---- reductions and scans ------------------------------------------------------------------


def in_order(row: np.ndarray) -> np.float32:
    """The documented order of a sum, written out."""
    total = row[0]
    for value in row[1:]:
        total = total + value
    return total


def fold(name: str, row: np.ndarray) -> np.float32:
    state = row[:1].copy()
    for i in range(1, len(row)):
        ALU[name].f32(state, row[i : i + 1], state)
    return state[0]


@pytest.mark.parametrize("n", [1, 2, 7, 8, 9, 31, 127, 128, 129, 255, 257, 512, 1000, 2049])
def test_sum_has_the_documented_order(n):
    a = np.random.default_rng(n).standard_normal((5, n)).astype(np.float32) * 100
    want = f32([in_order(row) for row in a])
    np.testing.assert_array_equal(reduce_f32(ALU["add"], a), want)
    one = reduce_f32(ALU["add"], a[3:4])
    np.testing.assert_array_equal(one, want[3:4])
    many = np.zeros((2, 5, 3 * n), dtype=np.float32)
    many[1, :, ::3] = a
    np.testing.assert_array_equal(reduce_f32(ALU["add"], many[:, :, ::3])[1], want)
    np.testing.assert_array_equal(reduce_f32(ALU["add"], np.asfortranarray(a)), want)


FOLDS = sorted(op.name for op in set(ALU.values()) if op.name in alu.TENSOR_REDUCE)
FOLDS = [n for n in FOLDS if not ALU[n].is_bitvec and n != "add"] + ["abs_max", "abs_min"]


@pytest.mark.parametrize("name", FOLDS)
@pytest.mark.parametrize("n", [1, 2, 17, 130])
def test_reductions_fold_from_left_to_right(name, n):
    rng = np.random.default_rng(n)
    a = (rng.integers(-8, 8, (9, n)) * 0.4).astype(np.float32)
    a[1, rng.integers(n)] = NAN
    a[2, -1] = NAN
    a[3, rng.integers(n)] = -INF
    a[4] = INF
    start = np.float32(0 if name.startswith("logical") else a[0, 0])
    want = f32([fold(name, row) for row in a])
    if n == 1 and name.startswith("logical"):
        want = f32([float(row[0] != start) for row in a])
    np.testing.assert_array_equal(reduce_f32(ALU[name], a), want)
    np.testing.assert_array_equal(reduce_f32(ALU[name], np.asfortranarray(a)), want)


def test_average():
    a = f32([[1, 2, 4.5], [-1, 0, 7]])
    np.testing.assert_array_equal(reduce_f32(ALU["average"], a), [2.5, 2.0])


def test_reductions_of_other_operators_are_refused():
    for name in ("power", "left_shift", "abs", "less"):
        with pytest.raises(NkiValidationError, match=f"{name} doesn't reduce"):
            reduce_f32(ALU[name], f32([[1, 2]]))
    with pytest.raises(NkiValidationError, match="average doesn't reduce integers"):
        reduce_integer(ALU["average"], np.array([[1]]))


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=40))
@settings(max_examples=60, deadline=None)
def test_integer_reductions_keep_width(row):
    a = np.array([row, row[::-1]], dtype=np.int32)
    references = {
        "bitwise_and": operator.and_,
        "bitwise_or": operator.or_,
        "bitwise_xor": operator.xor,
        "add": operator.add,
        "maximum": max,
        "minimum": min,
    }
    for name, reference in references.items():
        total = row[0]
        for value in row[1:]:
            total = reference(total, value)
        wrapped = (total + 2**31) % 2**32 - 2**31
        got = reduce_integer(ALU[name], a)
        assert got.dtype == np.int32 and got.tolist() == [wrapped, wrapped]
    narrow = (a & 0x7F).astype(np.int8)
    assert reduce_integer(ALU["add"], narrow).dtype == np.int8
