"""For each instruction that is built around (`built`): its call, and what it does in NumPy.

A row is a function of the operands of a construct and of attributes that it gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.foreign.built import COLUMNS, ROWS, Case, Operand, stored

SCALAR_TOLERANCE = 1e-2  # an activation's result is rounded to bfloat16 in places

Operands = dict[str, Operand]


def _case(operands: Operands, call: Any, wanted: Any, *written: str, **more: Any) -> Case:
    return Case(operands, call, written or ("dst",), wanted, **more)


def column(operands: Operands, *names: str) -> Operands:
    """The same with some operands of one element per row."""
    made = dict(operands)
    for name in names:
        if name in made:
            o = made[name]
            made[name] = Operand(o.memory, o.dtype, o.form, o.rows, 1)
    return made


def memset(o: Operands, value: Any = 3, engine: Any = None) -> Case:
    options = {} if engine is None else {"engine": engine}
    return _case(
        o,
        lambda dst: nisa.memset(dst, value=value, **options),
        lambda dst: np.full(dst.shape, value),
    )


def tensor_copy(o: Operands, engine: Any = None) -> Case:
    options = {} if engine is None else {"engine": engine}
    return _case(o, lambda dst, src: nisa.tensor_copy(dst, src, **options), lambda dst, src: src)


def dma_copy(o: Operands, **options: Any) -> Case:
    return _case(o, lambda dst, src: nisa.dma_copy(dst, src, **options), lambda dst, src: src)


BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "equal": np.equal,
    "not_equal": np.not_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "left_shift": np.left_shift,
    "right_shift": np.right_shift,
    "power": np.power,
    "arith_shift_right": np.right_shift,
    "logical_shift_right": np.right_shift,
    "abs_max": lambda a, b: np.maximum(abs(a), abs(b)),
}


def tensor_tensor(o: Operands, op: str = "add", engine: Any = None) -> Case:
    options = {} if engine is None else {"engine": engine}
    return _case(
        o,
        lambda dst, data1, data2: nisa.tensor_tensor(dst, data1, data2, getattr(nl, op), **options),
        lambda dst, data1, data2: BINARY[op](data1, data2),
        tolerance=1e-6 if op == "power" else 0.0,
    )


def tensor_scalar(o: Operands, op0: str = "multiply", op1: Any = None, **given: Any) -> Case:
    """Operands that aren't tiles are `given`, or 2."""
    o = column(o, "operand0", "operand1")
    engine = {k: given.pop(k) for k in ("engine", "reverse0", "reverse1") if k in given}
    second = op1 or ("add" if "operand1" in o or "operand1" in given else None)

    zero, one = given.get("operand0", 2), given.get("operand1", 1)

    def call(dst, data, operand0=zero, operand1=one):
        more = {"op1": getattr(nl, second), "operand1": operand1} if second else {}
        nisa.tensor_scalar(dst, data, getattr(nl, op0), operand0, **more, **engine)

    def wanted(dst, data, operand0=zero, operand1=one):
        swap0, swap1 = engine.get("reverse0"), engine.get("reverse1")
        out = BINARY[op0](operand0, data) if swap0 else BINARY[op0](data, operand0)
        if second:
            out = BINARY[second](operand1, out) if swap1 else BINARY[second](out, operand1)
        return out

    return _case(o, call, wanted, tolerance=1e-6 if "power" in (op0, second) else 0.0)


def scalar_tensor_tensor(o: Operands, op0: str = "multiply", op1: str = "add", **g: Any) -> Case:
    o = column(o, "operand0")
    swaps = {k: g.pop(k) for k in ("reverse0", "reverse1") if k in g}

    zero = g.get("operand0", 2.0)

    def call(dst, data, operand1, operand0=zero):
        nisa.scalar_tensor_tensor(
            dst, data, getattr(nl, op0), operand0, getattr(nl, op1), operand1, **swaps
        )

    def wanted(dst, data, operand1, operand0=zero):
        first = (operand0, data) if swaps.get("reverse0") else (data, operand0)
        out = BINARY[op0](*first)
        return BINARY[op1](*((operand1, out) if swaps.get("reverse1") else (out, operand1)))

    return _case(o, call, wanted)


