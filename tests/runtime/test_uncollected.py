"""The collector looks at what is made meanwhile later, or never."""

from __future__ import annotations

import gc

import pytest

from nki_dist.program.uncollected import MANY, uncollected


@pytest.fixture(autouse=True)
def collecting():
    assert gc.isenabled()
    gc.collect()
    yield
    gc.unfreeze()


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
