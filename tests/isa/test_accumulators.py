"""Vector instructions with accumulator registers: tensor_scalar_reduce, tensor_scalar_cumulative,
select_reduce, range_select, exponential; and activate2 on Scalar."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
from helpers import numbers, on_tiles

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

BF16 = ml_dtypes.bfloat16
CMD = nisa.reduce_cmd
X = np.ones((8, 10), np.float32)
COLUMN = ((8, 1), np.float32)
LOWEST = np.finfo(np.float32).min


def refuse(message, body, inputs=(X, X[:, :1]), outputs=((X.shape, np.float32), COLUMN), **where):
    with pytest.raises(NkiValidationError, match=message):
        on_tiles(body, list(inputs), list(outputs), **where)


@pytest.mark.parametrize("op", ["add", "multiply", "max", "minimum"])
@pytest.mark.parametrize("negate", [False, True])
def test_tensor_scalar_reduce(op, negate):
    x = numbers(1, (26, 3, 5), BF16, scale=1.0)

    def body(data, dst, res):
        nisa.tensor_scalar_reduce(
            dst=dst,
            data=data,
            op0=nl.multiply,
            operand0=1.5,
            reduce_op=getattr(nl, op),
            reduce_res=res,
            reduce_res_negate=negate,
        )

    outputs = [((26, 15), np.float32), ((26, 1), np.float32)]
    got, res = on_tiles(body, [x], outputs, psum=(0,))
    wide = x.astype(np.float64).reshape(26, 15) * 1.5
    np.testing.assert_array_equal(got, wide)
    expected = {"add": wide.sum, "multiply": wide.prod, "max": wide.max, "minimum": wide.min}[op](1)
    np.testing.assert_allclose(res[:, 0], -expected if negate else expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("nothing", [None, 0])
def test_tensor_scalar_reduce_of_a_unary_operator(nothing):
    x = numbers(18, X.shape)

    def body(data, dst, res):
        nisa.tensor_scalar_reduce(dst, data, nl.abs, nothing, nl.maximum, res)

    got, res = on_tiles(body, [x], [(X.shape, np.float32), COLUMN])
    np.testing.assert_array_equal(got, np.abs(x))
    np.testing.assert_array_equal(res[:, 0], np.abs(x).max(1))


def test_tensor_scalar_reduce_continues_and_loads():
    x, start = numbers(2, (8, 10)), numbers(3, (8, 1)) + 20

    def body(data, init, junk, r0, r1, r2):
        def go(res, operand, **options):
            nisa.tensor_scalar_reduce(junk, data, nl.add, operand, nl.maximum, res, **options)

        go(None, 1.0)
        go(r0, 0.0, reduce_cmd=CMD.reduce, reduce_res_negate=True)
        go(r1, 0.0, reduce_cmd=CMD.reduce)
        go(r2, 0.0, reduce_cmd=CMD.load_reduce, reduce_init=init)

    outputs = [(x.shape, np.float32), COLUMN, COLUMN, COLUMN]
    _, r0, r1, r2 = on_tiles(body, [x, start], outputs)
    np.testing.assert_array_equal(r1[:, 0], (x + 1).max(1))
    np.testing.assert_array_equal(r0, -r1)
    np.testing.assert_array_equal(r2, start)


@pytest.mark.parametrize(
    "message, options",
    [
        ("reverse0=True", {"reverse0": True}),
        ("allowed with load_reduce only", {"reduce_init": 1.0}),
        (r"reduce_res has shape \(8, 10\)", {"reduce_res": "data"}),
        (r"operand0 has shape \(8, 10\)", {"operand0": "data"}),
        ("for the unary nl.abs", {"op0": nl.abs}),
    ],
)
def test_tensor_scalar_reduce_refused(message, options):
    def body(data, column, dst, res):
        given = {"op0": nl.add, "operand0": 1.0, "reduce_op": nl.add, "reduce_res": res, **options}
        given = {k: data if v == "data" else v for k, v in given.items() if v is not data}
        nisa.tensor_scalar_reduce(dst=dst, data=data, **given)

    refuse(message, body)


def cumulative(x, op0, op1, imm0, start):
    held, out = np.broadcast_to(np.float32(start), len(x)), np.empty(x.shape, np.float32)
    for n in range(x.shape[1]):
        held = op1(op0(x[:, n], np.float32(imm0)), held)
        out[:, n] = held
    return out


@pytest.mark.parametrize(
    "op1, neutral",
    [("add", 0), ("subtract", 0), ("multiply", 1), ("maximum", -np.inf), ("minimum", np.inf)],
)
def test_tensor_scalar_cumulative(op1, neutral):
    x, c = numbers(4, (8, 10), scale=1.2), numbers(5, (8, 1))

    def body(data, col, r0, r1, r2):
        def go(dst, **options):
            nisa.tensor_scalar_cumulative(dst, data, nl.multiply, getattr(nl, op1), 1.5, **options)

        go(r0)
        go(r1, reduce_cmd=CMD.reduce)
        go(r2, imm1=col, reduce_cmd=CMD.load_reduce)

    results = on_tiles(body, [x, c], [(x.shape, np.float32)] * 3)
    first = cumulative(x, np.multiply, getattr(np, op1), 1.5, neutral)
    second = cumulative(x, np.multiply, getattr(np, op1), 1.5, first[:, -1])
    third = cumulative(x, np.multiply, getattr(np, op1), 1.5, c[:, 0])
    for got, expected in zip(results, (first, second, third), strict=True):
        np.testing.assert_array_equal(got, expected)


def test_a_cumulative_load_needs_a_start():
    def body(data, column, dst):
        nisa.tensor_scalar_cumulative(dst, data, nl.add, nl.add, 1.0, reduce_cmd=CMD.load_reduce)

    refuse("imm1 is None", body, outputs=[(X.shape, np.float32)])


def test_what_is_accumulated_has_an_operand_for_each_partition():
    def body(data, column, dst):
        nisa.tensor_scalar_cumulative(dst, data, nl.add, nl.add, column)

    refuse(r"imm0 has shape \(8, 2\)", body, (X, X[:, :2]), [(X.shape, np.float32)])


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("tile", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int16])
def test_select_reduce(reverse, tile, dtype):
    x, c = numbers(6, (21, 2, 9), dtype), numbers(7, (21, 1))
    p = np.random.default_rng(8).integers(0, 3, (21, 18)).astype(np.uint8)

    def body(on_true, predicate, col, dst, r0, r1):
        other = col if tile else -1.5
        given = {"reverse_pred": reverse, "reduce_op": nl.max}
        nisa.select_reduce(dst, predicate, on_true, other, r0, reduce_cmd=CMD.reset_reduce, **given)
        nisa.select_reduce(dst, predicate, on_true, other, **given)
        nisa.select_reduce(
            dst, predicate, on_true, other, r1, reduce_cmd=CMD.reduce, reverse_pred=not reverse
        )
        nisa.select_reduce(dst, predicate, on_true, other, reverse_pred=reverse)

    outputs = [((21, 18), np.float32), ((21, 1), np.float32), ((21, 1), np.float32)]
    got, r0, r1 = on_tiles(body, [x, p, c], outputs, psum=(0,))
    flat = x.reshape(21, 18).astype(np.float32)
    other = c if tile else np.float32(-1.5)
    expected = np.where((p == 0) if reverse else (p != 0), flat, other)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(r0[:, 0], expected.max(1))
    both = np.where((p != 0) if reverse else (p == 0), flat, other)
    np.testing.assert_array_equal(r1[:, 0], np.maximum(r0[:, 0], both.max(1)))


P8 = X.astype(np.uint8)


@pytest.mark.parametrize(
    "message, arrays, options, psum",
    [
        ("same number of elements", (X, P8[:, :9]), {}, ()),
        ("both in PSUM", (X, P8), {}, (0, 1)),
    ],
)
def test_select_reduce_refused(message, arrays, options, psum):
    def body(on_true, predicate, dst, res):
        given = {"on_false": 0.0, "reduce_res": res, **options}
        nisa.select_reduce(dst=dst, predicate=predicate, on_true=on_true, **given)

    refuse(message, body, arrays, psum=psum)


@pytest.mark.parametrize("comparisons", [("greater_equal", "less"), ("equal", "less_equal")])
@pytest.mark.parametrize("start", [0, 7])
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_range_select(comparisons, start, dtype):
    x = numbers(9, (17, 2, 6), dtype)
    low = np.arange(17, dtype=np.float32).reshape(17, 1) - 2
    high = low + 3

    def body(data, bound0, bound1, dst, res):
        nisa.range_select(
            dst=dst,
            on_true_tile=data,
            comp_op0=getattr(nl, comparisons[0]),
            comp_op1=getattr(nl, comparisons[1]),
            bound0=bound0,
            bound1=bound1,
            reduce_res=res,
            range_start=start,
            on_false_value=-3.4028235e38,
        )

    outputs = [((17, 12), dtype), ((17, 1), np.float32)]
    got, res = on_tiles(body, [x, low, high], outputs, psum=(0,))
    index = np.arange(12) + start
    keep = getattr(np, comparisons[0])(index, low) & getattr(np, comparisons[1])(index, high)
    wide = np.where(keep, x.reshape(17, 12).astype(np.float32), LOWEST)
    with np.errstate(all="ignore"):
        expected = wide.astype(dtype)
    np.testing.assert_array_equal(got.astype(np.float32), expected.astype(np.float32))
    np.testing.assert_array_equal(res[:, 0], wide.max(1))


def test_range_select_in_place_with_running_maximum():
    x = numbers(10, (8, 10))
    bounds = np.zeros((8, 1), np.float32), np.full((8, 1), 4, np.float32)

    def body(tile, low, high, out, res):
        given = {"comp_op0": nl.greater_equal, "comp_op1": nl.less, "bound0": low, "bound1": high}
        nisa.range_select(tile[:, 0:5], tile[:, 0:5], **given)
        nisa.range_select(
            tile[:, 5:10], tile[:, 5:10], reduce_cmd=CMD.reduce, reduce_res=res, **given
        )
        nisa.tensor_copy(out, tile)

    got, res = on_tiles(body, [x, *bounds], [(x.shape, np.float32), COLUMN])
    expected = x.copy()
    expected[:, [4, 9]] = LOWEST
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(res[:, 0], expected.max(1))


@pytest.mark.parametrize("value", [..., None, float(LOWEST), LOWEST, np.float64(LOWEST)])
def test_what_range_select_fills_in_has_several_names(value):
    assert nisa.range_select.roles["on_false_value"].accept("x", value) == LOWEST


def test_columns_of_range_select_are_numbers_of_float32():
    def body(data, bound, dst, res):
        first = 2**24 - 6
        nisa.range_select(dst, data, nl.less, nl.less, bound, bound, range_start=first)

    refuse("columns are numbered 16777210", body)


def test_range_select_selects_of_as_many_elements():
    def body(data, bound, dst, res):
        nisa.range_select(dst[:, 1:], data, nl.less, nl.less, bound, bound)

    refuse(r"got dst 9 \(shape \(8, 9\)\), on_true_tile 10", body)


@pytest.mark.parametrize("tile", [False, True])
def test_exponential(tile):
    x, m = numbers(11, (8, 2, 5), BF16), numbers(12, (8, 1))

    def body(src, col, dst, r0, r1, r2):
        shift = col if tile else 1.25
        nisa.exponential(dst, src, shift, r0, CMD.reset_reduce)
        nisa.exponential(dst, src, shift)
        nisa.exponential(dst, src, shift, r1, CMD.reduce)
        nisa.exponential(dst, src, shift, r2, CMD.load_reduce, col)

    outputs = [((8, 10), np.float32), COLUMN, COLUMN, COLUMN]
    got, r0, r1, r2 = on_tiles(body, [x, m], outputs, platform="trn3")
    expected = np.exp(x.reshape(8, 10).astype(np.float64) - (m if tile else 1.25))
    np.testing.assert_allclose(got, expected, rtol=3e-6)
    np.testing.assert_allclose(r0[:, 0], expected.sum(1), rtol=1e-5)
    np.testing.assert_allclose(r1[:, 0], 2 * expected.sum(1), rtol=1e-5)
    np.testing.assert_allclose(r2[:, 0], expected.sum(1) + m[:, 0], rtol=1e-5, atol=1e-5)


class Operand(NamedTuple):
    """A tile that is given for an operand."""

    shape: tuple[int, ...] = X.shape
    dtype: Any = nl.float32


def with_tiles(options):
    """In a kernel: the options, with a tile where an operand stands."""
    return {k: nl.ndarray(*v) if isinstance(v, Operand) else v for k, v in options.items()}


HALF, SHORT = Operand((8, 1), nl.bfloat16), Operand((7, 1))


@pytest.mark.parametrize(
    "message, options",
    [
        ("reduce_init is given", {"reduce_init": 1.0}),
        (r"max_value has shape \(8, 10\)", {"max_value": Operand()}),
        ("max_value has dtype bfloat16; allowed: float32", {"max_value": HALF}),
        ("reduce_init has dtype bf", {"reduce_cmd": CMD.load_reduce, "reduce_init": HALF}),
        (r"reduce_res has shape \(7, 1\)", {"reduce_res": SHORT}),
        ("dst has 5 dimensions; allowed: up to 4", {"dst": Operand((8, 1, 1, 2, 5))}),
    ],
)
def test_exponential_refused(message, options):
    def body(src, column, dst, res):
        nisa.exponential(**{"dst": dst, "src": src, "reduce_res": res, **with_tiles(options)})

    refuse(message, body, platform="trn3")


@pytest.mark.parametrize(
    "ops", [("multiply", "add"), ("multiply", "subtract"), ("add", "bypass"), ("bypass", "bypass")]
)
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("reduce_op", ["add", "maximum", "abs_max"])
def test_activate2(ops, reverse, reduce_op):
    x, c0, c1 = (numbers(n, s, scale=0.4) for n, s in ((13, (8, 10)), (14, (8, 1)), (15, (8, 1))))
    reverse0, reverse1 = (reverse and op != "bypass" for op in ops)

    def body(data, col0, col1, dst, res):
        given = {"reverse0": reverse0, "reverse1": reverse1, "reduce_op": getattr(nl, reduce_op)}
        nisa.activate2(
            dst,
            nl.tanh,
            data,
            col0,
            col1,
            getattr(nl, ops[0]),
            getattr(nl, ops[1]),
            reduce_res=res,
            reduce_cmd=CMD.reset_reduce,
            **given,
        )

    got, res = on_tiles(body, [x, c0, c1], [(x.shape, np.float32), COLUMN], platform="trn3")
    value = x.astype(np.float64)
    for op, c, rev in ((ops[0], c0, reverse0), (ops[1], c1, reverse1)):
        if op != "bypass":
            value = getattr(np, op)(c, value) if rev else getattr(np, op)(value, c)
    expected = np.tanh(value)
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)
    pick = expected[np.arange(8), np.abs(expected).argmax(1)]
    total = {"add": expected.sum(1), "maximum": expected.max(1), "abs_max": pick}[reduce_op]
    np.testing.assert_allclose(res[:, 0], total, rtol=1e-5, atol=1e-5)


def test_activate2_prelu_parameter():
    x, slope = numbers(16, (8, 10)), numbers(17, (8, 1))

    def body(data, col, dst):
        nisa.activate2(dst, nl.prelu, data, 0.0, 0.0, nl.bypass, nl.bypass, relu_param=col)

    got = on_tiles(body, [x, slope], [(x.shape, np.float32)], platform="trn3")[0]
    np.testing.assert_array_equal(got, np.where(x >= 0, x, x * slope))


@pytest.mark.parametrize(
    "message, options",
    [
        ("op0=add, op1=add; allowed pairs", {"op0": nl.add}),
        ("op0=bypass, op1=add; allowed pairs", {"op0": nl.bypass}),
        ("reverse0=True with op0=bypass", {"op0": nl.bypass, "op1": nl.bypass, "reverse0": True}),
        ("reverse1=True with op1=bypass", {"op1": nl.bypass, "reverse1": True}),
        ("needs reduce_op", {"reduce_cmd": CMD.reduce}),
        ("imm1 is None", {"imm1": None}),
        (r"imm0 has shape \(7, 1\)", {"imm0": SHORT}),
        ("imm0 has dtype bfloat16, imm1 float32", {"imm0": HALF, "imm1": Operand((8, 1))}),
        (r"relu_param has shape \(8, 10\)", {"relu_param": Operand()}),
        (r"reduce_res has shape \(8, 10\)", {"reduce_res": Operand()}),
        ("same number of partitions", {"dst": Operand((7, 10))}),
        ("same number of elements", {"dst": Operand((8, 5))}),
    ],
)
def test_activate2_refused(message, options):
    def body(data, column, dst, res):
        given = {"imm0": 1.0, "imm1": 2.0, "op0": nl.multiply, "op1": nl.add, "dst": dst}
        nisa.activate2(op=nl.exp, data=data, **given | with_tiles(options))

    refuse(message, body, platform="trn3")
