"""Subscripts of tiles: ints, slices and `nl.ds`, or index expressions and tiles of row numbers.

Index expressions, one for each dimension, follow NumPy's advanced indexing, resolved to an access
pattern: result axis a has the stride `sum(step[a] * stride of the indexed dimension)`. On chip,
dimension 0 is the partition: only axis 0 of the result may depend on its index, and on nothing
else.

Follows: `nki.language` "Tile Indexing" of the NKI 0.1 documentation (SDK 2.26).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_dist.codes.picture import outside
from nki_dist.compat.beta1.index import Index
from nki_dist.compat.beta1.mask import Box, Mask, joint_shape
from nki_dist.errors import NkiValidationError, OutOfBoundsError
from nki_dist.language.tensor import NkiTensor, ds, make
from nki_dist.program import Dynamic


@dataclass(frozen=True)
class Guard:
    """An index expression that has to stay in [0, size) where the view is used."""

    index: Index
    size: int
    dim: int

    def check(self, box: Box | None, label: str) -> None:
        low, high = self.index.bounds(box)
        if low < 0 or high >= self.size:
            raise OutOfBoundsError(
                f"index from {low} to {high} on dimension {self.dim} of size {self.size} of "
                f"{label}; use mask= to leave out what is outside",
                code="index-range",
                numbers={"low": low, "high": high, "size": self.size, "dim": self.dim},
                picture=outside(label, (*[1] * self.dim, self.size), self.dim, [(low, high + 1)]),
            )


Selection = tuple[NkiTensor, tuple[Guard, ...]]  # of a tile


def select(view: NkiTensor, key: Any, on_chip: bool) -> Selection:
    """`view[key]`; the view itself if nothing changes.

    Args:
        key: ints, slices, index expressions and so on; no mask.
        on_chip: whether dimension 0 is the partition.
    """
    key = key if isinstance(key, tuple) else (key,)
    if not any(isinstance(k, Index) or _is_tile(k) or k is None for k in key):
        if on_chip and len(key) > len(view.shape):
            raise NkiValidationError(
                f"{len(key)} subscripts of a tile of shape {view.shape}",
                code="index-count",
                numbers={"got": len(key), "most": len(view.shape)},
            )
        return view[tuple(_plain(k) for k in key)], ()
    if any(k is None for k in key):
        if key == (slice(None), None) and view.shape[1:] == (1,):
            return view, ()  # one number per partition has shape (P, 1) already
        raise NkiValidationError(
            "None in a subscript together with index expressions; use nl.expand_dims, or None in "
            "the index expression: nl.arange(n)[:, None]",
            code="index-kind",
        )
    indices = _indices(view, key)
    rows = next((d for d, k in enumerate(indices) if _is_tile(k)), None)
    if rows is not None:
        return _by_rows(view, indices, rows, on_chip)
    return _by_index(view, indices, on_chip)


def _is_tile(key: Any) -> bool:
    """Whether a subscript is a tile, which is made of what this file gives."""
    return hasattr(key, "resolve")


def cut(view: NkiTensor, box: Box | None) -> NkiTensor:
    """A box of a view; dimensions of size 1 repeat and aren't cut."""
    if box is None:
        return view
    offset, shape = view.offset, []
    dynamic = view.dynamic
    for n, stride, (lo, hi) in zip(view.shape, view.strides, box):
        whole = n == 1
        shape.append(1 if whole else hi - lo)
        indexed = dynamic is not None and dynamic.kind == "vector" and not shape[1:]
        offset += 0 if whole or indexed else lo * stride
    if dynamic is not None and dynamic.kind == "vector" and box[0] != (0, view.shape[0]):
        rows = cut(dynamic.source, (box[0], (0, 1)))
        dynamic = dynamic.of(rows)
    return make(view.storage, offset, tuple(shape), view.strides, view.dtype, dynamic)


def operand_box(
    key: Mask | bool | np.bool_, shape: tuple[int, ...], kept: Box | None = None
) -> Box:
    """`tile[mask]`, the operand of a matmul: the box of the tile that takes part.

    Args:
        key: a comparison of loop indices only is a bool here, since loops are unrolled.
        shape: of the tile.
        kept: what a mask before this one has left of it, as in `tile[mask][mask]`.
    """
    if isinstance(key, Mask):
        box = key.over(shape).box()
    else:
        box = tuple((0, n if key else 0) for n in shape)
    if kept is not None:
        box = tuple((max(a, lo), min(b, hi)) for (a, b), (lo, hi) in zip(kept, box))
    if any(lo >= hi for lo, hi in box):
        raise NkiValidationError(
            "a tile subscripted by a mask (the operand of a matmul) needs bounds of each index "
            "that leave something, such as i_f < 64",
            code="mask-shape",
        )
    return box


