"""The passes of linking that make programs faster: each may be left out, and no bit changes."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from nki_dist.tricks import named_by

VARIABLE: Final = "NKI_DIST_LINK_WITHOUT"

PASSES: Final = MappingProxyType(
    {
        "panels": "operands of matmuls stay gathered while later ones multiply the same elements",
        "loads": "tiles that nobody but products reads are read where they come from",
        "addresses": "one step for all run-time addresses of an instruction",
    }
)


def link_passes() -> tuple[str, ...]:
    """Names of the passes of linking that NKI_DIST_LINK_WITHOUT may leave out, in their order."""
    return tuple(PASSES)


def left_out() -> frozenset[str]:
    """Those that NKI_DIST_LINK_WITHOUT names, separated by commas, or all.

    Raises:
        LaunchError: there is no such pass.
    """
    return named_by(VARIABLE, PASSES)
