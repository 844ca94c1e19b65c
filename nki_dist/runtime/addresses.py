"""Run-time addresses: which indices keep an operand within its tensor, and the error for others."""

from __future__ import annotations

from nki_dist.errors import OutOfBoundsError
from nki_dist.isa.transfers import REMEDY
from nki_dist.program import Access, Instruction
from nki_dist.runtime.facts import accesses


def run_time_arguments(i: Instruction) -> list[Access]:
    """Operands with one run-time address."""
    return [a for a in accesses(i) if a.dynamic is not None and a.dynamic.kind == "scalar"]


def inside(a: Access, index: int) -> bool:
    """Whether index `index` keeps the access within its dimension and its storage."""
    assert a.dynamic is not None
    if a.dynamic.within is not None and not 0 <= index < a.dynamic.limit:
        return False
    if a.region.on_chip and not a.stays_in_row(index * a.dynamic.stride):
        return False
    low, high = a.span()
    move = index * a.dynamic.stride * a.dtype.itemsize
    return low + move >= 0 and high + move <= a.storage.nbytes


def outside(a: Access, index: int, row: str = "") -> OutOfBoundsError:
    """The error for a run-time index that leaves its tensor; `row` says with which row."""
    assert a.dynamic is not None
    low, high = _allowed(a)
    return OutOfBoundsError(
        f"run-time index {index} is outside [{low}, {high}) of dimension {a.dynamic.dim} "
        f"of {a.storage.label}" + (f": {row}; {REMEDY}" if row else ""),
        code="data-index-range",
        numbers={"got": index, "least": low, "most": high - 1},
    )


def _allowed(a: Access) -> tuple[int, int]:
    """Values of the run-time index that keep the whole access inside, half open."""
    assert a.dynamic is not None
    unit = a.dynamic.stride * a.dtype.itemsize
    if a.dynamic.within is not None or a.region.on_chip or unit <= 0:
        return 0, a.dynamic.limit
    low, high = a.span()
    return -(low // unit), (a.storage.nbytes - high) // unit + 1
