"""Launches in a row on Ray: their order, and what stands between them.

Elsewhere in tests launches wait; here they don't. The world's lock is held while launches are added
where the test needs all of them to wait in the row.
"""

from __future__ import annotations

import os
import re
import threading
import time

import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
from nki_dist import errors
from nki_dist.launcher import resident
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
