"""Figures that a user measured on machines of their own, in place of those of `facts`.

A file has them, written by `nki-dist calibrate`; worlds take it as `arch=`, programs and kernels by
NKI_DIST_ARCH. Only figures that nothing but simulated time depends on can be in it, so a program
compiled under other figures is the same program.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields
from os import PathLike
from typing import Any, Final

from nki_dist.arch.model import Arch
from nki_dist.errors import LaunchError

VARIABLE: Final = "NKI_DIST_ARCH"
VERSION: Final = 1

# What differs between machines, and the fields that move together when it does.
FIGURES: Final[Mapping[str, tuple[str, ...]]] = {
    "launch overhead": tuple(
        f.name for f in fields(Arch) if f.name.startswith("kernel_") and f.name.endswith("_ns")
    ),
    "DMA rate": ("dma_engine_gbps",),
    "DMA latency": ("dma_semaphore_ns",),
    "semaphore": ("semaphore_ns",),
}
_CHANGEABLE: Final = frozenset(name for names in FIGURES.values() for name in names)


def scaled(arch: Arch, factors: Mapping[str, float]) -> dict[str, Any]:
    """Values of an architecture's fields, by name, with its figures multiplied.

    Args:
        factors: by name of a figure of `FIGURES`.
    """
    return {
        name: _times(getattr(arch, name), factor)
        for figure, factor in factors.items()
        for name in FIGURES[figure]
    }


def _times(value: Any, factor: float) -> Any:
    if isinstance(value, Mapping):
        return {key: v * factor for key, v in value.items()}
    return value * factor


def write(path: str | PathLike[str], values: Mapping[str, Mapping[str, Any]], source: str) -> None:
    """Write a file of figures.

    Args:
        values: by platform, the fields' values.
        source: where they come from, for `Arch.sources()`.

    Raises:
        LaunchError: the file can't be written.
    """
    platforms = {name: dict(found) for name, found in values.items()}
    text = json.dumps({"version": VERSION, "source": source, "platforms": platforms}, indent=1)
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text + "\n")
    except OSError as error:
        raise _wrong(path, f"can't be written: {error}") from None


def measured(arch: Arch, path: str | PathLike[str] | None = None) -> Arch:
    """An architecture with the figures that a file has for its platform.

    Args:
        path: the file; NKI_DIST_ARCH by default, and without either nothing changes.

    Raises:
        LaunchError: the file can't be read, or isn't such a file.
    """
    path = path or os.environ.get(VARIABLE)
    if not path:
        return arch
    found = _read(path)
    values = found["platforms"].get(arch.name)
    return arch.with_values(found["source"], kind="fitted", **values) if values else arch


def _read(path: str | PathLike[str]) -> dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found: Any = json.load(file)
    except (OSError, ValueError) as error:
        raise _wrong(path, f"can't be read: {error}") from None
    found = dict(found) if isinstance(found, dict) else {}
    platforms = found.get("platforms")
    if not isinstance(platforms, dict) or not isinstance(found.get("source"), str):
        raise _wrong(path, "isn't a file of figures; `nki-dist calibrate` writes them")
    if found.get("version") != VERSION:
        raise _wrong(path, f"has version {found.get('version')!r}; allowed: {VERSION}")
    for platform, values in platforms.items():
        if not isinstance(values, dict):
            raise _wrong(path, f"platform {platform}: {values!r}; allowed: names with values")
        unknown = sorted(values.keys() - _CHANGEABLE)
        if unknown:
            raise _wrong(
                path, f"has {', '.join(unknown)}; allowed: {', '.join(sorted(_CHANGEABLE))}"
            )
        for name, value in values.items():
            if not _positive(value):
                raise _wrong(path, f"{platform} {name} is {value!r}; must be positive")
    return {"source": found["source"], "platforms": platforms}


def _positive(value: Any) -> bool:
    if isinstance(value, dict):
        return bool(value) and all(map(_positive, value.values()))
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and 0 < value < float("inf")


def _wrong(path: str | PathLike[str], message: str) -> LaunchError:
    return LaunchError(f"figures in {os.fspath(path)}: {message}", code="architecture-file")
