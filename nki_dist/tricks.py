"""What reaches behind the interfaces of Ray, Python and Linux: each by a name that turns it off.

docs/tricks.md says of each what it saves and what is missing without it. Results are the same bits.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from types import MappingProxyType
from typing import Final

from nki_dist.errors import LaunchError

VARIABLE: Final = "NKI_DIST_WITHOUT"

TRICKS: Final = MappingProxyType(
    {
        "ray-helpers": "a Ray of one program starts without helpers that nobody in it asks",
        "ray-waits": "a start of Ray waits for nothing that it needn't",
        "ray-loopback": "a Ray of one program listens on the loopback only",
        "ray-warnings": "Ray's warning of many processes is printed once for each start",
        "ray-end": "processes of a Ray that this program started are known by their parents",
        "titles": "the arguments of an actor's process say its cores and kernel",
        "orders": "launches reach processes of the same machine as datagrams",
        "store-pages": "what /dev/shm has no pages for is refused before it is written",
        "give-back": "freed memory goes back to the system before large stacks are made",
        "references": "tiles of a debugged kernel end when nothing refers to them",
        "deadlines": "a kernel whose tracing never ends is interrupted",
    }
)


def named_by(variable: str, names: Collection[str]) -> frozenset[str]:
    """Those of some names that a variable has, separated by commas, or all of them.

    Raises:
        LaunchError: it has another name.
    """
    given = [name.strip() for name in os.environ.get(variable, "").split(",") if name.strip()]
    if given == ["all"]:
        return frozenset(names)
    unknown = [name for name in given if name not in names]
    if unknown:
        raise LaunchError(
            f"{variable} names {unknown[0]!r}; allowed: all, or some of {', '.join(names)}, "
            "separated by commas",
            code="setting-value",
            numbers={"got": unknown[0], "allowed": ("all", *names)},
        )
    return frozenset(given)


def uses(trick: str) -> bool:
    """Whether a trick isn't turned off.

    Raises:
        LaunchError: the variable has a name that there isn't.
    """
    return trick not in named_by(VARIABLE, TRICKS)
