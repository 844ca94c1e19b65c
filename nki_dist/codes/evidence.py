"""Rules that published kernels break although they ran on devices, with both sources.

A rule that is in `evidence.txt` is silent by default, whoever says that AWS's compiler refuses what
breaks it: a compiler that compiled the kernel doesn't. `refusals="all"` (`nki-dist check --strict`)
reports it with both sources. `make foreign` finds such kernels in checkouts; a paragraph is made of
what it found, and says how one knows that the kernel ran.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from nki_dist.codes.data import paragraphs


@dataclass(frozen=True)
class Evidence:
    """Two sources that contradict each other.

    Attributes:
        refused_by: the document or report that says that AWS's compiler refuses it.
        kernel: repository, path and line of a published kernel that does it.
        ran: how one knows that a device ran it.
    """

    refused_by: str
    kernel: str
    ran: str

    def __str__(self) -> str:
        return f"refused according to {self.refused_by}; done by {self.kernel}, {self.ran}"


EVIDENCE: Final[Mapping[str, Evidence]] = MappingProxyType(
    {code: Evidence(*found) for code, *found in paragraphs("evidence.txt")}
)
