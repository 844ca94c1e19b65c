"""Forks while another thread launches: children launch or are told why not, and nothing hangs."""

from __future__ import annotations

import ast
import os
import signal
import threading
from pathlib import Path

import pytest

from nki_dist.forks import Shared, cached_property
from tests.programs import python

PROGRAM = Path(__file__).parent / "forking.py"


def ends(host: str, forks: int) -> dict[str, int]:
    """How many children ended how; the parent's launches went on and were right."""
    done = python(PROGRAM, host, forks)
    assert not done.returncode, done.stderr
    found = ast.literal_eval(done.stdout)
    assert found["went on"] and not found["wrong"], found
    assert not any("status" in end for end in found["ends"]), done.stderr
    return found["ends"]


def test_children_launch_in_process():
    assert ends("inprocess", 8) == {"right": 8}


@pytest.mark.slow
def test_many_children_launch_in_process():
    assert ends("inprocess", 50) == {"right": 50}


@pytest.mark.slow
def test_children_of_launches_on_ray_are_told_at_once():
    assert ends("ray", 50) == {"ray-forked right": 50}


def in_child(act) -> bool:
    """What `act` returns in a fork."""
    if not (pid := os.fork()):
        signal.alarm(20)  # ends it
        os._exit(not act())
    _, status = os.waitpid(pid, 0)
    return not status


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_what_a_thread_holds_is_free_in_a_child():
    class Slow(Shared):
        @cached_property
        def value(self):
            if self is one:  # a child must not touch events that a thread of the parent uses
                taken.set()
                assert over.wait(60)
            return 3

    one, other = Slow(), Shared()
    taken, over = threading.Event(), threading.Event()

    def hold():
        with other._lock:
            assert one.value == 3

    thread = threading.Thread(target=hold)
    thread.start()
    assert taken.wait(60)

    def free():
        return other._lock.acquire(blocking=False) and Slow().value == 3

    try:
        assert in_child(free)
        assert not other._lock.acquire(blocking=False)
    finally:
        over.set()
        thread.join()
    assert one.value == 3 and vars(one)["value"] == 3
