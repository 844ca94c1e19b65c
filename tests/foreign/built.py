"""Kernels built around one instruction: operands of given memories, dtypes and forms, and values.

A `Case` says of every operand where it lies, of which dtype it is and how its elements lie in its
tile. `Case.run()` compiles and runs such a kernel through the public interface, and gives what each
written tile holds in whole, so that what must stay is compared as well.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import dtypes

ROWS, COLUMNS = 8, 12
PLAIN = "rank 2"


@dataclass(frozen=True)
class Operand:
    """A tile, and the part of it that an instruction gets.

    Attributes:
        memory: "sbuf", "psum" or "hbm".
        dtype: by name, of the view.
        form: how the part lies, in the words of `constructs`.
        rows, columns: of the part.
    """

    memory: str
    dtype: str
    form: str = PLAIN
    rows: int = ROWS
    columns: int = COLUMNS

    @property
    def held(self) -> str:
        """The dtype of the tile, where the part is a view of another; else ""."""
        before, _, after = self.form.partition(" as ")
        return before if after else ""

    @property
    def layout(self) -> tuple[tuple[int, int], list[list[int]], int]:
        """The tile's shape, the pattern of the part in it, and where that begins."""
        p, f = self.rows, self.columns
        row = f
        if self.form == "steps in the last dimension":
            row = 2 * f
            return (p, row), [[row, p], [2, f]], 0
        if self.form == "stride below 0":
            return (p, row), [[row, p], [-1, f]], f - 1
        if self.form == "stride 0":
            return (p, row), [[row, p], [0, 2], [1, f // 2]], 0
        if self.form == "partitions by other steps":
            return (2 * p, row), [[2 * row, p], [1, f]], 0
        if self.form.startswith("from "):
            word = self.form.rpartition(" ")[2]
            start = int(word) if word.isdigit() else 9
            return (start + p, row), [[row, p], [1, f]], start * row
        rank = int(self.form.rpartition(" ")[2]) if self.form.startswith("rank") else 2
        return (p, row), [[row, p], *_factors(f, rank - 1)], 0

    def elements(self) -> np.ndarray:
        """Which elements of the flattened tile the part has, in order, as (rows, columns)."""
        _, pattern, offset = self.layout
        index = np.array(offset)
        for stride, count in pattern:
            index = index[..., None] + stride * np.arange(count)
        return index.reshape(self.rows, self.columns)


def _factors(n: int, rank: int) -> list[list[int]]:
    """A pattern of so many dimensions that counts n elements one after the other."""
    counts = [2] * min(rank - 1, 2) + [1] * max(rank - 3, 0)
    counts.append(n // int(np.prod(counts)) if counts else n)
    strides = [int(np.prod(counts[k + 1 :])) for k in range(len(counts))]
    return [[s, c] for s, c in zip(strides, counts)]


Call = Callable[..., Any]


@dataclass
class Case:
    """One instruction.

    Attributes:
        call: makes it, from the operands' views by name.
        written: names of the operands that it writes.
        wanted: values of the written parts from those of all parts, float64 or exact integers.
        tolerance: relative; 0 where results are rounded once and so compared exactly.
        same: whether bits move, so that no value is converted.
    """

    operands: dict[str, Operand]
    call: Call
    written: tuple[str, ...]
    wanted: Callable[..., Any]
    tolerance: float = 0.0
    platform: str = "trn2"
    lnc: int = 1
    arrays: dict[str, np.ndarray] = field(default_factory=dict)

    def inputs(self) -> dict[str, np.ndarray]:
        """What every tile holds before; small whole numbers, exact in every dtype."""
        if not self.arrays:
            for n, (name, operand) in enumerate(self.operands.items()):
                rng = np.random.default_rng(n + 1)
                values = rng.integers(1, 6, operand.layout[0])
                self.arrays[name] = stored(values, operand.dtype)
        return self.arrays

    def kernel(self) -> Any:
        operands, call, written = self.operands, self.call, self.written

        def kernel(**arrays):
            views, tiles = {}, {}
            for name in arrays:
                operand = operands[name]
                tile = placed(arrays[name], operand)
                tiles[name] = tile
                _, pattern, offset = operand.layout
                views[name] = tile.ap(pattern=pattern, offset=offset)
            call(**views)
            outs = []
            for name in written:
                outs.append(brought_back(tiles[name]))
            return tuple(outs)

        return nki.simulate(nki.jit(kernel, platform_target=self.platform))[self.lnc]

    def run(self) -> Any:
        """Compare every element of the written tiles; the compiled kernel."""
        arrays = self.inputs()
        kernel = self.kernel()
        compiled = kernel.compile(**arrays)
        got = kernel(**arrays)
        parts = {n: numbers(a, self.operands[n].dtype) for n, a in arrays.items()}
        parts = {n: a.reshape(-1)[self.operands[n].elements()] for n, a in parts.items()}
        results = self.wanted(**parts)
        results = results if isinstance(results, tuple) else (results,)
        for name, array, values in zip(self.written, got, results, strict=True):
            operand = self.operands[name]
            whole = numbers(arrays[name], operand.dtype).astype(np.float64).reshape(-1)
            whole[operand.elements()] = numbers(stored(values, operand.dtype), operand.dtype)
            found = numbers(np.asarray(array), operand.dtype).astype(np.float64).reshape(-1)
            np.testing.assert_allclose(found, whole, rtol=self.tolerance, atol=self.tolerance)
        return compiled


def placed(array, operand):
    """A tensor of a kernel that holds an array's contents, in the operand's memory."""
    dtype, memory = getattr(nl, operand.dtype), operand.memory
    if operand.dtype.endswith("_x4"):  # packed types are words in NumPy
        array = array.view(dtype)
    if operand.held:
        array = array.view(getattr(nl, operand.held))
    if memory == "hbm":
        tensor = nl.ndarray(array.shape, dtype=array.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(tensor, array)
        return tensor.view(dtype) if operand.held else tensor
    tile = nl.ndarray(array.shape, dtype=array.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, array)
    if memory == "psum":
        bank = nl.ndarray(array.shape, dtype=array.dtype, buffer=nl.psum)
        nisa.tensor_copy(bank, tile)
        tile = bank
    return tile.view(dtype) if operand.held else tile


def brought_back(tile):
    """A result with a tile's contents."""
    dtype = dtypes.of(tile.dtype)
    if dtype.is_mx:
        tile = tile.view(nl.uint16 if dtype.itemsize == 2 else nl.uint32)
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    if tile.buffer == nl.psum:
        copy = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(copy, tile)
        tile = copy
    nisa.dma_copy(out, tile)
    return out


def stored(values: Any, dtype: str) -> np.ndarray:
    """Values in a dtype's NumPy storage, rounded once."""
    values, made = np.asarray(values), dtypes.of(dtype)
    if made.is_integer and values.dtype.kind == "f":
        values = np.rint(values)
    return values.astype(made.storage)


def numbers(array: np.ndarray, dtype: str) -> np.ndarray:
    """The values of an array in NumPy: float64, or integers as they are."""
    return array if array.dtype.kind in "iu" else array.astype(np.float64)
