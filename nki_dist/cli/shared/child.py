"""Commands that look at a program, each carried out in a child.

A program can end its process behind Python's back (`os._exit`, a signal, exec), with any exit
status. So somebody else waits for the process, and takes a command that didn't say itself that it
had come to its end for one without an answer.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from nki_dist.cli.shared.workers import ends_with_parent
from nki_dist.errors import LaunchError

_PASSED_ON: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


def carried_out(command: Callable[[], int]) -> int:
    """The exit status of a command, whose SystemExit goes through in its own process.

    Raises:
        LaunchError: its process ended without an answer.
    """
    sys.stdout.flush()
    told, tell = os.pipe()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*_PASSED_ON, signal.SIGCHLD})
    child = os.fork()
    if child:
        os.close(tell)
        ended = _ended(child)
        os.set_blocking(told, False)  # a process that the program left may hold the other end
        with suppress(BlockingIOError):
            if said := os.read(told, 1):
                return said[0] or (ended if ended >= 0 else 128 - ended)
        raise LaunchError(
            "the program ended the process before there was an answer, "
            + (f"by signal {-ended}" if ended < 0 else f"with status {ended}"),
            code="program-ended",
            numbers={"status": ended},
        )
    os.close(told)
    ends_with_parent()
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    pid, status = os.getpid(), 0
    try:
        status = command()
        return status
    finally:
        if os.getpid() == pid:  # and not a process that the program forked, and that came here
            os.write(tell, bytes([status & 0xFF]))


def _ended(child: int) -> int:
    """How the child ended; what is sent to this process meanwhile, but by the terminal, goes on."""
    while True:
        got = signal.sigwaitinfo({*_PASSED_ON, signal.SIGCHLD})
        if got.si_signo == signal.SIGCHLD:
            pid, ended = os.waitpid(child, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(ended)
        elif got.si_pid:  # the terminal's have no sender, and the child got them, too
            os.kill(child, got.si_signo)