UNARY: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "square": np.square,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "copy": lambda x: x,
    "identity": lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "abs": np.abs,
    "log": np.log,
    "sin": np.sin,
    "tanh": np.tanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "softplus": lambda x: np.log1p(np.exp(x)),
    "sign": np.sign,
}


def activation(o: Operands, op: str = "copy", **given: Any) -> Case:
    o = column(o, "bias", "scale", "reduce_res")
    given = {"scale": 0.5 if op == "sin" else 1.0, **given}  # it takes -pi to pi

    def call(dst, data, bias=None, scale=given["scale"], reduce_res=None):
        more = {} if reduce_res is None else {"reduce_op": nl.add, "reduce_res": reduce_res}
        if reduce_res is not None:
            more["reduce_cmd"] = nisa.reduce_cmd.reset_reduce
        nisa.activation(dst, getattr(nl, op), data, bias=bias, scale=scale, **more)

    def wanted(dst, data, bias=0, scale=given["scale"], reduce_res=None):
        out = UNARY[op](data * scale + bias)
        return out if reduce_res is None else (out, out.sum(1, keepdims=True))

    written = ("dst", "reduce_res") if "reduce_res" in o else ("dst",)
    return _case(o, call, wanted, *written, tolerance=SCALAR_TOLERANCE)


def activation_reduce(o: Operands, op: str = "square", **given: Any) -> Case:
    o = column(o, "bias", "scale", "reduce_res")
    given = {"scale": 1.0, **given}

    def call(dst, data, reduce_res, bias=None, scale=given["scale"]):
        nisa.activation_reduce(
            dst, getattr(nl, op), data, nl.add, reduce_res, bias=bias, scale=scale
        )

    def wanted(dst, data, reduce_res, bias=0, scale=given["scale"]):
        out = UNARY[op](data * scale + bias)
        return out, out.sum(1, keepdims=True)

    return _case(o, call, wanted, "dst", "reduce_res", tolerance=SCALAR_TOLERANCE)


REDUCED: dict[str, Callable[..., Any]] = {
    "add": np.sum,
    "maximum": np.max,
    "minimum": np.min,
    "multiply": np.prod,
}


def tensor_reduce(o: Operands, op: str = "add", **options: Any) -> Case:
    o = column(o, "dst")
    rank = len(o["data"].layout[1])
    negative = -1 if options.get("negate") else 1
    return _case(
        o,
        lambda dst, data: nisa.tensor_reduce(
            dst, getattr(nl, op), data, axis=tuple(range(1, rank)), **options
        ),
        lambda dst, data: negative * REDUCED[op](data, axis=1, keepdims=True),
    )


def tensor_partition_reduce(o: Operands, op: str = "add") -> Case:
    first = o["dst"]
    o = {**o, "dst": Operand(first.memory, first.dtype, first.form, 1, COLUMNS)}
    return _case(
        o,
        lambda dst, data: nisa.tensor_partition_reduce(dst, getattr(nl, op), data),
        lambda dst, data: REDUCED[op](data, axis=0, keepdims=True),
    )


def tensor_tensor_scan(o: Operands, op0: str = "multiply", op1: str = "add", **g: Any) -> Case:
    o = column(o, "initial")

    start = g.get("initial", 0)

    def call(dst, data0, data1, initial=start):
        nisa.tensor_tensor_scan(dst, data0, data1, initial, getattr(nl, op0), getattr(nl, op1))

    def wanted(dst, data0, data1, initial=start):
        out, state = np.empty(data0.shape), np.broadcast_to(initial, (ROWS, 1))[:, 0]
        for k in range(out.shape[1]):
            state = BINARY[op1](BINARY[op0](data0[:, k], state), data1[:, k])
            out[:, k] = state
        return out

    return _case(o, call, wanted, tolerance=SCALAR_TOLERANCE)


def reciprocal(o: Operands) -> Case:
    return _case(
        o,
        lambda dst, data: nisa.reciprocal(dst, data),
        lambda dst, data: 1 / data,
        tolerance=1e-2,
    )


def nc_transpose(o: Operands, engine: Any = None) -> Case:
    first = o["dst"]
    o = {**o, "dst": Operand(first.memory, first.dtype, first.form, COLUMNS, ROWS)}
    options = {} if engine is None else {"engine": engine}
    return _case(
        o,
        lambda dst, data: nisa.nc_transpose(dst, data, **options),
        lambda dst, data: data.T,
    )


