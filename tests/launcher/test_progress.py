"""Progress lines: when they appear, what they say, and that they are off otherwise."""

import io
import time

import numpy as np
import pytest

import nki_dist as nki
from nki_dist.errors import LaunchError
from nki_dist.runtime.group import CoreGroup
from nki_dist.runtime.hosts import slots
from nki_dist.runtime.progress import VARIABLE, Progress, sampled
from tests.launcher import kernels as K


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


def test_a_terminal_gets_one_line_that_is_rewritten(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    stream, clock = Terminal(), Clock()
    progress = Progress(512, stream, clock)
    clock.now += 2.9
    progress.up(100)
    assert stream.getvalue() == ""  # quiet at first
    clock.now += 0.2
    progress.up(300)
    assert stream.getvalue() == "\rnki_dist: 300 of 512 cores up (3 s)"
    clock.now += 0.5
    progress.up(400)  # too soon after the last one
    clock.now += 0.6
    progress.ran(12345678, 7)
    progress.ran(12345679, 7)
    text = stream.getvalue()
    assert text.count("\r") == 2
    assert text.endswith("\rnki_dist: 12,345,678 instructions done, 7 of 512 cores finished (4 s)")
    clock.now += 5
    progress.ran(12345678, 7)  # nothing has changed
    assert stream.getvalue() == text
    progress.close()
    assert stream.getvalue().endswith(" \r")


@pytest.mark.parametrize(
    ("setting", "stream", "lines"),
    [("", io.StringIO(), 0), ("1", io.StringIO(), 2), ("0", Terminal(), 0)],
)
def test_elsewhere_only_if_asked_for(monkeypatch, setting, stream, lines):
    monkeypatch.setenv(VARIABLE, setting)
    clock = Clock()
    progress = Progress(4, stream, clock)
    for done in (10, 20):
        clock.now += 4
        progress.ran(done, 0)
    progress.close()
    assert stream.getvalue().count("instructions done") == lines
    assert stream.getvalue().count("\n") == lines


def test_the_variable_is_checked(monkeypatch):
    monkeypatch.setenv(VARIABLE, "yes")
    with pytest.raises(LaunchError, match="NKI_DIST_PROGRESS='yes'; allowed: 0, 1"):
        Progress(1, io.StringIO())


def test_nothing_is_sampled_when_off(monkeypatch):
    monkeypatch.setenv(VARIABLE, "0")
    with sampled(1, look=lambda: pytest.fail("looked")):
        time.sleep(0)


def test_an_idle_group_has_no_progress():
    assert CoreGroup(slots(2, 2)).progress() == (0, 0)


@pytest.mark.parametrize("host", ["inprocess", "ray"])
def test_launches_are_unchanged_by_it(monkeypatch, capsys, host):
    monkeypatch.setenv(VARIABLE, "1")
    x, w = np.ones((4, 3), np.float32), np.full((4, 3), 2, np.float32)
    with nki.World(ranks=2, lnc=2, host=host) as world:
        for out in world.run(K.add_weights, x, w):
            np.testing.assert_array_equal(out, x + w)
    assert "Traceback" not in capsys.readouterr().err
