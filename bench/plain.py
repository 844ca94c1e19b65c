"""Processes that multiply with NumPy and nothing else, to measure simulated cores against."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection

import numpy as np
from threadpoolctl import threadpool_limits

ROWS = 4096  # of a product: as many as the matmuls have that become one


def _work(pipe: Connection) -> None:
    """Multiply as often as is asked, until nothing is."""
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((ROWS, n), np.float32) for n in (128, 512))
    out = np.empty((128, 512), np.float32)
    with threadpool_limits(1):
        while count := pipe.recv():
            for _ in range(count * 128 // ROWS):
                np.matmul(left.T, right, out)
            pipe.send(count)


@contextmanager
def plain_processes(count: int) -> Iterator[Callable[[Sequence[int]], None]]:
    """A function that lets the first processes multiply 128 x 128 x 512 so many times each."""
    context = multiprocessing.get_context("spawn")
    pipes, processes = [], []
    for _ in range(count):
        ours, theirs = context.Pipe()
        pipes.append(ours)
        processes.append(context.Process(target=_work, args=(theirs,)))
        processes[-1].start()

    def run(rounds: Sequence[int]) -> None:
        used = pipes[: len(rounds)]
        for pipe, n in zip(used, rounds, strict=True):
            pipe.send(n)
        for pipe in used:
            pipe.recv()

    try:
        yield run
    finally:
        for pipe, process in zip(pipes, processes, strict=True):
            pipe.send(0)
            process.join()
