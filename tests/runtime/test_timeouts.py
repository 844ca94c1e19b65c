"""World(timeout=) in this process: when the clock is looked at, what the error says, what is left.

Time stands still here, but for a step at every look: so looks are counted, and nothing is slow.
"""

import inspect
import math

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.core_actor.orders import Status
from nki_dist.core_actor.supervise import Watch
from nki_dist.core_actor.watchdog import Patience
from nki_dist.errors import DeadlockError, LaunchError
from nki_dist.launcher.session import session
from nki_dist.linking.placing import SEGMENT, SEGMENT_ELEMENTS
from nki_dist.runtime.messages import Wait
from nki_dist.runtime.overdue import Position, overdue
from nki_dist.runtime.settings import TIMEOUT_VARIABLE, default_timeout

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning")

X = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.fixture
def clock(monkeypatch):
    """One second passes at every look."""

    class Clock:
        looks = 0

        def __call__(self):
            self.looks += 1
            return float(self.looks)

    made = Clock()
    monkeypatch.setattr("time.monotonic", made)
    return made


def line_of(kernel, text):
    """`file:line` of the line of a kernel that has a text."""
    lines, first = inspect.getsourcelines(kernel.fn)
    (found,) = [first + n for n, line in enumerate(lines) if text in line]
    return f"{__file__}:{found}"


def world(**options):
    return nki.World(host="inprocess", **options)


def scalar(value):
    return np.full((1, 1), value, np.int32)


@nki.jit
def while_it_is_not_0(x, flag):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, cell = nl.load(x), nl.load(flag)
    register = nisa.register_alloc(cell)

    def body(value):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)  # round
        nisa.register_load(value, cell)
        return value

    nl.while_loop(register, body)  # loop
    nl.store(out, tile)
    return out


@nki.jit
def nested(x, rounds):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, register = nl.load(x), nisa.register_alloc(nl.load(rounds))
    for _ in nl.dynamic_range(3):  # outer
        for _ in nl.dynamic_range(register):  # inner
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nl.store(out, tile)
    return out


@nki.jit
def straight(x, count):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for _ in range(count):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
    nl.store(out, tile)
    return out


@nki.jit
def one_waits(x, rounds):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    half = x.shape[0] // 2
    mine = nl.ds(nl.program_id(0) * half, half)
    if nl.program_id(0) == 0:
        register, cell = nisa.register_alloc(nl.load(rounds)), nl.load(x)
        for _ in nl.dynamic_range(register):
            nisa.tensor_scalar(dst=cell, data=cell, op0=nl.add, operand0=1.0)
    nisa.core_barrier(data=out, cores=(0, 1))  # waits
    nisa.dma_copy(dst=out[mine], src=x[mine])
    return out


@nki.jit
def sums(x, rounds, group):
    mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=mine, src=x)
    for _ in nl.dynamic_range(nisa.register_alloc(nl.load(rounds))):
        ncc.all_reduce(srcs=[mine], dsts=[total], replica_group=group, op=nl.add)  # sums
    return total


def test_a_loop_without_end_is_given_up_and_the_next_launch_runs(clock):
    with world(timeout=1000) as w:
        with pytest.raises(DeadlockError) as caught:
            w.run(while_it_is_not_0, X, scalar(1))
        (out,) = w.run(while_it_is_not_0, X, scalar(0))
    text, loop = str(caught.value), line_of(while_it_is_not_0, "# loop")
    assert "no end within the world's timeout of 1000 s" in text
    # A look in each round; the few others are before the loop and the one that ends it.
    assert f", in round 99{text.split('round 99')[1][0]} of the loop at {loop}" in text
    assert "whose condition never becomes 0" in text
    assert "NKI_DIST_TIMEOUT" in text
    error = caught.value
    inside = line_of(while_it_is_not_0, "# round")
    assert error.location.split(":")[0] == inside.split(":")[0]
    assert error.core == 0
    assert error.instruction.startswith("nisa.")
    np.testing.assert_array_equal(out, X)


