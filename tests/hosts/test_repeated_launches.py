"""Launches in a row: nothing stale is found again, and nothing is left behind."""

from __future__ import annotations

import gc
import os
import threading
import tracemalloc
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import threadpoolctl

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compiler.compiled import Compiled
from nki_dist.isa.core import CoreState
from nki_dist.launcher.session import session

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

OFFSET = 1.0


def make(op, number):
    """Kernels that share a name, and differ in what they capture."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        rows = x.shape[0] // nl.num_programs(0)
        mine = nl.ds(nl.program_id(0) * rows, rows)
        t = nl.load(x[mine])
        nisa.tensor_scalar(dst=t, data=t, op0=op, operand0=number, op1=nl.add, operand1=OFFSET)
        nl.store(out[mine], t)
        return out

    return kernel


KERNELS = (
    (make(nl.multiply, 3.0), lambda x: 3 * x),
    (make(nl.multiply, 5.0), lambda x: 5 * x),
    (make(nl.subtract, 7.0), lambda x: x - 7),
)


@pytest.fixture(autouse=True)
def the_global_stays(monkeypatch):
    monkeypatch.setitem(globals(), "OFFSET", OFFSET)


def launches(count, launched):
    """Other kernels, shapes, globals and data every time; each result is checked."""
    rng = np.random.default_rng(count)
    for n in range(count):
        kernel, meaning = KERNELS[n % 3]
        globals()["OFFSET"] = float(n % 4)
        x = rng.integers(-9, 9, (24 * (n % 5 + 1), 257 + n % 2)).astype(np.float32)
        np.testing.assert_array_equal(launched(kernel)(x), meaning(x) + n % 4)


def plasma() -> tuple[int, int]:
    """(bytes, objects) in the object store now, as the store itself counts them."""
    import ray
    from ray._private.internal_api import node_stats

    (node,) = ray.nodes()
    stats = node_stats(node["NodeManagerAddress"], node["NodeManagerPort"], False).store_stats
    return stats.object_store_bytes_used, stats.num_local_objects


def left_behind() -> dict[str, Any]:
    """What launches could pile up in the cluster."""
    from ray._private import state, worker

    gc.collect()
    actors = [a for a in state.actors().values() if a["State"] == "ALIVE"]
    references = worker.global_worker.core_worker.get_all_reference_counts()
    nbytes, objects = plasma()
    return {
        "actors": len(actors),
        "references of the driver": len(references),
        "bytes in plasma": nbytes,
        "objects in plasma": objects,
    }


def resident(pid: int) -> int:
    """Bytes of memory that a process has for itself."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        fields = [int(n) for n in file.read().split()]
    return (fields[1] - fields[2]) * os.sysconf("SC_PAGE_SIZE")


def allocated() -> int:
    """Bytes of Python objects made since tracing started that are still there.

    Without those of threadpoolctl: Python's cache of attribute lookups, which is of a fixed size,
    keeps some of the names it makes for each lookup.
    """
    gc.collect()
    ours = tracemalloc.Filter(False, threadpoolctl.__file__)
    kept = tracemalloc.take_snapshot().filter_traces([ours])
    return sum(s.size for s in kept.statistics("filename"))


@pytest.mark.slow
def test_200_launches_on_ray_leave_nothing_behind(monkeypatch):
    pytest.importorskip("grpc", reason="the store's counts need ray[default]")
    monkeypatch.setenv("NKI_DIST_HOST", "ray")
    launches(60, lambda kernel: kernel[2])  # every kernel, compiled and linked
    host = KERNELS[0][0][2]._world().host
    processes, before = host.processes, left_behind()
    memory = {pid: resident(pid) for pid, _ in processes}
    launches(200, lambda kernel: kernel[2])
    assert host.processes == processes
    after = left_behind()
    # What earlier tests left may go meanwhile, so there may be less.
    assert all(after[what] <= before[what] for what in before), (before, after)
    # Inputs and results of 200 launches are 15 MiB each. What a process takes grows a little at
    # first, by 2 MiB in 200 launches and by nothing after 1,600.
    grown = {pid: resident(pid) - memory[pid] for pid in memory}
    assert max(grown.values()) < 8 << 20, grown


@pytest.mark.slow
def test_200_launches_in_this_process_allocate_nothing_that_stays():
    def launched(kernel):
        return nki.simulate(kernel[2])

    launches(60, launched)
    tracemalloc.start()
    try:
        launches(60, launched)  # so that what is replaced all the time is counted
        sizes = [allocated()]
        for _ in range(3):
            launches(200, launched)
            sizes.append(allocated())
    finally:
        tracemalloc.stop()
    # Less than 100 bytes per launch: no array, no program. Once in a while a set is built anew that
    # was allocated before anybody counted; what stays of every launch is there every time.
    assert min(after - before for before, after in pairwise(sizes)) < 200 * 100


def test_kernels_are_not_kept_for_ever():
    """The cache has a limit, in the launcher and where they run."""
    from nki_dist.launcher.session import CACHED_KERNELS

    x = np.ones((2, 3), np.float32)
    for n in range(CACHED_KERNELS + 20):
        np.testing.assert_array_equal(nki.simulate(make(nl.add, float(n)))(x), 1 + n + OFFSET)
    assert len(session().cache._cache) == CACHED_KERNELS


def test_what_is_no_longer_linked_is_freed_at_once(monkeypatch):
    """Not when Python looks for cycles: in an actor that takes hundreds of launches."""
    from nki_dist.runtime import group
    from nki_dist.runtime.group import CACHED_PROGRAMS

    monkeypatch.setattr(
        group, "CACHED_BINDINGS", CACHED_PROGRAMS
    )  # of small programs, more are kept

    def adding(number: float) -> Any:
        @nki.jit
        def add(x):
            t = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=t, src=x)
            nisa.tensor_scalar(dst=t, data=t, op0=nl.add, operand0=number)
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nisa.core_barrier(data=out, cores=(0, 1))
            nisa.dma_copy(dst=out, src=t)  # both cores: this is recorded
            return out

        return add

    x = np.ones((4, 4), np.float32)
    gc.collect()
    before = sum(type(o) is CoreState for o in gc.get_objects())
    gc.disable()
    try:
        with nki.World(lnc=2, host="inprocess") as world:
            for n in range(CACHED_PROGRAMS + 5):
                (result,) = world.run(adding(float(n)), x)
                assert (result == 1 + n).all()
            alive = [o for o in gc.get_objects() if type(o) is CoreState]
            assert len(alive) - before == 2 * CACHED_PROGRAMS
    finally:
        gc.enable()


@pytest.mark.slow
def test_kernels_that_are_traced_every_time_are_forgotten(monkeypatch):
    """One that takes an object with hidden state has no key: nothing may keep what was compiled."""
    from nki_dist.runtime import group
    from nki_dist.runtime.group import CACHED_PROGRAMS

    monkeypatch.setattr(group, "CACHED_BINDINGS", CACHED_PROGRAMS)

    class Box:
        def __init__(self) -> None:
            self.lock = threading.Lock()

    @nki.jit
    def double(x, box):
        t = nl.load(x)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.add(t, t))
        return out

    x = np.ones((4, 3), np.float32)
    gc.collect()
    before = sum(type(o) is Compiled for o in gc.get_objects())
    with nki.World(host="inprocess") as world:
        for _ in range(CACHED_PROGRAMS + 7):
            assert world.run(double, x, Box())[0].sum() == 24
        gc.collect()
        assert sum(type(o) is Compiled for o in gc.get_objects()) - before <= CACHED_PROGRAMS
