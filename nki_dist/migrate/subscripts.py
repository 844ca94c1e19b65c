"""Writes index expressions of Beta 1 as slices or access patterns.

`x[i, j]` has the shape that its index expressions broadcast to. If each of them counts one
dimension, in order, that is a slice; else it is the access pattern with the same addresses.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace

from nki_dist.migrate.values import (
    INT,
    Blocks,
    Index,
    Mask,
    Number,
    Tensor,
    Undecided,
    Value,
    both,
    least,
    minus,
    plus,
    times,
    wrapped,
)


def parsed(text: str) -> ast.expr:
    """An expression."""
    return ast.parse(text, mode="eval").body


def limits(mask: Mask | None) -> dict[int, str]:
    """How much of each dimension a mask leaves.

    Raises:
        Undecided: a comparison isn't one of a single dimension, counted by ones.
    """
    found: dict[int, str] = {}
    for index, bound in mask.terms if mask is not None else ():
        if len(index.terms) != 1 or index.terms[0][1] != "1":
            raise Undecided("a mask compares an expression of several dimensions, or of a multiple")
        dim = index.terms[0][0]
        size = least(found.get(dim, index.sizes[dim]), minus(bound, index.start))
        found[dim] = size
    return found


def bounded(keys: Sequence[Value], left: dict[int, str]) -> list[Value]:
    """Index expressions cut to what a mask leaves."""
    made: list[Value] = []
    for key in keys:
        if isinstance(key, Index):
            sizes = tuple(left.get(d, n) for d, n in enumerate(key.sizes))
            key = replace(key, sizes=sizes)
        made.append(key)
    return made


def shape_of(keys: Sequence[Value], equal: list[tuple[str, str]] | None = None) -> list[str]:
    """Sizes of what index expressions choose; pairs that have to be equal go to `equal`."""
    indices = [k for k in keys if isinstance(k, Index)]
    if len({len(k.sizes) for k in indices}) != 1:
        raise Undecided("index expressions of different ranks in one subscript")
    shape = list(indices[0].sizes)
    for index in indices[1:]:
        shape = [both(m, n, equal) for m, n in zip(shape, index.sizes)]
    return shape


def selected(
    base: str,
    keys: Sequence[Value],
    nodes: Sequence[ast.expr],
    equal: list[tuple[str, str]],
    whole: bool,
) -> str:
    """The text of `base[keys]`, where at least one key is an index expression.

    Sizes that have to be equal for it go to `equal`; `whole` says that the base isn't a view.

    Raises:
        Undecided: it mixes them with slices, or the rank isn't known.
    """
    shape = shape_of(keys, equal)
    if any(isinstance(n, ast.Slice) for n in nodes):
        raise Undecided("index expressions and slices in one subscript")
    found = _slices(keys, nodes, shape)
    if found is not None:
        return f"{base}[{found}]"
    if not whole:
        raise Undecided("an access pattern of a view")
    starts = [k.start if isinstance(k, Index) else ast.unparse(n) for k, n in zip(keys, nodes)]
    strides = []
    for d in range(len(keys)):
        stride = "1"
        for e in range(d + 1, len(keys)):
            stride = times(stride, f"{base}.shape[{e}]")
        strides.append(stride)
    pattern = []
    for dim, size in enumerate(shape):
        step = "0"
        for key, stride in zip(keys, strides):
            factor = dict(key.terms).get(dim, "0") if isinstance(key, Index) else "0"
            step = plus(step, times(factor, stride))
        pattern.append(f"[{step}, {size}]")
    offset = "0"
    for start, stride in zip(starts, strides):
        offset = plus(offset, times(start, stride))
    more = "" if offset == "0" else f", offset={offset}"
    return f"{base}.ap([{', '.join(pattern)}]{more})"


def _slices(keys: Sequence[Value], nodes: Sequence[ast.expr], shape: list[str]) -> str | None:
    """The same as slices, if each dimension is counted once, in order."""
    used: list[int] = []
    texts = []
    for key, node in zip(keys, nodes):
        if not isinstance(key, Index):
            texts.append(ast.unparse(node))
            continue
        if len(key.terms) != 1 or key.terms[0][1] != "1":
            return None
        dim = key.terms[0][0]
        used.append(dim)
        texts.append(f"{key.start}:{plus(key.start, shape[dim])}")
    if used != sorted(set(used)):
        return None
    spare = [d for d in range(len(shape)) if d not in used]
    if any(shape[d] != "1" for d in spare):
        return None
    for dim in spare:  # a dimension of one, where an int would drop it
        if dim != len(shape) - 1 or ":" in texts[-1]:
            return None
        texts[-1] = f"{texts[-1]}:{plus(wrapped(texts[-1]), '1')}"
    return ", ".join(texts)


def of_blocks(blocks: Blocks, keys: Sequence[Value], nodes: Sequence[ast.expr]) -> str:
    """Subscripts of lists.

    Raises:
        Undecided: they don't choose one tile.
    """
    chosen = keys[: blocks.depth]
    if len(chosen) < blocks.depth or not all(isinstance(k, Number) for k in chosen):
        raise Undecided("a block is chosen by something that isn't plainly a number")
    return "".join(f"[{ast.unparse(n)}]" for n in nodes[: blocks.depth])


def plain_rank(tensor: Tensor, keys: Sequence[ast.expr], values: Sequence[Value]) -> int | None:
    """Dimensions of a view by slices and numbers; None if not known."""
    if tensor.rank is None:
        return None
    if any(isinstance(k, ast.Constant) and k.value in (None, ...) for k in keys):
        whole = len(keys) == 1 and isinstance(keys[0], ast.Constant) and keys[0].value is ...
        return tensor.rank if whole else None
    dropped = 0
    for n, (key, value) in enumerate(zip(keys, values)):
        if isinstance(key, ast.Slice):
            continue
        if value == INT or (isinstance(value, Number) and value.kind != "float"):
            dropped += not (tensor.where in ("sbuf", "psum") and n == 0)
        elif not (isinstance(key, ast.Call) and ast.unparse(key.func).endswith((".ds", "ds"))):
            return None
    rank = tensor.rank - dropped
    return max(rank, 2) if tensor.where in ("sbuf", "psum") else rank
