"""Where on the Tensor engine's array an instruction works."""

from __future__ import annotations

from typing import NamedTuple


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
