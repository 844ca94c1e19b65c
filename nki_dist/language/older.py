"""Names of Beta 1's `nl` that today's hasn't: what to write instead.

Follows: the migration guide of the NKI documentation (SDK 2.28).
"""

from __future__ import annotations

from typing import Final

from nki_dist.errors import NoSuchAttribute
from nki_dist.isa.described import absent

INSTEAD: Final = {
    "arange": "for a loop write `for i in range(n)`, for a part of a tensor x[start:stop]",
    "mgrid": "for a part of a tensor write x[start:stop, start:stop]",
    "par_dim": "the first dimension of a tensor on chip is the partition dimension: write "
    "nl.ndarray((128, n), ...)",
}


def missing(name: str) -> AttributeError:
    """The error of a name that `nl` hasn't; `hasattr` says False."""
    if name not in INSTEAD:
        return absent("nki_dist.language", name, "dir(nl) lists what there is.")
    return NoSuchAttribute(f"nl has no {name}, which is Beta 1's (neuronxcc.nki); {INSTEAD[name]}")
