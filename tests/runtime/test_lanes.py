"""Launches on several threads: the same bits, prints and failures as on one."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import OutOfBoundsError
from nki_dist.hbm.layout import fill_stack, lay_out
from nki_dist.linking import lanes, placing
from nki_dist.linking.placing import LanedSegment
from nki_dist.ops.alignment import aligned
from nki_dist.runtime.group import CoreGroup, StackView, placed_program
from nki_dist.runtime.hosts import slots

STRANDS, SHAPE = 6, (64, 32)


@nki.jit
def strands(x, indices):
    """Several things that have nothing to do with each other; each prints, and looks something up
    that it may not find. Those that come later take less time."""
    out = nl.ndarray((STRANDS, *SHAPE), dtype=nl.float32, buffer=nl.shared_hbm)
    for n in range(STRANDS):
        table = nl.ndarray(SHAPE, dtype=nl.float32, buffer=nl.sbuf, name=f"table{n}")
        nisa.dma_copy(dst=table, src=x)
        for _ in range(3 * (STRANDS - n)):
            nisa.activation(dst=table, op=nl.tanh, data=table)
        wanted, found = nl.load(indices[n]), nl.ndarray(SHAPE, dtype=nl.float32, buffer=nl.sbuf)
        nisa.nc_n_gather(dst=found, data=table, indices=wanted)
        nisa.device_print(f"strand {n}", found[0:1, 0:1])
        nl.store(out[n], found)
    return out


@pytest.fixture(autouse=True)
def always(monkeypatch):
    monkeypatch.setattr(lanes, "LEAST", 0.0)
    monkeypatch.setattr(lanes, "GAIN", 10.0)


def inputs(bad: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    indices = rng.integers(0, SHAPE[1], (STRANDS, *SHAPE)).astype(np.uint32)
    indices[list(bad), 5, 7] = 99
    return rng.standard_normal(SHAPE).astype(np.float32), indices


class Launches:
    """Of one program, one after the other."""

    def __init__(self, threads: int) -> None:
        self.group = CoreGroup(slots(1, 1), threads)
        self.compiled = nki.simulate(strands).compile(*inputs(()))
        self.layout = lay_out(self.compiled)
        self.stack = aligned(self.layout.stack_bytes)

    def run(self, bad: tuple[int, ...]) -> tuple[list[str], object]:
        """What was printed, and the bits of the stack, or what failed."""
        printed: list[str] = []
        fill_stack(self.layout, self.stack, [*inputs(bad)])
        try:
            (report,) = self.group.run(
                "a key",
                self.compiled.programs,
                self.layout.offsets,
                {0: StackView(self.stack, 0)},
                lambda core, prefix, array: printed.append(prefix),
            )
        except OutOfBoundsError as error:
            return printed, (error.message, error.location, error.core)
        return printed, (self.stack.tobytes(), report.done)


def test_it_is_on_lanes():
    (program,) = nki.simulate(strands).compile(*inputs(())).programs
    placed = placed_program(program, threads=3)
    (laned,) = [item for item in placed.body if isinstance(item, LanedSegment)]
    assert all(len(lane.nodes) > STRANDS for lane in laned.schedule.lanes)


def test_a_free_lane_takes_what_another_has_waiting():
    """All but the load follows from it, and so waits behind it, in its lane."""

    def kernel(x):
        out, tile = nl.ndarray((8, 128, 512), x.dtype, buffer=nl.shared_hbm), nl.load(x)
        for n in range(8):
            nl.store(out[n], nl.tanh(tile))
        return out

    (program,) = nki.simulate(kernel).compile(np.zeros((128, 512), np.float32)).programs
    (laned,) = placed_program(program, threads=2).body
    assert min(len(lane.nodes) for lane in laned.schedule.lanes) > 4


@pytest.mark.parametrize(("budget", "lanes_are_worth_it"), [(1 << 20, True), (-1, False)])
def test_lanes_that_need_too_much_memory_are_none(budget, lanes_are_worth_it, monkeypatch):
    monkeypatch.setattr(placing, "BUDGET", budget)
    (program,) = nki.simulate(strands).compile(*inputs(())).programs
    body = placed_program(program, threads=3).body
    assert any(isinstance(item, LanedSegment) for item in body) == lanes_are_worth_it
    want = Launches(1).run(())
    assert Launches(3).run(()) == want


@pytest.mark.parametrize("threads", [2, 3, 5])
def test_the_first_failure_of_the_program_is_told_and_later_launches_are_right(threads):
    one, several = Launches(1), Launches(threads)
    for bad in ((), (5,), (2, 4), (0, 1, 2, 3, 4, 5), (), (3,), (1, 5), ()):
        printed, outcome = several.run(bad)
        assert (printed, outcome) == one.run(bad)
        assert printed == [f"strand {n}" for n in range(min(bad, default=STRANDS))]
        if bad:
            assert f"table{min(bad)} " in outcome[0]
    several.group.forget()


@nki.jit
def added(x, anew):
    """Sums of several tiles, each from the beginning or all in one."""
    out = nl.ndarray((STRANDS, SHAPE[0], 1), dtype=nl.float32, buffer=nl.shared_hbm)
    cmd = nisa.reduce_cmd
    for n in range(STRANDS):
        tile = nl.load(x[n])
        total = nl.ndarray((SHAPE[0], 1), dtype=nl.float32, buffer=nl.sbuf)
        for k in range(3):
            nisa.activation(
                dst=tile, op=nl.tanh, data=tile, reduce_op=nl.add, reduce_res=total,
                reduce_cmd=cmd.reset_reduce if k == 0 and anew else cmd.reduce,
            )  # fmt: skip
        nl.store(out[n], total)
    return out


@pytest.mark.parametrize("anew", [True, False])
def test_lanes_have_accumulators_of_their_own_if_all_begin_anew(anew):
    x = np.random.default_rng(4).standard_normal((STRANDS, *SHAPE)).astype(np.float32)
    (program,) = nki.simulate(added).compile(x, anew).programs
    (laned,) = placed_program(program, threads=3).body
    busy = {
        w
        for i, w in zip(laned.instructions, laned.schedule.lane_of, strict=True)
        if i.opcode == "activation"
    }
    assert len(busy) == (3 if anew else 1)
    outputs = []
    for threads in (1, 3):
        with nki.World(host="inprocess", threads=threads) as world:
            outputs.append(world.run(added, x, anew)[0].tobytes())
    assert outputs[0] == outputs[1]
