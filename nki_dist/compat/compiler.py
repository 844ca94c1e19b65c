"""`nki.compiler`: names that test harnesses import but need only on hardware.

Harnesses make front ends while they're imported, as default arguments; so making one is fine, and
compiling with it says that it can't work here.
"""

from __future__ import annotations

from typing import Any, NoReturn

from nki_dist.errors import LaunchError


def _refuse(what: str) -> NoReturn:
    raise LaunchError(
        f"{what} drives AWS's compiler for hardware, which isn't part of the simulator; call the "
        "kernel directly"
    )


class NKIFrontend:
    """AWS's front end; it can be made, and nothing more."""

    def compile(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises LaunchError."""
        _refuse(f"{type(self).__name__}.compile")


class ParserFrontend(NKIFrontend):
    """AWS's parsing front end."""


class TracerFrontend(NKIFrontend):
    """AWS's tracing front end."""


class CompiledKernel:
    """A kernel compiled for hardware; can't be made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse(type(self).__name__)

    @classmethod
    def from_frontend(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises LaunchError."""
        _refuse(f"{cls.__name__}.from_frontend")


class CompileOptions:
    """Options of AWS's compiler driver; can't be made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _refuse(type(self).__name__)


__all__ = ["CompileOptions", "CompiledKernel", "NKIFrontend", "ParserFrontend", "TracerFrontend"]
