"""Starting processes: the wait is bounded from one to the next, and says what is missing."""

from __future__ import annotations

import io
import sys
from typing import Any

import numpy as np
import pytest
import ray

import nki_dist as nki
from nki_dist.core_actor import starting
from nki_dist.core_actor.ray_host import RayHost
from nki_dist.core_actor.starting import await_start
from nki_dist.errors import LaunchError
from nki_dist.runtime import progress
from nki_dist.runtime.hosts import slots
from nki_dist.runtime.settings import START_SECONDS, START_VARIABLE, start_timeout
from tests.launcher import kernels as K
from tests.programs import said

X = np.arange(12, dtype=np.float32).reshape(4, 3)


class Starts:
    """Processes that come up at given seconds; a look takes as long as its time-out."""

    def __init__(self, monkeypatch: Any, times: list[float]) -> None:
        self.now, self.times = 0.0, times
        monkeypatch.setattr(ray, "wait", self._wait)
        monkeypatch.setattr(ray, "get", lambda futures: None)
        monkeypatch.setattr(starting.time, "monotonic", lambda: self.now)

    def _wait(self, waiting: list[int], num_returns: int, timeout: float) -> Any:
        self.now += timeout
        up = [n for n in waiting if self.times[n] <= self.now]
        return up, [n for n in waiting if n not in up]


@pytest.fixture
def quiet(monkeypatch):
    monkeypatch.setenv(progress.VARIABLE, "0")
    monkeypatch.setattr(starting, "_resources", lambda: "It has 2 processors")
    monkeypatch.setattr(starting, "_logs", lambda: "/logs")
    monkeypatch.setattr(starting, "constructing", lambda: 0)


@pytest.mark.slow
def test_many_processes_may_take_long_together(monkeypatch, quiet):
    packs = [slots(1, 2)] * 30
    starts = Starts(monkeypatch, [50.0 * n for n in range(30)])
    await_start(list(range(30)), packs, ["n"] * 30)
    assert starts.now == pytest.approx(50.0 * 29, abs=0.2)


def test_nobody_for_long_is_an_error_that_names_the_missing(monkeypatch, quiet):
    monkeypatch.delenv(START_VARIABLE, raising=False)
    assert start_timeout() == START_SECONDS == 90
    monkeypatch.setenv(START_VARIABLE, "8")
    never = float("inf")
    starts = Starts(monkeypatch, [1.0, never, 6.0, never])
    cores = slots(4, 2)
    packs = [cores[0:2], cores[2:4], cores[4:6], cores[6:8]]
    with pytest.raises(LaunchError) as caught:
        await_start(list(range(4)), packs, ["aa", "aa", "bb", "bb"])
    assert starts.now == pytest.approx(6.0 + 8.0, abs=0.5)
    text = str(caught.value)
    assert "2 of 4 processes of this world haven't started, and for 8 s none has" in text
    assert "- rank 1 core 0 to rank 1 core 1 on Ray node aa" in text
    assert "- rank 3 core 0 to rank 3 core 1 on Ray node bb" in text
    assert "rank 0" not in text
    assert "rank 2" not in text
    for advice in ("2 processors", "/logs", START_VARIABLE, "cores_per_actor=", "inprocess"):
        assert advice in text


def test_the_list_of_the_missing_is_short(monkeypatch, quiet):
    monkeypatch.setenv(START_VARIABLE, "2.5")
    starts = Starts(monkeypatch, [float("inf")] * 200)
    with pytest.raises(LaunchError, match=r"200 of 200(.|\n)*for 2.5 s(.|\n)*- 196 more\n"):
        await_start(list(range(200)), [[core] for core in slots(200, 1)], ["n"] * 200)
    assert starts.now == pytest.approx(2.5, abs=0.3)


