"""Follow unwritten elements through a program to where they would be noticed.

Runs only for programs in which some read of an unwritten element was found. Every element of a
storage is clean or depends on memory that nobody wrote; rules per instruction pass that on. It's an
error when such elements are in a returned tensor or an input at the end, or are used as a run-time
index or loaded into a register. What an instruction does with data it selects by, and what other
cores send, counts as clean.

Invariant: it reports only what must be wrong on every execution of the instructions concerned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Final, NamedTuple, NoReturn

import numpy as np

from nki_dist.compiler.passes.elements import LARGEST, Elements, covers
from nki_dist.compiler.passes.unwritten import Stored
from nki_dist.errors import UninitializedReadError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.effects import Mask
from nki_dist.program import (
    Access,
    Block,
    Instruction,
    Loop,
    Program,
    Storage,
    VirtualRegister,
)
from nki_dist.program.storage import contiguous_strides
from nki_dist.program.walk import index_tensors, tensors

LIFTED: Final = "check='unwritten=zero' makes unwritten memory hold zeros, 'unwritten=nan' NaN"


class Origin(NamedTuple):
    """Where unwritten elements came in: an instruction that read them, and from which storage."""

    opcode: str
    location: int
    storage: Storage


class Store(NamedTuple):
    """An instruction that stored tainted elements into a tensor that outlives the kernel."""

    instruction: Instruction
    access: Access
    origin: Origin


class Taint:
    """One run over one core's program.

    Args:
        flagged: [ordinal, storage number, location] of reads of unwritten elements.
        kept: places of the tensors that outlive the kernel, by storage number.
        foreign: shared storages that other cores write too: what is read back from them is clean.
    """

    def __init__(
        self,
        program: Program,
        flagged: Sequence[Sequence[int]],
        outliving: Mapping[int, Sequence[tuple[str, Access | None]]],
        foreign: set[int],
    ) -> None:
        self.program = program
        self.outliving = outliving
        self.foreign = foreign
        self._flagged = frozenset(number for _, number, _ in flagged)
        self._unborn = set(self._flagged)
        self._hot: set[int] = set()  # storages that have or may get marks
        self._states: dict[int, Elements] = {}
        self._origins: dict[int, Origin] = {}
        self._stores: dict[int, list[Store]] = {}
        self._certain: dict[int, Store] = {}
        self._reading: Instruction
        self._origin: Origin | None = None

    def run(self) -> None:
        """Walk through the program; raises UninitializedReadError for an index or a register."""
        self._hot = self._unborn.copy()
        self._block(self.program.body)

    def _block(self, block: Block) -> None:
        for item in block:
            if not isinstance(item, Loop):
                self._instruction(item)
                continue
            self._block(item.body)
            if (item.rounds or 0) > 1:  # what one iteration leaves behind reaches the next
                for number in [n for n in self._states if n >= item.outside]:
                    del self._states[number]
                self._unborn |= {n for n in self._flagged if n >= item.outside}
                self._block(item.body)

    def _instruction(self, i: Instruction) -> None:
        spec = INSTRUCTIONS[i.opcode]
        touched = [a for name in spec.tensors for a in tensors(i.args[name])]
        indices = index_tensors(touched)
        if not any(a.storage.number in self._hot for a in (*touched, *indices)):
            return
        self._reading, self._origin = i, None
        for source in indices:
            if self._mask(source) is not None:
                self._refuse_index(i, source, "uses them as run-time index")
        if isinstance(i.args.get("dst"), VirtualRegister):
            for name in spec.read:
                for a in tensors(i.args[name]):
                    if self._mask(a) is not None:
                        self._refuse_index(i, a, "loads them into a register")
        skips = spec.may_skip(i)
        results = {} if skips else spec.effects.unwritten.results(i, self._mask)
        for name in spec.written:
            for a in tensors(i.args[name]):
                self._put(i, a, results.get(name))
                if a.storage.number in self._states:
                    self._hot.add(a.storage.number)

    def _state(self, s: Storage) -> Elements | None:
        """The storage's marks, None where every element is clean."""
        if s.number in self._unborn:
            self._unborn.discard(s.number)
            if s.nbytes // s.dtype.itemsize <= LARGEST:
                self._states[s.number] = Elements(s, True)
        return self._states.get(s.number)

    def _mask(self, a: Access) -> Mask:
        """Marks of an operand that is read, with the access's shape; None if it's clean."""
        if a.storage.number in self.foreign:
            return None
        state = self._state(a.storage)
        if state is None:
            return None
        if a.dynamic is not None:
            if not state.mask.all():
                return None
            marks = np.ones(a.shape, bool)
        else:
            marks = state.any(a)
            if not marks.any():
                return None
        if self._origin is None:
            here = Origin(self._reading.opcode, self._reading.location, a.storage)
            self._origin = self._origins.get(a.storage.number, here)
        return marks

    def _put(self, i: Instruction, a: Access, marks: Mask) -> None:
        s = a.storage
        if marks is not None and marks.size != prod(a.shape):
            marks = None  # a form the rule doesn't know
        if marks is not None and not marks.any():
            marks = None
        state = self._state(s)
        if marks is None and state is None:
            return
        if marks is not None:
            marks = marks.reshape(a.shape)
            assert self._origin is not None
            self._origins.setdefault(s.number, self._origin)
            if s.number in self.outliving:
                self._note_store(Store(i, a, self._origin), marks)
        if a.dynamic is not None:
            if marks is None:  # which elements became clean isn't known
                self._states.pop(s.number, None)
            return
        if state is None:
            if s.nbytes // s.dtype.itemsize > LARGEST:
                return
            state = self._states[s.number] = Elements(s)
        state.put(a, np.zeros(a.shape, bool) if marks is None else marks)
        if marks is None and covers(a):
            self._certain.pop(s.number, None)
            self._origins.pop(s.number, None)

    def _note_store(self, store: Store, marks: np.ndarray) -> None:
        if store.access.dynamic is None:
            self._stores.setdefault(store.access.storage.number, []).append(store)
        elif _hits_surely(store.access, marks):
            self._certain.setdefault(store.access.storage.number, store)

    # ---- what is wrong ----------------------------------------------------------------------

    def check(self, others: Sequence[tuple[Stored, Taint | None]]) -> None:
        """Look at what outlives the kernel, after every core's `run`.

        Args:
            others: of each other core, its writes to such tensors, and its run if it had one.

        Raises:
            UninitializedReadError: some elements depend on memory nobody wrote, and no other core
                writes clean data there.
        """
        for number, places in self.outliving.items():
            s = self.program.storages[number]
            for place, a in places:
                whole = Access(s, 0, s.shape, contiguous_strides(s.shape), s.dtype)
                self._check_place(s, place, whole if a is None else a, others)

    def _check_place(
        self,
        s: Storage,
        place: str,
        a: Access,
        others: Sequence[tuple[Stored, Taint | None]],
    ) -> None:
        stores = self._stores.get(s.number, [])
        state = self._states.get(s.number)
        if stores and state is not None:
            left = state.any(a).copy()
            for writes, taint in others:
                left &= ~_clean(s, a, writes.get(s.key, ()), taint)
            count = int(left.sum())
            if count:
                culprit = next((x for x in stores if state.any(x.access).any()), stores[0])
                self._refuse_store(place, s, culprit, f"{count} of {left.size} elements")
        if s.number in self._certain:
            self._refuse_store(place, s, self._certain[s.number], "elements")

    def left_by(self, s: Storage, a: Access) -> np.ndarray | None:
        """Marks of the elements of `a` in this core's storage that corresponds to shared `s`."""
        for number, state in self._states.items():
            mine = self.program.storages[number]
            if mine.key == s.key:
                return state.any(a)
        return None

    def _source(self, origin: Origin) -> str:
        where = self.program.where
        return (
            f"nisa.{origin.opcode} at {where(origin.location) or 'unknown line'} read them from "
            f"{origin.storage.label}, allocated at "
            f"{where(origin.storage.location) or 'unknown line'}, before anything wrote them"
        )

    def _refuse_store(self, place: str, s: Storage, store: Store, count: str) -> NoReturn:
        i = store.instruction
        raise UninitializedReadError(
            f"{count} of {place}, {s.label}, depend on memory that nobody wrote: "
            f"{self._source(store.origin)}; nisa.{i.opcode} at "
            f"{self.program.where(i.location) or 'unknown line'} stored the result",
            location=self.program.where(store.origin.location),
            core=self.program.core,
            instruction=f"nisa.{store.origin.opcode}",
            hint=_written(store.origin),
            policy=LIFTED,
            code="unwritten-output",
            numbers={"got": count},
        )

    def _refuse_index(self, i: Instruction, a: Access, use: str) -> NoReturn:
        assert self._origin is not None
        raise UninitializedReadError(
            f"nisa.{i.opcode} {use}: elements of {a.storage.label} that depend on memory that "
            f"nobody wrote; {self._source(self._origin)}",
            **self.program.at(i),
            hint=_written(self._origin),
            policy=LIFTED,
            code="unwritten-decides",
        )


