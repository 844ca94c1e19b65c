"""Worlds that are dropped without `close`, as by a notebook's cell that is run again."""

from __future__ import annotations

import gc
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.core_actor.processes import Process
from tests.programs import python

ROOT = Path(__file__).parents[2]
X = np.ones((8, 8), np.float32)


@nki.jit
def copied(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out


CELL = """
w = nki.World(8, cores_per_actor=1, host="ray")
outputs = w.run(copied, x)
processes += [Process.of(pid) for pid, _ in w._host.processes]
"""


def gone(processes):
    end = time.monotonic() + 20
    while any(p.there() for p in processes):
        assert time.monotonic() < end, f"{sum(p.there() for p in processes)} are left"
        time.sleep(0.01)


def run(cell, space, times):
    """A cell several times; its warnings."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always", ResourceWarning)
        for _ in range(times):
            exec(cell, space)
    return [str(w.message) for w in said if "World" in str(w.message)]


@pytest.mark.slow
def test_cells_that_are_run_again_leave_no_processes():
    processes = []
    space = {"nki": nki, "copied": copied, "x": X, "Process": Process}
    said = run(CELL, space | {"processes": processes}, 3)
    gone(processes[:16])
    assert len(processes) == 24
    assert len(said) == 2 and "a World of 8 ranks was dropped without close()" in said[0]
    gc.collect()
    gone(processes)


def test_a_world_needs_no_collector_to_end():
    gc.disable()
    try:
        world = nki.World(2, host="ray")
        world.run(copied, X)
        processes = [Process.of(pid) for pid, _ in world._host.processes]
        with pytest.warns(ResourceWarning, match="2 ranks"):
            del world
        gone(processes)
    finally:
        gc.enable()


def test_a_world_in_a_cycle_ends_where_the_collector_finds_it():
    world = nki.World(1, host="ray")
    world.run(copied, X)
    processes = [Process.of(pid) for pid, _ in world._host.processes]
    world.me = world
    with pytest.warns(ResourceWarning, match="1 ranks"):
        del world
        gc.collect()
    gone(processes)


@pytest.mark.parametrize("made", ["closed", "unused", "inprocess", "implicit", "failed"])
def test_nothing_is_said_of_worlds_that_have_nothing_to_end(made):
    cell = {
        "closed": "w = nki.World(2, host='ray'); w.run(copied, x); w.close(); del w",
        "unused": "w = nki.World(2, host='ray'); del w",
        "inprocess": "w = nki.World(2, host='inprocess'); w.run(copied, x); del w",
        "implicit": "copied(x)",
        "failed": "try:\n    nki.World(0)\nexcept nki.errors.NkiError:\n    pass",
    }[made]
    assert not run(cell, {"nki": nki, "copied": copied, "x": X}, 2)


def test_a_fork_that_drops_a_world_leaves_it_to_its_parent():
    world = nki.World(2, host="ray")
    world.run(copied, X)
    if not (child := os.fork()):
        said = None
        try:
            said = run("world.__del__()", {"world": world}, 1)
        finally:
            os._exit(said != [])
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert all(Process.of(pid).there() for pid, _ in world._host.processes)
    world.run(copied, X)
    world.close()


STORE = """
import numpy as np
import nki_dist as nki
from tests.launcher.test_dropped import copied

for n in range(6):
    world = nki.World(1)
    x = np.full((1 << 10, 1 << 13), n, np.float32)
    assert np.array_equal(world.run(copied, x)[0], x)
print("right")
"""


@pytest.mark.slow
def test_memory_of_dropped_worlds_is_used_again():
    """Each takes 64 MiB of a store of 160."""
    done = python(
        "-c", STORE, folder=ROOT, NKI_DIST_OBJECT_STORE_BYTES=str(160 << 20), NKI_DIST_HOST="ray"
    )
    assert done.stdout == "right\n", done.stderr[-2000:]
