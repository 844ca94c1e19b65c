"""Operands of matmuls gathered as float32 matrices, and where these lie while a program runs.

A panel is filled where the matmuls read their operands, and kept as long as later ones multiply the
same elements, which nobody has written since. Panels that aren't needed at the same time share
memory, as do those of all programs of a thread: they never outlive an instruction that waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from nki_dist.dtypes import bfloat16, float32
from nki_dist.isa.kit import Kit
from nki_dist.linking.memory import Life, sharing
from nki_dist.ops.arrays import cast
from nki_dist.ops.operation import Operation, op
from nki_dist.ops.place import Place
from nki_dist.program import Access

KEPT: Final = 64 << 20  # bytes of panels that wait for another use


@dataclass(eq=False, slots=True)
class Panel:
    """A float32 matrix that is there from one position of a program to another.

    Attributes:
        number: its space is ("panel", number).
        there: where it is, if it lies in the operands' own memory.
    """

    number: int
    shape: tuple[int, int]
    start: int
    end: int
    there: Place | None = None

    @property
    def nbytes(self) -> int:
        return 4 * self.shape[0] * self.shape[1] if self.there is None else 0

    @property
    def place(self) -> Place:
        """Where it is."""
        if self.there is not None:
            return self.there
        space = ("panel", self.number)
        return Place(space, 0, self.shape, (4 * self.shape[1], 4), np.dtype(np.float32))


@dataclass(eq=False, slots=True)
class Part:
    """An operand's place in a panel.

    Attributes:
        at: position of the instruction that brings it there.
    """

    access: Access
    rows: int
    row: int
    at: int

    def fill(self, panel: Place, kit: Kit) -> Operation:
        """What brings it there."""
        a, shape = self.access, (self.rows, self.access.size // self.rows)
        at = panel.offset + self.row * panel.strides[0]
        place = Place(panel.space, at, shape, panel.strides, panel.dtype)
        place = place if a.shape == shape else place.reshape(a.shape)
        if a.dtype is bfloat16:  # as `convert` does, which looks whether they overlap
            return op(cast, place, kit.view(a))
        return op(kit.convert(a.dtype, float32), place, kit.view(a))


def lying(parts: Sequence[Part], width: int) -> Access | None:
    """The panel as a view of an argument, if its parts lie there as they would in the panel.

    BLAS copies what it multiplies into blocks of its own, so that rows are further apart than they
    are long makes no difference to its sums.

    Args:
        parts: of a panel, none written while the program runs.
    """
    first = parts[0].access
    if first.dtype is not float32 or first.storage.role != "input":
        return None
    down = first.strides[0]
    if down < width:  # NumPy copies what BLAS doesn't take, at every product
        return None
    for part in parts:
        a = part.access
        if (
            a.storage is not first.storage
            or a.dtype is not float32
            or (a.shape, a.strides) != ((part.rows, width), (down, 1))
            or a.offset != first.offset + part.row * down
        ):
            return None
    rows = sum(part.rows for part in parts)
    return Access(first.storage, first.offset, (rows, width), (down, 1), float32)


def assign(
    panels: Iterable[Panel], lives: Mapping[int, Life] | None = None
) -> dict[int, tuple[int, int]]:
    """A place for each panel, by number: bytes, and the number among those of this size.

    Args:
        lives: of the panels by number; as the program's order has it if None.
    """
    requests = []
    for panel in panels:
        size = max(1 << (panel.nbytes - 1).bit_length(), 64)
        life = Life(panel.start, panel.end) if lives is None else lives[panel.number]
        requests.append(((size, True), life, panel.number))
    return {name: (size, number) for name, ((size, _), number) in sharing(requests).items()}
