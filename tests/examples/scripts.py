"""Examples as their readers start them, and what they import by plain names."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

SPMD = Path(__file__).parents[2] / "examples" / "spmd"
if str(SPMD) not in sys.path:
    sys.path.insert(0, str(SPMD))  # examples import their helpers by plain names, as scripts do


def load(name: str) -> Any:
    """A module of examples/spmd."""
    return importlib.import_module(name)


def run_script(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SPMD / script), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        check=False,
    )