def _written(origin: Origin) -> str:
    tile = origin.storage.title
    how = f"memset({tile}, value=0)" if origin.storage.region.on_chip else f"dma_copy({tile}, ...)"
    return f"write all of {tile} before that line, such as with nisa.{how}"


def _clean(
    s: Storage, a: Access, stores: Iterable[tuple[Access, bool]], taint: Taint | None
) -> np.ndarray:
    """Which elements of `a` another core writes with clean data.

    Storages of cores agree in shape and dtype, so the patterns of one core apply to another.
    Stores at run-time offsets aren't counted.
    """
    written = Elements(s)
    for b, _ in stores:
        if b.dynamic is None:
            written.units(b)[...] = True
    marks = None if taint is None else taint.left_by(s, a)
    return written.any(a) if marks is None else written.any(a) & ~marks


def _hits_surely(a: Access, marks: np.ndarray) -> bool:
    """Whether a store with a run-time offset leaves marked elements behind wherever it goes.

    Later executions of the same instruction may overwrite what earlier ones stored, at distances
    that are multiples of the offset's stride. Elements that can meet so are one class; if a whole
    class is marked, nothing clean ever covers it.
    """
    assert a.dynamic is not None
    stride = abs(a.dynamic.stride) or 1
    place = np.zeros(a.shape, np.int64)
    for d, (n, step) in enumerate(zip(a.shape, a.strides, strict=True)):
        if d == 0 and a.dynamic.kind == "vector":
            continue
        place += (np.arange(n) * step).reshape((n,) + (1,) * (len(a.shape) - d - 1))
    _, classes = np.unique(place % stride, return_inverse=True)
    classes = classes.ravel()
    total = np.bincount(classes)
    return bool((np.bincount(classes, weights=marks.ravel()) == total).any())
