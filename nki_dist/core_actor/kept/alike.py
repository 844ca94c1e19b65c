"""What a program and the keeper must have in common for results to be the same bits.

Compared are versions, the package's own files (an edit makes kept processes old), and settings
that choose other code in NumPy and BLAS, or another place or token of Ray. Numbers of threads don't
count: simulated cores compute with one.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

import ml_dtypes
import numpy as np
import ray

SETTINGS: Final = (
    "HOME",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES",
    "OPENBLAS_CORETYPE",
    "RAY_AUTH_TOKEN",
    "RAY_AUTH_TOKEN_PATH",
    "RAY_TMPDIR",
    "RAY_USE_TLS",
)
_PACKAGE: Final = str(Path(__file__).resolve().parents[2])


def facts() -> dict[str, str]:
    """Of this process, by name."""
    found = {
        "nki_dist": str(getattr(sys.modules["nki_dist"], "__version__", "?")),
        "files of nki_dist": f"{_PACKAGE}, changed {_newest(_PACKAGE)}",
        "Python": f"{sys.version.split()[0]} in {sys.prefix}",
        "ray": ray.__version__,
        "NumPy": np.__version__,
        "ml_dtypes": ml_dtypes.__version__,
        "SciPy": metadata.version("scipy"),
    }
    for name in SETTINGS:
        value = os.environ.get(name, "not set")
        if name == "RAY_AUTH_TOKEN" and value != "not set":  # never shown
            value = f"one with the digest {hashlib.sha256(value.encode()).hexdigest()[:12]}"
        found[name] = value
    return found


def differences(kept: Mapping[str, str], mine: Mapping[str, str]) -> list[str]:
    """What differs, for a message."""
    names = dict.fromkeys([*mine, *kept])
    return [
        f"{name}: {kept.get(name, 'unknown')} there, {mine.get(name, 'unknown')} here"
        for name in names
        if kept.get(name) != mine.get(name)
    ]


def _newest(folder: str) -> int:
    """When a Python file below a folder was last changed, in nanoseconds since 1970."""
    newest = 0
    for entry in os.scandir(folder):
        if entry.is_dir(follow_symlinks=False):
            if entry.name != "__pycache__":
                newest = max(newest, _newest(entry.path))
        elif entry.name.endswith(".py"):
            newest = max(newest, entry.stat().st_mtime_ns)
    return newest
