"""Events of a replay: spills beside transfers, and that nothing is left out silently."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.timing import Seat, order
from nki_dist.timing.compiled import Plan
from nki_dist.timing.core import CoreReplay
from nki_dist.timing.dma import DmaEngines, Transfer
from nki_dist.timing.events import Events
from nki_dist.timing.exchange import Seats
from nki_dist.timing.fixed import Part, describe
from nki_dist.timing.stack import HbmBandwidth
from tests.timing.build import compiled, replay
from tests.timing.test_compiled import KIB, ROWS, estimated, kept, positions, spec

SEAT = Seat(0, 0, 0)


def loading(x):
    for _ in range(5):
        nisa.dma_copy(dst=nl.ndarray(x.shape, nl.float32, buffer=nl.sbuf), src=x)


def events_of(kernel, shape):
    """A core that is about to run a kernel as compiled, and its events."""
    (program,), machine = compiled(kernel, [shape])
    graph, plan = order(program), Plan(reorders=True)
    part = Part(graph, plan, describe(graph, machine, plan))
    events = Events([part], Seats([SEAT]), machine, {})
    return events.cores[0], events, machine


def swapped(x):
    """Two tiles of more than half of SBUF; the first is changed, and used again after the other."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    first = nl.load(x[:ROWS])
    nisa.activation(dst=first[:, :8], op=nl.copy, data=first[:, 8:16])
    other = nl.load(x[ROWS:])
    nl.store(out[ROWS:], other)
    nl.store(out[:ROWS], first)
    return out


@pytest.mark.parametrize(("kernel", "tiles", "away"), [(kept, 4, 2), (swapped, 2, 0)])
def test_what_is_spilled_is_saved_before_it_comes_back(kernel, tiles, away, monkeypatch):
    """The columns that are written by themselves are a piece of their own, of 4 KiB.

    Of `kept`, every tile has a buffer of its own in the end; in `swapped`, others have its room.
    """
    moved = {False: {}, True: {}}

    def watched(core, size, time, stack, back=False):
        end = spill(core, size, time, stack, back)
        assert size not in moved[back]
        moved[back][size] = time, end
        return end

    spill = CoreReplay.spill
    monkeypatch.setattr(CoreReplay, "spill", watched)
    row = 256 * KIB // tiles
    p = estimated(kernel, spec(tiles * ROWS, row // 4), check="spill")
    saves, reloads = moved[False], moved[True]
    assert sorted(saves) == sorted(reloads) == [ROWS * 32, ROWS * (row - 32)]
    changed, core = positions(p, "activation")
    moves, _ = positions(p, "dma_copy")
    for size, (begun, saved) in saves.items():
        assert begun == core.done[changed[away]]
        assert reloads[size][0] > saved
        assert kernel is kept or core.start[moves[1]] > saved
    stored = max(moves, key=lambda at: core.start[at])
    assert core.start[stored] > max(end for _, end in reloads.values())


def test_transfers_behind_spills_are_woken_by_their_end():
    core, events, machine = events_of(loading, (128, 512))
    for _ in range(2):  # as many as an engine may have before a transfer begins, and one more
        core.spill(1 << 20, 0.0, events.stacks[SEAT.stack])
    events.run()
    each = (1 << 20) / machine.dma_engines / machine.dma_engine_gbps
    assert each > 1000  # when the loads ask
    assert core.timeline.start[0] == pytest.approx(each)
    own = core.by_position[0].transfer.parts[0][1]
    assert core.timeline.end[0] == pytest.approx(2 * each + own)


def test_a_replay_that_never_comes_to_an_instruction_says_so(monkeypatch):
    monkeypatch.setattr(Events, "_on_idle", lambda *_: None)
    programs, machine = compiled(loading, [(128, 4096)])  # data last longer than descriptors
    with pytest.raises(AssertionError, match=r"core 0 never came to .*dma_copy"):
        replay(programs, [[]], machine, schedule="compiled")


def test_small_packets_are_over_however_late_it_is():
    """Beyond 1e10 ns a millionth of a nanosecond is less than a float can add."""
    _, _, machine = events_of(loading, (128, 512))
    engines, late = DmaEngines(machine), 3e10
    t = Transfer("none", "", 8.0, 1000.0, ((0, 1.5e-6),), 1, 1.5e-6, 0, 0)
    look = engines.scatter(t, late)
    assert engines.scattered(t, look) == look and engines.scatters(t)
    wide = Transfer("none", "", 8.0, 1000.0, ((0, 10.0),), 0.0, 10.0, 0, 0)
    assert engines.run(0, wide, look, look, HbmBandwidth(machine))[0] == look + 10


def test_cores_get_room_that_is_not_there_at_once():
    """Not one after the other: ranks that have nothing to do with each other don't wait."""

    def crowded(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        high = nl.ndarray((128, 1024), nl.float32, buffer=nl.sbuf, address=(0, 160 * KIB))
        nisa.memset(dst=high, value=1.0)
        tiles = [nl.load(x) for _ in range(4)]
        for tile in tiles:
            nisa.tensor_tensor(dst=tile, data1=tile, data2=tiles[0], op=nl.add)
        nisa.dma_copy(dst=out, src=tiles[3])
        return out

    def us(ranks):
        with nki.World(ranks, 1, dry=True) as world:
            x = nki.TensorSpec((128, 6 * KIB), np.float32)
            return world.dry_run(nki.jit(crowded), x, profile=True).profile.total_us

    assert us(16) == pytest.approx(us(2), rel=0.02)
