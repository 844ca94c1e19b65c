"""What an instruction's meaning gets: operands as NumPy arrays, and conversions around the work.

A meaning is linked once and run many times, so everything that can be settled beforehand is: views,
conversions, scratch arrays. The functions returned do nothing but NumPy calls.

Operands reach a meaning with their run-time part already resolved (the linker re-links instructions
with run-time addresses when the address is known, and gathers `.indirect()` views into tiles of
their own), except vector offsets, which DMA meanings resolve themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from nki_dist.dtypes import DType, float32
from nki_dist.dtypes.casts import Scratch, converter
from nki_dist.isa.core import Core
from nki_dist.isa.shapes import refine
from nki_dist.program import Access, MemoryRegion, Storage

Step = Callable[[], Any]


def nothing() -> None:
    """A step of its own for what others do."""


def chain(steps: Sequence[Step]) -> Step:
    """One function that calls several in order."""
    steps = tuple(steps)
    if not steps:
        return nothing
    if len(steps) == 1:
        return steps[0]
    if len(steps) == 2:
        first, second = steps

        def pair() -> None:
            first()
            second()

        return pair
    if len(steps) == 3:
        one, two, three = steps

        def triple() -> None:
            one()
            two()
            three()

        return triple

    def run() -> None:
        for step in steps:
            step()

    return run


class Workspace:
    """Scratch space for any number of cores that one thread runs.

    Invariant: what lies in it is used within one instruction, and instructions of different cores
    never overlap, except those that wait for other cores, which get no shared scratch.
    """

    __slots__ = ("arrays", "casts", "panels")

    def __init__(self) -> None:
        self.arrays: dict[tuple[int, int], np.ndarray] = {}
        self.panels: dict[tuple[int, int], np.ndarray] = {}
        self.casts = Scratch()


class Kit:
    """Memories and scratch space of one core, as instruction meanings see them.

    Args:
        buffer: gives a storage's bytes (a one-dimensional uint8 array).
        core: that runs the instructions; `slot`, `state` and `wires` are its parts.
        arch: the platform.
        workspace: scratch shared with other cores of the thread; one's own if None.
    """

    def __init__(
        self,
        buffer: Callable[[Storage], np.ndarray],
        core: Core,
        arch: Any,
        workspace: Workspace | None = None,
    ) -> None:
        self._buffer = buffer
        self.core = core
        self.slot, self.state, self.wires = core
        self.arch = arch
        self._workspace = workspace or Workspace()
        # Memory of runtime.panels, by size and number; not for instructions that wait.
        self.panels = self._workspace.panels
        self._own: dict[tuple[int, int], np.ndarray] = {}
        self._scratch = self._workspace.arrays
        self._converters: dict[tuple[int, int], Callable[..., None]] = {}
        self._slot = 0
        # Set by the linker: which elements of a PSUM tile the next matmul adds to.
        self.accumulating: Callable[[Access], np.ndarray] = _no_masks
        self._lent: dict[int, np.ndarray] = {}
        self.named = False  # whether the instruction that is linked asked for a name
        # While an instruction is linked that several cores of the process have: what it keeps for
        # the others, and what it keeps for those of this core that have equal arguments. None where
        # nobody else will ask.
        self.known: dict[Any, Any] | None = None
        self.made: dict[Any, Any] | None = None

    def begin(self, waits: bool = False) -> None:
        """Start linking another instruction: its scratch may overlay the previous one's.

        Args:
            waits: it may wait for other cores, so others run while its scratch is in use.
        """
        self._slot = 0
        self.named = False
        self._scratch = self._own if waits else self._workspace.arrays

    # ---- arrays ---------------------------------------------------------------------------

    def view(self, a: Access) -> np.ndarray:
        """The operand in its storage dtype."""
        return self._array(a, a.dtype.storage)

    def raw(self, a: Access) -> np.ndarray:
        """The operand's bits as unsigned integers, for moves."""
        return self._array(a, a.dtype.raw)

    def bytes_of(self, storage: Storage) -> np.ndarray:
        """All bytes of a storage."""
        return self._buffer(storage)

    def name(self, a: Access) -> str:
        """How messages call an operand's storage while the program runs.

        A step that holds it serves no instruction but its own (see runtime.linker).
        """
        self.named = True
        return a.storage.label

    def _array(self, a: Access, dtype: np.dtype) -> np.ndarray:
        size, storage = dtype.itemsize, a.storage
        buffer = self._lent[storage.number] if storage.number < 0 else self._buffer(storage)
        return np.ndarray(
            a.shape, dtype, buffer, a.offset * size, tuple([s * size for s in a.strides])
        )

    def scratch(self, shape: tuple[int, ...], dtype: Any = np.float32) -> np.ndarray:
        """A contiguous array that is free to use until the instruction ends."""
        dtype = np.dtype(dtype)
        count = 1
        for n in shape:
            count *= n
        need = max(count * dtype.itemsize, 1)
        size = 1 << (need - 1).bit_length()
        key = (self._slot, size)
        self._slot += 1
        store = self._scratch.get(key)
        if store is None:
            store = self._scratch[key] = np.empty(size, np.uint8)
        return np.ndarray(shape, dtype, store)

    def lend(self, shape: tuple[int, ...], dtype: DType, region: MemoryRegion) -> Access:
        """A tile that isn't in the program, for operands that need one of their own."""
        storage = Storage(-1 - len(self._lent), region, shape, dtype)
        self._lent[storage.number] = self.scratch((storage.nbytes,), np.uint8)
        return Access(storage, 0, shape, storage.strides, dtype)

    # ---- shapes ---------------------------------------------------------------------------

    def congruent(self, accesses: Sequence[Access], whole: bool = False) -> list[Access] | None:
        """The same operands over one common shape, or None where only a copy could do it.

        Args:
            whole: match all elements in row-major order (DMA); otherwise dimension 0, the
                partition dimension, is matched by itself.
        """
        first = accesses[0].shape
        if all(a.shape == first for a in accesses):
            return list(accesses)
        keep = 0 if whole else 1
        patterns = refine([list(zip(a.shape[keep:], a.strides[keep:])) for a in accesses])
        if patterns is None:
            return None
        return [
            Access(
                a.storage,
                a.offset,
                a.shape[:keep] + tuple(n for n, _ in p),
                a.strides[:keep] + tuple(s for _, s in p),
                a.dtype,
                a.dynamic,
            )
            for a, p in zip(accesses, patterns)
        ]

    def convert(self, src: DType, dst: DType) -> Callable[[np.ndarray, np.ndarray], None]:
        """`f(out, inp)` that converts between dtypes with one rounding; see dtypes.casts."""
        key = id(src), id(dst)  # types are single objects, and slow to hash
        found = self._converters.get(key)
        if found is None:
            found = converter(src, dst, scratch=self._workspace.casts)
            self._converters[key] = found
        return found

    # ---- conversions around the work --------------------------------------------------------

    def load(self, a: Access, compute: DType = float32) -> tuple[np.ndarray, list[Step]]:
        """The operand as an array of `compute`, and the steps that must run first to fill it."""
        view = self.view(a)
        if a.dtype is compute:
            return view, []
        array = self.scratch(a.shape, compute.storage)
        return array, [partial(self.convert(a.dtype, compute), array, view)]

    def store(
        self, a: Access, compute: DType = float32, avoid: Sequence[Access] = ()
    ) -> tuple[np.ndarray, list[Step]]:
        """An array of `compute` to write results to, and the steps that bring them to `a`.

        Args:
            avoid: operands that are still read while the result is being written.
        """
        view = self.view(a)
        last = last_writes(a)
        if a.dtype is compute and last is None and not any(overlaps(a, b) for b in avoid):
            return view, []
        array = self.scratch(a.shape, compute.storage)
        convert = self.convert(compute, a.dtype)
        if last is not None:
            return array, [partial(convert, view[last], array[last])]
        return array, [partial(convert, view, array)]

    def elementwise(
        self, dst: Access, srcs: Sequence[Access], compute: DType = float32
    ) -> tuple[np.ndarray, list[np.ndarray], Callable[[Step], Step]]:
        """Operands of an element-wise instruction, in `compute`, broadcastable to each other.

        Sources with one element per partition broadcast along the free dimensions.

        Returns:
            (out, inputs, around): `around(step)` is the instruction: conversions in, step,
            conversion out.
        """
        full = [a for a in srcs if a.free_size != 1 or dst.free_size == 1]
        same = self.congruent([dst, *full])
        if same is None:
            return self._through_copies(dst, srcs, compute)
        out_access, full_accesses = same[0], iter(same[1:])
        rank = len(out_access.shape)
        inputs: list[np.ndarray] = []
        before: list[Step] = []
        used: list[Access] = []
        for a in srcs:
            if a.free_size != 1 or dst.free_size == 1:
                a = next(full_accesses)
            else:
                a = per_partition(a, rank)
            used.append(a)
            array, steps = self.load(a, compute)
            inputs.append(array)
            before += steps
        out, after = self.store(out_access, compute, used)
        return out, inputs, partial(_around, before, after)

    def _through_copies(
        self, dst: Access, srcs: Sequence[Access], compute: DType
    ) -> tuple[np.ndarray, list[np.ndarray], Callable[[Step], Step]]:
        shape = (dst.shape[0], dst.free_size)
        inputs: list[np.ndarray] = []
        before: list[Step] = []
        for a in srcs:
            array = self.scratch((a.shape[0], a.free_size), compute.storage)
            convert = self.convert(a.dtype, compute)
            before.append(partial(convert, array.reshape(a.shape), self.view(a)))
            inputs.append(array)
        out = self.scratch(shape, compute.storage)
        convert = self.convert(compute, dst.dtype)
        last = last_writes(dst) or ()
        after: list[Step] = [partial(convert, self.view(dst)[last], out.reshape(dst.shape)[last])]
        return out, inputs, partial(_around, before, after)


