"""A kept Ray with real programs: what they get, and what is left when one or the other dies."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

import pytest

from nki_dist.core_actor.pool import control, place
from nki_dist.core_actor.processes import Process

pytestmark = [
    pytest.mark.slow,
]


@pytest.fixture
def pool(monkeypatch):
    """A keeper of its own, with two actors."""
    with tempfile.TemporaryDirectory(prefix="nki-", dir="/tmp") as folder:
        monkeypatch.setenv(place.FOLDER_VARIABLE, folder)
        monkeypatch.setenv("NKI_DIST_CLUSTER", "auto")
        monkeypatch.setenv("NKI_DIST_OBJECT_STORE_BYTES", str(200 << 20))
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        found = control.start(2, 600, 200 << 20)
        yield found
        if control.status()["state"] != "none":
            control.stop(force=True)


def started(what: str = "") -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.pool.program", what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def told(program: subprocess.Popen[str]) -> dict[str, Any]:
    assert program.stdout is not None
    found: dict[str, Any] = json.loads(program.stdout.readline())
    return found


def run(what: str = "") -> dict[str, Any]:
    with started(what) as program:
        return told(program)


def until(state: Any) -> dict[str, Any]:
    """The status when it is so; a test that waits for ever is ended by its time-out."""
    while not state(found := control.status()):
        time.sleep(0.02)
    return found


def ready(found: dict[str, Any]) -> bool:
    return bool(found["waiting"] == 2 and not found["programs"])


def ends(pid: int) -> None:
    process = Process.of(pid)
    while process.there():
        time.sleep(0.02)


def test_programs_borrow_and_get_the_same_bits(pool, monkeypatch) -> None:
    first, second = run(), run("dies")
    for found in (first, second):
        assert found["address"] == pool["address"] and not found["warnings"]
    for pid in first["pids"] + second["pids"]:
        ends(pid)  # whether the program has ended well or not
    assert not set(first["pids"]) & set(second["pids"])
    until(ready)
    monkeypatch.setenv("NKI_DIST_CLUSTER", "off")
    alone = run()
    assert alone["address"] != pool["address"]
    assert len({found["digest"] for found in (first, second, alone)}) == 1


def test_two_programs_at_once_have_processes_of_their_own(pool) -> None:
    with started("stays") as one:
        a = told(one)
        assert control.status()["programs"] == [one.pid]
        with started("stays") as two:
            b = told(two)
            assert a["address"] == b["address"] == pool["address"]
            assert a["digest"] == b["digest"] and len({*a["pids"], *b["pids"]}) == 4
            for program in (one, two):
                program.communicate("\n")
    assert until(ready)["lent"] == 0


def test_a_killed_actor_that_waits_is_replaced(pool) -> None:
    first = run()
    until(ready)
    with started("retries") as program:
        victim = told(program)["pids"][0]
        os.kill(victim, signal.SIGKILL)
        assert program.stdin is not None
        program.stdin.write("\n")
        program.stdin.flush()
        said = told(program)
        assert "died" in said["lost"] and told(program) == {"same": True}
    assert first["digest"] == run()["digest"]


def test_a_killed_keeper_takes_ray_along_and_is_noticed(pool) -> None:
    with started("retries") as program:
        told(program)
        os.kill(pool["pid"], signal.SIGKILL)
        until(lambda found: found["state"] == "stale")
        said, _ = program.communicate("\n")  # a loss between launches is made good without a word
        assert json.loads(said.splitlines()[-1]) == {"same": True}
    found = run()
    assert "ended without clearing up" in found["warnings"][0]
    assert control.start(1, 600, 200 << 20)["pid"] != pool["pid"]


def messages() -> Iterator[bytes]:
    """What nobody should send: wrong types, numbers out of range, halves of messages, garbage."""
    odd = ["x", None, -1, 1.5, True, [], {}, {"a": 1}, "9" * 5000, float("inf"), 10**400, "\ud800"]
    for value in odd:
        yield json.dumps({"want": "actors", "count": value}).encode()
        yield json.dumps({"want": value}).encode()
        yield json.dumps(value).encode()
    yield b'{"want": "actors", "count": ' + b"9" * 5000 + b"}"
    yield b'{"want": "actors", "count": ' + b"[" * 900 + b"]" * 900 + b"}"
    whole = json.dumps({"want": "actors", "count": 1, "more": "x" * 40}).encode()
    yield from (whole[:n] for n in range(1, len(whole), 7))
    yield from (b"[" * 30_000, b"\0", b"\xff\xfe{", b"{" * 30_000, b"x" * (40 << 10))
    seeded = random.Random(33)
    yield from (seeded.randbytes(seeded.randrange(1, 200)) for _ in range(50))


def test_no_message_ends_it(pool) -> None:
    pid = until(ready)["pid"]
    for message in messages():
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(10)
            connection.connect(str(place.folder() / place.SOCKET))
            connection.send(message)
            answer = connection.recv(place.LARGEST)
        assert not answer or isinstance(json.loads(answer), dict), message[:80]
    for _ in range(20):  # who calls and hangs up
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(str(place.folder() / place.SOCKET))
            connection.send(b'{"want": "status"}')
    assert until(ready)["pid"] == pid
    assert run()["address"] == pool["address"]


def test_it_ends_when_nobody_comes(pool) -> None:
    control.stop(force=False)
    idle = control.start(1, 1.0, 200 << 20)
    until(lambda found: found["state"] == "none")
    ends(idle["pid"])


def test_stop_waits_for_programs_unless_forced(pool) -> None:
    with started("stays") as program:
        told(program)
        with pytest.raises(control.LaunchError, match=f"processes {program.pid}"):
            control.stop(force=False)
        assert control.stop(force=True) == f"stopped (process {pool['pid']})"
        program.communicate("\n")
    assert control.status()["state"] == "none"


def test_a_stopped_keeper_holds_nobody_up(pool) -> None:
    os.kill(pool["pid"], signal.SIGSTOP)
    found = run()
    assert found["address"] != pool["address"] and "doesn't answer" in found["warnings"][0]
    assert control.stop(force=True).startswith("killed")
