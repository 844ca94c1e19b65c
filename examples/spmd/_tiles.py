"""How examples cut work into tiles and share it between the cores of a logical core.

Both functions run while a kernel is traced, so they give plain Python numbers. The last tile may be
narrower than the others; kernels give their tensors that width instead of padding.
"""

from __future__ import annotations

import nki_dist.language as nl


def tiles(start: int, stop: int, size: int) -> list[tuple[int, int]]:
    """(first index, width) of the tiles that cover [start, stop)."""
    return [(at, min(size, stop - at)) for at in range(start, stop, size)]


def my_share(count: int, unit: int = 1) -> tuple[int, int]:
    """The part [start, stop) of `count` things that this core works on.

    Shares are whole multiples of `unit` (but for the end), so that no tile is cut in two: a core
    may get nothing when there are fewer units than cores.
    """
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    units = -(-count // unit)
    start, stop = units * me // cores, units * (me + 1) // cores
    return min(start * unit, count), min(stop * unit, count)
