"""The collector looks at what is made meanwhile later, or never."""

from __future__ import annotations

import gc

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import kernels
from nki_dist.launcher.session import CompileCache, session
from nki_dist.program.uncollected import MANY, uncollected


@pytest.fixture(autouse=True)
def collecting():
    """As in a program: nothing is frozen, as tests are (tests/conftest.py)."""
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    gc.collect()
    yield
    gc.unfreeze()
    if frozen > MANY:
        gc.freeze()


def is_old(value: object) -> bool:
    return any(value is other for other in gc.get_objects(generation=2))


def test_many_objects_without_cycles_are_old_at_once():
    with uncollected(acyclic=True):
        made = [[n] for n in range(2 * MANY)]
    assert is_old(made[MANY])
    assert gc.get_freeze_count() < MANY // 10  # Python 3.12 itself freezes some


def test_objects_that_may_be_cycles_are_left_to_the_collector():
    with uncollected():
        made = [[n] for n in range(2 * MANY)]
        assert not is_old(made[MANY])
    gc.collect(0)
    assert not is_old(made[MANY])


def test_few_objects_are_left_to_the_collector():
    with uncollected(acyclic=True):
        made = [[n] for n in range(MANY // 10)]
    assert not is_old(made[0])


def test_what_somebody_froze_stays_frozen():
    gc.freeze()
    frozen = gc.get_freeze_count()
    assert frozen > MANY
    with uncollected(acyclic=True):
        made = [[n] for n in range(2 * MANY)]
    assert gc.get_freeze_count() == frozen
    assert len(made) == 2 * MANY


def test_the_collector_stays_off_where_it_was_off():
    gc.disable()
    try:
        with uncollected(acyclic=True):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def made_in_cycles(launch) -> list[object]:
    """Objects of this package that only the collector can free after a launch."""
    gc.collect()
    gc.disable()
    try:
        launch()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        return [value for value in gc.garbage if type(value).__module__.startswith("nki_dist")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def test_a_first_launch_makes_no_cycles(monkeypatch):
    monkeypatch.setattr(session(), "cache", CompileCache())  # or it evicts what others left
    x = np.random.default_rng(0).standard_normal((1, 1, 64, 640), np.float32)
    with nki.World(host="inprocess") as world:  # one of its own evicts nothing, either

        def launch(scale):
            world.run(kernels.flash_fwd, x, x, x.swapaxes(2, 3).copy(), softmax_scale=scale)

        launch(0.5)  # what is made once for a process
        assert not made_in_cycles(lambda: launch(0.25))


@nki.jit
def row(x, place, by):
    """The row of x that is asked for, if there is one."""
    out = nl.ndarray((1, 4), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((1, 4), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=by)
    chosen = x.ap([[4, 1], [1, 4]], scalar_offset=nl.load(place))
    nisa.dma_copy(dst=tile, src=chosen, oob_mode=nisa.oob_mode.skip)
    nl.store(out, tile)
    return out


@pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning")
def test_rows_that_are_skipped_make_no_cycles(monkeypatch):
    monkeypatch.setattr(session(), "cache", CompileCache())  # or it evicts what others left
    x, place = np.ones((3, 4), np.float32), np.array([[7]], np.int32)

    def launch(by):
        with nki.World(host="inprocess") as world:
            world.run(row, x, place, by)

    launch(1)
    assert not made_in_cycles(lambda: launch(2))
