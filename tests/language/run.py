"""Running kernels and functions on tiles, in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import nki_dist
import nki_dist.language as nl


def run(kernel: Callable[..., Any], *arrays: Any, platform: str = "trn2") -> Any:
    """What the kernel returns for these arrays."""
    return nki_dist.simulate(nki_dist.jit(kernel, platform_target=platform))(*arrays)


def on_tiles(function: Callable[..., Any], *arrays: np.ndarray, platform: str = "trn2") -> Any:
    """The values of `function(tiles...)`, a tile anywhere, for tiles loaded from `arrays`."""

    def kernel(*tensors: Any) -> Any:
        result = function(*[nl.load(t) for t in tensors])
        if result.buffer == nl.psum:
            result = nl.copy(result)
        out = nl.ndarray(result.shape, result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out

    return run(kernel, *arrays, platform=platform)


def line_of(function: Callable[..., Any], text: str) -> str:
    """`file:line` of the first line of a function that contains `text`."""
    import inspect

    lines, first = inspect.getsourcelines(function)
    offset = next(n for n, line in enumerate(lines) if text in line)
    return f"{inspect.getsourcefile(function)}:{first + offset}"
