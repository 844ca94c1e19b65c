"""What ranking a thousand variants of a matmul takes, and how far apart variants must be.

    python -m bench.rank [--variants 1000] [--jobs 2] [--ways settings files autotune]
    python -m bench.rank --apart

Seconds and processor seconds of `nki-dist rank` on one program with its settings as arguments, on a
program for each, and of `nki.autotune`, nothing kept from before.

`--apart` works out `timing.band.APART` from all pairs of variants of a problem whose times on a
device were published (`bench/data/public.tsv`): how often the one that is simulated to be faster
was faster, as a function of the ratio of the simulated times that doesn't fall (isotonic
regression), and from which ratio on that is nine times in ten. It also says which place on a device
the variant has that is the fastest on the model.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from bench.accuracy.rows import DATA, PUBLIC, all_rows, chosen, read_results
from bench.harness import show
from nki_dist.timing.band import APART

KERNEL = """
import sys
import ml_dtypes
import numpy as np
import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl


@nki.jit
def matmul(lhsT, rhs, m, n, k, rows_first, engine):
    '''lhsT.T @ rhs in blocks of m x n tiles, k at a time.'''
    deep, rows, columns = *lhsT.shape, rhs.shape[1]
    out = nl.ndarray((rows, columns), lhsT.dtype, buffer=nl.shared_hbm)
    down, right = range(0, rows, 128 * m), range(0, columns, 512 * n)
    if rows_first:
        corners = [(r, c) for r in down for c in right]
    else:
        corners = [(r, c) for c in right for r in down]
    for r, c in corners:
        sums = [nl.ndarray((128, n, 512), nl.float32, buffer=nl.sbuf) for _ in range(m)]
        for block in range(0, deep, 128 * k):
            left = nl.ndarray((128, k, 128 * m), lhsT.dtype, buffer=nl.sbuf)
            above = nl.ndarray((128, k, 512 * n), rhs.dtype, buffer=nl.sbuf)
            for t in range(k):
                at = slice(block + 128 * t, block + 128 * t + 128)
                nisa.dma_copy(dst=left[:, t], src=lhsT[at, r : r + 128 * m])
                nisa.dma_copy(dst=above[:, t], src=rhs[at, c : c + 512 * n])
            for i in range(m):
                for j in range(n):
                    tile = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
                    for t in range(k):
                        nisa.nc_matmul(
                            dst=tile,
                            stationary=left[:, t, 128 * i : 128 * i + 128],
                            moving=above[:, t, 512 * j : 512 * j + 512],
                        )
                    if block:
                        nisa.tensor_tensor(
                            dst=sums[i][:, j], data1=sums[i][:, j], data2=tile, op=nl.add,
                        )
                    else:
                        nisa.tensor_copy(dst=sums[i][:, j], src=tile, engine=engine)
        for i in range(m):
            done = nl.ndarray((128, n, 512), out.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(dst=done, src=sums[i], engine=engine)
            at = slice(r + 128 * i, r + 128 * i + 128)
            nisa.dma_copy(dst=out[at, c : c + 512 * n], src=done)
    return out


ENGINES = {"vector": nisa.engine.vector, "scalar": nisa.engine.scalar}


def config(m, n, k, order, engine, dtype):
    return dict(m=int(m), n=int(n), k=int(k), rows_first=order == "rows", engine=ENGINES[engine])


def inputs(dtype):
    kind = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16}[dtype]
    return np.zeros((1536, 1536), kind), np.zeros((1536, 6144), kind)
"""
LAUNCH = "\n\nmatmul(*inputs({0}[-1]), **config(*{0}))\n"
TUNE = """

for dtype in ("float32", "bfloat16"):
    configs = [config(*s) for s in map(str.split, open(sys.argv[1])) if s[-1] == dtype]
    if configs:
        tuned = nki.autotune(configs=configs)(matmul)
        nki.estimate(tuned)(*inputs(dtype))
        print(dtype, tuned.best_config, len(tuned.timings), len(tuned.failures))
