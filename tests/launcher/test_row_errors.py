"""Launches in a row on Ray: where errors appear, and what is left after one.

Elsewhere in tests launches wait; here they don't. The world's lock is held while launches are added
where the test needs all of them to wait in the row.
"""

from __future__ import annotations

import gc
import re

import pytest

import nki_dist as nki
from nki_dist import errors
from nki_dist.launcher import resident
from nki_dist.ops.alignment import padded
from tests.launcher import resident_kernels as R
from tests.launcher.resident_kernels import ROWS, A, known, same, value


@pytest.fixture(autouse=True)
def not_in_a_test(monkeypatch):
    monkeypatch.setattr(resident, "IN_TEST", "NO_SUCH_VARIABLE")


@pytest.fixture(scope="module")
def world():
    with nki.World(ranks=1, lnc=2, host="ray") as made:
        yield made


# ---- errors --------------------------------------------------------------------------------------


def test_an_error_comes_with_the_next_value_and_names_its_launch(world):
    x, wrong, right = world.put(A), world.put(ROWS[0] + 77), world.put(ROWS[2])
    known(world, x, x)
    for ask in (world.wait, x.numpy, lambda: world.run(R.added, A, A)):
        with world._lock:
            before = world.run(R.picked, x, right)
            bad = world.run(R.picked, x, wrong)
            after = world.run(R.picked, x, right)
        with pytest.raises(errors.OutOfBoundsError, match="run-time index 77") as caught:
            ask()
        assert re.search(r"the launch of picked at .*test_row_errors.py:\d+", str(caught.value))
        world.wait()  # it was told
        same(value(before), A[2:3])
        same(value(after), A[2:3])
        with pytest.raises(errors.OutOfBoundsError, match=r"tensor picked.out has no value"):
            bad.numpy()


def test_what_depends_on_an_error_fails_with_it(world):
    x, wrong = world.put(A[:1]), world.put(ROWS[0] + 77)
    from_bad, fine = [], []
    with world._lock:
        bad = world.run(R.picked, x, wrong)
        for _ in range(50):
            bad = world.run(R.picked, bad, ROWS[0])
            from_bad.append(bad)
            fine.append(world.run(R.picked, x, ROWS[0]))
    with pytest.raises(errors.OutOfBoundsError, match="index 77"):
        world.wait()
    world.wait()
    for tensor in fine:
        same(value(tensor), A[:1])
    for tensor in from_bad:
        with pytest.raises(errors.OutOfBoundsError, match="index 77") as caught:
            tensor.numpy()
        assert len(str(caught.value)) < 1000, "not what 50 launches say of each other"


@pytest.mark.parametrize("restore", [False, True])
def test_what_is_written_in_place_after_an_error(world, restore):
    """Nobody gets the value from before the launch that failed, as long as nobody knows."""
    x, row = world.put(A, name="x", restore=restore), world.put(A[:1])
    other = world.put(A)
    with world._lock:
        world.run(R.put_row, x, row, ROWS[0] + 77)
        y = world.run(R.added, x, x)
        world.run(R.add_into, x, other)
    with pytest.raises(errors.OutOfBoundsError, match="the launch of put_row at"):
        world.wait()
    with pytest.raises(errors.OutOfBoundsError, match="index 77"):
        y.numpy()
    same(value(other), A)  # add_into hasn't begun
    if restore:
        same(value(x), A)
    else:
        with pytest.raises(errors.OutOfBoundsError, match="tensor x has no value"):
            x.numpy()
        x.write_from_numpy(A)
    same(value(world.run(R.added, x, other)), 2 * A)


def test_no_room_is_told_before_anything_is_lost(world, monkeypatch):
    x, cache = world.put(A, name="x"), world.put(A, name="cache")
    world.run(R.forms, x, world.put(A))
    world.wait()
    gc.collect()
    taken = sum(padded(t.nbytes) for t in world.residents())
    with monkeypatch.context() as small:
        small.setattr(world.residence, "capacity", taken)
        with world._lock:
            world.run(R.forms, x, cache)  # returns new tensors, and writes the cache
            late = world.run(R.added, cache, x)
        with pytest.raises(errors.OutOfMemoryError, match="a launch of forms needs"):
            world.wait()
        with pytest.raises(errors.OutOfMemoryError, match="has no value"):
            late.numpy()
        same(value(cache), A)
    same(value(world.run(R.added, cache, x)), 2 * A)


def test_a_race_in_the_middle(world):
    x = world.put(A)
    known(world, x, x)
    with pytest.raises(errors.RaceError):
        world.run(R.racy, x)
        world.wait()
    with world._lock:
        many = [world.run(R.racy, x) if n in (2, 4) else world.run(R.added, x, x) for n in range(8)]
    with pytest.raises(errors.RaceError, match="the launch of racy at"):
        world.wait()
    for n, tensor in enumerate(many):
        if n in (2, 4):
            with pytest.raises(errors.RaceError, match=r"racy.out has no value"):
                tensor.numpy()
        else:
            same(value(tensor), 2 * A)


def test_a_deadlock_in_the_middle(world):
    x = world.put(A)
    known(world, x, x)
    with pytest.raises(errors.DeadlockError):
        world.run(R.apart, x)
        world.wait()
    with world._lock:
        before = [world.run(R.added, x, x) for _ in range(3)]
        stuck = world.run(R.apart, x)
        after = [world.run(R.added, x, x) for _ in range(3)]
    with pytest.raises(errors.DeadlockError, match=r"core 0 waits in nisa.core_barrier"):
        world.wait()
    for tensor in before + after:
        same(value(tensor), 2 * A)
    with pytest.raises(errors.DeadlockError, match=r"apart.out has no value"):
        stuck.numpy()


def test_prints_come_once_where_a_row_is_carried_out_again(world, capsys):
    x, wrong = world.put(A), world.put(ROWS[0] + 77)
    places = [world.put(row) for row in ROWS]
    known(world, x, x)
    capsys.readouterr()
    with world._lock:
        for place in (places[1], places[2], wrong, places[3], places[1]):
            world.run(R.picked, x, place)
    with pytest.raises(errors.OutOfBoundsError):
        world.wait()
    assert re.findall(r"row \[\[ *(\d+)", capsys.readouterr().out) == ["6", "12", "18", "6"]


def test_the_end_of_a_with_block_raises():
    with (
        pytest.raises(errors.OutOfBoundsError, match="the launch of picked at"),
        nki.World(host="ray") as world,
    ):
        world.run(R.picked, world.put(A), ROWS[0] + 77)
