"""Programs in processes of their own, and what they print."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def python(
    *arguments: Any, folder: Path | None = None, seconds: float = 600, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Python with these arguments, once it has ended, however it did.

    Args:
        folder: that it runs in.
        seconds: that it may take.
        environment: variables that it gets besides.
    """
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def said(*arguments: Any, **options: Any) -> str:
    """What such a program, which has to end well, prints."""
    done = python(*arguments, **options)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout
