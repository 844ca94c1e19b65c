"""Tensors of collectives as arrays: copied out before they are sent, written back at the end.

Sources are always copied (or widened, which is a copy), because a kernel may overwrite them as soon
as the collective is over, while a message may not have been looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, cast

import numpy as np

from nki_dist.collectives.party import Array
from nki_dist.errors import NkiValidationError
from nki_dist.isa.kit import Kit
from nki_dist.program import Access, Instruction
from nki_dist.program.walk import operands, tensors


def bits(view: Array, make: Callable[..., Array]) -> Array:
    """A flat copy of a tensor's bits, in an array from `make(shape, dtype)`."""
    if make is np.empty:  # at once
        return view.flatten()
    copy = make(view.shape, view.dtype)
    copy[...] = view
    return copy.reshape(-1)


def blocks(array: Array, count: int, dim: int) -> Sequence[Array]:
    """Equal blocks along a dimension of a contiguous array, each flat and contiguous.

    Rows of one array where they lie one after the other anyhow.
    """
    if dim == 0 and array.size:
        return cast("Sequence[Array]", array.reshape(count, -1))
    return [np.ascontiguousarray(b).reshape(-1) for b in np.split(array, count, axis=dim)]


def store_flat(view: Array, parts: Sequence[Array]) -> None:
    """Write arrays that, one after the other, are the tensor's elements in row-major order."""
    if not view.flags.c_contiguous:
        view[...] = np.concatenate(parts).reshape(view.shape)
        return
    np.concatenate(parts, out=view.reshape(-1), casting="unsafe")


def store_blocks(view: Array, arrays: Sequence[Array], dim: int) -> None:
    """Write flat blocks, one after the other along `dim`, into a tensor."""
    if view.shape[dim] % len(arrays):  # only along dimension 0 of HBM: any split is contiguous
        store_flat(view, arrays)
        return
    step = view.shape[dim] // len(arrays)
    shape = tuple(step if d == dim else n for d, n in enumerate(view.shape))
    for number, array in enumerate(arrays):
        place = (slice(None),) * dim + (slice(number * step, (number + 1) * step),)
        view[place] = array.reshape(shape)


class Flat:
    """A tensor as a flat buffer of elements, also if its elements don't lie side by side.

    In a dry run it has no elements: what is read has a length and no memory, writes are dropped.
    """

    def __init__(self, a: Access, kit: Kit) -> None:
        self._view = kit.raw(a)
        self.size = prod(a.shape)
        self._hollow = self._view.size < self.size
        self.label = a.storage.label

    def read(self, start: int, count: int) -> Array:
        """A copy of a part."""
        if self._hollow:
            return np.broadcast_to(self._view.dtype.type(0), (count,))
        return np.array(self._view.reshape(-1)[start : start + count])

    def write(self, parts: Sequence[tuple[int, Array]]) -> None:
        """Write parts, given by where they start."""
        if self._hollow:
            return
        whole = self._view.reshape(-1)
        for start, array in parts:
            whole[start : start + len(array)] = array
        if not np.shares_memory(whole, self._view):
            self._view[...] = whole.reshape(self._view.shape)


def pattern(a: Access) -> tuple[Any, ...]:
    """Which elements of which tensor an operand is, in words that are equal on all cores."""
    s = a.storage
    return (s.role, s.index, a.offset, a.shape, a.strides, a.dtype.name)


def belongs_to_rank(i: Instruction, cores: int) -> bool:
    """Whether the tensors are the rank's, not the core's."""
    every = [a for name, a in operands(i.args) if name != "metadata_tensor"]
    kinds = {a.region.value == "shared_hbm" for a in every}
    if len(kinds) > 1 and cores > 1:
        raise NkiValidationError(
            f"{i.opcode} mixes tensors of the core (private_hbm) and of the rank (shared_hbm); "
            "with two cores per rank all must be of one kind",
            code="collective-memory",
        )
    return True in kinds


def larger_side(i: Instruction) -> int:
    """Bytes of the larger of what a collective reads and writes."""
    sides = [v for name, v in i.args.items() if name != "metadata_tensor"]
    return max(sum(a.nbytes for a in tensors(v)) for v in sides)
