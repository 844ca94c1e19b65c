"""Ctrl-C during a launch in this process, in any call of the package: the next launch is right.

The interpreter calls `sys.settrace`'s function at every call, and an error of that function appears
in the function that begins, which is where Python raises KeyboardInterrupt, too. So no signals and
no time are needed.
"""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning")

PACKAGE = str(Path(nki.__file__).parent)
GROUP = ncc.ReplicaGroup([[0, 1]])
RNG = np.random.default_rng(3)
XS = [RNG.integers(-9, 9, (6, 5)).astype(np.float32) for _ in range(2)]
STEPS = np.full((1, 1), 4, np.int32)


def make_kernel():
    """A kernel with everything that keeps state: registers, PSUM, loops, barriers, collectives."""

    @nki.jit
    def kernel(x, steps, group):
        half = x.shape[0] // 2
        mine = nl.ds(nl.program_id(0) * half, half)
        part = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile, register = nl.load(x[mine]), nisa.register_alloc(nl.load(steps))
        for _ in nl.dynamic_range(register):
            nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
            nisa.core_barrier(data=part, cores=(0, 1))
        square = nl.ndarray((5, 5), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=square, stationary=tile, moving=tile)
        nisa.nc_matmul(dst=square, stationary=tile, moving=tile)
        first = nl.ndarray((3, 5), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=first, src=square[0:3])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=first, op=nl.add)
        nl.store(part[mine], tile)
        nisa.core_barrier(data=part, cores=(0, 1))
        ncc.all_reduce(srcs=[part], dsts=[total], replica_group=group, op=nl.add)
        return total

    return kernel


def expected():
    total = np.zeros((6, 5))
    for x in XS:
        for half in (slice(0, 3), slice(3, 6)):
            tile = x[half].astype(np.float64) * 16
            total[half] += tile + 2 * (tile.T @ tile)[0:3]
    return total


class Interrupt:
    """Raises KeyboardInterrupt in a call of the package, counted from 1; None only counts.

    Python itself looks for interrupts where a function begins or goes on, after calls and at jumps
    back: not between the last line of a `with` and its `__exit__`, say, where a lock would stay
    locked for ever. So not at every line.
    """

    def __init__(self, at: int | None = None) -> None:
        self.at, self.calls = at, 0

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._call)
        return self

    def __exit__(self, *_):
        sys.settrace(self._before)

    def _call(self, frame, event, _):
        code = frame.f_code
        # What is raised in a generator that is thrown away is only reported.
        if code.co_filename.startswith(PACKAGE) and not code.co_flags & inspect.CO_GENERATOR:
            self.calls += 1
            if self.calls == self.at:
                raise KeyboardInterrupt


@pytest.mark.parametrize(("phase", "tries"), [("first", 40), ("warm", 80)])
def test_the_launch_after_an_interrupt_is_right(phase, tries):
    want, kernel = expected(), make_kernel()
    with nki.World(ranks=2, lnc=2, host="inprocess") as world:

        def launch():
            return world.run(kernel, nki.per_rank(XS), STEPS, GROUP)

        launch()
        if phase == "first":
            kernel = make_kernel()  # is compiled and linked when it is launched
        with Interrupt() as counted:
            launch()
        for at in np.linspace(1, counted.calls - 50, tries).astype(int):
            if phase == "first":
                kernel = make_kernel()
            with pytest.raises(KeyboardInterrupt), Interrupt(at):
                launch()
            for out in launch():
                np.testing.assert_array_equal(out, want)


def test_an_interrupted_start_leaves_the_world_usable():
    want = expected()
    kernel = make_kernel()
    with Interrupt() as counted, nki.World(ranks=2, lnc=2, host="inprocess") as world:
        world.run(kernel, nki.per_rank(XS), STEPS, GROUP)
    for at in np.linspace(1, counted.calls // 4, 25).astype(int):
        world = nki.World(ranks=2, lnc=2, host="inprocess")
        with pytest.raises(KeyboardInterrupt), Interrupt(at):
            world.run(kernel, nki.per_rank(XS), STEPS, GROUP)
        for out in world.run(kernel, nki.per_rank(XS), STEPS, GROUP):
            np.testing.assert_array_equal(out, want)
        world.close()
