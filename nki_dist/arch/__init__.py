"""Facts about each NeuronCore generation, every one with its source.

Invariant: archs are immutable and built once; two look-ups of a name give the same object. Depends
on nothing but `errors`. Doesn't decide which platform a world uses, only what each can do.
Source: nki/api/nki/__init__.py for the platform names, `facts.DOCUMENTS` for the numbers.
"""

# ruff: noqa: F401 -- what is imported here is exported

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from nki_dist.arch import trn1, trn2, trn3
from nki_dist.arch.facts import DOCUMENTS, Fact
from nki_dist.arch.limits import allowed_start_partitions
from nki_dist.arch.model import Arch
from nki_dist.errors import LaunchError

PLATFORM_VARIABLE: Final = "NEURON_PLATFORM_TARGET_OVERRIDE"
NC_VARIABLE: Final = "NKI_NC_VERSION"  # what AWS's simulator reads: gen2, gen3 or gen4
DEFAULT: Final = "trn2"

_TRN1: Final = Arch.from_facts("trn1", "trn1", trn1.FACTS)
_TRN2: Final = Arch.from_facts("trn2", "trn2", trn2.FACTS)
_TRN3: Final = Arch.from_facts("trn3", "trn3", trn3.FACTS)
_BY_NAME: Final[Mapping[str, Arch]] = MappingProxyType(
    {
        "trn1": _TRN1,
        "trn1n": Arch.from_facts("trn1", "trn1n", trn1.TRN1N),
        "inf2": Arch.from_facts("trn1", "inf2", trn1.INF2),
        "gen2": _TRN1,
        "trn2": _TRN2,
        "trn2u": Arch.from_facts("trn2", "trn2u", trn2.TRN2U),
        "gen3": _TRN2,
        "trn3": _TRN3,
        "gen4": _TRN3,
    }
)
GEN2_ULTRASERVER: Final = Arch.from_facts("trn3", "trn3", trn3.GEN2)  # no platform has this name


def get(name: str) -> Arch:
    """The architecture of a platform name, in any case; LaunchError if there is none such."""
    arch = _BY_NAME.get(name.strip().lower()) if isinstance(name, str) else None
    if arch is None:
        message = f"unknown platform: got {name!r}, allowed: {', '.join(_BY_NAME)}"
        raise LaunchError(message, code="platform-unknown")
    return arch


def from_environment(env: Mapping[str, str] | None = None) -> Arch:
    """The platform that NEURON_PLATFORM_TARGET_OVERRIDE or NKI_NC_VERSION names, else trn2.

    `env` stands in for `os.environ`. Raises LaunchError that names the variable.
    """
    variables = os.environ if env is None else env
    for variable in (PLATFORM_VARIABLE, NC_VARIABLE):
        name = variables.get(variable)
        if name:
            try:
                return get(name)
            except LaunchError as error:
                raise LaunchError(f"{variable}: {error.message}", code="setting-value") from None
    return get(DEFAULT)
