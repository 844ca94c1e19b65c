"""Examples: reductions, scans, statistics, searches, and the matrix products."""

from __future__ import annotations

from instruction_examples.example import Example

_X = "x = np.float32([[1, -2, 3, 5], [4, 5, -6, 7]])"
_NINE = "x = np.float32([[3, 1, 4, 15, 9, 2, 6, 5, 35], [2, 7, 18, 28, 1, 8, 4, 5, 9]])"
_SUM = "total = nl.ndarray((2, 1), dtype=nl.float32, buffer=nl.sbuf)\n"

EXAMPLES = {
    "tensor_reduce": Example(
        _X,
        "nisa.tensor_reduce(dst=dst, op=nl.add, data=x, axis=1)",
        "assert np.array_equal(out, x.sum(axis=1, keepdims=True))",
        dst="(2, 1)",
    ),
    "tensor_partition_reduce": Example(
        _X,
        "nisa.tensor_partition_reduce(dst=dst, op=nl.add, data=x)",
        "assert np.array_equal(out, x.sum(axis=0, keepdims=True))",
        dst="(1, 4)",
    ),
    "activation_reduce": Example(
        _X,
        "squares = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.activation_reduce("
        "dst=squares, op=nl.square, data=x, reduce_op=nl.add, reduce_res=dst)",
        "assert np.array_equal(out, (x**2).sum(axis=1, keepdims=True))",
        dst="(2, 1)",
    ),
    "tensor_scalar_reduce": Example(
        _X,
        "doubled = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.tensor_scalar_reduce(\n    dst=doubled,\n    data=x,\n    op0=nl.multiply,\n"
        "    operand0=2.0,\n    reduce_op=nl.maximum,\n    reduce_res=dst,\n)",
        "assert np.array_equal(out, (2 * x).max(axis=1, keepdims=True))",
        dst="(2, 1)",
    ),
    "tensor_scalar_cumulative": Example(
        _X,
        "nisa.tensor_scalar_cumulative(dst=dst, src=x, op0=nl.multiply, op1=nl.add, imm0=2.0)",
        "assert np.array_equal(out, np.cumsum(2 * x, axis=1))",
    ),
    "tensor_tensor_scan": Example(
        f"{_X}\ndecay = np.full((2, 4), 0.5, np.float32)",
        "# dst[i] = decay[i] * dst[i - 1] + x[i]\n"
        "nisa.tensor_tensor_scan("
        "dst=dst, data0=decay, data1=x, initial=0.0, op0=nl.multiply, op1=nl.add)",
        "assert np.array_equal(out[0], [1, -1.5, 2.25, 6.125])",
    ),
    "bn_stats": Example(
        _X,
        "nisa.bn_stats(dst=dst, data=x)",
        "even, odd = x[:, ::2], x[:, 1::2]  # count, mean, variance * count of each\n"
        "assert np.array_equal(out[:, 0], [2, 2]) and np.array_equal(out[:, 1], even.mean(1))\n"
        "assert np.allclose(out[:, 5], 2 * odd.var(axis=1))",
        dst="(2, 6)",
    ),
    "bn_aggr": Example(
        _X,
        "statistics = nl.ndarray((2, 6), dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.bn_stats(dst=statistics, data=x)\nnisa.bn_aggr(dst=dst, data=statistics)",
        "assert np.allclose(out, np.stack([x.mean(axis=1), x.var(axis=1)], axis=1))",
        dst="(2, 2)",
    ),
    "max8": Example(
        _NINE,
        "nisa.max8(dst=dst, src=x)",
        "assert np.array_equal(out, np.sort(x, axis=1)[:, :0:-1])",
        dst="(2, 8)",
    ),
    "nc_find_index8": Example(
        _NINE,
        "largest = nl.ndarray((2, 8), dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.max8(dst=largest, src=x)\nnisa.nc_find_index8(dst=dst, data=x, vals=largest)",
        "assert np.array_equal(np.take_along_axis(x, out.astype(int), 1), np.sort(x)[:, :0:-1])",
        dst="(2, 8)",
        dtype="nl.uint32",
    ),
    "nc_match_replace8": Example(
        _NINE,
        "largest = nl.ndarray((2, 8), dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.max8(dst=largest, src=x)\n"
        "nisa.nc_match_replace8(dst=dst, data=x, vals=largest, imm=0.0)",
        "smallest = x.min(axis=1, keepdims=True)\n"
        "assert np.array_equal(out, np.where(x == smallest, x, 0))",
    ),
    "topk": Example(
        "x = np.arange(32).reshape(16, 2).astype(nl.bfloat16)  # a snake down the columns",
        "where = nl.ndarray((16, 4), dtype=nl.uint32, buffer=nl.sbuf)\n"
        "nisa.memset(dst=dst, value=0.0)\nnisa.topk(val_dst=dst, idx_dst=where, src=x, n=32)",
        "assert out[:4, 0].tolist() == [28, 29, 30, 31]  # ascending",
        dst="(16, 4)",
    ),
    "sequence_bounds": Example(
        "ids = np.float32([[1, 1, 2, 2, 2, 0]])",
        "nisa.sequence_bounds(dst=dst, segment_ids=ids)",
        "assert out[0, 0].tolist() == [0, 0, 2, 2, 2, 6]  # starts\n"
        "assert out[0, 1].tolist() == [2, 2, 5, 5, 5, -1]  # ends",
        dst="(1, 2, 6)",
        dtype="nl.int32",
    ),
    "nonzero_with_count": Example(
        "x = np.tile(np.float32([0, 7, 0, 8]), (16, 1))",
        "nisa.memset(dst=dst, value=0)\nnisa.nonzero_with_count(dst=dst, src=x)",
        "assert out[0].tolist() == [1, 3, -1, -1, 2]  # positions, padding, count",
        dst="(16, 5)",
        dtype="nl.int32",
    ),
    "nc_matmul": Example(
        "x = np.float32([[1, 2], [3, 4], [5, 6]])\ny = np.float32([[1, 0], [0, 1], [1, 1]])",
        "product = nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.psum)\n"
        "nisa.nc_matmul(dst=product, stationary=x, moving=y)\n"
        "nisa.tensor_copy(dst=dst, src=product)",
        "assert np.array_equal(out, x.T @ y)",
        dst="(2, 2)",
    ),
    "quantize_mx": Example(
        "x = np.tile(np.arange(-4, 4).astype(nl.bfloat16), (32, 1))",
        "packed = nl.ndarray((32, 2), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)\n"
        "nisa.memset(dst=dst, value=0)  # scales fill only some rows\n"
        "nisa.quantize_mx(dst=packed, src=x, dst_scale=dst)",
        "# The largest is 4 = 2**2, and float8_e4m3fn has numbers up to 2**8 here.\n"
        "assert out[0].tolist() == [127 + 2 - 7, 127 + 1 - 7]",
        dst="(32, 2)",
        dtype="nl.uint8",
        platform="trn3",
    ),
    "nc_matmul_mx": Example(
        "x = np.tile(np.arange(8).astype(nl.bfloat16), (32, 1))",
        "packed = nl.ndarray((32, 2), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)\n"
        "scale = nl.ndarray((32, 2), dtype=nl.uint8, buffer=nl.sbuf)\n"
        "product = nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.psum)\n"
        "nisa.quantize_mx(dst=packed, src=x, dst_scale=scale)\n"
        "nisa.nc_matmul_mx(\n    dst=product,\n    stationary=packed,\n    moving=packed,\n"
        "    stationary_scale=scale,\n    moving_scale=scale,\n)\n"
        "nisa.tensor_copy(dst=dst, src=product)",
        "parts = x.astype(np.float32).reshape(32, 2, 4)\n"
        'assert np.array_equal(out, np.einsum("kmi,kni->mn", parts, parts))',
        dst="(2, 2)",
        dtype="nl.float32",
        platform="trn3",
    ),
}
