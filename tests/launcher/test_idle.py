"""Worlds that idle end their processes; where kernels of tasks are simulated."""

from __future__ import annotations

import threading
import time
import weakref

import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import LaunchError
from nki_dist.launcher import hosted
from nki_dist.launcher import session as module
from nki_dist.launcher.idle import Idlers
from tests.clusters import printed
from tests.programs import python

IDLE = 0.2  # seconds


class Host:
    """Stands for one on Ray."""

    def __init__(self, events, fails=False):
        self.events, self.fails = events, fails
        events.append("started")

    def close(self):
        self.events.append("ended")
        if self.fails:
            raise RuntimeError("Ray said no")


@pytest.fixture
def events(monkeypatch):
    """Of hosts that are started."""
    found = []
    monkeypatch.setattr(hosted, "ray_host", lambda: lambda *_, **__: Host(found))
    return found


def wait_for(happened, seconds=20.0):
    end = time.monotonic() + seconds
    while not happened() and time.monotonic() < end:
        time.sleep(0.005)
    assert happened()


def test_what_idles_ends_and_starts_again(events, monkeypatch):
    monkeypatch.setenv("NKI_DIST_IDLE", str(IDLE))
    with nki.World(ranks=2, host="ray") as world:
        begun = time.monotonic()
        wait_for(lambda: events == ["started", "ended"])
        assert time.monotonic() - begun > 0.9 * IDLE
        assert not world.closed
        world.start()
        assert events == ["started", "ended", "started"]
        wait_for(lambda: len(events) == 4)
        world.start()
    assert events == ["started", "ended"] * 3  # `with` has closed it
    wait_for(lambda: "nki-idle" not in {t.name for t in threading.enumerate()})


def test_what_is_in_use_does_not_end(events, monkeypatch):
    """However long; it idles from then on."""
    monkeypatch.setenv("NKI_DIST_IDLE", str(IDLE))
    with nki.World(ranks=2, host="ray") as world:
        with world._lock:  # as a launch has it
            time.sleep(2 * IDLE)
            assert events == ["started"]
        used = time.monotonic()
        wait_for(lambda: events == ["started", "ended"])
        assert time.monotonic() - used > 0.7 * IDLE


def test_what_is_used_now_and_then_does_not_end(events, monkeypatch):
    monkeypatch.setenv("NKI_DIST_IDLE", str(IDLE))
    with nki.World(ranks=2, host="ray") as world:
        end = time.monotonic() + 3 * IDLE
        while time.monotonic() < end:
            assert isinstance(world.host, Host)
            time.sleep(IDLE / 20)
        assert events == ["started"]


def test_a_program_keeps_its_worlds_and_a_task_for_a_minute(monkeypatch):
    monkeypatch.delenv("NKI_DIST_IDLE", raising=False)
    for task, seconds in ((False, None), (True, 60.0)):
        monkeypatch.setattr(module, "in_task", lambda task=task: task)
        assert module.idle_after() == seconds
        with monkeypatch.context() as never:
            never.setenv("NKI_DIST_IDLE", "inf")
            assert module.idle_after() is None


@pytest.mark.parametrize("text", ["0", "-1", "soon", "nan"])
def test_seconds_that_are_none(text, events, monkeypatch):
    monkeypatch.setenv("NKI_DIST_IDLE", text)
    with pytest.raises(LaunchError, match=f"NKI_DIST_IDLE='{text}'; must be a positive number"):
        nki.World(ranks=2, host="ray").start()
    assert events == []


def test_one_that_cannot_be_ended_is_left_and_others_end(events, monkeypatch):
    monkeypatch.setenv("NKI_DIST_IDLE", str(IDLE))
    told = []
    hosts = iter([Host(told, fails=True), Host(events)])
    monkeypatch.setattr(hosted, "ray_host", lambda: lambda *_, **__: next(hosts))
    first, second = nki.World(host="ray"), nki.World(host="ray")
    first.start()
    second.start()
    wait_for(lambda: events == ["started", "ended"])
    assert told == ["started", "ended"]
    with pytest.raises(RuntimeError, match="Ray said no"):
        first.close()  # whose error it is
    first._host = None
    second.close()


class Idler:
    def __init__(self, asked):
        self.asked = asked

    def rest(self, seconds):
        self.asked.append(seconds)


def test_a_world_that_is_watched_can_be_dropped():
    watching, asked = Idlers(), []
    idler = Idler(asked)
    watching.watch(idler, 1.6)  # looked at ten times a second
    wait_for(lambda: asked)
    gone = weakref.ref(idler)
    del idler
    wait_for(lambda: gone() is None, seconds=5)
    wait_for(lambda: watching._thread is None)


def test_a_fork_leaves_worlds_to_its_parent():
    watching, asked = Idlers(), []
    idler = Idler(asked)
    watching.watch(idler, 0.05)
    wait_for(lambda: asked)
    watching._forked()
    before = len(asked)
    time.sleep(4 * 0.05)
    assert len(asked) - before <= 1, "one look may have been under way"
    wait_for(lambda: watching._thread is None)


@nki.jit
def double(x):
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


@pytest.mark.parametrize(
    ("task", "environment", "host"),
    [
        (False, {}, "ray"),
        (True, {}, "inprocess"),
        (True, {"NKI_DIST_HOST": "ray"}, "ray"),
        (True, {"NKI_DIST_HOST": "debug"}, "debug"),
        (True, {"NKI_DIST_ACTOR_OPTIONS": '{"num_cpus": 1}'}, "ray"),
        (False, {"NKI_SIMULATOR": "1"}, "inprocess"),
    ],
)
def test_kernels_in_tasks_are_simulated_there_unless_somebody_says_otherwise(
    task, environment, host, monkeypatch
):
    for name in ("NKI_DIST_HOST", "NKI_DIST_ACTOR_OPTIONS", "NKI_SIMULATOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(module, "in_task", lambda: task)
    monkeypatch.setattr(module.session(), "places", {})  # a process stays in a task, or out of one
    assert double[2]._world().host_name == host
    if task and not environment:  # a World says what it wants
        assert nki.World(lnc=2).host_name == "ray"


@pytest.mark.slow
def test_tasks_of_ray():
    """A task computes `kernel[2]` in its own process; a World of its own is on Ray, and ends."""
    done = python("-m", "tests.launcher.on_tasks")
    assert done.returncode == 0, done.stderr[-3000:]
    found = printed(done.stdout, done.stderr)
    assert found == {"values": [2.0, 6.0], "cores": [0, 2, 0], "host of an actor": "inprocess"}
