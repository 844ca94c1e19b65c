"""Tiles and tensors of Beta 1: views by index expressions, operators that give new tiles.

A `Tile` is one tensor in HBM, SBUF or PSUM, or a view of it. A view by index expressions may reach
outside its tensor as long as a mask cuts that off, so bounds are checked when it is used
(`resolve`). A `BlockTile` has block dimensions in front of the partition dimension: every block is
a tensor of its own, which is what Beta 1 allocates.

Follows: "NKI Programming Model" and "Block dimension" of the NKI 0.1 documentation (SDK 2.26).
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

import numpy as np

from nki_dist.compat.beta1.mask import Box, Mask
from nki_dist.compat.beta1.operators import Operators
from nki_dist.compat.beta1.select import Guard, cut, operand_box, select
from nki_dist.compat.beta1.state import state
from nki_dist.errors import NkiValidationError, OutOfBoundsError
from nki_dist.isa.spec import current_tracer, tracing
from nki_dist.language import emit
from nki_dist.language.tensor import NkiTensor


class Tile(Operators):
    """A tensor or a view of one.

    Attributes:
        access: the access pattern.
        guards: bounds still to be checked.
        mask: the part that the masked instruction that made it wrote; None for all.
    """

    __slots__ = ("__weakref__", "access", "borrowed", "guards", "mask")

    def __init__(
        self,
        access: NkiTensor,
        guards: tuple[Guard, ...] = (),
        mask: Box | None = None,
    ) -> None:
        self.access = access
        self.borrowed = False  # `access` is of a tile it was assigned to
        self.guards = guards
        self.mask = mask

    shape = property(lambda self: self.access.shape)
    dtype = property(lambda self: self.access.dtype)
    ndim = property(lambda self: len(self.access.shape))
    itemsize = property(lambda self: self.access.dtype.itemsize)
    size = property(lambda self: prod(self.access.shape))
    buffer = property(lambda self: self.access.buffer)
    on_chip = property(lambda self: self.access.storage.region.on_chip)
    name = property(lambda self: self.access.name)

    def __repr__(self) -> str:
        shown = current_tracer().shown(self.access) if tracing() else ""
        return f"<tile {self.shape} {self.dtype} in {self.buffer.value}{shown}>"

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy of its values at this moment, in a debugged kernel; see NkiTensor.numpy."""
        return self.access.numpy()

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Tile]:
        return (self[n] for n in range(self.shape[0]))

    def __bool__(self) -> bool:
        return bool(self.access)

    def __getitem__(self, key: Any) -> Tile:
        if isinstance(key, (Mask, bool, np.bool_)):
            box = operand_box(key, self.shape)
            return OperandTile(self.access, self.guards, box=box)
        view = self._whole()
        found = select(view, key, self.on_chip)
        if found[0] is view:
            return self
        return Tile(*found)

    def resolve(self, box: Box | None = None) -> NkiTensor:
        """The access pattern, bounds checked, cut to a box."""
        for guard in self.guards:
            guard.check(box, self.access.storage.label)
        return cut(self.access, box)

    def unshare(self) -> None:
        """Stop sharing a storage: it is about to be written, or a view of this tile is made."""
        if self.borrowed:
            self.borrowed = False
            self.access = emit.copy(self.access, None)

    def borrow(self, access: NkiTensor) -> None:
        """Be another name for where its instruction now writes."""
        self.access = access
        self.borrowed = True
        state().lend(access.storage, self)

    # ---- other shapes and types --------------------------------------------------------------

    def _whole(self) -> NkiTensor:
        for guard in self.guards:
            guard.check(None, self.access.storage.label)
        self.unshare()
        return self.access

    def reshape(self, shape: Any, *more: int) -> Tile:
        """The same elements in another shape."""
        sizes = (shape, *more) if hasattr(shape, "__index__") else tuple(shape)
        return Tile(self._whole().reshape(tuple(int(n) for n in sizes)))

    def view(self, dtype: Any) -> Tile:
        """The same bytes as another dtype."""
        return Tile(self._whole().view(dtype))

    def astype(self, dtype: Any) -> Tile:
        """A copy converted to another dtype."""
        return Tile(emit.copy(self.resolve(), dtype))

    def broadcast_to(self, shape: Any) -> Tile:
        """The tile repeated along dimensions of size 1, to a shape of the same rank or more."""
        shape = tuple(int(n) for n in shape)
        view = self.resolve()
        more = len(shape) - len(view.shape)
        sizes = (view.shape[0], *(1,) * more, *view.shape[1:])
        if more < 0 or any(n not in (1, m) for n, m in zip(sizes, shape)):
            raise NkiValidationError(
                f"a tile of shape {view.shape} broadcast to {shape}",
                code="shape-broadcast",
                numbers={"got": view.shape, "allowed": shape},
            )
        return Tile(emit.spread(view, shape))

    def expand_dims(self, axis: int) -> Tile:
        """A new dimension of size 1."""
        return Tile(self._whole().expand_dim(axis % (self.ndim + 1)))

    def assert_shape(self, shape: Any) -> Tile:
        """Itself, if it has that shape."""
        if tuple(shape) != self.shape:
            raise NkiValidationError(
                f"a tile of shape {self.shape}, asserted {tuple(shape)}",
                code="shape-mismatch",
                numbers={"got": self.shape, "allowed": shape},
            )
        return self


