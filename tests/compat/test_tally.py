"""Counting launches, and measuring them, from outside: nothing a program sees changes."""

import itertools

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.cli import bench
from nki_dist.launcher.session import session
from nki_dist.launcher.tally import Tally

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning")


@nki.jit
def thirds(x, rounds):
    """3 x in place, `rounds` times, and x as it was."""
    before = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nl.store(before, t)
    n = nisa.register_alloc(rounds)
    for _ in nl.dynamic_range(n):
        nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=3.0)
    nl.device_print("t", t)
    nl.store(x, t)
    return before


def launch(shape, rounds):
    """Launch it here; returns what it returned and what it wrote."""
    x = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    n = np.array([[rounds]], np.int32)
    return nki.simulate(thirds)(x, n), x


@pytest.fixture
def observed(monkeypatch):
    def start(observer):
        monkeypatch.setattr(session(), "observer", observer)
        return observer

    return start


def test_equal_launches_are_one_entry(observed):
    tally = observed(Tally())
    for shape, rounds in (((3, 5), 1), ((3, 5), 2), ((3, 4), 1), ((3, 5), 1)):
        launch(shape, rounds)
    with nki.World(ranks=2, host="inprocess") as world:
        n = np.array([[1]], np.int32)
        world.run(thirds, nki.per_rank(lambda _: np.ones((3, 5), np.float32)), n)
    seen = tally.launches()
    assert [s.count for s in seen] == [2, 1, 1, 1]
    assert [s.profile().cores for s in seen] == [1, 1, 1, 2]
    one, two, *_ = (s.profile() for s in seen)
    assert two.instructions == one.instructions + 1 and two.total_us > one.total_us
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    run = nki.profile(thirds, host="inprocess")(x, np.array([[2]], np.int32))
    assert two.to_dict() == run.profile.to_dict()


def test_measuring_repeats_launches_unseen(observed, capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_RT_DEBUG_OUTPUT_DIR", str(tmp_path))
    clock = itertools.accumulate(itertools.chain([0], itertools.cycle([2, 10])))  # 2 s each
    stopwatch = observed(bench.Stopwatch(5, clock.__next__))
    for _ in range(2):
        before, after = launch((3, 5), 2)
        x = np.arange(15, dtype=np.float32).reshape(3, 5)
        np.testing.assert_array_equal(before, x)
        np.testing.assert_array_equal(after, 9 * x)
    assert capsys.readouterr().out.count("[core 0] t ") == 2
    assert len(list(tmp_path.rglob("*.npy"))) == 2
    (seen,) = stopwatch.tally.launches()
    assert (seen.count, seen.host_seconds) == (2, 2)
    _, head, row = bench.table([seen]).splitlines()
    assert head.split()[:3] == ["launches", "cores", "instructions"]
    p = seen.profile()
    want = ["2", "1", str(p.instructions), f"{p.total_us:,.3f}", "2,000.00", "thirds"]
    assert row.split() == want


def test_without_an_observer_launches_are_as_before():
    assert session().observer is None
    before, after = launch((2, 3), 0)
    np.testing.assert_array_equal(before, after)
