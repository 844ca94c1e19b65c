"""A line on stderr for worlds that take long to start or to run.

Silent for the first seconds, and altogether unless stderr is a terminal; NKI_DIST_PROGRESS=1 shows
it anyway (a line each time instead of one that is rewritten), 0 never. Invariant: nothing here
reads or changes what is computed, and it writes only when something has changed, so that a program
stopped in a debugger is left in peace.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Final, TextIO

from nki_dist.errors import LaunchError

VARIABLE: Final = "NKI_DIST_PROGRESS"
QUIET: Final = 3.0  # seconds before the first line of a launch
START_QUIET: Final = 1.0  # and of a start, which everybody waits for
EVERY: Final = 1.0  # seconds between lines


def enabled(stream: TextIO) -> bool:
    """Whether progress is shown on this stream.

    Raises:
        LaunchError: NKI_DIST_PROGRESS is neither 0 nor 1.
    """
    setting = os.environ.get(VARIABLE, "")
    if setting not in ("", "0", "1"):
        raise LaunchError(f"{VARIABLE}={setting!r}; allowed: 0, 1", code="setting-value")
    return setting == "1" or (not setting and stream.isatty())


class Progress:
    """Progress of one start or one launch.

    Args:
        cores: of the world.
        stream: where to write; stderr by default.
        clock: gives seconds.
        quiet: seconds before the first line.
    """

    def __init__(
        self,
        cores: int,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        quiet: float = QUIET,
    ) -> None:
        self.cores = cores
        self._stream = stream or sys.stderr
        self._clock = clock
        self.enabled = enabled(self._stream)
        self._rewrites = self.enabled and self._stream.isatty()
        self._start = clock()
        self._next = self._start + quiet
        self._shown = ""

    def up(self, count: int) -> None:
        """So many cores have started."""
        self._show(f"{count:,} of {self.cores:,} cores up")

    def ran(self, instructions: int, finished: int) -> None:
        """So many instructions are done, and so many cores."""
        self._show(
            f"{instructions:,} instructions done, {finished:,} of {self.cores:,} cores finished"
        )

    def waits(self, text: str) -> None:
        """Still doing the same; shown again for the seconds."""
        if self._rewrites:
            self._shown = ""
        self._show(text)

    def close(self) -> None:
        """Remove the line, where lines are rewritten."""
        if self._rewrites and self._shown:
            print("\r" + " " * (len(self._shown) + 20) + "\r", end="", file=self._stream)
            self._stream.flush()

    def _show(self, text: str) -> None:
        now = self._clock()
        if not self.enabled or now < self._next or text == self._shown:
            return
        self._next, self._shown = now + EVERY, text
        line = f"nki_dist: {text} ({now - self._start:.0f} s)"
        print("\r" + line if self._rewrites else line, end="" if self._rewrites else "\n",
              file=self._stream, flush=True)  # fmt: skip


def sampled(cores: int, look: Callable[[], tuple[int, int]]) -> AbstractContextManager[None]:
    """Shows what `look` returns, (instructions, finished cores), while the caller's thread works.

    Args:
        cores: of the world.
    """
    if not enabled(sys.stderr):
        return nullcontext()
    progress = Progress(cores)
    return _sampled(progress, lambda: progress.ran(*look()))


def ticking(text: str) -> AbstractContextManager[None]:
    """Shows a text, and for how long, while the caller's thread waits for what it says."""
    if not enabled(sys.stderr):
        return nullcontext()
    progress = Progress(0, quiet=START_QUIET)
    return _sampled(progress, lambda: progress.waits(text))


@contextmanager
def _sampled(progress: Progress, show: Callable[[], None]) -> Iterator[None]:
    end = threading.Event()

    def sample() -> None:
        while not end.wait(EVERY):
            show()

    thread = threading.Thread(target=sample, name="nki-progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        progress.close()