def dma_transpose(o: Operands, **options: Any) -> Case:
    first = o["dst"]
    o = {**o, "dst": Operand(first.memory, first.dtype, first.form, COLUMNS, ROWS)}
    return _case(
        o,
        lambda dst, src: nisa.dma_transpose(dst, src, **options),
        lambda dst, src: src.T,
    )


def nc_n_gather(o: Operands) -> Case:
    return _case(
        o,
        lambda dst, data, indices: nisa.nc_n_gather(dst, data, indices),
        lambda dst, data, indices: np.take_along_axis(data, indices.astype(int), axis=1),
    )


def nc_find_index8(o: Operands) -> Case:
    """Values that aren't in a row, and ones that are, which are its first eight."""
    vals, first = o["vals"], o["dst"]
    o = {
        **o,
        "vals": Operand(vals.memory, vals.dtype, vals.form, ROWS, 8),
        "dst": Operand(first.memory, first.dtype, first.form, ROWS, 8),
    }
    made = _case(
        o,
        lambda dst, data, vals: nisa.nc_find_index8(dst, data, vals),
        lambda dst, data, vals: np.broadcast_to(np.arange(8), dst.shape),
    )
    rows = np.stack([np.random.default_rng(p).permutation(COLUMNS) for p in range(ROWS)])
    made.arrays = {name: stored(rows, operand.dtype) for name, operand in o.items()}
    made.arrays |= {name: made.arrays[name][:, :8].copy() for name in ("dst", "vals")}
    return made


def tensor_scalar_reduce(o: Operands, op0: str = "multiply", **given: Any) -> Case:
    o = column(o, "operand0", "reduce_res")

    zero = given.get("operand0", 2)

    def call(dst, data, reduce_res, operand0=zero):
        nisa.tensor_scalar_reduce(
            dst, data, getattr(nl, op0), operand0, nl.add, reduce_res=reduce_res
        )

    def wanted(dst, data, reduce_res, operand0=zero):
        out = BINARY[op0](data, operand0)
        return out, out.sum(1, keepdims=True)

    return _case(o, call, wanted, "dst", "reduce_res")


def nc_matmul(o: Operands, **options: Any) -> Case:
    first, stationary = o["dst"], o["stationary"]
    o = {
        **o,
        "dst": Operand(first.memory, first.dtype, first.form, 4, COLUMNS),
        "stationary": Operand(
            stationary.memory, stationary.dtype, stationary.form, stationary.rows, 4
        ),
    }
    return _case(
        o,
        lambda dst, stationary, moving: nisa.nc_matmul(dst, stationary, moving, **options),
        lambda dst, stationary, moving: stationary.astype(float).T @ moving.astype(float),
    )


def iota(o: Operands, offset: int = 0, channel_multiplier: int = 0) -> Case:
    return _case(
        o,
        lambda dst: nisa.iota(
            dst, [[1, COLUMNS]], offset=offset, channel_multiplier=channel_multiplier
        ),
        lambda dst: (
            offset + channel_multiplier * np.arange(ROWS)[:, None] + np.arange(COLUMNS)[None, :]
        ),
    )


def nc_stream_shuffle(o: Operands) -> Case:
    order = [*range(ROWS - 1, -1, -1), *[255] * (32 - ROWS)]
    return _case(
        o,
        lambda dst, src: nisa.nc_stream_shuffle(dst, src, order),
        lambda dst, src: src[::-1],
    )


def tensor_copy_predicated(o: Operands, reverse_pred: bool = False) -> Case:
    def wanted(dst, src, predicate):
        return np.where(predicate.astype(bool) != reverse_pred, src, dst)

    return _case(
        o,
        lambda dst, src, predicate: nisa.tensor_copy_predicated(
            dst, src, predicate, reverse_pred=reverse_pred
        ),
        wanted,
    )


BUILT = {
    f.__name__: f
    for f in (
        memset, tensor_copy, dma_copy, tensor_tensor, tensor_scalar, scalar_tensor_tensor,
        activation, activation_reduce, tensor_reduce, tensor_partition_reduce,
        tensor_tensor_scan, reciprocal, nc_transpose, nc_matmul, iota, nc_stream_shuffle,
        tensor_copy_predicated, dma_transpose, nc_n_gather, nc_find_index8,
        tensor_scalar_reduce,
    )
}  # fmt: skip
