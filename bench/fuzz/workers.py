"""Trials in processes of their own, so that a crash or a hang is seen and ends nothing else."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from bench.fuzz.tamper import tampered
from bench.fuzz.trial import MIB, tried

TIME_BAR: Final = 2.0  # seconds for one file
MEMORY_BAR: Final = 1024  # MiB that one file may add to what the process had
HANG: Final = 5.0  # seconds without a word after which a worker is given up


class Report(NamedTuple):
    """How a file ended, what it took, and where an exception came from."""

    number: int
    kind: str
    seconds: float
    mib: float
    what: str = ""
    frame: str = ""


def chunk_reports(seed: int, numbers: range) -> list[Report]:
    """What became of these files; those that crashed or hung are reported and gone past."""
    found: list[Report] = []
    while len(found) < len(numbers):
        left = numbers[len(found) :]
        lines, ended = _worker(seed, left)
        found += [Report(*line) for line in lines]
        if len(lines) < len(left):
            kind = "hung" if ended is None else "crashed"
            what = f"signal or status {ended}" if ended is not None else f"{HANG} s without end"
            found.append(Report(left[len(lines)], kind, HANG if ended is None else 0, 0, what))
    return found


def _worker(seed: int, numbers: range) -> tuple[list[Any], int | None]:
    """Lines of a forked worker, and its exit status; None if it had to be killed."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(reading)
            _work(seed, numbers, writing)
            status = 0
        finally:
            os._exit(status)
    os.close(writing)
    received = b""
    status: int | None = None
    with os.fdopen(reading, "rb", 0) as pipe:
        while select.select([pipe], [], [], HANG)[0]:
            more = pipe.read(1 << 16)
            if not more:
                break
            received += more
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return _lines(received), None
    _, status = os.waitpid(child, 0)
    return _lines(received), status


def _lines(received: bytes) -> list[Any]:
    return [json.loads(line) for line in received.split(b"\n")[:-1]]


def _work(seed: int, numbers: Iterable[int], out: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # device_print of what is run
    have = _kib("VmSize") << 10
    resource.setrlimit(resource.RLIMIT_AS, (have + MEMORY_BAR * MIB,) * 2)
    for number in numbers:
        intact, data = tampered(seed, number)
        with open("/proc/self/clear_refs", "w") as peak:
            peak.write("5")  # forget the peak so far
        before = _kib("VmRSS")
        outcome = tried(data, intact.ranks)
        mib = (_kib("VmHWM") - before) / 1024
        report = Report(number, outcome.kind, outcome.seconds, mib, outcome.what, outcome.frame)
        os.write(out, json.dumps(report).encode("utf-8", "replace") + b"\n")


def _kib(field: str) -> int:
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(field + ":"))
    return int(line.split()[1])
