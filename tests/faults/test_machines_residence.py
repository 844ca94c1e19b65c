"""Tensors on machines that share nothing but a network, one of which dies.

Machines are namespaces of this computer: NKI_MACHINES is a script that makes them (`up N`,
`run I COMMAND`, `kill I`, `down`; machine I is 10.77.0.I, with its own /dev/shm, /tmp, processes
and mounts). It needs root.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

SCRIPT = os.environ.get("NKI_MACHINES", "")
ROOT = Path(__file__).parents[2]
HEAD = "10.77.0.1"
PROMISED = 5.0  # seconds from a machine's end to the error

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(590),
    pytest.mark.skipif(not SCRIPT, reason="NKI_MACHINES names no script that makes machines"),
]


def machines(*words: str) -> None:
    subprocess.run([SCRIPT, *words], check=True, timeout=60, capture_output=True)


class Machine:
    """A command on a machine; `lines` of JSON that it prints."""

    def __init__(self, number: int, *commands: list[str]) -> None:
        text = " && ".join(map(shlex.join, commands))
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        for folder in (sys.prefix, str(ROOT)):
            if folder.startswith("/tmp/"):  # which is the machine's own
                environment["FOLDER"] = folder
        self.process = subprocess.Popen(
            [SCRIPT, "run", str(number), text],
            cwd=ROOT,
            env={k: v for k, v in environment.items() if k != "PYTEST_CURRENT_TEST"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.said: list[str] = []

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        for text in self.process.stdout:
            self.said.append(text)
            if text.startswith("{"):
                found: dict[str, Any] = json.loads(text)
                return found
        raise AssertionError("".join(self.said)[-3000:])


def ray(*words: str) -> list[str]:
    command = [str(Path(sys.executable).parent / "ray"), "start", *words]
    return [*command, "--num-cpus=2", f"--object-store-memory={400 << 20}", "--disable-usage-stats"]


@pytest.fixture
def three() -> Iterator[list[Machine]]:
    machines("down")
    machines("up", "3")
    made: list[Machine] = []
    try:
        address = f"{HEAD}:6379"
        head = ray(
            "--head", f"--node-ip-address={HEAD}", "--port=6379", "--include-dashboard=false"
        )
        ready = [sys.executable, "-c", READY.format(address=address)]
        program = [sys.executable, "-m", "tests.faults.on_machines", address]
        made.append(Machine(1, head, ready, program))
        asked = f"until (echo > /dev/tcp/{HEAD}/6379) 2> /dev/null; do sleep 0.3; done"
        wait = ["timeout", "60", "bash", "-c", asked]
        for n in (2, 3):
            join = ray(f"--address={address}", f"--node-ip-address=10.77.0.{n}", "--block")
            made.append(Machine(n, wait, join))
        yield made
    finally:
        machines("down")
        for machine in made:
            machine.process.wait(30)


READY = """
import time, ray
ray.init(address="{address}", log_to_driver=False)
while len([n for n in ray.nodes() if n["Alive"]]) < 3:
    time.sleep(0.3)
"""


def test_four_instances_on_three_machines_of_which_one_dies(three) -> None:
    program = three[0]
    assert program.line() == {"same": True, "nodes": 3, "again": True}
    assert program.line() == {"running": True}
    time.sleep(3.0)  # amid the launch; whether it has begun can't be asked from here
    killed = time.monotonic()
    machines("kill", "3")
    assert program.process.stdin is not None
    program.process.stdin.write(f"{killed}\n")
    program.process.stdin.flush()
    found = program.line()
    assert found["error"] == "CoreLostError"
    assert found["seconds"] <= PROMISED, found
    print(f"the error came {found['seconds']:.1f} s after the machine's end")
    assert program.line() == {
        "same": True,
        "nodes": 2,
        "put_again": [True, True],
        "plain": "lost",
        "anew": True,
    }
    assert program.process.wait(120) == 0, "".join(program.said)[-3000:]
