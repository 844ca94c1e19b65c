"""The passes of linking that make programs faster: each may be left out, and no bit changes."""

from __future__ import annotations

import os
from types import MappingProxyType
from typing import Final

from nki_dist.errors import LaunchError

VARIABLE: Final = "NKI_DIST_LINK_WITHOUT"

PASSES: Final = MappingProxyType(
    {
        "groups": "large chains of matmuls with common moving operands are one product",
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
    asked = [name.strip() for name in os.environ.get(VARIABLE, "").split(",") if name.strip()]
    if asked == ["all"]:
        return frozenset(PASSES)
    unknown = [name for name in asked if name not in PASSES]
    if unknown:
        raise LaunchError(
            f"{VARIABLE} names {unknown[0]!r}; allowed: all, or some of {', '.join(PASSES)}, "
            "separated by commas",
            code="setting-value",
            numbers={"got": unknown[0], "allowed": ("all", *PASSES)},
        )
    return frozenset(asked)
