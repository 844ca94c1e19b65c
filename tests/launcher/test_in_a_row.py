"""Launches in a row on Ray: their order, what stands between them, and where errors appear.

Elsewhere in tests launches wait; here they don't. The world's lock is held while launches are added
where the test needs all of them to wait in the row.
"""

import gc
import os
import re
import threading
import time

import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
from nki_dist import errors
from nki_dist.launcher import resident
from nki_dist.ops.alignment import padded
from tests.launcher import resident_kernels as R
from tests.launcher.in_a_row import summed
from tests.launcher.resident_kernels import ROWS, A, known, same, value


@pytest.fixture(autouse=True)
def not_in_a_test(monkeypatch):
    monkeypatch.setattr(resident, "IN_TEST", "NO_SUCH_VARIABLE")


@pytest.fixture(scope="module")
def world():
    with nki.World(ranks=1, lnc=2, host="ray") as made:
        yield made


# ---- order ---------------------------------------------------------------------------------------


def test_each_is_the_argument_of_the_next(world):
    x = world.put(A)
    y = world.run(R.added, x, x)
    for _ in range(100):
        y = world.run(R.added, y, x)
    same(value(y), 102 * A)


def test_a_launch_returns_before_it_has_begun(world):
    x, y = world.put(A), world.put(A)
    with world._lock:
        z = world.run(R.added, x, y)
        world.run(R.add_into, z, y)
        assert z.shape == (4, 6)
    same(value(y), 3 * A)


def test_host_writes_and_reads_stand_in_the_same_order(world):
    x, kept = world.put(A), []
    known(world, x, x)
    for n in range(1, 6):
        with world._lock:
            kept.append((world.run(R.added, x, x), 2 * n * A))
            world.run(R.add_into, x, x)  # 2 n A
        if n % 2:
            x.write_from_numpy((n + 1) * A)
        else:
            same(value(x), 2 * n * A)
            x.write_from_numpy(value(x) / 2 + value(x) / 2 / n)
    for tensor, wanted in kept:
        same(value(tensor), wanted)


def test_arrays_are_those_of_the_call(world):
    x, mine, common = world.put(A), A.copy(), A.copy()
    with world._lock:
        y = world.run(R.added, x, mine)
        z = world.run(R.added, common, x)
        mine[:] = common[:] = 99
    same(value(y), 2 * A)
    same(value(z), 2 * A)


def test_arrays_that_are_written_are_there_at_once(world):
    x, mine = world.put(A), A.copy()
    world.run(R.add_into, x, mine)
    same(mine, 2 * A)


def test_frees_and_puts_come_after_the_launches_before(world):
    x, y = world.put(A), world.put(A)
    z = world.run(R.added, x, y)
    x.free()
    others = [world.put(A * 0) for _ in range(4)]
    same(value(z), 2 * A)
    assert all(not value(t).any() for t in others)


def test_launches_without_tensors_come_after_those_before(world):
    x = world.put(A)
    with world._lock:
        y = world.run(R.added, x, x)
        assert not world._row.idle
    (z,) = world.run(R.added, A, A)
    assert world._row.idle
    same(z, value(y))


def test_prints_are_in_the_order_of_launches(world, capsys):
    x, places = world.put(A), [world.put(row) for row in ROWS]
    known(world, x, x)
    capsys.readouterr()
    with world._lock:
        for n in (3, 1, 2, 0, 2):
            world.run(R.picked, x, places[n])
    world.wait()
    printed = re.findall(r"row \[\[ *(\d+)", capsys.readouterr().out)
    assert printed == ["18", "6", "12", "0", "12"]


def test_threads_that_launch_at_the_same_time(world):
    x, found = world.put(A), {}

    def chain(n):
        y = world.put(A + n)
        for step in range(40):
            y = world.run(R.added, y, x)
            if step % 13 == n:
                y = world.put(value(y))
        found[n] = value(y)

    threads = [threading.Thread(target=chain, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1, 2, 3]
    for n, got in found.items():
        same(got, A + n + 40 * A)


@pytest.mark.parametrize("lnc", [1, 2])
def test_several_ranks(lnc):
    group = ncc.ReplicaGroup([[0, 1]])
    with nki.World(ranks=2, lnc=lnc, host="ray") as world:
        x = world.put(nki.per_rank([A, A + 1]))
        for _ in range(2):
            y, total, wanted = x, 0, [A, A + 1]
            for _ in range(6):
                y = world.run(R.added, world.run(summed, y, group), x)
                total = wanted[0] + wanted[1]
                wanted = [total + A, total + A + 1]
            same(y.numpy(), wanted)


# ---- forks ---------------------------------------------------------------------------------------


def test_a_fork_leaves_the_row_to_its_parent(world):
    x = world.put(A)
    known(world, x, x)
    with world._lock:
        many = [world.run(R.added, x, x) for _ in range(20)]
        child = os.fork()
        if not child:
            code = 1
            try:
                assert world._row.idle
                with pytest.raises(errors.LaunchError, match="was forked"):
                    many[0].numpy()
                code = 0
            finally:
                os._exit(code)
    begun = time.monotonic()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert time.monotonic() - begun < 60
    for tensor in many:
        same(value(tensor), 2 * A)


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
        assert re.search(r"the launch of picked at .*test_in_a_row.py:\d+", str(caught.value))
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
