"""What an error of Ray means where an actor is gone."""

import pytest
import ray.exceptions

from nki_dist.core_actor.lost import LOST, cause

NOW = """1 worker(s) were killed due to the node running low on memory. Memory on the node \
(IP: 10.0.0.7, ID: 53ab) was 6.31GB used / 23.54GB limit (0.267868)
OOM kill reason: Memory usage 6724116480B exceeded threshold of 6723551744B (26.6% of \
25276510208B limit)
Object store memory usage: [- objects spillable: 0"""
BEFORE = """Task was killed due to the node running low on memory.
Memory on the node (IP: 10.0.0.7, ID: 53ab) where the task (actor ID: 01, name=X, pid=3) was \
running was 27.5GB / 28.0GB (0.98), which exceeds the memory usage threshold of \
0.95. Ray killed this worker"""


@pytest.mark.parametrize(
    ("said", "used", "limit"),
    [
        (NOW, "6.31GB / 23.54GB in use", "above 6723551744B (26.6% of 25276510208B limit)."),
        (BEFORE, "27.5GB / 28.0GB in use", "above 0.95."),
    ],
)
def test_a_kill_by_the_memory_monitor_says_where_and_how_much(said, used, limit):
    error = ray.exceptions.OutOfMemoryError(said)
    assert isinstance(error, LOST)
    found = cause(error)
    assert found.startswith("Ray node 53ab (10.0.0.7) was short of memory")
    assert used in found and limit in found and "\n" not in found


def test_what_is_not_known_is_left_out():
    found = cause(ray.exceptions.OutOfMemoryError("something else"))
    assert found.startswith("its Ray node was short of memory, and Ray's memory monitor killed it.")


def test_other_losses_are_a_line():
    assert cause(ray.exceptions.ActorUnavailableError("first\nsecond", None)).count("\n") == 0