def test_loops_within_loops_are_named_from_inside_out(clock):
    with world(timeout=500) as w, pytest.raises(DeadlockError) as caught:
        w.run(nested, X, scalar(400))
    inner, outer = line_of(nested, "# inner"), line_of(nested, "# outer")
    text = str(caught.value)
    assert f"of the loop at {inner}, in round 2 of the loop at {outer}; " in text
    assert text.index(inner) < text.index(outer)


def test_loops_that_have_ended_are_not_named(clock):
    @nki.jit
    def one_after_the_other(x, rounds):
        tile, register = nl.load(x), nisa.register_alloc(nl.load(rounds))
        for _ in nl.dynamic_range(3):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        for _ in nl.dynamic_range(register):
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=1.0)
        return x

    with world(timeout=500) as w, pytest.raises(DeadlockError) as caught:
        w.run(one_after_the_other, X, scalar(2**30))
    assert str(caught.value).count("of the loop at") == 1


@pytest.mark.parametrize(("count", "looks"), [(10, 0), (SEGMENT - 10, 0), (5 * SEGMENT, 5)])
def test_straight_programs_are_looked_at_every_thousand_instructions(clock, count, looks):
    with world() as w:
        w.run(straight, X, count)  # also links it
        before = clock.looks
        w.run(straight, X, count)
    # One at the first segment of each launch.
    assert looks <= clock.looks - before - 1 <= looks + 1


def test_large_instructions_are_looked_at_more_often(clock):
    x = np.zeros((128, 4096), np.float32)
    each, count = 2 * x.size, 100
    with world() as w:
        w.run(straight, x, count)
        before = clock.looks
        w.run(straight, x, count)
    assert clock.looks - before - 1 >= count * each // (SEGMENT_ELEMENTS + each)


def test_a_straight_program_ends_between_segments(clock):
    with world() as w:
        w.run(straight, X, 5000)
        w.timeout = 3
        with pytest.raises(DeadlockError) as caught:
            w.run(straight, X, 5000)
        w.timeout = None
        (out,) = w.run(straight, X, 5000)
    assert "; 3,000 instructions done\n" in str(caught.value)
    assert caught.value.instruction == "nisa.tensor_scalar"
    assert "never becomes 0" not in str(caught.value)  # there is no loop
    np.testing.assert_array_equal(out, X + 5000)


def test_a_loop_around_nothing_is_looked_at(clock):
    @nki.jit
    def idles(x, rounds):
        for _ in nl.dynamic_range(nisa.register_alloc(nl.load(rounds))):
            pass
        return x

    with world(timeout=100) as w, pytest.raises(DeadlockError, match=r"in round .* of the loop"):
        w.run(idles, X, scalar(2**31 - 1))


def test_who_waits_is_listed_beside_who_runs(clock):
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    with world(lnc=2, timeout=300) as w:
        with pytest.raises(DeadlockError) as caught:
            w.run(one_waits, x, scalar(2**30))
        (out,) = w.run(one_waits, x, scalar(3))
    text = str(caught.value)
    assert "core 0 is in nisa.tensor_scalar at " in text
    assert "core 1 waits in nisa.core_barrier" in text or "haven't had their turn" in text
    np.testing.assert_array_equal(out, x)


def test_cores_that_meet_for_ever(clock):
    """Every core parks all the time; each message is a look, too."""
    group = ncc.ReplicaGroup([[0, 1, 2]])
    with world(ranks=3, timeout=5000) as w:
        with pytest.raises(DeadlockError, match=r"is in ncc.all_reduce at .*, in round "):
            w.run(sums, X, scalar(2**30), group)
        for out in w.run(sums, X, scalar(2), group):
            np.testing.assert_array_equal(out, 3 * X)


