"""Running kernels and single instructions in tests, in this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import nki_dist
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import dtypes


def run(kernel: Callable[..., Any], *arrays: Any, platform: str = "trn2", lnc: int = 1) -> Any:
    """What the kernel returns for these arrays."""
    return nki_dist.simulate(nki_dist.jit(kernel, platform_target=platform))[lnc](*arrays)


def on_tiles(
    body: Callable[..., Any],
    inputs: Sequence[np.ndarray],
    outputs: Sequence[tuple[tuple[int, ...], Any]],
    platform: str = "trn2",
    psum: Sequence[int] = (),
) -> list[np.ndarray]:
    """Call `body(*input tiles, *output tiles)` and return the output tiles' contents.

    Args:
        inputs: arrays (P, ...) copied to SBUF tiles first.
        outputs: (shape, dtype) of tiles, filled with 7 first.
        psum: positions, among all tiles, of those that live in PSUM.
    """

    def kernel(*arrays: Any) -> Any:
        tiles = []
        for n in range(len(arrays)):
            a = arrays[n]
            tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=a)
            if n in psum:
                inside = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.psum)
                nisa.tensor_copy(dst=inside, src=tile)
                tile = inside
            tiles.append(tile)
        for k in range(len(outputs)):
            shape, dtype = outputs[k]
            place = nl.psum if len(arrays) + k in psum else nl.sbuf
            tile = nl.ndarray(shape, dtype=dtypes.of(dtype), buffer=place)
            nisa.memset(dst=tile, value=7)
            tiles.append(tile)
        body(*tiles)
        results = []
        for n in range(len(arrays), len(tiles)):
            tile = tiles[n]
            if n in psum:
                outside = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(dst=outside, src=tile)
                tile = outside
            result = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=result, src=tile)
            results.append(result)
        return tuple(results)

    results = run(kernel, *inputs, platform=platform)
    return [np.asarray(r) for r in (results if isinstance(results, (tuple, list)) else [results])]


def output(tile: Any) -> Any:
    """In a kernel: the tile's contents in shared_hbm, to be returned."""
    out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=tile)
    return out


def numbers(seed: int, shape: tuple[int, ...], dtype: Any = np.float32, scale: float = 3.0) -> Any:
    """Reproducible test data: normal floats, or integers over the type's small range."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(dtype)
    if dtype.kind in "iu":
        low = -100 if dtype.kind == "i" else 0
        return rng.integers(low, 100, shape).astype(dtype)
    return (rng.standard_normal(shape) * scale).astype(np.float32).astype(dtype)


def rounded(values: np.ndarray, dtype: Any) -> np.ndarray:
    """float64 values as an instruction would store them, compared as float64."""
    dtype = np.dtype(dtype)
    single = values.astype(np.float32)
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return np.clip(np.rint(single.astype(np.float64)), info.min, info.max)
    return single.astype(dtype).astype(np.float64)
