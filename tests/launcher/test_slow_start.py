"""Ray's warning of many processes is printed once for each start, and everything else as ever."""

import pytest
import ray._private.worker as worker

from nki_dist.core_actor import ray_start
from nki_dist.core_actor.ray_start import SlowStarts

LINE = "WARNING: {} PYTHON worker processes have been started on node: 8f with address: 127.0.0.1"


@pytest.fixture
def printed(monkeypatch):
    """Lines that Ray would print."""
    found = []
    monkeypatch.setattr(
        worker, ray_start.PRINTS, lambda data, ignore_prefix: found.extend(data["lines"])
    )
    return found


def say(*lines):
    data = {"lines": list(lines), "pid": "raylet", "is_err": False}
    worker.print_to_stdstream(data, ignore_prefix=False)


def test_one_line_for_a_start(printed):
    starts = SlowStarts()
    starts.starting()
    for n in (8, 12):
        say(LINE.format(n))
    say("another line")
    say(LINE.format(14))
    assert printed == [LINE.format(8), "another line"]
    starts.starting()
    for n in (30, 32):
        say(LINE.format(n))
    assert printed[2:] == [LINE.format(30)]


def test_a_ray_without_such_a_function_prints_what_it_likes(monkeypatch):
    monkeypatch.delattr(worker, ray_start.PRINTS)
    starts = SlowStarts()
    starts.starting()
    assert not hasattr(worker, ray_start.PRINTS)
