"""`python -m bench.migrate.replay RECORD FOLDER`: a recorded launch of a migrated kernel.

FOLDER has the migrated file and its neighbours. Prints "same", or why not. Deprecations are errors.

With a third argument, `apart`, products that add to one tile of PSUM are formed one by one, as the
runtime does it for kernels of Beta 1, and not merged (nki_dist/linking/chains.py), which rounds
differently.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import math
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import nki_dist as nki
from bench.migrate.apart import products_apart
from nki_dist import compat
from nki_dist.language.grid import SpmdDim


def leaves(value: Any) -> list[Any]:
    """Arrays and numbers inside lists, tuples and dicts."""
    if isinstance(value, dict):
        return [leaf for key in sorted(value) for leaf in leaves(value[key])]
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in leaves(item)]
    return [value]


def bits(value: Any) -> Any:
    """What has to be equal: dtype, shape and bytes of arrays."""
    if isinstance(value, np.ndarray) or hasattr(value, "__array__"):
        array = np.ascontiguousarray(value)
        return str(array.dtype), array.shape, array.tobytes()
    return None  # numbers and text aren't results


def instances(grid: Any) -> tuple[int, ...] | None:
    """A grid of program instances as numbers; None if there is none, or it is of cores, too."""
    if not isinstance(grid, (tuple, list)):
        return None
    sizes: list[int] = []
    for axis in grid:
        parts = axis.parts if isinstance(axis, SpmdDim) else (axis,)
        if not all(isinstance(part, int) for part in parts):
            return None
        sizes.append(math.prod(parts))
    return tuple(sizes)


def main() -> None:
    record, folder = Path(sys.argv[1]), Path(sys.argv[2])
    compat.install(release="0.7")
    compat.install_devices()
    sys.path.insert(0, str(folder))
    row = pickle.loads(record.read_bytes())
    warnings.simplefilter("error", DeprecationWarning)
    warnings.simplefilter("error", nki.errors.ReleaseWarning)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # of what scripts import
            kernel = getattr(importlib.import_module(Path(row["file"]).stem), row["name"])
        if not hasattr(kernel, "fn"):
            kernel = nki.jit(kernel)
        args, kwargs = row["given"]
        grid = instances(row["grid"])
        if grid is not None and "grid" in inspect.signature(kernel.fn).parameters:
            kwargs = {**kwargs, "grid": grid}  # as rewritten launches have it
        elif row["grid"] is not None:
            kernel = kernel[row["grid"]]
        out = kernel(*args, **kwargs)
    except Exception as error:
        print(f"{type(error).__name__}: {str(error).splitlines()[0]}"[:200])
        return
    got = [bits(x) for x in leaves([out, list(args)])]
    want = [bits(x) for x in leaves([row["out"][0], list(row["out"][1])])]
    print("same" if got == want else "other results")


if __name__ == "__main__":
    with products_apart() if sys.argv[3:] == ["apart"] else contextlib.nullcontext():
        main()
