"""Ending a launch from another thread: at any time, also before its cores are there."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.hbm.layout import fill_stack, lay_out
from nki_dist.ops.alignment import aligned
from nki_dist.runtime import group as module
from nki_dist.runtime.executor import Stopped
from nki_dist.runtime.group import CoreGroup, StackView
from nki_dist.runtime.hosts import slots

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@nki.jit
def doubled(x, rounds):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.device_print("begun", tile)
    for _ in nl.dynamic_range(rounds):
        nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
    nl.store(out, tile)
    return out


def launch(group, emit):
    compiled = nki.simulate(doubled).compile(X, 3)
    layout = lay_out(compiled)
    stack = aligned(layout.stack_bytes)
    fill_stack(layout, stack, [X])
    return group.run("a key", compiled.programs, layout.offsets, {0: StackView(stack, 0)}, emit)


@pytest.mark.parametrize("when", ["linking", "running"])
def test_a_launch_is_stopped_and_the_next_runs(when, monkeypatch):
    group, printed = CoreGroup(slots(1, 1)), []
    if when == "linking":  # as a thread would that comes while cores are linked
        linked, stop = module.placed_program, [group.stop]
        monkeypatch.setattr(
            module, "placed_program", lambda *args: (stop and stop.pop()(), linked(*args))[1]
        )

    def emit(core, prefix, array):
        printed.append(prefix)
        if when == "running" and len(printed) == 1:
            group.stop()

    with pytest.raises(Stopped):
        launch(group, emit)
    assert printed == (["begun"] if when == "running" else [])
    assert group.scheduler is None
    (report,) = launch(group, emit)
    assert report.trips == [3]
    assert printed[-1] == "begun"
