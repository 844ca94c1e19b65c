"""The start-partition rule of the on-chip memories, the same for every generation.

Invariant: an access is allowed only if an engine's 32-partition read and write ports can reach it:
more than 64 partitions start at 0, 33 to 64 at 0 or 64, up to 32 at 0, 32, 64 or 96. DMA isn't
bound by it. Doesn't model the stricter rules of single instructions, which live with them.
Source: A2, the section on accessing SBUF and PSUM tensors.
"""

from __future__ import annotations

from typing import Final

_PARTITIONS: Final = 128
_STARTS: Final[tuple[tuple[int, tuple[int, ...]], ...]] = (
    (32, (0, 32, 64, 96)),
    (64, (0, 64)),
    (_PARTITIONS, (0,)),
)


def allowed_start_partitions(count: int) -> tuple[int, ...]:
    """Start partitions from which an engine can access `count` partitions; empty if none."""
    if count < 1:
        return ()
    return next((starts for most, starts in _STARTS if count <= most), ())


def start_partition_allowed(start: int, count: int) -> bool:
    """True if a compute engine can access partitions `start` to `start + count - 1`."""
    return start in allowed_start_partitions(count)
