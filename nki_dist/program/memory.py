"""The memories a tensor can live in (`nl.sbuf`, `nl.psum`, `nl.private_hbm`, `nl.shared_hbm`).

`nl.hbm` is the generic spelling: allocating with it gives private HBM, and it compares equal to
every HBM region, because published kernels ask `x.buffer == nl.hbm` of inputs and of tensors that
another kernel allocated as shared. Equal things hash alike, so all HBM regions share one hash.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from nki_dist.errors import invalid


class MemoryRegion(Enum):
    """Memory of a tensor; the members are what `tensor.buffer` returns."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    is_hbm: bool
    on_chip: bool

    def __init__(self, label: str) -> None:
        # Attributes rather than properties: they are asked several times per instruction.
        self.is_hbm = label.endswith("hbm")
        self.on_chip = not self.is_hbm
        self._hash = hash("hbm" if self.is_hbm else label)

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, GenericHbm):
            return self.is_hbm
        if isinstance(other, str):
            return self.value == other or (other == "hbm" and self.is_hbm)
        return self is other

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        return f"nl.{self.value}"

    __str__ = __repr__


class GenericHbm:
    """`nl.hbm`: equal to either HBM region; a tensor allocated in it is private."""

    value = "hbm"
    name = "hbm"
    is_hbm = True
    on_chip = False

    def __eq__(self, other: Any) -> bool:
        if isinstance(other, str):
            return other in ("hbm", "private_hbm", "shared_hbm")
        return isinstance(other, GenericHbm) or (isinstance(other, MemoryRegion) and other.is_hbm)

    def __hash__(self) -> int:
        return hash("hbm")

    def __repr__(self) -> str:
        return "nl.hbm"

    def __reduce__(self) -> str:
        return "hbm"  # of this module


sbuf = MemoryRegion.sbuf
psum = MemoryRegion.psum
private_hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm
hbm = GenericHbm()


def region_of(buffer: Any) -> MemoryRegion:
    """The region a tensor lands in that is asked for by region, by `nl.hbm` or by name."""
    label = getattr(buffer, "value", buffer)
    if label == "hbm":
        return MemoryRegion.private_hbm
    try:
        return MemoryRegion(label)
    except ValueError:
        raise invalid(
            f"buffer={buffer!r}; allowed: nl.sbuf, nl.psum, nl.private_hbm (nl.hbm), nl.shared_hbm",
            code="memory-unknown",
        ) from None