def test_what_ray_refuses_is_typed_and_the_world_starts_later(monkeypatch):
    """As a cluster without a token does with a program that sends one."""

    def refuses(self: RayHost) -> None:
        raise ray.exceptions.RaySystemError("Actor creation cancelled.")

    world = nki.World(host="ray")
    with monkeypatch.context() as patch:
        patch.setattr(RayHost, "_start_missing", refuses)
        with pytest.raises(LaunchError, match=r"takes no processes .*cancelled; .*RAY_AUTH_MO"):
            world.run(K.add_weights, X, X)
    with world:
        (out,) = world.run(K.add_weights, X, X)
    np.testing.assert_array_equal(out, 2 * X)


@pytest.mark.parametrize("text", ["0", "-3", "long"])
def test_the_variable_is_checked(monkeypatch, text):
    monkeypatch.setenv(START_VARIABLE, text)
    with pytest.raises(LaunchError, match=f"{START_VARIABLE}='{text}'; must be a positive number"):
        start_timeout()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_a_start_is_shown_by_its_seconds(monkeypatch):
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    stream, now = Terminal(), [0.0]
    shown = progress.Progress(0, stream, lambda: now[0], quiet=progress.START_QUIET)
    for _ in range(4):
        now[0] += 1.0
        shown.waits("starting Ray")
    text = stream.getvalue()
    assert [f"starting Ray ({n} s)" in text for n in (1, 2, 3, 4)] == [True] * 4
    assert "\n" not in text
    shown.close()
    assert stream.getvalue().endswith(" \r")


def test_ticking_shows_and_ends(monkeypatch):
    """The thread that shows it is gone when the work is done."""
    stream = Terminal()
    monkeypatch.delenv(progress.VARIABLE, raising=False)
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setattr(progress, "EVERY", 0.001)
    monkeypatch.setattr(progress, "START_QUIET", 0.0)
    with progress.ticking("joining the Ray cluster at h:1"):
        while "joining the Ray cluster at h:1" not in stream.getvalue():
            pass
    ended = stream.getvalue()
    assert ended.endswith("\r")
    assert stream.getvalue() == ended
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress.ticking("nothing in pipes"):
        pass
    assert sys.stderr.getvalue() == ""


PROGRAM = """
import os, sys, tempfile, time
import numpy as np
import ray
import nki_dist as nki
from tests.launcher import kernels as K

folder = tempfile.mkdtemp()
ready, python = folder + "/ready", folder + "/python"
with open(python, "w") as f:
    f.write(f'#!/bin/sh\\ntest -e {ready} || exec sleep 600\\nexec {sys.executable} "$@"\\n')
os.chmod(python, 0o755)
os.environ["RAY_worker_register_timeout_seconds"] = "5"  # Ray's own next try
ray.init(
    address="local", num_cpus=1, include_dashboard=False, log_to_driver=False,
    object_store_memory=100 << 20, runtime_env={"py_executable": python},
)

@ray.remote(num_cpus=1)
def busy():
    return 0

busy.remote()  # has the only processor reserved, and never begins
world = nki.World(ranks=3)
os.environ["NKI_DIST_START_TIMEOUT"] = "2"
start = time.monotonic()
try:
    world.start()
except nki.errors.LaunchError as error:
    print(error)
print("seconds", time.monotonic() - start)
os.environ["NKI_DIST_START_TIMEOUT"] = "100"
open(ready, "w").close()
x, w = np.ones((4, 3), np.float32), np.full((4, 3), 2, np.float32)
print("then", [np.array_equal(out, x + w) for out in world.run(K.add_weights, x, w)])
"""


@pytest.mark.slow
def test_processes_that_never_come_up():
    """Their interpreter hangs; later it doesn't, and the same world starts."""
    done = said("-c", PROGRAM)
    assert "3 of 3 processes of this world haven't started, and for 2 s none" in done
    assert "The cluster has 1 processors" in done
    assert done.splitlines()[-1] == "then [True, True, True]"
    assert float(done.split("seconds ")[1].split()[0]) < 30