def _plain(key: Any) -> Any:
    if isinstance(key, (slice, ds)) or key is Ellipsis:
        return key
    if not hasattr(key, "__index__"):
        raise NkiValidationError(
            f"subscript {key!r} of type {type(key).__name__}; allowed: ints, slices, nl.ds, index "
            "expressions (nl.arange, nl.mgrid) and tiles of integers",
            code="index-kind",
        )
    return key.__index__()


def _indices(view: NkiTensor, key: tuple) -> list[Any]:
    """Index expressions and tiles, one for each dimension; an int is an index of one number."""
    if any(isinstance(k, (slice, ds)) or k is Ellipsis for k in key):
        raise NkiValidationError(
            f"slices, nl.ds or ... beside index expressions in a subscript of {view.storage.label}"
            "; write an index expression for each dimension, such as nl.arange(16)[None, :]",
            code="index-kind",
        )
    if len(key) != len(view.shape):
        raise NkiValidationError(
            f"{len(key)} subscripts for {len(view.shape)} dimensions; beside index expressions "
            "each dimension has one",
            code="index-count",
            hint="write an index expression, or an int, for each dimension",
            numbers={"got": len(key), "allowed": len(view.shape)},
        )
    found: list[Any] = []
    for k, n in zip(key, view.shape):
        if not isinstance(k, Index) and not _is_tile(k):
            number = _plain(k)
            k = Index((), number + n if number < 0 else number, ())
        found.append(k)
    return found


def _by_index(view: NkiTensor, indices: list[Index], on_chip: bool) -> Selection:
    shape = joint_shape([index.shape for index in indices], "index expressions")
    indices = [index.spread(shape) for index in indices]
    guards = []
    for d, index in enumerate(indices):
        low, high = index.bounds()
        if low < 0 or high >= view.shape[d]:
            guards.append(Guard(index, view.shape[d], d))
    if on_chip:
        _check_partition(view, indices)
    pairs = list(zip(indices, view.strides))
    offset = view.offset + sum(index.start * stride for index, stride in pairs)
    strides = [sum(index.steps[a] * stride for index, stride in pairs) for a in range(len(shape))]
    made = make(view.storage, offset, shape, tuple(strides), view.dtype, view.dynamic)
    return _ranked(made), tuple(guards)


def _ranked(view: NkiTensor) -> NkiTensor:
    """A tile has at least two dimensions."""
    least = 2 if view.storage.region.on_chip else 1
    while len(view.shape) < least:
        view = make(
            view.storage,
            view.offset,
            (*view.shape, 1),
            (*view.strides, 1),
            view.dtype,
            view.dynamic,
        )
    return view


def _check_partition(view: NkiTensor, indices: list[Index]) -> None:
    """Of an on-chip tile only axis 0 goes over partitions, and over nothing else."""
    for d, index in enumerate(indices):
        axes = [a for a, (s, n) in enumerate(zip(index.steps, index.shape)) if s and n > 1]
        wrong = [a for a in axes if (a == 0) != (d == 0)]
        if wrong:
            what = "the partition dimension (0)" if d == 0 else f"free dimension {d}"
            raise NkiValidationError(
                f"{what} of {view.storage.label} is indexed by {index}, which varies along axis "
                f"{wrong[0]} of the result; axis 0, and only it, goes over partitions",
                code="partition-dimension",
            )


def _by_rows(view: NkiTensor, key: list[Any], dim: int, on_chip: bool) -> Selection:
    """Rows chosen at run time: `tensor[tile of integers, index expressions]`."""
    rows = key[dim]
    if on_chip or sum(map(_is_tile, key)) > 1 or not rows.on_chip:
        raise NkiValidationError(
            "a subscript by a tile chooses rows of a tensor in HBM: one subscript, a tile of "
            f"integers in SBUF; got {rows!r} for dimension {dim} of {view.storage.label}",
            code="indirect-index",
        )
    source = rows.resolve()
    if source.free_size != 1:
        message = f"row numbers of shape {source.shape}; allowed: one per partition, (P, 1)"
        raise NkiValidationError(message, code="indirect-index", numbers={"got": source.shape})
    rank = max([len(k.shape) for k in key if isinstance(k, Index)], default=1)
    anywhere = Index((source.shape[0], *(1,) * (rank - 1)), 0, (0,) * rank)
    pattern, guards = _by_index(view, [*key[:dim], anywhere, *key[dim + 1 :]], on_chip)
    if pattern.shape[0] != source.shape[0]:
        raise NkiValidationError(
            f"{source.shape[0]} row numbers for a result of shape {pattern.shape}; dimension 0 of "
            "the result goes over the row numbers",
            code="shape-mismatch",
            numbers={"got": source.shape[0], "allowed": pattern.shape[0]},
        )
    dynamic = Dynamic("vector", source, view.strides[dim], view.shape[dim], dim)
    strides = (view.strides[dim], *pattern.strides[1:])
    made = make(view.storage, pattern.offset, pattern.shape, strides, view.dtype, dynamic)
    return made, guards
