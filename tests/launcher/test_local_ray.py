"""A Ray that a program started ends with it: whole, however it ends, and without Ray's wait.

Programs run below a process that the kernel makes the parent of orphans, so whatever they leave
behind is found among its descendants at the moment when they have ended.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at processes in /proc")

RUNNER = """
import ctypes, json, os, subprocess, sys, time
from nki_dist.core_actor.processes import by_parent

ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
shared = set(os.listdir("/dev/shm"))
def more():
    return {name for name in set(os.listdir("/dev/shm")) - shared if "plasma" in name}
signal, *command = sys.argv[1:]
program = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
said = []
for line in program.stdout:
    said.append(line.strip())
    if line == "ready\\n":
        program.send_signal(int(signal))
status = program.wait()
children = by_parent()
left = list(children.get(os.getpid(), []))
for process in left:
    left += children.get(process.pid, [])
found = more()
for _ in range(40):  # another Ray that starts meanwhile has a name there until its file is open
    if found:
        time.sleep(0.05)
        found &= more()
print(json.dumps({
    "status": status,
    "said": said,
    "left": [p.command() for p in left if p.there()],
    "shared": sorted(found),
}))
"""

# The first handler runs after all others, the second after the package's and before Ray's own.
LAUNCHES = """
import atexit, os, signal, sys, threading, time
slept = []
atexit.register(lambda: print("slept", *slept, flush=True))
import numpy as np, ray
atexit.register(lambda: print("in Ray" if ray.is_initialized() else "left Ray", flush=True))
from nki_dist.core_actor.processes import by_parent
from tests.hosts.kernels import add_halves

def launch():
    x = np.ones((8, 3), np.float32)
    assert add_halves[2](x, x).shape == x.shape

def servers(name):
    return [p for p in by_parent()[os.getpid()] if name in p.command()]

def watch_sleep():
    sleep = time.sleep
    def noted(seconds):
        if threading.current_thread().name in ("MainThread", "nki-ray"):  # which ends Ray
            slept.append(seconds)
        sleep(seconds)
    time.sleep = noted
"""
ENDS = {
    "its last line": "launch(); watch_sleep()",
    "a thread that launched": "t = threading.Thread(target=launch); t.start(); t.join()",
    "an exception": "launch(); 1 / 0",
    "sys.exit": "launch(); sys.exit(3)",
    "ray.shutdown": "launch(); ray.shutdown()",
    "SIGINT": "launch(); print('ready', flush=True); time.sleep(600)",
    "SIGTERM": "launch(); print('ready', flush=True); time.sleep(600)",
    "a raylet that is gone": "launch(); os.kill(servers('/raylet/raylet')[0].pid, signal.SIGKILL)",
    "a raylet that is stopped": "launch(); "
    "os.kill(servers('/raylet/raylet')[0].pid, signal.SIGSTOP)",
    "a head that is stopped": "launch(); os.kill(servers('gcs_server')[0].pid, signal.SIGSTOP)",
}
DEFAULT = ("its last line", "a thread that launched")


def ended(*command: str, number: int = 0) -> dict[str, Any]:
    """What a program said, its status, and what it left; once it is ready it gets a signal."""
    environment = {k: v for k, v in os.environ.items() if k != "RAY_ADDRESS"}
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[2])
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, str(number), *command],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        env=environment,
    )
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    "way", [w if w in DEFAULT else pytest.param(w, marks=pytest.mark.slow) for w in ENDS]
)
def test_nothing_is_left(way):
    number = int(getattr(signal, way, 0))
    found = ended("-c", LAUNCHES + ENDS[way], number=number)
    assert found["left"] == found["shared"] == []
    assert "left Ray" in found["said"]  # before Ray's own handler, which waits
    if way == "its last line":
        slept = [float(s) for s in found["said"][-1].split()[1:]]
        assert found["status"] == 0 and 0.5 not in slept
    if way == "sys.exit":
        assert found["status"] == 3


@pytest.mark.slow
def test_nothing_is_left_under_pytest(tmp_path):
    file = tmp_path / "test_program.py"
    file.write_text(LAUNCHES + "\ndef test_launch():\n    launch()\n")
    found = ended("-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", str(file))
    assert found["status"] == 0
    assert found["left"] == found["shared"] == []
    assert "left Ray" in found["said"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "more",
    [
        "ray.remote(lambda x: -x).remote(1)",
        "C = ray.remote(type('C', (), {'f': lambda self: 1})); c = C.remote(); c.f.remote()",
    ],
)
def test_calls_that_nobody_waits_for_have_the_time_that_ray_gives_them(more):
    found = ended("-c", f"{LAUNCHES}launch(); watch_sleep(); {more}")
    assert found["status"] == 0 and found["left"] == []
    assert "0.5" in found["said"][-1].split()


@pytest.mark.slow
def test_a_ray_that_the_program_made_itself_is_left_to_ray():
    own = "ray.init(include_dashboard=False, log_to_driver=False); launch()"
    found = ended("-c", LAUNCHES + own)
    assert "in Ray" in found["said"] and found["status"] == 0
