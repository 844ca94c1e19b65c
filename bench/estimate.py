"""What an estimate costs beside compiling, and how both grow with the program.

    python -m bench.estimate [--sizes 1000,10000,100000] [--shape tiles ...]

Processor time per instruction of compiling (tracing and passes) and of timing (order, replay and
summary), for programs of several shapes. Whatever grows faster than its program shows as a column
that grows from row to row.
"""

from __future__ import annotations

import argparse
import gc
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.harness import show


def tiles(x: Any, count: int) -> Any:
    """Load, scale, store; every tile is a tensor of its own, and a box of its own in HBM."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    columns = x.shape[1] // 64
    for n in range(count // 3):
        row, column = divmod(n, columns)
        at = slice(128 * row, 128 * row + 128), slice(64 * column, 64 * column + 64)
        tile = nl.load(x[at])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0)
        nl.store(out[at], tile)
    return out


def products(x: Any, count: int) -> Any:
    """Matmuls that add up in PSUM over 16 operands, which stay in SBUF and are read for ever."""
    out = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm)
    operands = []
    for n in range(16):
        operands.append(nl.load(x[0:128, 64 * n : 64 * n + 64]))
    kept = nl.ndarray((64, 64), nl.float32, buffer=nl.sbuf)
    for _ in range(count // 17):
        total = nl.ndarray((64, 64), nl.float32, buffer=nl.psum)
        for operand in operands:
            nisa.nc_matmul(dst=total, stationary=operand, moving=operand)
        nisa.tensor_copy(dst=kept, src=total)
    nl.store(out[0:64, :], kept)
    nl.store(out[64:128, :], kept)
    return out


def placed(x: Any, count: int) -> Any:
    """Tensors that the kernel places itself, in turn, so that later ones overlap earlier ones."""
    out = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm)
    for n in range(count // 3):
        tile = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf, address=(0, 256 * (n * 7 % 300)))
        nisa.dma_copy(dst=tile, src=x[0:128, 0:64])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0)
        nisa.dma_copy(dst=out, src=tile)
    return out


def windows(x: Any, count: int) -> Any:
    """Reads that overlap their neighbours, of a tensor that was written piece by piece."""
    width = count // 8 * 4
    rows = nl.ndarray((1, width + 8), nl.float32, buffer=nl.private_hbm)
    out = nl.ndarray((1, width), nl.float32, buffer=nl.shared_hbm)
    for n in range(0, width + 8, 4):
        nisa.dma_copy(dst=rows[0:1, n : n + 4], src=x[0:1, 0:4])
    for n in range(width):
        nisa.dma_copy(dst=out[0:1, n : n + 1], src=rows[0:1, n + 5 : n + 6])
    return out


def rounds(x: Any, count: int) -> Any:
    """A loop at run time: few instructions, executed often."""
    out = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm)
    for _ in nl.dynamic_range(0, count // 3):
        tile = nl.load(x[0:128, 0:64])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0)
        nl.store(out, tile)
    return out


SHAPES: dict[str, Callable[..., Any]] = {
    f.__name__: f for f in (tiles, products, placed, windows, rounds)
}


def measured(kernel: Callable[..., Any], count: int) -> tuple[int, float, float]:
    """Instructions executed, and seconds of processor time of compiling and of timing."""
    spec = nki.TensorSpec((128 * (count // 768 + 1), 16384), nl.float32)
    world = nki.World(host="inprocess", check="unwritten=zero")
    gc.collect()  # what the programs before left isn't this one's cost
    start = time.process_time()
    world.compile(kernel, spec.hollow(), count)
    compiled = time.process_time()
    profile = world.estimate(kernel, spec, count)  # compiled before
    return profile.instructions, compiled - start, time.process_time() - compiled


def rows(shapes: Sequence[str], sizes: Sequence[int]) -> Iterator[tuple[str, ...]]:
    for name in shapes:
        measured(SHAPES[name], 300)
        for size in sizes:
            n, compiling, timing = measured(SHAPES[name], size)
            each = (f"{seconds / n * 1e6:.1f}" for seconds in (compiling, timing))
            yield name, f"{n:,}", *each, f"{(compiling + timing) / compiling:.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--shape", nargs="*", choices=list(SHAPES), default=list(SHAPES))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # most sizes leave a tail of the output unwritten
    heads = ("shape", "instructions", "compiling, us each", "timing, us each", "both / compiling")
    show(heads, rows(arguments.shape, [*map(int, arguments.sizes.split(","))]))


if __name__ == "__main__":
    main()
