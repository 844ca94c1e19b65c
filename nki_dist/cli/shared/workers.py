"""Work on programs that others wrote, each in a fork of this process and within limits.

A fork has what this process has imported, so it begins at once. It is the leader of a session of
its own, without terminal, stdin and stdout; what it writes to stderr is kept. When it has ended,
for whatever reason, its process group is killed; when it is ended, all its descendants are, and it
is ended with this process.

Memory is looked at from outside, and is what processes use: a limit of the operating system would
be on what they reserve, which for NumPy, BLAS and threads is a lot more, and is met by whoever asks
next, not by a message.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import json
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NoReturn

from nki_dist.errors import LaunchError

MIB: Final = 1 << 20
LOOK: Final = 0.05  # seconds between looks at what processes use
_HELD: Final = (signal.SIGINT, signal.SIGTERM)
_PR_SET_PDEATHSIG: Final = 1  # linux/prctl.h


class Worker:
    """A process that works something out.

    Args:
        work: gives the answer, which JSON can write.
        seconds: after which it is ended.
        memory: bytes that it and its descendants may use, without files that are mapped.
    """

    def __init__(self, work: Callable[[], Any], seconds: float, memory: int) -> None:
        self._seconds, self._memory = seconds, memory
        self._due = time.monotonic() + seconds
        self._answer, self._said = (os.memfd_create(name) for name in ("answer", "stderr"))
        parent = os.getpid()
        sys.stdout.flush()
        self.pid = os.fork()
        if not self.pid:
            self._work(work, parent)
        self._ended = os.pidfd_open(self.pid)

    def _work(self, work: Callable[[], Any], parent: int) -> NoReturn:
        """All that the child does."""
        pid, status = os.getpid(), 1
        try:
            ends_with_parent()
            if os.getppid() != parent:
                os._exit(status)
            os.setsid()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
            null = os.open(os.devnull, os.O_RDWR)
            for number, file in enumerate((null, null, self._said)):
                os.dup2(file, number)
            sys.stdin, sys.stdout = os.fdopen(0, closefd=False), os.fdopen(1, "w", closefd=False)
            sys.stderr = os.fdopen(2, "w", 1, errors="backslashreplace", closefd=False)
            atexit._clear()  # of the parent
            gc.freeze()  # what the parent has stays, and the pages of it shared
            answer = json.dumps(work()).encode()
            if os.getpid() == pid:  # and not a process that the work forked, and that came here
                os.write(self._answer, answer)
                atexit._run_exitfuncs()
                status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)

    def over(self) -> LaunchError | None:
        """The limit that it has reached, if it has."""
        if time.monotonic() > self._due:
            return LaunchError(
                f"the program made no end within {self._seconds:g} s; --timeout sets the limit",
                code="program-timeout",
                numbers={"allowed": self._seconds},
            )
        used = sum(map(memory, descendants(self.pid))) + os.fstat(self._said).st_size
        return over_memory(used, self._memory) if used > self._memory else None

    def end(self) -> int:
        """End it and its descendants, if they haven't; returns its exit status."""
        for pid in [*descendants(self.pid)]:  # before the first is gone, and its children others'
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ProcessLookupError):  # there is no group before it has made one
            os.killpg(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        os.close(self._ended)
        return os.waitstatus_to_exitcode(status)

    def answer(self, over: LaunchError | None) -> Any:
        """End it, and give its answer.

        Raises:
            LaunchError: there is none; `over`, if that ended it.
        """
        status = self.end()
        with open(self._answer, "rb") as answer, open(self._said, "rb") as said:
            for file in (answer, said):
                file.seek(0)
            with suppress(ValueError):  # none, or it was ended while it wrote
                return json.loads(answer.read())
            if over is not None:
                raise over
            last = said.read().decode(errors="replace").strip().rpartition("\n")[2]
        how = f"by signal {-status}" if status < 0 else f"with status {status}"
        raise LaunchError(
            f"the program ended its process {how}" + (f": {last}" if last else ""),
            code="program-ended",
            numbers={"status": status},
        )

    @staticmethod
    def wait(workers: Sequence[Worker]) -> Iterator[tuple[Worker, LaunchError | None]]:
        """Those that have ended after a moment, and those that have to be, with the limit."""
        poll = select.poll()
        for worker in workers:
            poll.register(worker._ended, select.POLLIN)
        ended = {file for file, _ in poll.poll(1000 * LOOK)}
        for worker in workers:
            over = None if worker._ended in ended else worker.over()
            if over is not None or worker._ended in ended:
                yield worker, over


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Interrupts come afterwards, so that no worker is forgotten; workers are as ever."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ends_with_parent() -> None:
    """Have this process killed when the thread that forked it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def over_memory(used: int, most: int) -> LaunchError:
    return LaunchError(
        f"the program used {used // MIB:,} MiB of memory; --memory allows {most // MIB:,} MiB",
        code="program-memory",
        numbers={"got": used, "allowed": most},
    )


def descendants(pid: int) -> Iterator[int]:
    """A process and those that it started, and these, as far as who started them still is."""
    yield pid
    with suppress(OSError):  # it is gone
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield from descendants(int(child))


def memory(pid: int) -> int:
    """Bytes of a process in memory, without files that it maps; 0 once it is gone.

    What processes share, as a fork does with its parent until either writes, counts in parts.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    kinds = ("Pss_Anon:", "Pss_Shmem:")
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith(kinds))
