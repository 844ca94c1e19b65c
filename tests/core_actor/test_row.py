"""Rows on Ray: which launches go together, and that none is lost or carried out twice."""

import os
import signal

import numpy as np
import pytest

import nki_dist as nki
from nki_dist import errors
from nki_dist.core_actor import row as rows
from nki_dist.core_actor.ray_session import ensure_ray
from nki_dist.launcher import resident
from nki_dist.launcher.session import session
from tests.launcher import resident_kernels as R
from tests.launcher.resident_kernels import A, same


@pytest.fixture(scope="module", autouse=True)
def one_ray_session():
    ensure_ray(None)
    yield
    session().close()


@pytest.fixture(autouse=True)
def not_in_a_test(monkeypatch):
    """And on a machine where others delay a launch, none of them counts as a long one."""
    monkeypatch.setattr(resident, "IN_TEST", "NO_SUCH_VARIABLE")
    monkeypatch.setattr(rows, "BRIEF", 5.0)


class Watched:
    """How many launches a host carried out in each row, and how many alone."""

    def __init__(self, host, monkeypatch):
        self.rows, self.alone = [], 0
        row, one = host.launch_row, host.launch

        def launch_row(launches):
            done = row(launches)
            self.rows.append((len(launches), len(done)))
            return done

        def launch(what):
            self.alone += 1
            return one(what)

        monkeypatch.setattr(host, "launch_row", launch_row)
        monkeypatch.setattr(host, "launch", launch)

    @property
    def together(self):
        return sum(done for _, done in self.rows)


def known(world):
    x, at = world.put(A), world.put(np.array([[0]], np.int32))
    world.run(R.added, x, x)
    world.run(R.picked, x, at)
    world.run(R.racy, x)
    world.run(R.slow, x).numpy() if world.lnc == 1 else None
    try:
        world.wait()
    except errors.RaceError:
        assert world.lnc == 2
    return x


@pytest.fixture(scope="module", params=[(1, 1), (1, 2), (2, 2)], ids=str)
def world(request):
    ranks, lnc = request.param
    with nki.World(ranks=ranks, lnc=lnc, host="ray", cores_per_actor=1) as made:
        yield made


def test_launches_that_only_make_new_tensors_go_together(world, monkeypatch):
    x = known(world)
    watched = Watched(world.host, monkeypatch)
    with world._lock:
        y = x
        for _ in range(40):
            y = world.run(R.added, y, x)
    same(y.numpy(), [41 * A] * world.ranks)
    assert watched.together + watched.alone == 40
    assert watched.together >= 30 and all(asked <= 16 for asked, _ in watched.rows)


@pytest.mark.parametrize("what", ["array", "in place", "part", "unknown"])
def test_what_cannot_be_carried_out_twice_goes_alone(world, monkeypatch, what):
    x = known(world)
    into = world.put(A * 0)
    watched = Watched(world.host, monkeypatch)

    @nki.jit
    def new(x, y):
        return R.added.fn(x, y)

    acts = {
        "array": lambda: world.run(R.added, x, A),
        "in place": lambda: world.run(R.add_into, x, into),
        "part": lambda: world.run(R.forms, x, into)["part"],
        "unknown": lambda: world.run(new, x, x),
    }
    with world._lock:
        before = [world.run(R.added, x, x) for _ in range(3)]
        odd = acts[what]()
        after = [world.run(R.added, x, x) for _ in range(3)]
    world.wait()
    for tensor in before + after:
        same(tensor.numpy()[0], 2 * A)
    if what == "in place":
        same(into.numpy()[-1], A)  # once
    elif what == "part":
        same(odd.numpy()[-1], 3 * A[0:2, 1:4])
    else:
        same(odd.numpy()[-1], 2 * A)
    assert watched.alone >= 1 and watched.together + watched.alone == 7
    assert watched.together >= 4


def test_a_failure_ends_a_row_and_each_is_carried_out_once(world, monkeypatch):
    x = known(world)
    places = [world.put(np.array([[n]], np.int32)) for n in (0, 1, 77, 2, 3)]
    watched = Watched(world.host, monkeypatch)
    with world._lock:
        many = [world.run(R.picked, x, place) for place in places]
    with pytest.raises(errors.OutOfBoundsError, match="run-time index 77"):
        world.wait()
    for n, row in ((0, 0), (1, 1), (3, 2), (4, 3)):
        same(many[n].numpy()[-1], A[row : row + 1])
    with pytest.raises(errors.OutOfBoundsError):
        many[2].numpy()
    assert (5, 2) in watched.rows, "two before the failure are done"


def test_worlds_with_a_timeout_order_each_launch(monkeypatch):
    """Whose time it is that is over has to be known."""
    with nki.World(ranks=1, lnc=2, host="ray", timeout=60) as world:
        x = known(world)
        watched = Watched(world.host, monkeypatch)
        with world._lock:
            for _ in range(8):
                y = world.run(R.added, x, x)
        same(y.numpy()[0], 2 * A)
        assert (watched.together, watched.alone) == (0, 8)


@pytest.mark.slow
def test_a_frozen_process_ends_a_row(world, monkeypatch):
    """It can't say that it is: the row takes too long, and what isn't done is done by another."""
    x = known(world)
    watched = Watched(world.host, monkeypatch)
    with world._lock:
        made = [world.run(R.added, x, x) for _ in range(4)]
        os.kill(world.host.processes[0][0], signal.SIGSTOP)
    for tensor in made:
        for part in tensor.numpy():
            same(part, A + A)
    assert (4, 0) in watched.rows


def test_what_took_long_goes_alone(world, monkeypatch):
    x = known(world)
    monkeypatch.setattr(rows, "BRIEF", 0.0)
    world.run(R.added, x, x).numpy()  # alone, as nothing follows it
    watched = Watched(world.host, monkeypatch)
    with world._lock:
        for _ in range(3):
            world.run(R.added, x, x)
    world.wait()
    assert (watched.together, watched.alone) == (0, 3)
