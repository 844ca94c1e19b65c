"""What a debugged launch costs beside the first launch in process.

    python -m bench.debug [--sizes 1000,10000] [--shape tiles ...]

Both sides trace, check, link and run: in process a whole program at a time, debugged one
instruction at a time. Processor time, medians of launches in turn; every launch is the first of its
kernel. Later launches in process reuse what was compiled, debugged ones never do.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.estimate import placed, products, tiles
from bench.harness import RUNS
from nki_dist.launcher.session import CompileCache, session

GOAL = 1.5
HOSTS = ("debug", "inprocess")


def fresh(x: Any, count: int) -> Any:
    """New tiles in SBUF and PSUM in every iteration, as kernels write their inner loops."""
    out = nl.ndarray((128, 128), nl.float32, buffer=nl.shared_hbm)
    kept = nl.load(x[0:128, 0:128])
    for _ in range(count // 5):
        tile = nl.ndarray((128, 128), nl.float32, buffer=nl.sbuf)
        most = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
        product = nl.ndarray((128, 128), nl.float32, buffer=nl.psum)
        nisa.tensor_scalar(dst=tile, data=kept, op0=nl.multiply, operand0=0.5)
        nisa.activation(dst=tile, op=nl.tanh, data=tile)
        nisa.tensor_reduce(dst=most, op=nl.maximum, data=tile, axis=1)
        nisa.nc_matmul(dst=product, stationary=tile, moving=tile)
        nisa.tensor_tensor(dst=kept, data1=kept, data2=product, op=nl.add)
    nl.store(out, kept)
    return out


SHAPES: dict[str, Callable[..., Any]] = {f.__name__: f for f in (fresh, tiles, products, placed)}


def first_launch(host: str, kernel: Callable[..., Any], x: np.ndarray, count: int) -> bytes:
    """The bits of a launch of a kernel that nobody has compiled."""
    session().cache = CompileCache()
    with nki.World(host=host, check="unwritten=zero") as world:
        (out,) = world.run(kernel, x, count)
    return bytes(out.tobytes())


def cost(host: str, kernel: Callable[..., Any], x: np.ndarray, count: int) -> float:
    """Seconds of processor time that a first launch takes; one core runs in this thread."""
    start = time.process_time()
    first_launch(host, kernel, x, count)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--sizes", default="1000,10000")
    parser.add_argument("--shape", nargs="*", choices=list(SHAPES), default=list(SHAPES))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # most sizes leave a tail of the output unwritten
    print(f"| shape | instructions | in process, ms | debugged, ms | ratio (goal <= {GOAL}) |")
    print("|---|---|---|---|---|")
    for name in arguments.shape:
        kernel = SHAPES[name]
        for size in map(int, arguments.sizes.split(",")):
            rows = 128 * (size // 768 + 1) if name == "tiles" else 128
            x = np.random.default_rng(1).random((rows, 16384), np.float32) / 100
            bits = {first_launch(host, kernel, x, size) for host in HOSTS}
            assert len(bits) == 1, f"{name}: other bits"
            seconds = [[cost(host, kernel, x, size) for host in HOSTS] for _ in range(RUNS)]
            debugged, whole = (statistics.median(side) for side in zip(*seconds))
            times = f"{whole * 1e3:.0f} | {debugged * 1e3:.0f} | {debugged / whole:.2f}"
            print(f"| {name} | {size:,} | {times} |", flush=True)


if __name__ == "__main__":
    main()
