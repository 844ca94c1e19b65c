"""What compiled kernels leave behind: memory of this process, and of its actors, as they come.

    python -m bench.kept_kernels [--kernels 2000] [--every 500] [--host inprocess|ray] [--kind exec]

Every kernel is made, launched once, and dropped: by `exec` of source of its own ("exec"), as a
notebook's cells are, or by closures of one function ("closures"). What is printed is the resident
memory after a collection, in MiB: what a program keeps of kernels that it doesn't have any more.
"""

from __future__ import annotations

import argparse
import gc
import linecache
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import nki_dist as nki
import nki_dist.language as nl

SOURCE = """
import nki_dist as nki
import nki_dist.language as nl

@nki.jit
def kernel_{n}(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(0, 96, 32):
        tile = nl.load(x[row : row + 32])
        nl.store(out[row : row + 32], nl.add(tile, {n}.0))
    return out
"""


def by_exec(n: int) -> Any:
    """A kernel of source of its own, which is dropped with it."""
    text, name = SOURCE.format(n=n), f"<cell {n}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    made: dict[str, Any] = {"__name__": "cells"}
    exec(compile(text, name, "exec"), made)
    del linecache.cache[name]
    return made[f"kernel_{n}"]


def by_closure(n: int) -> Any:
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for row in range(0, 96, 32):
            tile = nl.load(x[row : row + 32])
            nl.store(out[row : row + 32], nl.add(tile, float(n)))
        return out

    return kernel


KINDS: dict[str, Callable[[int], Any]] = {"exec": by_exec, "closures": by_closure}


def resident(pid: int | str = "self") -> float:
    """MiB of a process's own memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


def grown(kind: str, host: str, kernels: int, every: int) -> list[tuple[int, float, float]]:
    """(kernels so far, MiB of this process, MiB of the actors)."""
    x = np.ones((96, 40), np.float32)
    found = []
    with nki.World(ranks=1, host=host) as world:
        for n in range(1, kernels + 1):
            (out,) = world.run(KINDS[kind](n), x)
            assert out[7, 3] == 1 + n
            if n % every == 0:
                gc.collect()
                pids = [pid for pid, _ in getattr(world.host, "processes", ())]
                found.append((n, resident(), sum(map(resident, pids))))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kernels", type=int, default=2000)
    parser.add_argument("--every", type=int, default=500)
    parser.add_argument("--host", choices=("inprocess", "ray"), default="inprocess")
    parser.add_argument("--kind", choices=tuple(KINDS), default="exec")
    given = parser.parse_args()
    print("| kernels | this process, MiB | actors, MiB |\n|---|---|---|")
    for n, own, actors in grown(given.kind, given.host, given.kernels, given.every):
        print(f"| {n:,} | {own:.1f} | {actors:.1f} |")


if __name__ == "__main__":
    main()