class OperandTile(Tile):
    """An operand of a matmul of which only a box takes part."""

    __slots__ = ("box",)

    def __init__(self, *args: Any, box: Box) -> None:
        super().__init__(*args)
        self.box = box

    def __getitem__(self, key: Any) -> Tile:
        if not isinstance(key, (Mask, bool, np.bool_)):
            raise NkiValidationError(
                "a subscript of a tile that is subscripted by a mask already; write masks last, as "
                "in tile[i_p, i_f][i_f < 64]",
                code="mask-unsupported",
            )
        return OperandTile(self.access, self.guards, box=operand_box(key, self.shape, self.box))

    def resolve(self, box: Box | None = None) -> NkiTensor:
        """Refused: only matmuls know what the rest of the result is then."""
        message = "a tile subscripted by a mask is only for matmuls; use mask="
        raise NkiValidationError(message, code="mask-unsupported")

    def part(self) -> NkiTensor:
        """The box of it that takes part."""
        return Tile(self.access, self.guards).resolve(self.box)


class BlockTile(Operators):
    """A tensor with block dimensions: an array of tiles that have their own storages."""

    __slots__ = ("__weakref__", "tiles")

    def __init__(self, tiles: np.ndarray) -> None:
        self.tiles = tiles

    first = property(lambda self: self.tiles.flat[0])
    shape = property(lambda self: self.tiles.shape + self.first.shape)
    dtype = property(lambda self: self.first.dtype)
    ndim = property(lambda self: len(self.shape))
    itemsize = property(lambda self: self.first.dtype.itemsize)
    buffer = property(lambda self: self.first.buffer)
    on_chip = True

    def __repr__(self) -> str:
        return f"<blocks {self.tiles.shape} of {self.first!r}>"

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, key: Any) -> Any:
        key = key if isinstance(key, tuple) else (key,)
        blocks = self.tiles.ndim
        outer, inner = tuple(_block(k) for k in key[:blocks]), key[blocks:]
        if len(outer) < blocks:
            raise _not_blocks(f"{len(outer)} of {blocks} block dimensions indexed by {key}")
        if any(not -n <= k < n for k, n in zip(outer, self.tiles.shape)):
            raise OutOfBoundsError(
                f"block {outer} of a tensor with blocks {self.tiles.shape}",
                code="index-range",
                numbers={"got": outer, "blocks": self.tiles.shape},
            )
        chosen = self.tiles[outer]
        return chosen[inner] if inner else chosen


def _block(key: Any) -> int:
    """A subscript of a block dimension."""
    if not hasattr(key, "__index__"):
        raise _not_blocks(f"block dimension indexed by {key}")
    return int(key.__index__())


def _not_blocks(what: str) -> NkiValidationError:
    return NkiValidationError(
        f"{what}; blocks are separate tiles, so each of their dimensions has an int or a loop "
        "variable (or make it a free dimension, after the partition dimension)",
        code="beta1-blocks",
    )
