"""Launches in a row that are interrupted, or whose program ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

LONG = """
import os, signal, sys, threading, time
import numpy as np
import nki_dist as nki
from nki_dist import errors
from tests.launcher import resident_kernels as R

big, a = np.ones((128, 2048), np.float32), np.ones((4, 6), np.float32)

def interrupt():
    os.kill(os.getpid(), signal.SIGINT)

def prepared(world):
    deep, x = world.put(big), world.put(a, name="x")
    world.run(R.slow, deep).numpy()
    world.run(R.added, x, x).numpy()
    return deep, x
"""
WAITING = """
with nki.World(lnc=2, host="ray") as world:
    deep, x = prepared(world)
    many = [world.run(R.slow, deep) for _ in range(200)]
    world.run(R.add_into, x, x)
    threading.Timer(0.7, interrupt).start()
    begun = time.monotonic()
    try:
        world.wait()
    except KeyboardInterrupt:
        print("interrupted", time.monotonic() - begun < 20)
    world.wait()
    got = []
    for tensor in many:
        try:
            got.append(float(tensor.numpy()[0][5, 7]))
        except errors.LaunchError as error:
            assert error.code == "launch-interrupted", error
            got.append(None)
    wanted = 1.0
    for _ in range(400):
        wanted = np.tanh(np.float32(wanted))
    print("whole or nothing", all(g is None or abs(g - wanted) < 1e-3 for g in got), got[-1])
    print("not begun", float(x.numpy()[0][0, 0]))
    print("next", float(world.run(R.added, x, x).numpy()[0][0, 0]))
"""
BODY = """
begun = 0
try:
    with nki.World(lnc=2, host="ray") as world:
        deep, x = prepared(world)
        many = [world.run(R.slow, deep) for _ in range(300)]
        begun = time.monotonic()
        threading.Timer(0.3, interrupt).start()
        while True:
            time.sleep(0.01)
except KeyboardInterrupt:
    print("closed", time.monotonic() - begun < 20)
"""


def run(program):
    environment = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", LONG + program],
        cwd=ROOT,
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [line for line in done.stdout.splitlines() if not line.startswith("\x1b")]


@pytest.mark.slow
def test_an_interrupt_while_it_is_waited_for():
    assert run(WAITING) == [
        "interrupted True",
        "whole or nothing True None",
        "not begun 1.0",
        "next 2.0",
    ]


@pytest.mark.slow
def test_an_interrupt_of_the_program_ends_what_waits():
    """200 launches of 0.1 s and more aren't carried out before a world closes."""
    assert run(BODY) == ["closed True"]


@pytest.mark.slow
def test_an_error_that_nobody_asked_for_is_said_at_the_end():
    program = """
a = np.ones((4, 6), np.float32)
t = nki.DeviceTensor.from_numpy(a)
import warnings
warnings.simplefilter("always")
R.picked[2](t, np.array([[77]], np.int32))
sys.stderr = sys.stdout
"""
    said = "\n".join(run(program))
    assert "run-time index 77" in said and "the launch of picked" in said
