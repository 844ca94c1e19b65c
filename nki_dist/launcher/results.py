"""Copies tensors between the caller's arrays and simulated HBM, and makes what a kernel returns.

A stack usually holds a tensor as it was declared. With NKI_PRECISE_FP=0 those named in
`Compiled.wide` hold float32: arguments are converted before they are copied in, results are rounded
once, to the declared type, when they are read. Invariant: callers see declared types only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, Final

import numpy as np

from nki_dist import frameworks
from nki_dist.compiler.compiled import Compiled
from nki_dist.dtypes import DType, float32
from nki_dist.dtypes.casts import converter
from nki_dist.errors import CoreLostError, LaunchError, typed
from nki_dist.hbm.layout import Layout
from nki_dist.launcher.binding import BoundArguments
from nki_dist.program import Access
from nki_dist.program.pytree import flatten, tree_map

_SHOWN: Final = 8  # outputs that a Run names


@dataclass
class Run:
    """A launch with its profile: `.outputs`, `.profile`, `.reports` (one per core), and `.losses`,
    the CoreLostErrors after which it was run again (World's `retries`)."""

    outputs: Any
    profile: Any
    reports: list[Any]
    losses: list[CoreLostError] = field(default_factory=list)

    def __repr__(self) -> str:
        lost = f", losses={len(self.losses)}" if self.losses else ""
        return f"<Run: outputs {_shown(self.outputs)}{lost}, profile {self.profile!r}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the outputs' shapes and the profile."""
        shown = escape(_shown(self.outputs))
        if not hasattr(self.profile, "_repr_html_"):
            return f"<p>{shown}</p>"
        return f"<p>outputs: <code>{shown}</code></p>{self.profile._repr_html_()}"


def _shown(outputs: Any) -> str:
    """Outputs by shape and dtype, cut where there are many."""
    leaves = [leaf for _, leaf in flatten(outputs)[0]]
    few = [_array(leaf) for leaf in leaves[:_SHOWN]]
    return ", ".join(few) + (f" and {len(leaves) - _SHOWN} more" if len(leaves) > _SHOWN else "")


def _array(leaf: Any) -> str:
    shape, dtype = getattr(leaf, "shape", None), getattr(leaf, "dtype", None)
    if shape is None or dtype is None:
        return type(leaf).__name__
    return f"{'x'.join(map(str, shape)) or 'scalar'} {dtype}"


def inputs_as_run(compiled: Compiled, bound: Sequence[BoundArguments]) -> list[list[np.ndarray]]:
    """Every rank's arrays by index, with the types in which the stacks hold them.

    Args:
        compiled: as it is run.
    """
    if not compiled.wide:
        return [b.arrays for b in bound]
    cache: dict[int, np.ndarray] = {}  # ranks that pass one array go on sharing it

    def stored(b: BoundArguments, index: int) -> np.ndarray:
        array = b.arrays[index]
        if ("input", index) not in compiled.wide:
            return array
        if id(array) not in cache:
            dtype = b.signatures[index].dtype
            source = array if array.dtype == dtype.storage else array.view(dtype.storage)
            cache[id(array)] = _converted(source, dtype, float32)
        return cache[id(array)]

    return [[stored(b, index) for index in range(len(b.arrays))] for b in bound]


def check_written(
    compiled: Sequence[Compiled],
    layouts: Sequence[Layout],
    memories: Sequence[np.ndarray],
    bound: Sequence[BoundArguments],
) -> None:
    """One array that several ranks wrote can take back only one contents.

    Args:
        compiled, layouts, memories, bound: of each rank: what it ran, where its tensors lie, the
            bytes of its stack, its arguments.

    Raises:
        LaunchError: ranks wrote different bytes to the same array.
    """
    seen: dict[int, np.ndarray] = {}
    for rank, (c, layout, memory, b) in enumerate(zip(compiled, layouts, memories, bound)):
        for index in c.written_inputs:
            at = layout.offsets.get(("input", index))
            if at is None:  # it stays in HBM
                continue
            signature = c.inputs[index]
            wrote = memory[at : at + signature.nbytes]
            if not np.array_equal(wrote, seen.setdefault(id(b.originals[index]), wrote)):
                raise LaunchError(
                    f"the kernel writes argument {signature.name}, which is one array for several "
                    f"ranks, and rank {rank} wrote other bytes than an earlier one; give each rank "
                    "its own array with nki.per_rank([...])",
                    code="input-shared",
                )


def read_outputs(
    compiled: Compiled, layout: Layout, memory: np.ndarray, bound: BoundArguments
) -> Any:
    """Copy results out of a stack, and inputs that were written back to their arrays.

    Args:
        compiled: as it was run.
        memory: the stack's bytes.
    """
    give_back_inputs(compiled, layout, memory, bound)

    def read(leaf: Access) -> np.ndarray:
        s = leaf.storage
        key = (s.role, s.index)
        if s.role == "constant":
            return as_declared(np.frombuffer(s.data or b"", np.uint8), leaf)
        if key not in compiled.wide:
            return _view(memory, layout.offsets[key], leaf, leaf.dtype)
        wide = _view(memory, layout.offsets[key], leaf, float32)
        return _converted(wide, float32, leaf.dtype)

    return returned_as(compiled, bound, read)


def give_back_inputs(
    compiled: Compiled, layout: Layout, memory: np.ndarray, bound: BoundArguments
) -> None:
    """Copy inputs that were written back to their arrays, but for those that stay in HBM."""
    for index in compiled.written_inputs:
        if ("input", index) not in layout.offsets:
            continue
        signature = bound.signatures[index]
        at = layout.offsets["input", index]
        array = np.ndarray(signature.shape, compiled.inputs[index].dtype.storage, memory, at)
        if ("input", index) in compiled.wide:
            array = _converted(array, float32, signature.dtype)
        frameworks.write_back(bound.originals[index], array)


def returned_as(
    compiled: Compiled, bound: BoundArguments, read: Callable[[Access], np.ndarray]
) -> Any:
    """What the kernel returns, in the framework of its arguments.

    Args:
        read: the array that stands for a returned tensor.
    """

    def place(leaf: Any) -> Any:
        if not isinstance(leaf, Access):
            return leaf
        array = read(leaf)
        return array if bound.framework is None else frameworks.like(bound.framework, array)

    outputs = compiled.outputs
    outputs = place(outputs) if isinstance(outputs, Access) else tree_map(place, outputs)
    if bound.framework is not None and bound.framework.name == "torch":
        return _without_derivative(compiled.kernel, bound, outputs)
    return outputs


def _without_derivative(name: str, bound: BoundArguments, results: Any) -> Any:
    """What a kernel returns, so that backward passes of torch that reach it raise."""
    leaves, tree = flatten(results)
    values = [leaf for _, leaf in leaves]
    return tree.unflatten(frameworks.without_derivative(name, bound.originals, values))


def as_declared(memory: np.ndarray, a: Access) -> np.ndarray:
    """A copy of what an access pattern selects from the bytes of its storage."""
    return _view(memory, 0, a, a.dtype)


def _view(memory: np.ndarray, at: int, a: Access, dtype: DType) -> np.ndarray:
    """A copy of what an access pattern selects from a storage `at` bytes into memory.

    Args:
        dtype: of the storage's elements.
    """
    size = dtype.itemsize
    strides = tuple([n * size for n in a.strides])
    selected = np.ndarray(a.shape, dtype.storage, memory, at + a.offset * size, strides)
    try:
        return selected.copy().view(dtype.dtype)
    except MemoryError as error:
        raise typed(error) from error


def _converted(array: np.ndarray, source: DType, target: DType) -> np.ndarray:
    converted = np.empty(array.shape, target.storage)
    with np.errstate(all="ignore"):
        converter(source, target)(converted, array)
    return converted
