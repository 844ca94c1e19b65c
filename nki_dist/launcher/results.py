"""Tensors on their way between the caller's arrays and the HBM stacks.

A stack usually holds a tensor as it was declared. With NKI_PRECISE_FP=0 those named in
`Compiled.wide` hold float32: arguments are converted before they are copied in, results are rounded
once, to the declared type, when they are read. Invariant: callers see declared types only.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nki_dist import frameworks
from nki_dist.compiler.compile import Compiled
from nki_dist.dtypes import DType, float32
from nki_dist.dtypes.casts import converter
from nki_dist.launcher.binding import BoundArguments
from nki_dist.program import Access
from nki_dist.program.pytree import tree_map


def inputs_as_run(compiled: Compiled, bound: Sequence[BoundArguments]) -> list[list[np.ndarray]]:
    """Every rank's arrays by index, with the types in which the stacks hold them.

    Args:
        compiled: as it is run.
    """
    if not compiled.wide:
        return [b.arrays for b in bound]
    made: dict[int, np.ndarray] = {}  # ranks that pass one array go on sharing it

    def stored(b: BoundArguments, index: int) -> np.ndarray:
        array = b.arrays[index]
        if ("input", index) not in compiled.wide:
            return array
        if id(array) not in made:
            dtype = b.signatures[index].dtype
            source = array if array.dtype == dtype.storage else array.view(dtype.storage)
            made[id(array)] = _converted(source, dtype, float32)
        return made[id(array)]

    return [[stored(b, index) for index in range(len(b.arrays))] for b in bound]


def read_outputs(compiled: Compiled, memory: np.ndarray, bound: BoundArguments) -> Any:
    """Copy results out of a stack, and inputs that were written back to their arrays.

    Args:
        compiled: as it was run.
        memory: the stack's bytes.
    """
    for index in compiled.written_inputs:
        signature = bound.signatures[index]
        at = compiled.offsets["input", index]
        array = np.ndarray(signature.shape, compiled.inputs[index].dtype.storage, memory, at)
        if ("input", index) in compiled.wide:
            array = _converted(array, float32, signature.dtype)
        frameworks.write_back(bound.originals[index], array)

    def read(leaf: Any) -> Any:
        if not isinstance(leaf, Access):
            return leaf
        s = leaf.storage
        if s.role == "constant":
            data = np.frombuffer(s.data or b"", np.uint8)
            return frameworks.like(bound.framework, _view(data, leaf, leaf.dtype))
        key = (s.role, s.index)
        at = compiled.offsets[key]
        if key not in compiled.wide:
            array = _view(memory[at : at + s.nbytes], leaf, leaf.dtype)
        else:
            size = prod(s.shape) * float32.itemsize
            array = _view(memory[at : at + size], leaf, float32)
            array = _converted(array, float32, leaf.dtype)
        return frameworks.like(bound.framework, array)

    return tree_map(read, compiled.outputs)


def _view(memory: np.ndarray, a: Access, dtype: DType) -> np.ndarray:
    """A copy of what an access pattern selects from a storage with elements of `dtype`."""
    size = dtype.itemsize
    strides = tuple(n * size for n in a.strides)
    selected = np.ndarray(a.shape, dtype.storage, memory, a.offset * size, strides)
    return selected.copy().view(dtype.dtype)


def _converted(array: np.ndarray, source: DType, target: DType) -> np.ndarray:
    made = np.empty(array.shape, target.storage)
    with np.errstate(all="ignore"):
        converter(source, target)(made, array)
    return made
