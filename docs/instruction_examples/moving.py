"""Examples: moving data, registers, printing."""

from __future__ import annotations

from instruction_examples.example import Example

_X = "x = np.float32([[1, 2, 3], [4, 5, 6]])"

EXAMPLES = {
    "dma_copy": Example(
        _X,
        "tile = nl.ndarray((2, 2), dtype=x.dtype, buffer=nl.sbuf)\n"
        "nisa.dma_copy(dst=tile, src=x[:, 1:3])\nnisa.dma_copy(dst=dst, src=tile)",
        "assert np.array_equal(out, x[:, 1:3])",
        dst="(2, 2)",
        in_hbm=True,
    ),
    "dma_compute": Example(
        f"{_X}\ny = 10 * x",
        "nisa.dma_compute(dst=dst, srcs=[x, y], reduce_op=nl.add)",
        "assert np.array_equal(out, x + y)",
    ),
    "dma_transpose": Example(
        _X,
        "nisa.dma_transpose(dst=dst, src=x)",
        "assert np.array_equal(out, x.T)",
        dst="(3, 2)",
    ),
    "nc_transpose": Example(
        _X,
        "nisa.nc_transpose(dst=dst, data=x, engine=nisa.engine.vector)",
        "assert np.array_equal(out, x.T)",
        dst="(3, 2)",
    ),
    "tensor_copy": Example(
        _X,
        "nisa.tensor_copy(dst=dst, src=x)  # converts, too",
        "assert out.dtype == nl.bfloat16 and np.array_equal(out.astype(np.float32), x)",
        dtype="nl.bfloat16",
    ),
    "nc_stream_shuffle": Example(
        "x = np.arange(64, dtype=np.float32).reshape(32, 2)",
        "nisa.nc_stream_shuffle(dst=dst, src=x, shuffle_mask=list(range(31, -1, -1)))",
        "assert np.array_equal(out, x[::-1])",
    ),
    "local_gather": Example(
        "x = np.arange(64, dtype=np.float32).reshape(16, 4)\n"
        "index = np.uint16([[n % 4] for n in range(16)])  # 16 indices, down the partitions",
        "nisa.local_gather(dst=dst, src_buffer=x, index=index)",
        "assert np.array_equal(out, x[:, index[:, 0]])",
        dst="(16, 16)",
    ),
    "nc_n_gather": Example(
        f"{_X}\nindex = np.uint32([[2, 0], [1, 1]])",
        "nisa.nc_n_gather(dst=dst, data=x, indices=index)",
        "assert np.array_equal(out, [[3, 1], [5, 5]])",
        dst="(2, 2)",
    ),
    "register_load": Example(
        "x = np.arange(12, dtype=np.float32).reshape(4, 3)\nrow = np.int32([[2]])",
        "index = nl.load(row)\nregister = nisa.register_alloc()\n"
        "nisa.register_load(register, index)  # a number that is known when the kernel runs\n"
        "nisa.dma_copy(dst=dst, src=x.select(0, register))",
        "assert np.array_equal(out, x[2])",
        dst="(3,)",
        in_hbm=True,
    ),
    "register_move": Example(
        "x = np.zeros((1, 1), np.int32)",
        "first, second = nisa.register_alloc(7), nisa.register_alloc()\n"
        "nisa.register_move(second, first)\nnisa.register_store(dst, second)",
        "assert out[0, 0] == 7",
    ),
    "scalar_load": Example(
        "x = np.int32([[5]])",
        "i = nisa.scalar_load(x)\n"
        "nisa.scalar_store(dst, i * 4 + 1)  # computed when the kernel runs",
        "assert out[0, 0] == 21",
        in_hbm=True,
    ),
    "device_print": Example(
        _X,
        'nl.device_print("x is", x)  # [core 0] x is [[1., 2., 3.], ...\n'
        "nisa.tensor_copy(dst=dst, src=x)",
        "assert np.array_equal(out, x)",
    ),
}
EXAMPLES["scalar_store"] = EXAMPLES["scalar_load"]
EXAMPLES["register_store"] = EXAMPLES["register_alloc"] = EXAMPLES["register_move"]