def _no_masks(a: Access) -> np.ndarray:
    raise AssertionError(f"no accumulation state for {a}")


def per_partition(a: Access, rank: int) -> Access:
    """A (P, 1) operand with `rank` dimensions, to broadcast along the free ones."""
    ones = (1,) * (rank - 1)
    return Access(
        a.storage, a.offset, (a.shape[0], *ones), (a.strides[0], *ones), a.dtype, a.dynamic
    )


def last_writes(a: Access) -> tuple[slice, ...] | None:
    """Which elements of a destination that repeats itself (stride 0) are written last.

    Published kernels write results they don't need to one column, `.ap([[1, P], [0, N]])`. NumPy
    promises no order for such stores; engines store in element order, so the last one stays.
    None if nothing repeats.
    """
    if 0 not in a.strides or all(n == 1 for n, s in zip(a.shape, a.strides) if s == 0):
        return None
    return tuple(slice(-1, None) if s == 0 else slice(None) for s in a.strides)


def overlaps(a: Access, b: Access) -> bool:
    """Whether two operands share bytes without being the same elements in the same order."""
    if a.storage is not b.storage or a.same_elements(b):
        return False
    low_a, high_a = a.span()
    low_b, high_b = b.span()
    return low_a < high_b and low_b < high_a


def _around(before: list[Step], after: list[Step], step: Step) -> Step:
    if not before and not after:
        return step
    return chain([*before, step, *after])
