"""activation and activation_reduce against float64 NumPy."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from helpers import numbers, on_tiles, run

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

BF16 = ml_dtypes.bfloat16
CMD = nisa.reduce_cmd
X = np.ones((8, 6), np.float32)


@pytest.mark.parametrize("scale", [None, -2.5, "tile"])
@pytest.mark.parametrize("bias", [None, 0.0, 0.75, "tile"])
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_scale_and_bias(scale, bias, dtype):
    x, s, c = numbers(1, (27, 3, 5), dtype), numbers(2, (27, 1)), numbers(3, (27, 1), BF16)

    def body(data, col0, col1, dst):
        given = {}
        if scale is not None:
            given["scale"] = col0 if scale == "tile" else scale
        if bias is not None:
            given["bias"] = col1 if bias == "tile" else bias
        nisa.activation(dst=dst, op=nl.tanh, data=data, **given)

    got = on_tiles(body, [x, s, c], [((27, 15), np.float32)], psum=(0,))[0]
    value = x.reshape(27, 15).astype(np.float64)
    value = value * (1 if scale is None else s if scale == "tile" else scale)
    value = value + (0 if bias is None else c.astype(np.float64) if bias == "tile" else bias)
    np.testing.assert_allclose(got, np.tanh(value), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("op", [nl.exp, nl.copy, nl.square, nl.rsqrt, nl.sigmoid, nl.relu])
def test_functions_in_place(op):
    x = np.abs(numbers(4, (12, 33))) + np.float32(0.1)

    def body(tile, out):
        nisa.activation(tile, op, tile)
        nisa.tensor_copy(dst=out, src=tile)

    got = on_tiles(body, [x], [(x.shape, np.float32)])[0]
    wide = x.astype(np.float64)
    expected = {
        "exp": np.exp(wide),
        "copy": wide,
        "square": wide**2,
        "rsqrt": wide**-0.5,
        "sigmoid": 1 / (1 + np.exp(-wide)),
        "relu": wide,
    }[op.__name__]
    np.testing.assert_allclose(got, expected, rtol=3e-7)


def test_destination_that_is_the_bias():
    x, c = numbers(5, (12, 1)), numbers(6, (12, 1))

    def body(data, bias, out):
        nisa.activation(dst=bias, op=nl.exp, data=data, bias=bias, scale=-1.0)
        nisa.tensor_copy(dst=out, src=bias)

    got = on_tiles(body, [x, c], [((12, 1), np.float32)])[0]
    np.testing.assert_allclose(got, np.exp(c.astype(np.float64) - x), rtol=1e-5)


def test_sum_is_of_unrounded_values_and_may_land_in_the_destination():
    x = numbers(7, (19, 64))

    def body(data, dst, res):
        nisa.activation(
            dst=dst,
            op=nl.copy,
            data=data,
            reduce_op=nl.add,
            reduce_res=res,
            reduce_cmd=CMD.reset_reduce,
        )

    _, sums = on_tiles(body, [x], [(x.shape, BF16), ((19, 1), np.float32)])
    np.testing.assert_allclose(sums[:, 0], x.astype(np.float64).sum(1), rtol=1e-5, atol=1e-5)

    def into(tile, out):
        nisa.activation_reduce(tile, nl.copy, tile, nl.add, tile[:, 3:4])
        nisa.tensor_copy(dst=out, src=tile)

    got = on_tiles(into, [x], [(x.shape, np.float32)])[0]
    np.testing.assert_array_equal(got[:, 3], sums[:, 0])


def test_registers_persist_between_instructions():
    x = numbers(8, (10, 5))

    def body(data, r0, r1, r2, r3, junk):
        def go(cmd, res=None, op=nl.add):
            nisa.activation(
                dst=junk, op=nl.square, data=data, reduce_op=op, reduce_cmd=cmd, reduce_res=res
            )

        go(CMD.reset_reduce)
        go(CMD.reduce, r0)
        go(CMD.idle, r1, None)
        go(CMD.reset, r2)
        go(CMD.reduce)
        nisa.activation_reduce(junk, nl.copy, data, reduce_op=nl.add, reduce_res=None)
        go(CMD.reduce, r3)

    column = ((10, 1), np.float32)
    r0, r1, r2, r3, _ = on_tiles(body, [x], [column] * 4 + [(x.shape, np.float32)])
    squares = (x.astype(np.float64) ** 2).sum(1)
    np.testing.assert_allclose(r0[:, 0], 2 * squares, rtol=1e-5)
    np.testing.assert_array_equal(r1, r0)
    np.testing.assert_array_equal(r2, 0)
    np.testing.assert_allclose(r3[:, 0], x.sum(1) + squares, rtol=1e-4)


def test_every_launch_starts_with_empty_registers():
    def kernel(x):
        tile, res = nl.ndarray(x.shape, x.dtype), nl.ndarray((x.shape[0], 1), nl.float32)
        out = nl.ndarray((x.shape[0], 1), nl.float32, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=tile, src=x)
        nisa.activation(
            tile, nl.copy, tile, reduce_op=nl.add, reduce_res=res, reduce_cmd=CMD.reduce
        )
        nisa.dma_copy(dst=out, src=res)
        return out

    for _ in range(2):
        np.testing.assert_array_equal(run(kernel, X), np.full((8, 1), 6, np.float32))


def test_partitions_have_their_own_registers():
    x = numbers(9, (40, 6))

    def body(data, junk, res):
        half = {"reduce_op": nl.add, "reduce_cmd": CMD.reset_reduce}
        nisa.activation(junk[0:32], nl.copy, data[0:32], **half)
        nisa.activation(junk[32:40], nl.copy, data[32:40], **half)
        nisa.activation(junk, nl.copy, data, reduce_res=res)

    res = on_tiles(body, [x], [(x.shape, np.float32), ((40, 1), np.float32)])[1]
    np.testing.assert_allclose(res[:, 0], x.astype(np.float64).sum(1), rtol=1e-5, atol=1e-6)


def test_discarded_results_in_one_column():
    x = numbers(10, (12, 5))

    def body(data, junk, res):
        nisa.activation_reduce(junk.ap([[1, 12], [0, 5]]), nl.square, data, nl.add, res)

    junk, res = on_tiles(body, [x], [((12, 1), np.float32), ((12, 1), np.float32)])
    np.testing.assert_allclose(res[:, 0], (x.astype(np.float64) ** 2).sum(1), rtol=1e-5)
    np.testing.assert_array_equal(junk[:, 0], x[:, -1] ** 2)


REFUSED = [
    (r"scale has shape \(8, 6\)", {"scale": X}, {}, "trn2"),
    ("same number of partitions", {"data": X[:7]}, {}, "trn2"),
    ("reduce_cmd.reduce needs reduce_op", {}, {"reduce_cmd": CMD.reduce}, "trn2"),
    (r"reduce_res has shape \(8, 6\)", {"res": X}, {}, "trn2"),
    ("nl.prelu needs NeuronCore-v4", {}, {"op": nl.prelu}, "trn2"),
]


@pytest.mark.parametrize("message, arrays, options, platform", REFUSED)
def test_refused(message, arrays, options, platform):
    names = [n for n in ("scale", "bias") if isinstance(arrays.get(n), np.ndarray)]

    def body(data, *rest):
        given = {"op": nl.exp, **{k: v for k, v in arrays.items() if k == "bias"}, **options}
        given.update(zip(names, rest, strict=False))
        if "res" in arrays:
            given["reduce_res"] = rest[-1]
        nisa.activation(dst=rest[-1], data=data, **given)

    inputs = [arrays.get("data", X), *[arrays[n] for n in names]]
    with pytest.raises(NkiValidationError, match=message):
        on_tiles(body, inputs, [((8, 6), np.float32)], platform=platform)


def test_tfloat32_bias_refused_and_column_bias_accepted_on_trn1():
    def body(data, bias, dst):
        nisa.activation(dst, nl.exp, data, bias=bias)

    got = on_tiles(body, [X, X[:, :1]], [(X.shape, np.float32)], platform="trn1")[0]
    np.testing.assert_allclose(got, np.exp(2.0), rtol=1e-6)

    def packed(data, dst):
        bias = nl.ndarray((8, 1), nl.tfloat32)
        nisa.memset(bias, 1.0)
        nisa.activation(dst, nl.exp, data, bias=bias)

    with pytest.raises(NkiValidationError, match="bias has dtype tfloat32"):
        on_tiles(packed, [X], [(X.shape, np.float32)])