def test_every_message_that_a_core_waited_for_is_a_look(clock):
    """One collective of many ranks can take long by itself."""
    group = ncc.ReplicaGroup([list(range(16))])
    with world(ranks=16) as w:
        w.run(sums, X, scalar(1), group)
        before = clock.looks
        run = w.run(sums, X, scalar(1), group, profile=True)
    assert clock.looks - before >= sum(r.messages for r in run.reports) >= 16 * 15


def test_the_time_may_end_while_a_program_is_linked(clock):
    """A core's look comes after it is linked, so the third of these is the last."""
    with world(ranks=8, timeout=2.5) as w:
        with pytest.raises(DeadlockError, match="no core has begun"):
            w.run(while_it_is_not_0, X, scalar(0))
        w.timeout = None
        assert len(w.run(while_it_is_not_0, X, scalar(0))) == 8


def test_dry_runs_have_the_same_end(clock):
    group = ncc.ReplicaGroup([[0, 1, 2]])
    with world(ranks=3, timeout=5000) as w:
        with pytest.raises(DeadlockError, match=r"timeout of 5000 s(.|\n)*, in round "):
            w.dry_run(sums, X, scalar(2**30), group)
        assert w.dry_run(sums, X, scalar(2), group).exchanges == {"ncc.all_reduce": 6}


@pytest.fixture
def no_warm_worlds():
    """Implicit worlds are made anew, and those of the test aren't kept."""
    session().close()
    yield
    session().close()


def test_the_environment_is_for_worlds_that_do_not_say(clock, monkeypatch, no_warm_worlds):
    monkeypatch.setenv(TIMEOUT_VARIABLE, "100")
    simulated = nki.simulate(while_it_is_not_0)
    with pytest.raises(DeadlockError, match="timeout of 100 s"):
        simulated(X, scalar(1))
    np.testing.assert_array_equal(simulated(X, scalar(0)), X)
    with world() as w, pytest.raises(DeadlockError, match="timeout of 100 s"):
        w.dry_run(nested, X, scalar(100))
    with world(timeout=200) as w, pytest.raises(DeadlockError, match="timeout of 200 s"):
        w.run(while_it_is_not_0, X, scalar(1))
    with world(timeout=math.inf) as w:
        w.run(nested, X, scalar(100))  # 300 rounds


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan", "1 s"])
def test_the_variable_is_checked(monkeypatch, text):
    monkeypatch.setenv(TIMEOUT_VARIABLE, text)
    with pytest.raises(LaunchError, match=f"NKI_DIST_TIMEOUT='{text}'; must be a positive number"):
        default_timeout()


def test_many_cores_make_no_endless_message():
    running = [Position(n, 1, "nisa.iota", "k.py:3", n) for n in range(20)]
    waits = [Wait(n, 0, "c", {"op": "core_barrier"}, "k.py:5", 1) for n in range(100, 400)]
    text = str(overdue(2.5, running, waits, 7))
    assert "ranks 0-19 core 0 are in nisa.iota at k.py:3; 0 to 19 instructions done" in text
    assert "ranks 100-399 core 0 wait in" in text
    assert "7 cores of the same process" in text
    assert len(text.splitlines()) < 10
    assert "on rank 100 core 0 at k.py:5" in str(overdue(1, [], waits))


def test_other_processes_are_judged_alike(clock):
    """The launcher's watch over actors: the same error from what they say."""
    watch = Watch(Patience(None, 10))
    at = Position(1, 1, "nisa.iota", "k.py:3", 8, (("k.py:2", 4),))
    running = Status(5, "running", running=(at,))
    assert watch.verdict(5, [running]) is None
    clock.looks = 20
    error = watch.verdict(5, [running])
    assert isinstance(error, DeadlockError)
    assert "timeout of 10 s\n  - rank 1 core 0 is in nisa.iota at k.py:3, in round 4 of" in str(
        error
    )
    assert (error.core, error.location) == ("rank 1 core 0", "k.py:3")
    assert Watch(Patience(None, None)).verdict(5, [running]) is None