"""


def settings(count: int) -> list[str]:
    """Block sizes in tiles, order of blocks, engine of copies and dtype, as words."""
    divisors = (1, 2, 3, 4, 6, 12)
    ways = itertools.product(
        ("bfloat16", "float32"), ("vector", "scalar"), ("rows", "columns"), *[divisors] * 3
    )
    found = [f"{m} {n} {k} {order} {engine} {dtype}" for dtype, engine, order, m, n, k in ways]
    step = len(found) / count
    return [found[int(step * n)] for n in range(min(count, len(found)))]


def measured(way: str, words: Sequence[str], folder: Path, jobs: int) -> tuple[str, ...]:
    """Seconds, processor seconds of all processes, and what came out."""
    lines = folder / "settings.txt"
    lines.write_text("\n".join(words))
    program = folder / "matmul.py"
    command = [sys.executable, "-m", "nki_dist", "rank", "--jobs", str(jobs), "--json"]
    if way == "settings":
        program.write_text(KERNEL + LAUNCH.format("sys.argv[1:]"))
        command += ["--no-cache", "--arguments", str(lines), str(program)]
    elif way == "files":
        files = [folder / f"variant_{n}.py" for n in range(len(words))]
        for file, line in zip(files, words, strict=True):
            file.write_text(KERNEL + LAUNCH.format(line.split()))
        command += ["--no-cache", *map(str, files)]
    else:
        program.write_text(KERNEL + TUNE)
        command = [sys.executable, str(program), str(lines)]
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    taken, after = time.perf_counter() - start, os.times()
    used = after.children_user + after.children_system
    used -= before.children_user + before.children_system
    said = done.stdout.decode()
    if way != "autotune":
        report = json.loads(said)
        timed, failed = report["programs"], report["failures"]
        codes = sorted({d["code"] for f in failed for d in f["diagnostics"]})
        said = f"{len(timed)} in {timed[-1]['group']} groups, {len(failed)} refused {codes}"
    return way, str(len(words)), f"{taken:.0f}", f"{used:.0f}", said.strip().replace("\n", "; ")


# ---- how far apart ------------------------------------------------------------------------------


def problems() -> dict[str, list[tuple[float, float]]]:
    """Simulated and measured times of the variants of every problem that has several."""
    results = read_results(DATA / "simulated.jsonl")
    found: dict[str, list[tuple[float, float]]] = {}
    for row in chosen(all_rows()):
        result = results.get(row.id)
        if row.set == PUBLIC and result is not None and result.device_us:
            found.setdefault(row.problem, []).append((result.device_us, row.measured_us))
    return {problem: times for problem, times in found.items() if len(times) > 1}


def pairs() -> list[tuple[float, float]]:
    """Of any two variants of a problem, in order: how many times as long the one that is simulated
    to be slower takes, simulated and on a device."""
    found = []
    for times in problems().values():
        for fast, slow in map(sorted, itertools.combinations(times, 2)):
            found.append((slow[0] / fast[0], slow[1] / fast[1]))
    return sorted(found)


def apart(of: Sequence[tuple[float, float]], share: float = 0.9) -> float:
    """The ratio of simulated times from which on at least this share of pairs is in order."""
    blocks: list[tuple[float, int, int]] = []  # first ratio, pairs in order, pairs
    for ratio, measured in of:
        block = ratio, int(measured > 1), 1
        while blocks and blocks[-1][1] * block[2] >= block[1] * blocks[-1][2]:
            first, right, count = blocks.pop()
            block = first, right + block[1], count + block[2]
        blocks.append(block)
    return next(first for first, right, count in blocks if right >= share * count)


def show_apart() -> None:
    of, edges = pairs(), (1.0, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5, math.inf)
    rows = []
    for low, high in itertools.pairwise(edges):
        right = [m > 1 for s, m in of if low <= s < high]
        share = f"{sum(right) / len(right):.0%}" if right else ""
        rows.append((f"{low:g} to {high:g}", str(len(right)), share))
    show(("ratio of simulated times", "pairs", "in order"), rows)
    print(f"in order nine times in ten from {apart(of):.4f} on; timing.band.APART is {APART}")
    places = [
        (sorted(m for _, m in times).index(min(times)[1]) + 1, len(times))
        for times in problems().values()
    ]
    print("the fastest on the model is number", *(f"{n} of {count}," for n, count in places))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--variants", type=int, default=1000)
    parser.add_argument("--jobs", type=int, default=2)
    ways = ("settings", "files", "autotune")
    parser.add_argument("--ways", nargs="*", choices=ways, default=ways)
    parser.add_argument("--apart", action="store_true", help="how far apart variants must be")
    arguments = parser.parse_args()
    if arguments.apart:
        show_apart()
        return
    words = settings(arguments.variants)
    with tempfile.TemporaryDirectory() as made:
        rows = (measured(way, words, Path(made), arguments.jobs) for way in arguments.ways)
        show(("way", "variants", "seconds", "processor seconds", "result"), rows)


if __name__ == "__main__":
    main()
