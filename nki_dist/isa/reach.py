"""What an access pattern covers, and whether instructions reach it.

Patterns stay within their storage, have no more dimensions than engines address, and start at
partitions that engines can access. What an operand may be besides is its role's (operands.py).
"""

from __future__ import annotations

from nki_dist.arch import Arch, allowed_start_partitions
from nki_dist.codes.picture import outside
from nki_dist.errors import OutOfBoundsError, invalid
from nki_dist.isa.indirection import table
from nki_dist.isa.tracing import todays_kernel
from nki_dist.ops.place import joined
from nki_dist.program import Access
from nki_dist.program.access import reach


def check_inside(name: str, a: Access) -> None:
    """An access pattern must stay within its storage; run-time parts are checked at run time."""
    if a.dynamic is not None and a.dynamic.kind == "tensor":
        a = table(a)
    dynamic = a.dynamic
    if dynamic is not None and dynamic.kind != "vector":
        return
    whole = a.storage
    same_size = a.dtype.itemsize == whole.dtype.itemsize
    if a.offset == 0 and same_size and a.shape == whole.shape and a.strides == whole.strides:
        return
    low, high = reach(a.shape[1:], a.strides[1:])
    size = a.dtype.itemsize
    if whole.region.on_chip:
        row = whole.partition_bytes
        step = a.strides[0] * size
        if a.shape[0] > 1 and step not in (0, row) and todays_kernel():
            message = (
                f"{name}: the access pattern {_text(a)} goes from partition to partition in steps "
                f"of {step} bytes; {whole.label} has {row} bytes per partition, and partitions "
                "can't be skipped. Use a pattern for each run of partitions"
            )
            raise invalid(message, code="partition-step", got=step, allowed=row)
        column = a.offset * size % row
        if column + low * size < 0 or column + (high + 1) * size > row:
            raise _beyond(name, a, column + low * size, column + (high + 1) * size, True)
    low += a.offset
    high += a.offset
    if dynamic is None:
        first, last = reach(a.shape[:1], a.strides[:1])
        low, high = low + first, high + last
    if low < 0 or (high + 1) * size > a.storage.nbytes:
        raise _beyond(name, a, low * size, (high + 1) * size)


def check_dimensions(name: str, a: Access) -> None:
    """Engines address up to four free dimensions; contiguous ones count as one.

    The compiler of Beta 1 made several instructions of one with more, as for nki-samples'
    `interpolate_trilinear_2x_fwd`.
    """
    pieces = joined(a.shape[1:], a.strides[1:])
    if len(pieces) > 4 and todays_kernel():
        message = (
            f"{name} has shape {a.shape} and strides {a.strides}, {len(pieces)} free dimensions "
            "after merging contiguous ones; engines address at most 4"
        )
        raise invalid(message, code="shape-rank", got=len(pieces), most=4)


def _beyond(
    name: str, a: Access, low: int, high: int, by_partition: bool = False
) -> OutOfBoundsError:
    """The error of a pattern whose bytes, of the storage or of each partition, aren't all there."""
    whole, label = a.storage, a.storage.label
    shape: tuple[int, ...] = (whole.nbytes,)
    where, what, why = label, f"bytes of {label}", ""
    if by_partition:
        shape = (whole.partitions, whole.partition_bytes)
        where, what = f"a partition of {label}", f"bytes of each partition of {label}"
        why = " there; only dimension 0 goes from partition to partition"
    return OutOfBoundsError(
        f"{name}: the access pattern {_text(a)} at offset {a.offset} covers bytes [{low}, {high}) "
        f"of {where}, which has {shape[-1]}{why}",
        code="access-range",
        numbers={"low": low, "high": high, "most": shape[-1]},
        picture=outside(what, shape, len(shape) - 1, [(low, high)]),
    )


def _text(a: Access) -> list[list[int]]:
    return [list(p) for p in zip(a.strides, a.shape)]


def engine_reaches(a: Access, arch: Arch) -> bool:
    """Whether a compute engine can access an on-chip operand's partitions (arch.limits)."""
    return start_partition(a) in allowed_start_partitions(a.shape[0], arch)


def start_partition(a: Access) -> int:
    """First partition, counted from the memory's where the address is known: tensors without one
    are placed where engines reach all of them."""
    address = a.storage.address
    return a.start_partition + (0 if address is None else address[0])


def check_start(name: str, a: Access, arch: Arch) -> None:
    """Compute engines access partitions from the start of a quadrant only."""
    if not engine_reaches(a, arch):
        first, count = start_partition(a), a.shape[0]
        allowed = ", ".join(map(str, allowed_start_partitions(count, arch))) or "nowhere"
        message = (
            f"{name} starts at partition {first} of {a.region.value} ({a.storage.label}); an "
            f"engine accesses {count} partitions from {allowed} only"
        )
        raise invalid(message, code="partition-start", got=first, partitions=count, allowed=allowed)
