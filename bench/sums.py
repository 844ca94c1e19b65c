"""`python -m bench.sums`: float32 sums from first to last element against NumPy's pairwise ones.

Both sides are this package's `tensor_reduce(add)`, once with its sums and once with `np.add.reduce`
on contiguous rows in their place, in turn in one process with one thread. Timed are the linked
instruction by itself, and a warm launch of a kernel that loads a tile, reduces it and stores the
sums.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from unittest import mock

import ml_dtypes
import numpy as np
from threadpoolctl import threadpool_limits

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.harness import Pair, seconds
from bench.instruction_cases import Case, normal
from bench.instructions import linked
from nki_dist.isa import reductions, rows

RUNS = 101
SHAPES = ((128, 64), (128, 512), (128, 2048), (128, 2000), (128, 64, 32))


def pairwise(a: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    return np.add.reduce(np.ascontiguousarray(a), axis=-1, out=out)


@contextmanager
def as_it_was() -> Iterator[None]:
    """Sums in NumPy's order, of rows that are never spread."""
    with (
        mock.patch.object(reductions, "running_sum", pairwise),
        mock.patch.object(rows, "crowded", lambda shape: False),
    ):
        yield


def instruction(shape: tuple[int, ...], dtype: np.dtype, strided: bool) -> Callable[[], None]:
    whole = normal(1, *shape[:-1], 2 * shape[-1] if strided else shape[-1]).astype(dtype)
    rank = len(shape)
    case = Case(
        "tensor_reduce",
        lambda a, o: nisa.tensor_reduce(o, nl.add, a[..., ::2] if strided else a, axis=rank - 1),
        lambda a: a,
        [whole],
        [((*shape[:-1], 1), nl.float32, nl.sbuf)],
    )
    return linked(case)


@nki.jit
def summed(x):
    tile = nl.load(x)
    total = nl.ndarray((*x.shape[:-1], 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=total, op=nl.add, data=tile, axis=len(x.shape) - 1)
    out = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nl.store(out, total)
    return out


def launch(x: np.ndarray) -> Callable[[], object]:
    """A launch in a world of its own, which links the kernel anew."""
    world = nki.World(ranks=1, lnc=1, platform="trn2", host="inprocess")
    return lambda: world.run(summed, x)


def compared(make: Callable[[], Callable[[], object]]) -> Pair:
    ours = make()
    ours()
    with as_it_was():
        before = make()
        before()
    taken: tuple[list[float], list[float]] = ([], [])
    for _ in range(RUNS):
        taken[0].append(seconds(ours))
        with as_it_was():
            taken[1].append(seconds(before))
    return Pair(*(statistics.median(times) for times in taken))


def measured() -> Iterator[tuple[str, Pair]]:
    with threadpool_limits(1), np.errstate(all="ignore"):
        for shape in SHAPES:
            for dtype in (np.float32, ml_dtypes.bfloat16):
                for strided in (False, True):
                    name = f"{shape} {np.dtype(dtype)}{', every other column' if strided else ''}"
                    yield name, compared(lambda s=shape, d=dtype, t=strided: instruction(s, d, t))
        for shape in SHAPES:
            x = normal(1, *shape)
            yield f"launch, {shape} float32", compared(lambda x=x: launch(x))


def main() -> None:
    print("| tensor_reduce(add) of | us | pairwise us | ratio |\n|---|---|---|---|")
    for name, pair in measured():
        times = f"{1e6 * pair.ours:.0f} | {1e6 * pair.theirs:.0f} | {pair.ratio:.2f}"
        print(f"| {name} | {times} |", flush=True)


if __name__ == "__main__":
    main()
