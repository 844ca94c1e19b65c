"""What a matmul multiplies, and where on the Tensor engine's array.

Invariant: `rows` of Factors is the length of the contraction, so left is `rows` x M and right
`rows` x N once all their dimensions but the first ones are flattened.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nki_dist.arch import Arch
from nki_dist.dtypes import float32
from nki_dist.program import Access


class ArrayTile(NamedTuple):
    """Rows and columns of the Tensor engine's array."""

    row: int
    column: int
    rows: int
    columns: int

    def overlaps(self, other: ArrayTile) -> bool:
        """Whether they have cells in common."""
        return (
            self.row < other.row + other.rows
            and other.row < self.row + self.rows
            and self.column < other.column + other.columns
            and other.column < self.column + self.columns
        )


def tile_sizes(cells: int, arch: Arch) -> list[int]:
    """Rows or columns, of so many that the array has, that its tiles can have."""
    return [size for size in (cells // 4, cells // 2, cells) if size >= arch.matmul_tile_min]


def tile_holding(size: Sequence[int], arch: Arch) -> tuple[int, ...]:
    """The smallest tile of the array with at least `size` rows and columns; 0 where none is."""
    array = (arch.partitions, arch.stationary_free_max)
    return tuple(
        min((s for s in tile_sizes(cells, arch) if s >= least > 0), default=0)
        for cells, least in zip(array, size, strict=True)
    )


class Factors(NamedTuple):
    """dst (M, N) (+)= left.T @ right, in float32."""

    dst: Access
    left: Access
    right: Access
    rows: int

    @property
    def is_static(self) -> bool:
        """Every address is known when a program is linked, and dst doesn't round sums."""
        fixed = self.dst.dynamic is self.left.dynamic is self.right.dynamic is None
        return fixed and self.dst.dtype is float32
