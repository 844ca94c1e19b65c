"""The start-partition rule of the on-chip memories.

Invariant: an access is allowed only if an engine's read and write ports, a quadrant of partitions
wide, can reach it. With quadrants of 32, more than 64 partitions start at 0, 33 to 64 at 0 or 64,
up to 32 at 0, 32, 64 or 96. DMA isn't bound by it. Doesn't model the stricter rules of single
instructions, which live with them.
Source: A2, the section on accessing SBUF and PSUM tensors.
"""

from __future__ import annotations

from nki_dist.arch.model import Arch


def allowed_start_partitions(count: int, arch: Arch) -> tuple[int, ...]:
    """Start partitions from which an engine can access `count` partitions; empty if none."""
    if not 1 <= count <= arch.partitions:
        return ()
    step = arch.partition_quadrant
    while step < count:
        step *= 2
    return tuple(range(0, arch.partitions, step))
