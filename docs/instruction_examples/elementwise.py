"""Examples: element by element, and random numbers."""

from __future__ import annotations

from instruction_examples.example import Example

_X = "x = np.float32([[1, -2, 3], [4, 5, -6]])"
_XY = f"{_X}\ny = np.float32([[1, 2, 3], [10, 20, 30]])"
_XR = f"{_X}\nrow = np.float32([[10], [100]])  # one number per partition"

EXAMPLES = {
    "tensor_tensor": Example(
        _XY,
        "nisa.tensor_tensor(dst=dst, data1=x, data2=y, op=nl.multiply)",
        "assert np.array_equal(out, x * y)",
    ),
    "tensor_scalar": Example(
        _XR,
        "nisa.tensor_scalar("
        "dst=dst, data=x, op0=nl.multiply, operand0=row, op1=nl.add, operand1=1.0)",
        "assert np.array_equal(out, x * row + 1)",
    ),
    "scalar_tensor_tensor": Example(
        _XY,
        "nisa.scalar_tensor_tensor(\n    dst=dst, data=x, op0=nl.multiply, operand0=2.0, "
        "op1=nl.add, operand1=y\n)",
        "assert np.array_equal(out, x * 2 + y)",
    ),
    "reciprocal": Example(
        _X,
        "nisa.reciprocal(dst=dst, data=x)",
        "assert np.allclose(out, 1 / x)",
    ),
    "activation": Example(
        _X,
        "nisa.activation(dst=dst, op=nl.exp, data=x, scale=0.5)",
        "assert np.allclose(out, np.exp(0.5 * x))",
    ),
    "activate2": Example(
        _X,
        "nisa.activate2("
        "dst=dst, op=nl.square, data=x, imm0=2.0, imm1=1.0, op0=nl.multiply, op1=nl.add)",
        "assert np.array_equal(out, (2 * x + 1) ** 2)",
        platform="trn3",
    ),
    "exponential": Example(
        _X,
        "nisa.exponential(dst=dst, src=x, max_value=5.0)",
        "assert np.allclose(out, np.exp(x - 5))",
        platform="trn3",
    ),
    "tan": Example(_X, "dst[...] = nl.tan(x)", "assert np.allclose(out, np.tan(x))"),
    "affine_select": Example(
        "x = np.arange(1, 10, dtype=np.float32).reshape(3, 3)",
        "# Column minus row is at most 0: on and below the diagonal.\n"
        "nisa.affine_select(\n    dst=dst,\n    pattern=[[1, 3]],\n    channel_multiplier=-1,\n"
        "    on_true_tile=x,\n    on_false_value=0.0,\n    cmp_op=nl.less_equal,\n)",
        "assert np.array_equal(out, np.tril(x))",
    ),
    "range_select": Example(
        "x = np.arange(8, dtype=np.float32).reshape(2, 4)\nlow = np.float32([[0], [1]])\n"
        "high = np.float32([[2], [4]])",
        "most = nl.ndarray((2, 1), dtype=nl.float32, buffer=nl.sbuf)\n"
        "nisa.range_select(\n    dst=dst,\n    on_true_tile=x,\n    comp_op0=nl.greater_equal,\n"
        "    comp_op1=nl.less,\n    bound0=low,\n    bound1=high,\n    reduce_res=most,\n)",
        "column = np.arange(4)\nkept = (column >= low) & (column < high)\n"
        "assert np.array_equal(out, np.where(kept, x, np.finfo(np.float32).min))",
    ),
    "select_reduce": Example(
        "x = np.float32([[1, 2, 3], [4, 5, 6]])\nmask = np.uint8([[1, 0, 1], [0, 1, 0]])",
        "nisa.select_reduce(dst=dst, predicate=mask, on_true=x, on_false=-1.0)",
        "assert np.array_equal(out, np.where(mask, x, -1))",
    ),
    "tensor_copy_predicated": Example(
        "x = np.float32([[1, 2, 3], [4, 5, 6]])\nmask = np.uint8([[1, 0, 1], [0, 1, 0]])",
        "nisa.memset(dst=dst, value=0.0)\n"
        "nisa.tensor_copy_predicated(dst=dst, src=x, predicate=mask)",
        "assert np.array_equal(out, np.where(mask, x, 0))",
    ),
    "iota": Example(
        _X,
        "nisa.iota(dst=dst, pattern=[[2, 3]], offset=5, channel_multiplier=100)",
        "assert np.array_equal(out, [[5, 7, 9], [105, 107, 109]])",
        dtype="nl.int32",
    ),
    "memset": Example(
        _X, "nisa.memset(dst=dst, value=1.5)", "assert np.array_equal(out, np.full((2, 3), 1.5))"
    ),
    "dropout": Example(
        "x = np.ones((128, 512), np.float32)",
        "nisa.dropout(dst=dst, data=x, prob=0.25)",
        "assert set(np.unique(out)) == {0, 1} and 0.23 < np.mean(out == 0) < 0.27",
    ),
    "rng": Example(
        "x = np.zeros((128, 64), np.float32)",
        "nisa.rng(dst=dst)",
        "assert out.dtype == np.uint32 and len(np.unique(out)) > 8000",
        dtype="nl.uint32",
    ),
    "rand2": Example(
        "x = np.zeros((128, 64), np.float32)",
        "nisa.rand2(dst=dst, min=2.0, max=3.0)",
        "assert np.all((out >= 2) & (out <= 3)) and 2.4 < out.mean() < 2.6",
        platform="trn3",
    ),
    "set_rng_seed": Example(
        "seed = np.uint32([[42]])",
        "other = nl.ndarray((8, 5), dtype=nl.uint32, buffer=nl.sbuf)\n"
        "nisa.set_rng_seed(seed)\nnisa.rng(dst=other)\n"
        "nisa.set_rng_seed(seed)\nnisa.rng(dst=dst)\n"
        "nisa.tensor_tensor(dst=dst, data1=dst, data2=other, op=nl.bitwise_xor)",
        "assert not out.any()  # the same bits twice",
        dst="(8, 5)",
        dtype="nl.uint32",
    ),
    "rand_get_state": Example(
        "x = np.zeros((8, 5), np.float32)",
        "# Put back, the state gives the same bits again.\n"
        "state = nl.ndarray((8, 6), dtype=nl.uint32, buffer=nl.sbuf)\n"
        "other = nl.ndarray((8, 5), dtype=nl.uint32, buffer=nl.sbuf)\n"
        "nisa.rand_get_state(state, engine=nisa.engine.gpsimd)\n"
        "nisa.rng(dst=other, engine=nisa.engine.gpsimd)\n"
        "nisa.rand_set_state(state, engine=nisa.engine.gpsimd)\n"
        "nisa.rng(dst=dst, engine=nisa.engine.gpsimd)\n"
        "nisa.tensor_tensor(dst=dst, data1=dst, data2=other, op=nl.bitwise_xor)",
        "assert not out.any()",
        dtype="nl.uint32",
    ),
}
EXAMPLES["rand_set_state"] = EXAMPLES["rand_get_state"]
