"""Gives who describes what an instruction does its operands as arrays, scratch, and conversions.

Where there is no memory yet (linking), what stands for an array is a place.

A meaning is asked once for what is run many times, so everything that can be settled beforehand is:
views, conversions, scratch arrays.

Operands reach a meaning with their run-time part already resolved (linking gives it run-time
addresses as they are known, and gathers `.indirect()` views into tiles of their own), except vector
offsets, which DMA meanings resolve themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import compress
from typing import Any, TypeAlias

import numpy as np

from nki_dist.dtypes import DType, float32
from nki_dist.dtypes.scratch import Scratch
from nki_dist.isa.core import Core
from nki_dist.isa.shapes import refine
from nki_dist.ops.alignment import aligned
from nki_dist.ops.calls import Step, step_of
from nki_dist.ops.function import Function, conversion
from nki_dist.ops.operation import Operation, op, part_of
from nki_dist.program import Access, MemoryRegion, Storage

Wrap: TypeAlias = "Callable[..., list[Operation]]"
Array: TypeAlias = Any  # np.ndarray, or where a kit has no memory Place


class Workspace:
    """Scratch space for any number of cores that one thread runs.

    Invariant: what lies in it is used within one instruction, and instructions of different cores
    never overlap, except those that wait for other cores, which get no shared scratch.
    """

    __slots__ = ("_bytes", "_lanes", "arrays", "casts", "panels")

    def __init__(self) -> None:
        self._bytes = np.empty(0, np.uint8)
        self._lanes: dict[int, Workspace] = {}
        self.arrays: dict[tuple[int, int], np.ndarray] = {}
        self.panels: dict[tuple[int, int], np.ndarray] = {}
        self.casts = Scratch()

    def bytes(self, count: int) -> np.ndarray:
        """So many, the same for all who ask; what was given before stays as it is."""
        if len(self._bytes) < count:
            self._bytes = aligned(max(count, 2 * len(self._bytes)))
        return self._bytes

    def lane(self, number: int) -> Workspace:
        """Scratch of another thread that runs the cores."""
        return self._lanes.setdefault(number, Workspace())

    def panel(self, place: tuple[int, int]) -> np.ndarray:
        """Memory of a panel, by bytes and number."""
        if place not in self.panels:
            self.panels[place] = aligned(place[0])
        return self.panels[place]


class Kit:
    """Memories and scratch space of one core, as instruction meanings see them.

    Args:
        buffer: gives a storage's bytes (a one-dimensional uint8 array).
        core: that runs the instructions; `slot`, `state` and `wires` are its parts.
        arch: the platform.
        workspace: scratch shared with other cores of the thread; one's own if None.
    """

    # Those of the core, or what stands for them where there is none.
    wires: Any
    registers: Any  # of the sequencer; operations name them by `RegisterNumber`

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
        self.registers = core.state.registers
        self.arch = arch
        self.workspace = workspace or Workspace()  # that the cores of the thread share
        self._per_instruction: dict[tuple[int, int], np.ndarray] = {}
        self._scratch = self.workspace.arrays
        self._slot = 0
        # One entry for two bytes of a PSUM storage: which elements the next matmul adds to.
        self.masks: dict[int, np.ndarray] = {}
        self._lent: dict[int, Array] = {}
        self.named = False  # whether the instruction that is linked asked for a name
        # While an instruction is linked that several cores of the process have: what it keeps for
        # the others, and what it keeps for those of this core that have equal arguments. None where
        # nobody else will ask.
        self.cache: dict[Any, Any] | None = None
        self.core_cache: dict[Any, Any] | None = None

    def begin(self, waits: bool = False) -> None:
        """Start linking another instruction: its scratch may overlay the previous one's.

        Args:
            waits: it may wait for other cores, so others run while its scratch is in use.
        """
        self._slot = 0
        self.named = False
        self._scratch = self._per_instruction if waits else self.workspace.arrays

    def step(self, operations: Sequence[Operation]) -> Step:
        """A function that carries out operations on arrays of this kit."""
        return step_of(operations, self.workspace.casts)

    # ---- arrays ---------------------------------------------------------------------------

    def view(self, a: Access) -> Array:
        """The operand in its storage dtype."""
        return self._array(a, a.dtype.storage)

    def raw(self, a: Access) -> Array:
        """The operand's bits as unsigned integers, for moves."""
        return self._array(a, a.dtype.raw)

    def bytes_of(self, storage: Storage) -> np.ndarray:
        """All bytes of a storage."""
        return self._buffer(storage)

    def name(self, a: Access) -> str:
        """How messages call an operand's storage while the program runs.

        Operations that hold it are no other instruction's (see linking.kinds).
        """
        self.named = True
        return a.storage.label

    def _array(self, a: Access, dtype: np.dtype) -> Array:
        size, storage = dtype.itemsize, a.storage
        buffer = self._lent[storage.number] if storage.number < 0 else self._buffer(storage)
        return np.ndarray(
            a.shape, dtype, buffer, a.offset * size, tuple([s * size for s in a.strides])
        )

    def scratch(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
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

    # ---- what a core keeps between instructions -----------------------------------------------

    def accumulators(self, engine: str) -> Array:
        """The accumulator registers of an engine, one float32 per partition."""
        return self.state.accumulator(engine, self.arch.partitions)

    def random(self, engine: str, first: Callable[[], np.ndarray]) -> Array:
        """State of an engine's random generators; `first` gives what it is at power-on."""
        return self.state.words(engine, first)

    @property
    def rank(self) -> Any:
        """The rank that runs the program."""
        return self.slot.rank

    def accumulating(self, a: Access) -> Array:
        """Which elements of a PSUM tile hold what matmuls left, where that is decided at run time.

        PSUM's types have 16 bits or more.
        """
        unit = a.dtype.itemsize // 2 or 1
        strides = tuple([s * unit for s in a.strides])
        return part_of(self.mask(a.storage), a.shape, bool, a.offset * unit, strides)

    def mask(self, storage: Storage) -> Array:
        """The same of all of a storage: one element for two bytes."""
        return self.masks[storage.number]

    def lend_mask(self, a: Access) -> None:
        """Have a mask for a tile that was lent."""
        self.masks[a.storage.number] = self.scratch((a.storage.nbytes // 2,), bool)

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
        common = refine([(a.shape[keep:], a.strides[keep:]) for a in accesses])
        if common is None:
            return None
        free, strides = common
        return [
            Access(
                a.storage, a.offset, a.shape[:keep] + free, a.strides[:keep] + s, a.dtype, a.dynamic
            )
            for a, s in zip(accesses, strides)
        ]

    def convert(self, src: DType, dst: DType) -> Function:
        """`f(out, inp)` that converts between dtypes with one rounding; see dtypes.casts."""
        return conversion(src, dst)

    # ---- conversions around the work --------------------------------------------------------

    def copied(self, a: Access, dtype: DType = float32) -> tuple[Array, Operation]:
        """A contiguous copy of the operand as another type, of its shape, and what makes it."""
        array = self.scratch(a.shape, dtype.storage)
        return array, op(self.convert(a.dtype, dtype), array, self.view(a))

    def load(self, a: Access, compute: DType = float32) -> tuple[Array, list[Operation]]:
        """The operand as an array of `compute`, and what must be done first to fill it."""
        if a.dtype is compute:
            return self.view(a), []
        array, filled = self.copied(a, compute)
        return array, [filled]

    def store(
        self, a: Access, compute: DType = float32, avoid: Sequence[Access] = ()
    ) -> tuple[Array, list[Operation]]:
        """An array of `compute` to write results to, and what brings them to `a`.

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
            return array, [op(convert, view[last], array[last])]
        return array, [op(convert, view, array)]

    def save(self, a: Access, array: Array, compute: DType = float32) -> Operation:
        """What writes a contiguous array with the operand's element order to the operand."""
        last = last_writes(a) or ()
        source = array.reshape(a.shape)[last]
        return op(self.convert(compute, a.dtype), self.view(a)[last], source)

    def elementwise(
        self, dst: Access, srcs: Sequence[Access], compute: DType = float32
    ) -> tuple[Array, list[Array], Wrap]:
        """Operands of an element-wise instruction, in `compute`, broadcastable to each other.

        Sources with one element per partition broadcast along the free dimensions.

        Returns:
            (out, inputs, around): `around(*ops)` is the instruction: conversions in, these,
            conversion out.
        """
        one = dst.free_size == 1
        whole = [one or a.free_size != 1 for a in srcs]
        same = self.congruent([dst, *compress(srcs, whole)])
        if same is None:
            return self._through_copies(dst, srcs, compute)
        shaped, rank = iter(same[1:]), len(same[0].shape)
        used = [next(shaped) if w else per_partition(a, rank) for a, w in zip(srcs, whole)]
        loaded = [self.load(a, compute) for a in used]
        out, after = self.store(same[0], compute, used)
        before = [step for _, steps in loaded for step in steps]
        return out, [array for array, _ in loaded], _wrap(before, after)

    def _through_copies(
        self, dst: Access, srcs: Sequence[Access], compute: DType
    ) -> tuple[Array, list[Array], Wrap]:
        shape = (dst.shape[0], dst.free_size)
        copied = [self.copied(a, compute) for a in srcs]
        inputs = [array.reshape(array.shape[0], -1) for array, _ in copied]
        out = self.scratch(shape, compute.storage)
        before = [filled for _, filled in copied]
        return out, inputs, _wrap(before, [self.save(dst, out, compute)])


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


def _wrap(before: Sequence[Operation], after: Sequence[Operation]) -> Wrap:
    def wrap(*ops: Operation) -> list[Operation]:
        return [*before, *ops, *after]

    return wrap
