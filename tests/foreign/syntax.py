"""Kernels of our own in the Python that published kernels are written in.

No comment says which rule each line once broke: what counts is that published kernels have it, that
it gives the right values, and that nothing is warned of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.foreign.written import Written, whole


def buffers(count: int, rotations: int | None, shape: tuple[int, ...], dtype: nki.dtype) -> list:
    """Lists of tiles, made by comprehensions; one list for each rotation."""
    made: Any = [
        [nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf) for _ in range(count)]
        for _ in range(1 if rotations is None else rotations)
    ]
    return made[0] if rotations is None else made


def filled(tile, value, dtype: nki.dtype = None):
    """A helper that refuses in its own words, and never comes to it."""
    if tile.shape[0] > nl.tile_size.pmax:
        raise ValueError(f"{tile.shape[0]} rows")
    assert dtype is None or tile.dtype == dtype
    nisa.memset(tile, value=value)


@dataclass
class Sizes(nl.NKIObject):
    """What a kernel is told of its tiles."""

    rows: int
    columns: int

    def half(self) -> int:
        """Columns of one of two tiles."""
        return self.columns // 2


def adds_halves(x):
    """Twice the input, and 3 more: by halves of its columns, from lists of tiles."""
    sizes = Sizes(x.shape[0], x.shape[1])
    assert sizes.columns % 2 == 0, f"an odd number of columns: {sizes.columns}"
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    half = sizes.half()
    tiles = buffers(2, None, (sizes.rows, half), x.dtype)
    sums = buffers(2, 2, (sizes.rows, half), x.dtype)
    kept = sums[1] if sizes.rows > 0 else sums[0]
    for n in range(len(tiles)):
        begin = n * half
        part = x[:, begin : begin + half]
        nisa.dma_copy(tiles[n], part)
        filled(kept[n], 3.0)
        nisa.tensor_tensor(kept[n], kept[n], tiles[n], nl.add)
        nisa.tensor_tensor(kept[n], kept[n], tiles[n], nl.add)
        nisa.dma_copy(out[:, begin : begin + half], kept[n])
    return out


def walks(x, steps=4, bias=None, order="forward"):
    """The input and 1: its columns step by step, as kernels walk that plan their tiles."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    step: int = int(columns / float(steps))
    whole, rest = divmod(columns, step)
    print("steps", whole, "rest", rest)
    named = {"forward": 1, "backward": -1}
    assert order in named and order not in ("none",), f"order={order}"
    kept = list(x.shape)
    shape = tuple(kept)
    done = 0
    visited = []
    while True:
        width = min(step, columns - done)
        tile = nl.ndarray((shape[0], max(width, 1)), dtype=x.dtype, name="tile" + str(done))
        nisa.dma_copy(tile, x[:, done : done + width])
        amount = 1.0 if bias is None else bias
        if bias is not None and isinstance(bias, float):
            amount = float(bias)
        nisa.tensor_scalar(tile, tile, nl.add, amount)
        nisa.dma_copy(out[:, done : done + width], tile)
        visited.append(done)
        done += width
        if done >= columns:
            break
    assert len(visited) == whole + (1 if rest else 0) and rows // 1 == rows
    for n in range(len(visited)):
        if visited[n] < 0:
            continue
        assert abs(visited[n]) ** 2 >= 0
    return out


SYNTAX = {
    "adds_halves": Written(adds_halves, (whole(8, 12),), lambda x: 2 * x + 3),
    "walks": Written(walks, (whole(8, 13),), lambda x: x + 1),
}
