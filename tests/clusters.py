"""Programs that make clusters of Ray, each with a folder of its own for Ray's files.

Ray notes there which cluster is the machine's, and leaves the note behind, so that others would
find a cluster that is gone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def ray_folder() -> Iterator[dict[str, str]]:
    """Environment variables that have Ray's files in a new folder, which goes afterwards."""
    # Short, because of Ray's sockets.
    with tempfile.TemporaryDirectory(prefix="nki", ignore_cleanup_errors=True) as folder:
        yield {"RAY_TMPDIR": folder}


def found_by(
    module: str, *arguments: str, folder: Path | None = None, **environment: str
) -> dict[str, Any]:
    """What a program of the tests prints last, as JSON.

    Args:
        module: its name.
        folder: that it runs in.
        environment: variables that it gets besides.
    """
    command = [sys.executable, "-m", module, *arguments]
    with ray_folder() as ours:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=400,
            cwd=folder,
            env={**os.environ, **ours, **environment},
        )
    assert done.returncode == 0, done.stderr[-3000:]
    return printed(done.stdout, done.stderr)


def printed(output: str, errors: str) -> dict[str, Any]:
    """The last JSON object that a program printed, among what Ray prints into its lines."""
    lines = [line for line in output.splitlines() if line.startswith("{")]
    assert lines, errors[-3000:]
    found, _ = json.JSONDecoder().raw_decode(lines[-1])
    return dict(found)
