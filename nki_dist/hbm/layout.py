"""Where the tensors of a launch lie in HBM stacks, and filling stacks before it.

A stack holds the tensors that are read after the launch first (written and returned inputs, shared
tensors), then a rank's other inputs. When every rank passes the same array for an input that the
kernel neither writes nor returns, one copy outside the stacks serves all of them. Tensors that stay
in HBM between launches (`regions`) lie elsewhere.

Invariant: layouts of one kernel, whatever inputs ranks have in common, differ only behind what is
read afterwards. A layout holds no arrays and no programs, so it is cheap to send to another node.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np

from nki_dist.compiler.compiled import Compiled
from nki_dist.ops.alignment import padded
from nki_dist.program import TensorSignature

Array: TypeAlias = np.ndarray[Any, Any]
CACHED_LAYOUTS: Final = 64

# An array, or what makes it when it is called: by the process that fills the stack.
Given: TypeAlias = "Array | Callable[[], Array]"
Inputs: TypeAlias = "Sequence[Given | None]"  # by index; None where the other role has it


def as_array(value: Given) -> Array:
    """An array that may have to be made."""
    return value() if callable(value) else value


@dataclass(frozen=True)
class Layout:
    """Layout of the launches of one kernel.

    Attributes:
        offsets: bytes from the start of the stack of each ("input" | "shared", index); from the
            start of what ranks have in common of each ("common", index).
        stack_bytes, common_bytes: sizes.
        inputs: by index.
        common: indices of the inputs that are there once.
        replaced: indices of inputs that needn't be copied in, as the kernel writes them first.
        unwritten: (start, end, bits, unsigned integer type of the elements) of each shared tensor
            that is filled, as nobody has written it at first.
        read_back: parts of the stack, (start, end), that are read after the launch.
        poisoned: as `unwritten`, of those that stay in HBM: (index, bytes, bits, type).
    """

    offsets: Mapping[tuple[str, int], int]
    stack_bytes: int
    common_bytes: int
    inputs: tuple[TensorSignature, ...]
    common: tuple[int, ...]
    replaced: frozenset[int]
    unwritten: tuple[tuple[int, int, int, np.dtype[Any]], ...]
    read_back: tuple[tuple[int, int], ...]
    poisoned: tuple[tuple[int, int, int, np.dtype[Any]], ...] = ()


EMPTY: Final = Layout({}, 0, 0, (), (), frozenset(), (), ())
"""Of a launch without values."""


class Layouts:
    """Layouts of the kernels that a host launched last; they hold no programs."""

    def __init__(self) -> None:
        self._cache: OrderedDict[Hashable, Layout] = OrderedDict()

    def of(
        self,
        key: Hashable,
        compiled: Compiled,
        inputs: Sequence[Inputs],
        resident: frozenset[tuple[str, int]] = frozenset(),
    ) -> Layout:
        """The layout of a launch.

        Args:
            key: names the kernel.
            compiled: as it is run.
            inputs: per rank, the arrays by index; None for those that stay in HBM.
            resident: ("input" | "shared", index) of tensors that stay in HBM.
        """
        common = common_inputs(inputs)
        layout = self._cache.get((key, common, resident))
        if layout is None:
            layout = lay_out(compiled, common, compiled.replaced, resident)
            self._cache[key, common, resident] = layout
            if len(self._cache) > CACHED_LAYOUTS:
                self._cache.popitem(last=False)
        return layout


def lay_out(
    compiled: Compiled,
    common: frozenset[int] = frozenset(),
    replaced: frozenset[tuple[str, int]] = frozenset(),
    resident: frozenset[tuple[str, int]] = frozenset(),
) -> Layout:
    """The layout of launches of a kernel.

    Args:
        compiled: as it is run.
        common: indices of inputs that all ranks share; those read after the launch don't count.
        replaced: `compiled.replaced` where nobody looks at tensors before the launch has ended:
            these tensors hold anything until the kernel writes them.
        resident: those that stay in HBM.
    """
    offsets: dict[tuple[str, int], int] = {}
    sizes = {"stack": 0, "common": 0}

    def place(role: str, index: int, nbytes: int) -> tuple[int, int]:
        where = "common" if role == "common" else "stack"
        at = offsets[role, index] = sizes[where]
        sizes[where] += padded(nbytes)
        return at, at + nbytes

    travel = [s for s in compiled.inputs if ("input", s.index) not in resident]
    first = [s for s in travel if s.index in compiled.read_back]
    later = [s for s in travel if s.index not in compiled.read_back]
    parts = [place("input", s.index, s.nbytes) for s in first]
    unwritten, poisoned = [], []
    for s in compiled.shared:
        if s.role == "shared":
            filled = compiled.programs[0].unwritten(s.dtype), s.dtype.raw
            if s.key in resident:
                if s.key not in replaced:
                    poisoned.append((s.index, s.nbytes, *filled))
                continue
            start, end = place("shared", s.index, s.nbytes)
            parts.append((start, end))
            if s.key not in replaced:
                unwritten.append((start, end, *filled))
    for other in later:
        place("common" if other.index in common else "input", other.index, other.nbytes)
    return Layout(
        offsets,
        sizes["stack"],
        sizes["common"],
        tuple(compiled.inputs),
        tuple(s.index for s in later if s.index in common),
        frozenset(index for role, index in replaced if role == "input"),
        tuple(unwritten),
        tuple(parts),
        tuple(poisoned),
    )


def common_inputs(inputs: Sequence[Inputs]) -> frozenset[int]:
    """Indices of inputs for which all ranks, if there are several, pass the same memory.

    Args:
        inputs: per rank, the arrays by index; None for those that stay in HBM.
    """
    first, *others = inputs
    if not others:
        return frozenset()
    return frozenset(
        index
        for index, array in enumerate(first)
        if array is not None and all(_same_memory(array, other[index]) for other in others)
    )


def fill_stack(layout: Layout, memory: Array, arrays: Inputs) -> None:
    """Copy a rank's own inputs to their places and fill its shared tensors."""
    _copy(layout, "input", memory, arrays)
    for start, end, bits, raw in layout.unwritten:
        memory[start:end].view(raw).fill(bits)


def fill_common(layout: Layout, memory: Array, arrays: Inputs) -> None:
    """Copy the inputs that are there once to their places; `arrays` are any rank's."""
    _copy(layout, "common", memory, arrays)


def _copy(layout: Layout, role: str, memory: Array, arrays: Inputs) -> None:
    for signature, array in zip(layout.inputs, arrays):
        at = layout.offsets.get((role, signature.index))
        if at is not None and signature.index not in layout.replaced:
            assert array is not None
            raw = signature.dtype.raw
            source = np.asarray(as_array(array)).reshape(signature.shape)
            place = np.ndarray(signature.shape, raw, memory, at)
            np.copyto(place, source.view(raw))


def _same_memory(a: Given, b: Given | None) -> bool:
    if b is None or callable(a) or callable(b):
        return a is b
    return a is b or (
        a.ctypes.data == b.ctypes.data
        and (a.shape, a.strides, a.dtype) == (b.shape, b.strides, b.dtype)
    )
