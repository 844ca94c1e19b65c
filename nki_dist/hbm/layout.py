"""Where the tensors of a launch lie in HBM stacks, and filling stacks before it.

The compiler lays out one stack. When every rank passes the same array for an input that the kernel
neither writes nor returns, one copy outside the stacks serves all of them, and the inputs that
differ move together. Invariant: what is read after the launch (written and returned inputs, shared
tensors) lies where the compiler put it.

A plan holds no arrays and no programs, so it is cheap to send to another node.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from nki_dist.compiler.compile import Compiled, TensorSignature, input_bytes, read_back
from nki_dist.dtypes import DType
from nki_dist.dtypes.poison import fill_poison

ALIGNMENT: Final = 64

Inputs: TypeAlias = "Sequence[np.ndarray | None]"  # by index; None where the other role has it


@dataclass(frozen=True)
class Plan:
    """Layout of one launch.

    Attributes:
        offsets: in the stack of each ("input" | "shared", index); in the memory that ranks have in
            common of each ("common", index).
        stack_bytes, common_bytes: sizes.
        inputs: by index.
        shared: offset, shape and dtype of tensors to poison.
        read_back: parts of the stack, (start, end), that are read after the launch.
    """

    offsets: Mapping[tuple[str, int], int]
    stack_bytes: int
    common_bytes: int
    inputs: tuple[TensorSignature, ...]
    shared: tuple[tuple[int, tuple[int, ...], DType], ...]
    read_back: tuple[tuple[int, int], ...]

    @property
    def common(self) -> tuple[int, ...]:
        """Indices of the inputs that are there once."""
        return tuple(index for role, index in self.offsets if role == "common")


def make_plan(compiled: Compiled, inputs: Sequence[Sequence[np.ndarray]]) -> Plan:
    """The layout of a launch with these inputs per rank."""
    kept = read_back(compiled)
    common = common_inputs(inputs) - kept
    offsets: dict[tuple[str, int], int] = {}
    parts: list[tuple[int, int]] = []
    for s in compiled.inputs:
        if s.index in kept:
            at = offsets["input", s.index] = compiled.offsets["input", s.index]
            parts.append((at, at + input_bytes(s)))
    shared = [s for s in compiled.shared if s.role == "shared"]
    for storage in shared:
        at = offsets["shared", storage.index] = compiled.offsets["shared", storage.index]
        parts.append((at, at + storage.nbytes))
    ends = {"input": _aligned(max([end for _, end in parts], default=0)), "common": 0}
    for s in compiled.inputs:
        if s.index not in kept:
            role = "common" if s.index in common else "input"
            offsets[role, s.index] = ends[role]
            ends[role] += _aligned(input_bytes(s))
    return Plan(
        offsets,
        ends["input"],
        ends["common"],
        tuple(compiled.inputs),
        tuple((offsets["shared", s.index], s.shape, s.dtype) for s in shared),
        tuple(parts),
    )


def common_inputs(inputs: Sequence[Sequence[np.ndarray]]) -> set[int]:
    """Indices of inputs for which all ranks, if there are several, pass the same memory."""
    first, *others = inputs
    if not others:
        return set()
    return {
        index
        for index, array in enumerate(first)
        if all(_same_memory(array, other[index]) for other in others)
    }


def fill_stack(plan: Plan, memory: np.ndarray, arrays: Inputs) -> None:
    """Copy a rank's own inputs to their places and poison its shared tensors."""
    _copy(plan, "input", memory, arrays)
    for at, shape, dtype in plan.shared:
        fill_poison(np.ndarray(shape, dtype.storage, memory, at), dtype)


def fill_common(plan: Plan, memory: np.ndarray, arrays: Inputs) -> None:
    """Copy the inputs that are there once to their places; `arrays` are any rank's."""
    _copy(plan, "common", memory, arrays)


def _copy(plan: Plan, role: str, memory: np.ndarray, arrays: Inputs) -> None:
    for signature, array in zip(plan.inputs, arrays):
        at = plan.offsets.get((role, signature.index))
        if at is not None:
            assert array is not None
            raw = signature.dtype.raw
            source = np.asarray(array).reshape(signature.shape)
            place = np.ndarray(signature.shape, raw, memory, at)
            np.copyto(place, source if source.dtype == raw else source.view(raw))


def _same_memory(a: np.ndarray, b: np.ndarray) -> bool:
    return a is b or (
        a.ctypes.data == b.ctypes.data
        and (a.shape, a.strides, a.dtype) == (b.shape, b.strides, b.dtype)
    )


def _aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGNMENT) * ALIGNMENT
