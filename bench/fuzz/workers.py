"""Trials in processes of their own, so that a crash or a hang is seen and ends nothing else."""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import signal
import tempfile
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from bench.fuzz.tamper import tampered
from bench.fuzz.trial import MIB, tried

TIME_BAR: Final = 2.0  # seconds for one file
MEMORY_BAR: Final = 1024  # MiB that one file may add to what the process had
HANG: Final = 30.0  # seconds without a word after which a worker is given up, on a busy machine


class Report(NamedTuple):
    """How a file ended, what it took, and where an exception came from."""

    number: int
    kind: str
    seconds: float
    mib: float
    what: str = ""
    frame: str = ""


def chunk_reports(seed: int, numbers: range, seconds: float) -> list[Report]:
    """What became of these files; those that crashed or hung are reported and gone past.

    Args:
        seconds: the time-out of launches.
    """
    found: list[Report] = []
    while len(found) < len(numbers):
        left = numbers[len(found) :]
        lines, ended, tail = _worker(seed, left, seconds)
        found += [Report(*line) for line in lines]
        if len(lines) < len(left):
            kind = "hung" if ended is None else "crashed"
            what = f"{HANG} s without end" if ended is None else f"exit status {ended}"
            took = HANG if ended is None else 0
            found.append(Report(left[len(lines)], kind, took, 0, what, tail))
    return found


def _worker(seed: int, numbers: range, seconds: float) -> tuple[list[Any], int | None, str]:
    """Lines of a forked worker, its exit status (None if it hung), and where it was then."""
    reading, writing = os.pipe()
    with tempfile.TemporaryFile() as stack:
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(reading)
                faulthandler.enable(stack)
                _work(seed, numbers, seconds, writing)
                status = 0
            finally:
                os._exit(status)
        os.close(writing)
        received, hung = _received(reading)
        if hung:
            os.kill(child, signal.SIGABRT)  # faulthandler writes where it is
        _, ended = os.waitpid(child, 0)
        stack.seek(0)
        tail = stack.read().decode("utf-8", "replace")
    return _lines(received), None if hung else ended, " < ".join(tail.splitlines()[2:6])


def _received(pipe: int) -> tuple[bytes, bool]:
    """What a worker wrote until it ended, and whether it fell silent instead."""
    received = b""
    with os.fdopen(pipe, "rb", 0) as reading:
        while select.select([reading], [], [], HANG)[0]:
            more = reading.read(1 << 16)
            if not more:
                return received, False
            received += more
    return received, True


def _lines(received: bytes) -> list[Any]:
    return [json.loads(line) for line in received.split(b"\n")[:-1]]


def _work(seed: int, numbers: Iterable[int], seconds: float, out: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)  # device_print of what is run
    have = _kib("VmSize") << 10
    resource.setrlimit(resource.RLIMIT_AS, (have + MEMORY_BAR * MIB,) * 2)
    for number in numbers:
        intact, data = tampered(seed, number)
        with open("/proc/self/clear_refs", "w") as peak:
            peak.write("5")  # forget the peak so far
        before = _kib("VmRSS")
        outcome = tried(data, intact.ranks, seconds)
        mib = (_kib("VmHWM") - before) / 1024
        report = Report(number, outcome.kind, outcome.seconds, mib, outcome.what, outcome.frame)
        os.write(out, json.dumps(report).encode("utf-8", "replace") + b"\n")


def _kib(field: str) -> int:
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith(field + ":"))
    return int(line.split()[1])
