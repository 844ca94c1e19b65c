"""Ray's own life in a program: who starts it, what an interrupt leaves, servers that are gone.

Each test is a program of its own, whose Ray may be lost. Interrupts come by a timer, so a slow
machine takes them earlier in a start: what is asked for holds at any moment.
"""

from __future__ import annotations

import sys

import pytest

from tests.programs import said

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds Ray's servers by /proc")

HEAD = """
import os, signal, sys, threading, time
import numpy as np
import nki_dist as nki
from tests.launcher.kernels import add_weights
x = np.ones((2, 4), np.float32)

def right(world):
    return np.array_equal(world.run(add_weights, x, x)[0], x + x)

def interrupt_after(seconds):
    threading.Timer(seconds, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
"""

FROM_A_THREAD = """
def first():
    assert right(world)
world = nki.World(2)
thread = threading.Thread(target=first)
thread.start()
thread.join()
time.sleep(0.3)  # for servers that would follow it
begun = time.monotonic()
assert right(world)
print("warm", time.monotonic() - begun)
for _ in range(2):
    thread = threading.Thread(target=lambda: right(nki.World(2)))
    thread.start()
    thread.join()
assert right(world) and right(nki.World(1))
"""

INTERRUPTED = """
interrupt_after(float(sys.argv[1]))
world = nki.World(2)
try:
    right(world)
    time.sleep(10)
except KeyboardInterrupt:
    print("interrupted")
assert right(world) and right(nki.World(1))
"""

FORKED = """
from nki_dist.errors import LaunchError
assert right(nki.World(2))
child = os.fork()
if not child:
    try:
        right(nki.World(2))
    except LaunchError as error:
        print(error.code, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""

LOST = """
import ray._private.worker
from nki_dist import errors
which, how = sys.argv[1], getattr(signal, sys.argv[2])
world = nki.World(2, retries=1)
assert right(world)
os.kill(ray._private.worker._global_node.all_processes[which][0].process.pid, how)
begun = time.monotonic()
try:
    assert right(nki.World(2))
except errors.CoreLostError as error:
    print(error.message)
print("seconds", time.monotonic() - begun)
assert right(nki.World(2))
assert right(world), "one that knew the session that is lost"
"""

GROWS = """
large = np.ones((2, 12000), np.float32)
with nki.World(2) as world:
    world.run(add_weights, large, large)  # compiled, so that interrupts come later than that
for seconds in (0.004, 0.01, 0.02, 0.04):
    with nki.World(2) as world:
        assert right(world)
        interrupt_after(seconds)
        try:
            world.run(add_weights, large, large)
            time.sleep(1)
        except KeyboardInterrupt:
            print("interrupted")
        assert np.array_equal(world.run(add_weights, large, large)[1], 2 * large)
"""


def run(program: str, *arguments: str) -> str:
    return said("-W", "ignore", "-c", HEAD + program, *arguments)


def test_ray_outlives_the_thread_that_launched_first() -> None:
    found = run(FROM_A_THREAD)
    assert float(found.split()[1]) < 1.0, "Ray was started again"


@pytest.mark.slow
def test_a_new_world_in_a_fork_is_refused() -> None:
    assert run(FORKED).split() == ["ray-forked"]


@pytest.mark.slow
def test_an_interrupt_while_ray_starts() -> None:
    assert "interrupted" in run(INTERRUPTED, "1.2")


@pytest.mark.slow
def test_an_interrupt_while_stacks_grow() -> None:
    assert run(GROWS).split() == ["interrupted"] * 4


@pytest.mark.slow
@pytest.mark.parametrize("seconds", ["0.05", "0.4", "0.8", "1.6", "2.0", "2.4"])
def test_an_interrupt_at_any_moment_of_a_start(seconds) -> None:
    assert "interrupted" in run(INTERRUPTED, seconds)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "how", "bound"),
    [
        ("gcs_server", "SIGKILL", 8),
        ("raylet", "SIGKILL", 8),
        ("gcs_server", "SIGSTOP", 4 + 8),
        ("raylet", "SIGSTOP", 4 + 8),
    ],
)
def test_a_new_world_where_a_server_was_lost_between_launches(which, how, bound) -> None:
    """Ray is asked nothing before both are known to answer: it would wait for minutes."""
    found = run(LOST, which, how)
    assert float(found.split("seconds")[1]) < bound
