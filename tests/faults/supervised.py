"""A program that may hang, abort or leave processes behind, under a supervisor that can't.

The program speaks in lines of JSON on a pipe of its own, and each line has to come within seconds
that are given. One that doesn't come is a hang: then the stacks of all threads are dumped (the
program asks for that on SIGUSR1, see `Voice`), and the program and all that it started are killed.

What belongs to a program is known by a folder that is only its own: Ray's processes have it in
their command lines or among their open files, whoever their parent is by now.
"""

from __future__ import annotations

import atexit
import faulthandler
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LINGER = 5.0  # seconds after a program's end in which all that it started has to be gone


class Hang(Exception):
    """A line didn't come in time; the text has the stacks of the program's threads."""


class Gone(Exception):
    """The program has ended instead of saying something."""


class Voice:
    """The program's side."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._file = os.fdopen(descriptor, "w")
        faulthandler.enable()
        faulthandler.register(signal.SIGUSR1, all_threads=True)

    def say(self, **line: Any) -> None:
        print(json.dumps(line), file=self._file, flush=True)


class Ending(NamedTuple):
    """How a program ended: status as of subprocess, None if it was killed as it hung."""

    status: int | None
    seconds: float
    leftovers: list[str]
    stderr: str

    @property
    def aborted(self) -> bool:
        """Ended by a signal that isn't the interrupt, or by Python's own fatal error."""
        fatal = "Fatal Python error" in self.stderr or "Check failed" in self.stderr
        return fatal or ((self.status or 0) < 0 and self.status != -signal.SIGINT)


class Program:
    """`python -m MODULE DESCRIPTOR ARGUMENTS...`, with this process as its supervisor.

    It has a process group and a session of its own, as a job of a terminal has a group.
    """

    def __init__(self, module: str, *arguments: object, **environment: str) -> None:
        # Short, because sockets lie in it.
        self.folder = tempfile.mkdtemp(prefix="nf-", dir="/tmp")
        self._reads, writes = os.pipe()
        self._rest = b""
        self._stderr = open(os.path.join(self.folder, "stderr"), "w+")  # noqa: SIM115
        command = [sys.executable, "-m", module, str(writes), *map(str, arguments)]
        self.process = subprocess.Popen(
            command,
            cwd=ROOT,
            env={
                **os.environ,
                "RAY_TMPDIR": self.folder,
                "NKI_DIST_CLUSTER": "off",
                "OPENBLAS_NUM_THREADS": "1",
                "PYTHONPATH": os.pathsep.join((str(ROOT), os.environ.get("PYTHONPATH", ""))),
                **environment,
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
            pass_fds=(writes,),
            start_new_session=True,
            # What runs in the background of a shell ignores interrupts, and its children do.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        os.close(writes)
        atexit.register(self._abandon)

    def hear(self, within: float) -> dict[str, Any]:
        """The next line.

        Raises:
            Hang: it doesn't come within so many seconds.
            Gone: the program has ended.
        """
        late = time.monotonic() + within
        while b"\n" not in self._rest:
            if not select.select([self._reads], [], [], max(0, late - time.monotonic()))[0]:
                raise Hang(self.stacks())
            more = os.read(self._reads, 1 << 16)
            if not more:
                raise Gone(self.stderr())
            self._rest += more
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def interrupt(self, group: bool) -> None:
        """As Ctrl-C does: to the process as a notebook's server, or to its group as a terminal."""
        with suppress(ProcessLookupError):
            (os.killpg if group else os.kill)(self.process.pid, signal.SIGINT)

    def go_on(self) -> None:
        """Send it a line, which it may wait for."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.write(b"\n")
            self.process.stdin.flush()

    def stderr(self) -> str:
        """What it has said there."""
        return Path(self._stderr.name).read_text(errors="replace")

    def stacks(self) -> str:
        """Where all its threads are now, if it can still say so."""
        before = len(self.stderr())
        with suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGUSR1)
        time.sleep(1)
        return self.stderr()[before:]

    def ended(self, within: float) -> Ending:
        """Wait for its end; kill it and what it leaves behind. To be called once, at last."""
        atexit.unregister(self._abandon)
        begun = time.monotonic()
        status: int | None
        try:
            status = self.process.wait(within)
        except subprocess.TimeoutExpired:
            status = None
            self.stacks()
        seconds = time.monotonic() - begun
        if status is None:
            self.process.kill()
            self.process.wait()
        left = self.belonging()
        late = time.monotonic() + LINGER * (status is not None)
        while left and time.monotonic() < late:
            time.sleep(0.1)
            left = self.belonging()
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        said = self.stderr()
        self._stderr.close()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()
        os.close(self._reads)
        shutil.rmtree(self.folder, ignore_errors=True)
        names = sorted(left.values()) if status is not None else []
        return Ending(status, seconds, names, said)

    def kill(self) -> None:
        """End it and all that belongs to it, as it hangs."""
        self.process.kill()

    def _abandon(self) -> None:
        """The supervisor ends before its time."""
        self.process.kill()
        self.ended(0)

    def belonging(self) -> dict[int, str]:
        """The other processes of its folder, by number, with their commands."""
        return {p: command(p) for p in pids() if self._has_folder(p)}

    def _has_folder(self, pid: int) -> bool:
        if pid in (self.process.pid, os.getpid()):
            return False
        return self.folder in command(pid) or any(self.folder in name for name in opened(pid))


def pids() -> list[int]:
    """All processes."""
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def command(pid: int) -> str:
    """A process's command line, empty if it has ended."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return ""
    return text.replace(b"\0", b" ").decode(errors="replace").strip()


def started(pid: int) -> int:
    """When it started, in ticks since boot."""
    return _of_stat(pid, 19)


def parent(pid: int) -> int:
    """Who started it; 0 if it has ended."""
    return _of_stat(pid, 1)


def _of_stat(pid: int, field: int) -> int:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(fields[field])
    return 0


def opened(pid: int) -> list[str]:
    """The names of its open files."""
    found = []
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                found.append(os.readlink(f"/proc/{pid}/fd/{name}"))
    return found
