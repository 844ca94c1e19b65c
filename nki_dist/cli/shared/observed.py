"""Programs whose launches `nki-dist profile`, `bench`, `record`, `view` and `drift` observe."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from nki_dist.cli import run as program
from nki_dist.launcher.session import session


def run_observed(
    arguments: argparse.Namespace,
    observer: Callable[[Any, Any, Any], object],
    show: Callable[[], None],
    to_stderr: bool = False,
) -> int:
    """Run a program, then show what was observed; a SystemExit of the program goes through.

    Args:
        observer: of its launches, as of `Session`.
        show: also called for what was launched before an error or sys.exit().
        to_stderr: whether what the program prints goes there.

    Returns:
        Its exit status; 2 if it can't be read, which is said, and then nothing is shown.

    Raises:
        LaunchError: wrong options.
    """
    if status := program.unreadable(arguments):
        return status
    session().observer = observer
    try:
        with printing_to_stderr(to_stderr):
            return program.run(arguments)
    finally:
        session().observer = None
        show()


@contextmanager
def printing_to_stderr(when: bool = True) -> Iterator[None]:
    """What is printed goes to stderr, by processes that are started and C libraries, too."""
    if not when:
        yield
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
