"""`nki.compiler`: configurations of kernels, and names that harnesses import for hardware.

Harnesses make front ends while they're imported, as default arguments; so making one is fine.
Compiling with it traces the kernel, for the errors in it, and then says that there is no code for
hardware here.
"""

from __future__ import annotations

from typing import Any, NoReturn

from nki_dist.compiler.config import AddressRotation, CompileConfig, SpecializationConfig
from nki_dist.compiler.locations import users_line
from nki_dist.errors import LaunchError
from nki_dist.launcher.world import World


def only_for_hardware(what: str) -> NoReturn:
    """Say that something needs hardware."""
    raise LaunchError(
        f"{what} is for hardware: AWS's compiler and the NEFFs that it makes aren't part of the "
        "simulator",
        location=users_line(),
        code="not-simulated",
        hint="call the NKI kernel itself, or make a DeviceKernel of it (nkipy.runtime)",
    )


class NKIFrontend:
    """AWS's front end; it finds errors, and makes nothing."""

    def compile(
        self,
        kernel: Any,
        inputs: dict[str, Any] | None = None,
        target: str | None = None,
        lnc: int = 1,
        **options: Any,
    ) -> NoReturn:
        """Trace a kernel, without running it.

        Args:
            inputs: its arguments by name.
            target: "trn1", "trn2" or "trn3"; by default what the environment says.
            lnc: physical cores, 1 or 2.
            options: of AWS's compiler; ignored.

        Raises:
            NkiError, or what the kernel raises: it is wrong.
            LaunchError: it isn't.
        """
        World(lnc=lnc, platform=target, host="inprocess").compile(kernel, **(inputs or {}))
        only_for_hardware(f"{type(self).__name__}.compile")


class ParserFrontend(NKIFrontend):
    """AWS's parsing front end."""


class TracerFrontend(NKIFrontend):
    """AWS's tracing front end."""


class CompiledKernel:
    """A kernel compiled for hardware; can't be made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        only_for_hardware(type(self).__name__)

    @classmethod
    def from_frontend(cls, *args: Any, **kwargs: Any) -> NoReturn:
        """Always raises LaunchError."""
        only_for_hardware(f"{cls.__name__}.from_frontend")


class CompileOptions:
    """Options of AWS's compiler driver; can't be made."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        only_for_hardware(type(self).__name__)


__all__ = [
    "AddressRotation",
    "CompileConfig",
    "CompileOptions",
    "CompiledKernel",
    "NKIFrontend",
    "ParserFrontend",
    "SpecializationConfig",
    "TracerFrontend",
]
