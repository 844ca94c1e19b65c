"""Fingerprint of a process: what all must have in common for results to be the same bits.

Of all processes of a world, on whichever node, that are versions, and the package's own files. A
kept Ray must also have been started by the same files, settings that choose other code in NumPy and
BLAS, place and token of Ray. Numbers of threads don't count: simulated cores compute with one.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Final

import ray

from nki_dist.forks import once

PACKAGES: Final = {
    "nki_dist": "nki_dist",
    "NumPy": "numpy",
    "ml_dtypes": "ml_dtypes",
    "SciPy": "scipy",
}
OURS: Final = "nki_dist"
FILES: Final = "files of nki_dist"
MISSING: Final = "not there: "  # before the reason, instead of a version
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
PACKAGE: Final = str(Path(__file__).resolve().parents[1])


def teller() -> Callable[[bool], dict[str, str]]:
    """A function that tells versions by name, which Ray can send where this package isn't.

    Ray sends by its name what stands at the top of a module, and as it is what a function has
    made; so it is made here, and refers to nothing else of this package than texts.
    """

    def tell(whole: bool) -> dict[str, str]:
        """Of what is imported already, which costs nothing; if `whole`, of all, and of files."""
        found = {"Python": ".".join(map(str, sys.version_info[:2]))}
        for name, package in PACKAGES.items():
            if whole or package in sys.modules:
                try:
                    found[name] = str(importlib.import_module(package).__version__)
                except Exception as error:  # it may fail in any way, and which way is the answer
                    found[name] = MISSING + str(error)
        if whole and OURS in sys.modules:
            found[FILES] = digest(next(iter(sys.modules[OURS].__path__)))
        return found

    def digest(folder: str) -> str:
        """Of the Python files below a folder, and of the texts beside them."""
        found = hashlib.sha256()
        for path, folders, files in os.walk(folder):
            folders[:] = sorted(name for name in folders if name != "__pycache__")
            for name in sorted(name for name in files if name.endswith((".py", ".txt"))):
                with open(os.path.join(path, name), "rb") as file:
                    found.update(name.encode() + b"\0" + file.read())
        return found.hexdigest()[:12]

    return tell


@once
def versions() -> dict[str, str]:
    """Of this process, all of them."""
    return teller()(True)


def imported() -> dict[str, str]:
    """Of this process, those that are known without importing or reading anything."""
    return teller()(False)


def facts() -> dict[str, str]:
    """Of this process, what a kept Ray must have, too."""
    found = {
        **imported(),
        FILES: f"{PACKAGE}, changed {_newest(PACKAGE)}",
        "Python": f"{sys.version.split()[0]} in {sys.prefix}",
        "ray": ray.__version__,
        "SciPy": metadata.version("scipy"),
    }
    for name in SETTINGS:
        value = os.environ.get(name, "not set")
        if name == "RAY_AUTH_TOKEN" and value != "not set":  # never shown
            value = f"one with the digest {hashlib.sha256(value.encode()).hexdigest()[:12]}"
        found[name] = value
    return found


def differences(
    there: Mapping[str, str], mine: Mapping[str, str], partly: bool = False
) -> list[str]:
    """What differs, for a message.

    Args:
        partly: what only one side knows is no difference.
    """
    names = [n for n in dict.fromkeys([*mine, *there]) if not partly or (n in mine and n in there)]
    if there.get(OURS) != mine.get(OURS):
        names = [name for name in names if name != FILES]  # they differ, of course
    return [
        f"{name}: {there.get(name, 'unknown')} there, {mine.get(name, 'unknown')} here"
        for name in names
        if there.get(name) != mine.get(name)
    ]


def _newest(folder: str) -> int:
    """When a Python file or text below a folder was last changed, in nanoseconds since 1970."""
    texts = (os.path.join(p, f) for p, _, files in os.walk(folder) for f in files)
    return max(os.stat(path).st_mtime_ns for path in texts if path.endswith((".py", ".txt")))
