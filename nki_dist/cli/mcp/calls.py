"""Calls of `nki-dist mcp`: commands of this package, each in a process of its own, within limits.

A call gets a folder for temporary files that is gone afterwards. When it is over, for whatever
reason, all that it started is killed. Calls and the server are subreapers: what has lost its parent
becomes a child of its call, whichever session it is in, and of the server when the call has ended.

The limits keep mistakes from harming the machine. They are no sandbox: a program may do whatever
the user may who started the server.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import anyio

from nki_dist.cli.shared.workers import LOOK, MIB, descendants, memory
from nki_dist.errors import LaunchError
from nki_dist.runtime.settings import HOST_VARIABLE

TAIL: Final = 16_384  # characters of what a program printed that are passed on
_LEAVE: Final = 10.0  # seconds after which processes that can't be killed are left
_SUBREAPER: Final = 36  # PR_SET_CHILD_SUBREAPER of linux/prctl.h
_BEGIN: Final = f"""
import ctypes, os, sys
ctypes.CDLL(None).prctl({_SUBREAPER}, 1)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@dataclass(frozen=True)
class Ended:
    """How a call ended.

    Attributes:
        status: the exit status; None if it was killed for a limit.
        answer: stdout, which the command wrote.
        said: the end of stderr.
        over: the limit that ended it, or None.
    """

    status: int | None
    answer: str
    said: str
    over: LaunchError | None


class Calls:
    """Carries out commands.

    Args:
        folder: where they run.
        memory: bytes of all processes of a call together, without files that are mapped.
        file: bytes of each file that a call writes.
    """

    def __init__(self, folder: Path, memory: int, file: int) -> None:
        self._folder, self._memory = folder, memory
        # Memory is looked at from outside, where it can be said in words; twice as much data is
        # what stops a process between two looks.
        most = {resource.RLIMIT_DATA: 2 * memory, resource.RLIMIT_FSIZE: file}
        self._limits = {**most, resource.RLIMIT_CORE: 0}
        self._running: set[int] = set()
        ctypes.CDLL(None).prctl(_SUBREAPER, 1)

    async def call(self, command: Sequence[str], home: Path, seconds: float) -> Ended:
        """Carry out what follows `python`; a call that is cancelled is ended.

        Args:
            home: a folder for what the call writes.
            seconds: from start to end.
        """
        out, err, scratch = home / "stdout", home / "stderr", home / "tmp"
        scratch.mkdir()
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _BEGIN, *command],
                cwd=self._folder,
                env={**os.environ, HOST_VARIABLE: "inprocess", "TMPDIR": str(scratch)},
                stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, start_new_session=True,
            )  # fmt: skip
        self._running.add(process.pid)
        try:
            over = await self._limit(process, seconds)
        finally:
            self._end(process.pid)
        answer, said = (
            file.read_bytes().decode(errors="replace").replace(f"{home}/", "")
            for file in (out, err)
        )
        return Ended(process.returncode if over is None else None, answer, said[-TAIL:], over)

    async def _limit(self, process: subprocess.Popen[bytes], seconds: float) -> LaunchError | None:
        """Wait for the end of a call; says which limit was reached, if one was."""
        for kind, most in self._limits.items():
            _, hard = resource.getrlimit(kind)
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.prlimit(process.pid, kind, (most, most))
        end = time.monotonic() + seconds
        while process.poll() is None:
            if time.monotonic() > end:
                return _over(f"the call made no end within {seconds:g} s and was ended")
            used = sum(map(memory, descendants(process.pid)))
            if used > self._memory:
                return _over(
                    f"the call used {used // MIB:,} MiB of memory and was ended; at most "
                    f"{self._memory // MIB:,} MiB are allowed"
                )
            await anyio.sleep(LOOK)
        return None

    def _end(self, pid: int) -> None:
        """Kill what is left of a call: all below this process but the calls that run.

        This ends, as a killed process starts no other, unless the kernel can't let go of one (a
        device or a network folder that doesn't answer); that one is left after a while.
        """
        self._running.discard(pid)
        end = time.monotonic() + _LEAVE
        while (left := self._left()) and time.monotonic() < end:
            for pid in left:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.001)

    def _left(self) -> list[int]:
        _, *below = descendants(os.getpid())
        running = {pid for call in self._running for pid in descendants(call)}
        return [pid for pid in below if pid not in running]


def _over(message: str) -> LaunchError:
    return LaunchError(message, code="call-limit")
