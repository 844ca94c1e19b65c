"""Kernels as they were published, imported from checkouts below `$NKI_REF`, which stay as they are.

Host-side code of some files names torch and scipy.linalg, which needn't be installed: while a file
is imported, modules that are empty but for what runs stand in for them.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import linecache
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import numpy as np

from bench.real_kernels.shims import LIBRARY, RepairedSource

VARIABLE: Final = "NKI_REF"
_PACKAGES: Final = (
    ("torch", "torch.nn", "torch.nn.functional"),
    ("scipy", "scipy.linalg"),
)


def root() -> Path:
    """The folder of checkouts."""
    path = os.environ.get(VARIABLE)
    if not path:
        raise SystemExit(
            f"{VARIABLE} isn't set: name the folder that holds the checkouts of the kernels; "
            "bench/data/README.md lists them"
        )
    return Path(path)


class _StandIn(ModuleType):
    """A package that isn't installed: any name of it is an empty class."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def _circulant(column: Any) -> np.ndarray:
    """scipy.linalg.circulant: the column, one further down in each."""
    return np.stack([np.roll(column, shift) for shift in range(len(column))], axis=1)


def _absent(names: Sequence[str]) -> dict[str, ModuleType]:
    """Stand-ins for a package and modules of it, or none if it's installed."""
    if importlib.util.find_spec(names[0]) is not None:
        return {}
    added: dict[str, ModuleType] = {name: _StandIn(name) for name in names}
    for name in names[1:]:
        parent, _, child = name.rpartition(".")
        setattr(added[parent], child, added[name])
    return added


@contextlib.contextmanager
def stand_ins(packages: Sequence[Sequence[str]] = _PACKAGES) -> Iterator[None]:
    """While foreign files are imported, names of packages that aren't installed can be imported."""
    added = {name: module for names in packages for name, module in _absent(names).items()}
    if "scipy.linalg" in added:
        vars(added["scipy.linalg"])["circulant"] = _circulant
    sys.modules.update(added)
    try:
        yield
    finally:
        for name in added:
            del sys.modules[name]


def library(module: str) -> ModuleType:
    """A module of nki-library, by its name within the package."""
    source = str(root() / "nki-library" / "src")
    if source not in sys.path:
        sys.path.insert(0, source)
        sys.meta_path.insert(0, RepairedSource())
    with stand_ins():
        return importlib.import_module(f"{LIBRARY}.{module}")


def from_file(path: str) -> ModuleType:
    """A file below the root, with its neighbours importable while it is imported."""
    full = root() / path
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise ImportError(f"{full} isn't a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(full.parent))
    try:
        with stand_ins():
            spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(full.parent))
    return module


def from_text(text: str, title: str) -> ModuleType:
    """A module whose source isn't a file; tracebacks and `inspect` find its lines."""
    module = ModuleType(_module_name(title))
    module.__file__ = f"<{title}>"
    linecache.cache[module.__file__] = len(text), None, text.splitlines(True), module.__file__
    sys.modules[module.__name__] = module
    with stand_ins():
        exec(compile(text, module.__file__, "exec"), module.__dict__)
    return module


def from_tag(repository: str, tag: str, path: str) -> ModuleType:
    """A file of an earlier release, from the repository's history."""
    command = ["git", "-C", str(root() / repository), "show", f"{tag}:{path}"]
    shown = subprocess.run(command, check=True, capture_output=True, text=True)
    return from_text(shown.stdout, path)


def _module_name(title: str) -> str:
    return "foreign_" + re.sub(r"\W", "_", title)
