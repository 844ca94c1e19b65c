"""Examples as their readers start them, and what they import by plain names."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.programs import python

SPMD = Path(__file__).parents[2] / "examples" / "spmd"
if str(SPMD) not in sys.path:
    sys.path.insert(0, str(SPMD))  # examples import their helpers by plain names, as scripts do


def load(name: str) -> Any:
    """A module of examples/spmd."""
    return importlib.import_module(name)


def run_script(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return python(SPMD / script, *arguments)
