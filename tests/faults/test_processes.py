"""Processes by number and start: stopped, killed, and mistaken for others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from nki_dist.core_actor.processes import Process

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="no /proc")


@pytest.fixture
def sleeper():
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        yield process
        process.kill()


def test_a_stopped_process_is_known_and_can_be_killed(sleeper) -> None:
    process = Process.of(sleeper.pid)
    assert not process.stopped()
    os.kill(sleeper.pid, signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    assert process.stopped()
    process.kill()
    assert sleeper.wait() == -signal.SIGKILL
    assert not process.stopped()
    process.kill()  # again, which harms nobody


def test_a_number_that_belongs_to_another_process_now(sleeper) -> None:
    older = Process.of(sleeper.pid)._replace(started=1)
    os.kill(sleeper.pid, signal.SIGSTOP)
    os.waitpid(sleeper.pid, os.WUNTRACED)
    assert not older.stopped()
    older.kill()
    assert sleeper.poll() is None


def test_one_that_is_gone_before_it_is_known(sleeper) -> None:
    sleeper.kill()
    sleeper.wait()
    process = Process.of(sleeper.pid)
    process.kill()
    assert process.started is None and not process.stopped()
