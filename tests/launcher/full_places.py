"""A program for test_full_places: launches while shared memory, or Ray's disk, is full.

`python -m tests.launcher.full_places shm|disk FOLDER` in a mount namespace of its own, where
/dev/shm is a file system of 300 MiB and FOLDER, for Ray's session, one of 200 MiB. Prints JSON.
"""

from __future__ import annotations

import errno
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import ray

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.launcher.full_store import MIB, STORE, launch

ROUNDS = 1_500_000  # some seconds on any machine, and long enough for what happens in between


@nki.jit
def counted(x, rounds):
    """x + rounds, one at a time, on every core."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for _ in nl.dynamic_range(nisa.register_alloc(nl.load(rounds))):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    if nl.program_id(0) == 0:
        nl.store(out, tile)
    return out


@nki.jit
def summed(x, rounds, group):
    mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=mine, src=x)
    for _ in nl.dynamic_range(nisa.register_alloc(nl.load(rounds))):
        ncc.all_reduce(srcs=[mine], dsts=[total], replica_group=group, op=nl.add)
    return total


def left(folder: str) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


@contextmanager
def filled(folder: str, leave: int) -> Iterator[None]:
    """Only so many bytes are left."""
    path = os.path.join(folder, "filled")
    with open(path, "wb") as file:
        # Others write, too, and what can't be had as a whole isn't had at all.
        while (more := left(folder) - leave) > 0:
            try:
                os.posix_fallocate(file.fileno(), 0, more)
                break
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    try:
        yield
    finally:
        os.unlink(path)


def timed(call: Callable[[], str]) -> tuple[str, float]:
    start = time.monotonic()
    return call(), round(time.monotonic() - start, 1)


def count(world: nki.World, rounds: int, meanwhile: Callable[[], Any] | None = None) -> str:
    """A launch of so many rounds; `meanwhile` is done after its first second."""
    x = np.zeros((2, 3), np.float32)
    timer = threading.Timer(1.0, meanwhile or (lambda: None))
    timer.start()
    try:
        outs = world.run(counted, x, np.full((1, 1), rounds, np.int32))
    except nki.errors.NkiError as error:
        return f"{type(error).__name__}: {error}"
    finally:
        timer.join()
    return "ok" if all(np.array_equal(out, x + rounds) for out in outs) else "wrong"


def add(world: nki.World, mib: int, rounds: int) -> str:
    """A launch whose messages have so many MiB together."""
    x = np.ones((128, mib * MIB // 512), np.float32)
    group = ncc.ReplicaGroup([list(range(world.ranks))])
    try:
        outs = world.run(summed, x, np.full((1, 1), rounds, np.int32), group)
    except nki.errors.NkiError as error:
        return f"{type(error).__name__}: {error}"
    return "ok" if all((out == world.ranks).all() for out in outs) else "wrong"


def shm(folder: str) -> dict[str, Any]:
    """Ray's store has 256 of 300 MiB; others take what it hasn't used yet."""
    found: dict[str, Any] = {}
    with nki.World(lnc=2) as world, nki.World(ranks=2) as two:
        found["warm"] = launch(world, 8), add(two, 1, 1)
        with filled("/dev/shm", 16 * MIB):
            found["grows"] = timed(lambda: launch(world, 100))
            found["fits"] = launch(world, 8)
        with filled("/dev/shm", MIB // 2):
            found["messages grow"] = timed(lambda: add(two, 1, 30))
        found["again"] = launch(world, 100), add(two, 4, 3)
        full = filled("/dev/shm", 0)
        found["while it runs"] = count(two, ROUNDS, full.__enter__), left("/dev/shm") // MIB
        full.__exit__(None, None, None)
        found["at last"] = count(two, 3)
    return found


def disk(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with filled(folder, 0):
        found["no start"] = timed(started)
    found["start"] = started()
    with nki.World(lnc=2) as world:
        found["warm"] = count(world, 3)
        full = filled(folder, 0)
        found["while it runs"] = count(world, ROUNDS, full.__enter__), left(folder) // MIB
        found["when full"] = count(world, 3)
        held = ray.put(np.zeros(120 * MIB, np.uint8))
        mapped = ray.get(held)
        found["spills"] = timed(lambda: launch(world, 200))
        del held, mapped
        full.__exit__(None, None, None)
        found["at last"] = count(world, 3), launch(world, 200)
    return found


def started() -> str:
    try:
        with nki.World() as world:
            return count(world, 2)
    except nki.errors.NkiError as error:
        return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    os.environ["NKI_DIST_OBJECT_STORE_BYTES"] = str(STORE)
    os.environ["RAY_TMPDIR"] = sys.argv[2]
    print(json.dumps({"shm": shm, "disk": disk}[sys.argv[1]](sys.argv[2])), flush=True)
