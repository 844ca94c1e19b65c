"""Calls of `nki-dist mcp`: commands of this package, each in a process of its own, within limits.

A call gets a folder for temporary files that is gone afterwards. Processes that belong to it are
known by that folder's name in their environment, which every process inherits that they start, also
one that left its session. When the call is over, for whatever reason, all of them are killed.

The limits keep mistakes from harming the machine. They are no sandbox: a program may do whatever
the user may who started the server, and one that means harm can clear its environment.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Final

from nki_dist.cli.shared.workers import LOOK, MIB, memory
from nki_dist.errors import LaunchError
from nki_dist.runtime.settings import HOST_VARIABLE

_LEAVE: Final = 10.0  # seconds after which processes that can't be killed are left
_TAIL: Final = 16_384  # characters of what a program printed that are passed on
_ANSWER: Final = 8 * MIB  # bytes of a command's answer

# Sets the limits and becomes the command; costs no import. Memory is looked at from outside, where
# it can be said in words; twice as much data is what stops a process between two looks.
_BEGIN: Final = """
import os, resource, sys
data, size = int(sys.argv[1]), int(sys.argv[2])
most_of = {resource.RLIMIT_DATA: data, resource.RLIMIT_FSIZE: size, resource.RLIMIT_CORE: 0}
for kind, most in most_of.items():
    hard = resource.getrlimit(kind)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(kind, (most, most))
os.execv(sys.argv[3], sys.argv[3:])
"""


@dataclass(frozen=True)
class Limits:
    """What a call may use.

    Attributes:
        seconds: from start to end.
        memory: bytes of all its processes together, without files that are mapped.
        file: bytes of each file it writes.
    """

    seconds: float
    memory: int
    file: int

    def check(self) -> None:
        """Raises:
        LaunchError: a limit isn't positive.
        """
        for name, value in zip(("timeout", "memory", "file"), astuple(self), strict=True):
            if not value > 0:
                raise LaunchError(f"limit on {name}: {value}; must be positive", code="call-value")


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


def call(
    command: Callable[[Path], Sequence[str]],
    folder: Path,
    limits: Limits,
    cancelled: Callable[[], bool] = lambda: False,
) -> Ended:
    """Carry out a command.

    Args:
        command: gives what follows `python`; its argument is the folder for temporary files.
        folder: where the command runs.
        limits: what ends it.
        cancelled: asked often; True ends the call.

    Raises:
        LaunchError: a limit isn't positive.
    """
    limits.check()
    with tempfile.TemporaryDirectory(prefix="nki-dist-call-", ignore_cleanup_errors=True) as made:
        home = Path(made)
        scratch = home / "tmp"
        scratch.mkdir()
        begin = ["-I", "-S", "-c", _BEGIN, str(2 * limits.memory), str(limits.file)]
        environment = {**os.environ, HOST_VARIABLE: "inprocess", "TMPDIR": str(scratch)}
        out, err = home / "stdout", home / "stderr"
        with out.open("wb") as stdout, err.open("wb") as stderr:
            started = subprocess.Popen(
                [sys.executable, *begin, sys.executable, *command(home)],
                cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=stdout,
                stderr=stderr, start_new_session=True,
            )  # fmt: skip
            try:
                over = _wait(started, str(scratch), limits, cancelled)
            finally:
                _end(started, str(scratch))
        status = None if over is not None else started.returncode
        if over is None and out.stat().st_size > _ANSWER:
            size = out.stat().st_size
            over = _over(f"the answer has {size:,} bytes; at most {_ANSWER:,} are passed on")
        answer = "" if over is not None else out.read_text("utf-8", errors="replace")
        return Ended(status, answer.replace(f"{home}/", ""), _tail(err, home), over)


def _wait(
    started: subprocess.Popen[bytes], mark: str, limits: Limits, cancelled: Callable[[], bool]
) -> LaunchError | None:
    """Wait for the end of a call; the limit that was reached, if one was."""
    end = time.monotonic() + limits.seconds
    family = Family(mark)
    while True:
        try:
            started.wait(timeout=LOOK)
            return None
        except subprocess.TimeoutExpired:
            pass
        if cancelled():
            return _over("the call was cancelled")
        if time.monotonic() > end:
            return _over(f"the call made no end within {limits.seconds:g} s and was ended")
        used = sum(memory(pid) for pid in family.members())
        if used > limits.memory:
            return _over(
                f"the call used {used // MIB:,} MiB of memory and was ended; at most "
                f"{limits.memory // MIB:,} MiB are allowed"
            )


def _over(message: str) -> LaunchError:
    return LaunchError(message, code="call-limit")


# ---- processes ----------------------------------------------------------------------------------


def _end(started: subprocess.Popen[bytes], mark: str) -> None:
    """Kill what is left of a call.

    A killed process starts no other, so this ends, unless the kernel can't let go of one (a device
    or a network folder that doesn't answer); that one is left after a while.
    """
    end = time.monotonic() + _LEAVE
    while (left := Family(mark).members()) and time.monotonic() < end:
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        started.poll()  # ours have to be waited for, others' by others
        time.sleep(0.001)
    if started.poll() is None and started.pid not in left:
        started.wait()


class Family:
    """The processes that have a folder in their environment.

    Invariant: a process that was seen without it is never looked at again. It can't get it: the
    environment that is looked at is the one it was started with, and who passes this one on has it.

    Args:
        mark: the folder.
    """

    def __init__(self, mark: str) -> None:
        self._wanted = b"TMPDIR=" + os.fsencode(mark)
        self._others: set[int] = set()

    def members(self) -> list[int]:
        """Those that haven't ended."""
        pids = {int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()}
        self._others &= pids
        found = [pid for pid in pids - self._others if self._has_it(pid)]
        self._others |= pids.difference(found)
        return found

    def _has_it(self, pid: int) -> bool:
        try:
            # One that has ended has no environment any more, even if nobody has waited for it.
            return self._wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
        except OSError:  # of another user, or gone
            return False


# ---- texts --------------------------------------------------------------------------------------


def _tail(file: Path, home: Path) -> str:
    """The end of what was written, without the name of the call's folder."""
    with file.open("rb") as opened:
        opened.seek(max(0, file.stat().st_size - 4 * _TAIL))
        text = opened.read().decode(errors="replace")
    return text.replace(f"{home}/", "")[-_TAIL:]
