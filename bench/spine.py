"""Launches, matmul, softmax, scaling over two cores, compile time and memory."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator

import numpy as np
from threadpoolctl import threadpool_limits

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.flash import flash_rows
from bench.harness import RUNS, apart, example, in_turn, median, seconds
from bench.plain import plain_processes

Row = tuple[str, str, str]


@nki.jit
def one_instruction(x):
    """The smallest kernel: a copy."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out


@nki.jit
def many_matmuls(a, rounds):
    """Compute-bound: each core multiplies its share of `rounds` times."""
    cores, me = nl.num_programs(0), nl.program_id(0)
    out = nl.ndarray((cores, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    stationary = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.sbuf)
    moving = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=stationary, src=a[:, 0:128])
    nisa.dma_copy(dst=moving, src=a[:, 0:512])
    acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for _ in range(rounds // cores):
        nisa.nc_matmul(dst=acc, stationary=stationary, moving=moving)
    result = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=acc)
    nisa.dma_copy(dst=out[me], src=result)
    return out


def matmul_rate() -> Row:
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal((2048, 2048), np.float32) for _ in range(2))
    at = np.ascontiguousarray(a.T)
    kernel = example("matmul").matmul_blocked
    pair = in_turn(lambda: kernel[1](at, b), lambda: a @ b)
    return (
        "float32 matmul 2048^3, one core, rate against numpy.matmul",
        f"{100 / pair.ratio:.0f} % ({1e3 * pair.ours:.0f} ms against {1e3 * pair.theirs:.0f} ms)",
        ">= 90 %",
    )


def softmax_ratio() -> Row:
    kernel = example("softmax").softmax
    x = np.random.default_rng(1).standard_normal((4096, 2048), np.float32)

    def plain() -> np.ndarray:
        e = np.exp(x - x.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    pair = in_turn(lambda: kernel[1](x), plain)
    return (
        "softmax 4096x2048, one core, time against the NumPy expression",
        f"{pair.ratio:.2f}x ({1e3 * pair.ours:.0f} ms against {1e3 * pair.theirs:.0f} ms)",
        "<= 3x",
    )


def warm_launch() -> Row:
    x = np.zeros((4, 4), np.float32)
    value = median(lambda: one_instruction[2](x), 50)
    return ("warm kernel[2] launch, one instruction", f"{1e3 * value:.2f} ms", "< 5 ms")


def two_cores() -> Row:
    """What a second core brings, and what a second process brings without any simulator."""
    rounds = 8000
    a = np.random.default_rng(2).standard_normal((128, 512), np.float32)
    sides: list[Callable[[], object]] = [
        lambda: many_matmuls[1](a, rounds),
        lambda: many_matmuls[2](a, rounds),
    ]
    with plain_processes(2) as run:
        sides += [lambda: run([rounds]), lambda: run([rounds // 2, rounds // 2])]
        for side in sides:
            side()
        one, two, plain_one, plain_two = (
            statistics.median(column)
            for column in zip(*[[seconds(side) for side in sides] for _ in range(RUNS)])
        )
    ours, plain = one / two, plain_one / plain_two
    return (
        "compute-bound kernel, kernel[2] against kernel[1], as a share of two plain processes",
        f"{100 * ours / plain:.0f} % ({ours:.2f}x of {plain:.2f}x)",
        ">= 98 %",
    )


def compile_time() -> Row:
    from nki_dist import arch, dtypes
    from nki_dist.compiler.compile import compile_kernel
    from nki_dist.compiler.compiled import Grid
    from nki_dist.compiler.encode import encode
    from nki_dist.program import TensorSignature

    signature = TensorSignature(0, (128, 512), dtypes.float32, "a")

    def bind(trace):
        tensor = trace.input(0, signature.shape, signature.dtype, signature.name)
        return (tensor,), {"tiles": 4000}

    def build() -> int:
        start = time.perf_counter()
        compiled = compile_kernel(
            tile_stream.fn, "tile_stream", arch.get("trn2"), Grid((1,), 1, (0,)), bind,
            [signature], lambda trace, result: result,
        )  # fmt: skip
        traced = time.perf_counter()
        encode(compiled.programs[0])
        count = len(compiled.programs[0])
        per.append((1e6 * (traced - start) / count, 1e6 * (time.perf_counter() - traced) / count))
        return count

    per: list[tuple[float, float]] = []
    median(build)
    trace_us, encode_us = (float(np.median(column)) for column in zip(*per))
    return (
        "trace + passes, and encode, per instruction",
        f"{trace_us:.1f} + {encode_us:.1f} = {trace_us + encode_us:.1f} us",
        "<= 40 us",
    )


@nki.jit
def tile_stream(a, tiles):
    """Loads, computes and stores a tile over and over, in fresh tensors, as unrolled loops do."""
    out = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
    for n in range(tiles):
        x = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        y = nl.ndarray((128, 256), dtype=nl.float32, buffer=nl.sbuf)
        half = nl.ds(256 * (n % 2), 256)
        nisa.dma_copy(dst=x, src=a[:, half])
        nisa.activation(dst=y, op=nl.exp, data=x, scale=0.5)
        nisa.tensor_scalar(dst=y, data=y, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)
        nisa.tensor_tensor(dst=x[:, 0:128], data1=x[:, 0:128], data2=y[:, 128:256], op=nl.add)
        nisa.dma_copy(dst=out[:, half], src=x)
    return out


MEMORY_PROGRAM = """
import resource, numpy as np, nki_dist as nki
from bench.spine import tile_stream
from nki_dist.launcher.session import session
x = np.zeros((128, 512), np.float32)
nki.simulate(tile_stream)(x, 20000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)
"""


def memory() -> Row:
    """Peak memory of a process that compiles, encodes, links and runs 100,000 instructions."""
    start = time.perf_counter()
    taken = apart("-c", MEMORY_PROGRAM)
    return (
        "100,000 instructions compiled, linked and run: peak memory of the process",
        f"{taken:.2f} GiB ({time.perf_counter() - start:.0f} s in all)",
        "< 2 GB",
    )


def rows() -> Iterator[Row]:
    with threadpool_limits(1):
        for measure in (
            matmul_rate, softmax_ratio, warm_launch, two_cores, compile_time, memory,
        ):  # fmt: skip
            yield measure()
        yield from flash_rows()
