"""Tracing: running a kernel's Python once to record what one core executes.

The kernel is an ordinary Python function; `nl` and `nisa` calls land in the active `Trace`, which
checks them, numbers them and appends them to the program. Loops of Python are unrolled by the
running itself; `dynamic_range`, `fori_loop`, `while_loop` and `while register:` become Loop nodes
whose bodies are recorded once.

Invariants: shared_hbm allocations are numbered in program order, the same on every core (the
launcher compares); ordinals count instructions in program order.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import numpy as np

from nki_dist import dtypes
from nki_dist.arch import Arch
from nki_dist.checks import DEFAULT, Checks
from nki_dist.compiler.allocation_rules import (
    address_of,
    allocation_key,
    check_no_hbm_address,
    check_on_chip,
    check_spelling,
    sizes_of,
)
from nki_dist.compiler.config import Configured
from nki_dist.compiler.locations import is_machinery
from nki_dist.compiler.loop_scope import refuse_ended
from nki_dist.compiler.naming import Names
from nki_dist.compiler.notes import is_due, note
from nki_dist.compiler.ownership import check_dynamic, check_register, foreign, owns
from nki_dist.compiler.passes.schedule import Edges, add_edges
from nki_dist.compiler.trace_loops import LoopTrace
from nki_dist.dtypes import DType
from nki_dist.errors import CompileError, NkiError, NkiWarning, invalid
from nki_dist.isa import INSTRUCTIONS, dma_copy, memset, tensor_copy
from nki_dist.isa.handle import Dropped, NkiInstruction
from nki_dist.isa.operands import Tensor
from nki_dist.isa.patterns import Patterns
from nki_dist.isa.reach import engine_reaches
from nki_dist.isa.sites import Pattern
from nki_dist.isa.spec import Spec, release_in_force
from nki_dist.language.tensor import NkiTensor, make
from nki_dist.program import Access, Instruction, MemoryRegion, Program, Storage, VirtualRegister
from nki_dist.program.memory import region_of
from nki_dist.program.walk import tensors


class Trace(Configured, LoopTrace):
    """Records one core's program.

    Attributes:
        debugged: instructions run as they are recorded, so tensors have values.

    Args:
        kernel: name for messages.
        arch: the platform.
        core: physical core of the grid, 0-based.
        cores: physical cores of the grid.
        checks: what the kernel is checked against.
        beta1: it is a kernel of Beta 1, which later releases' rules don't hold for.
        patterns: what is known of calls from other cores of the same kernel, for the same platform
            and checks.
    """

    debugged = False

    def __init__(
        self,
        kernel: str,
        arch: Arch,
        core: int = 0,
        cores: int = 1,
        checks: Checks = DEFAULT,
        beta1: bool = False,
        patterns: Patterns | None = None,
    ) -> None:
        self.arch = arch
        self.core = core
        self.checks = checks
        self.strict = checks.strict
        self.beta1 = beta1
        self.release = checks.nki
        self.patterns: Patterns | None = Patterns() if patterns is None else patterns
        self.doubts = 0
        super().__init__(Program(kernel, arch.name, core, cores))
        self.grid: tuple[int, ...] = ()
        self.program_ids: tuple[int, ...] = ()
        self.names = Names(is_machinery)
        self._groups = 0
        self._shared: list[Storage] = []
        self._next_shared = 0
        self._allocations: dict[Any, tuple[Any, ...]] = {}  # that were found to be possible
        self._files: list[tuple[str, float, int]] = []
        self._named: dict[str, list[NkiInstruction]] = {}
        self.dropped: list[NkiError] | None = None  # a list: go on past refused instructions

    # ---- who and where --------------------------------------------------------------------

    def locate(self) -> int:
        return self.locations.here(2)

    def drop(self, error: NkiError) -> NkiInstruction | None:
        """A stand-in for an instruction that was refused; None where that ends the trace."""
        if self.dropped is None:
            return None
        self.dropped.append(error)
        return Dropped()

    def warn(self, warning: NkiWarning) -> None:
        """Keep a warning with the program, if the policy asks for it; every launch gives it."""
        if is_due(warning.at(location=self.where(), core=self.core), self.checks):
            self.doubts += 1
            note(self.program, warning)

    @contextmanager
    def instance(self, grid: tuple[int, ...], ids: tuple[int, ...]) -> Iterator[None]:
        """Trace one program instance of the grid: shared allocations are matched from the first."""
        self.grid, self.program_ids = grid, ids
        self._next_shared = 0
        try:
            yield
        except NkiError as error:  # views and Python constructs don't know where they are
            error.at(location=self.locations.raised(error), core=self.core)
            raise
        self.check_finished()

    # ---- tensors --------------------------------------------------------------------------

    def input(self, index: int, shape: tuple[int, ...], dtype: DType, name: str) -> NkiTensor:
        """A kernel argument."""
        where = MemoryRegion.shared_hbm
        return self._view(self._storage(where, shape, dtype, name, "input", index))

    def allocate(
        self, shape: Any, dtype: Any, region: Any, name: str = "", address: Any = None
    ) -> NkiTensor:
        """`nl.ndarray`."""
        key = allocation_key(shape, dtype, region, address, self.beta1)
        if key is None or (checked := self._allocations.get(key)) is None:
            doubts, given = self.doubts, (dtype, region)
            sizes, element = sizes_of(shape), dtypes.of(dtype)
            if not self.beta1:
                check_spelling(dtype, element, region)
            region = region_of(region)
            if region.is_hbm:
                check_no_hbm_address(address)
            if region is MemoryRegion.shared_hbm:
                return self._view(self._allocate_shared(sizes, element, name or ""))
            if address is not None:
                address = address_of(address)
            if region.on_chip:
                check_on_chip(self.arch, region, sizes, element, address)
            checked = (sizes, element, region, address, given)
            if key is not None and self.doubts == doubts:
                self._allocations[key] = checked
        sizes, element, region, address, _ = checked
        at = self.locations.here(2)  # the caller of nl.ndarray, most often: found at once
        facts = (region, sizes, element, name or "", "local", -1, address, None, at)
        return self._view(self._storage(*facts))

    def constant(self, array: np.ndarray, dtype: DType) -> NkiTensor:
        """A shared_hbm tensor with known contents."""
        data = np.ascontiguousarray(array).tobytes()
        return self._view(self._allocate_shared(tuple(array.shape), dtype, "", data))

    def _allocate_shared(
        self, shape: tuple[int, ...], dtype: DType, name: str, data: bytes | None = None
    ) -> Storage:
        index = self._next_shared
        self._next_shared += 1
        role = "shared" if data is None else "constant"
        if index < len(self._shared):  # a later program instance of the same core
            earlier = self._shared[index]
            if (earlier.shape, earlier.dtype, earlier.role) != (shape, dtype, role):
                message = (
                    f"shared_hbm allocation number {index} is {earlier.label} in the first program "
                    f"instance and {shape} {dtype} in this one; instances must allocate alike"
                )
                raise invalid(
                    message, code="cores-allocate-alike", first=earlier.shape, other=shape
                )
            return earlier
        storage = self._storage(MemoryRegion.shared_hbm, shape, dtype, name, role, index, data=data)
        self._shared.append(storage)
        return storage

    def _storage(
        self,
        region: MemoryRegion,
        shape: tuple[int, ...],
        dtype: DType,
        name: str,
        role: str = "local",
        index: int = -1,
        address: tuple[int, int] | None = None,
        data: bytes | None = None,
        where: int | None = None,
    ) -> Storage:
        if dtype.bits == 64:
            release_in_force(self).check(f"nl.{dtype.name}")
        storages = self.program.storages
        at, number = self.locate() if where is None else where, len(storages)
        storages.append(Storage(number, region, shape, dtype, name, role, index, address, at, data))
        return storages[-1]

    def _view(self, storage: Storage) -> NkiTensor:
        if not (storage.name or storage.called):
            storage.called = self.called(sys._getframe(2))  # what asked for the allocation
        return make(storage, 0, storage.shape, storage.strides, storage.dtype)

    def called(self, frame: FrameType) -> str:
        """What the user's code assigns the result of this call to, "" if that can't be known."""
        return self.names.of(frame)

    def publish(self, storage: Storage) -> None:
        """Make a returned private tensor visible to the launcher, as shared ones are."""
        storage.role, storage.index = "shared", len(self._shared)
        storage.region = MemoryRegion.shared_hbm
        self._shared.append(storage)

    def read_file(self, path: str, stamp: tuple[float, int]) -> None:
        """Note that the program depends on a file's contents."""
        self._files.append((path, *stamp))

    def values(self, view: NkiTensor) -> np.ndarray:
        """`tensor.numpy()`, which only debugged kernels have."""
        raise CompileError(
            f"values of {view.storage.label}: they are only known when the kernel runs. Run it "
            "with nki.debug(kernel)(...) or host='debug', where .numpy() gives them, or print them "
            "with nl.device_print",
            code="values-unknown",
        )

    def shown(self, view: NkiTensor) -> str:
        """What a tensor's text says of its values."""
        return "; values: nki.debug"

    # ---- instructions ---------------------------------------------------------------------

    def emit(self, spec: Spec, args: dict[str, Any], engine: str) -> NkiInstruction:
        ordinal = self._ordinal
        i = Instruction(spec.name, args, engine, self.locations.here(2), ordinal)
        if not engine:
            i.engine = spec.choose_engine(i, self.arch)
        spec.verify(i, self.arch)
        self._touch(spec, args, ordinal)
        i.order_group = self.order_group
        self.block.append(i)
        self._ordinal = ordinal + 1
        return NkiInstruction(i, len(self._open))

    def record(
        self,
        opcode: str,
        args: dict[str, Any],
        pattern: Pattern,
        operands: Sequence[Access],
        where: int,
    ) -> NkiInstruction:
        """`emit`, for a call of a known pattern.

        Args:
            operands: all tensors among `args`.
            where: number of the location.
        """
        ordinal = self._ordinal
        i = Instruction(opcode, args, pattern.engine, where, ordinal)
        i.kind, i.order_group = pattern, self.order_group
        storages, opened, ended = self.program.storages, self._open, self.ended
        count = len(storages)
        for access, written in zip(operands, pattern.writes):
            storage = access.storage
            number = storage.number
            if not 0 <= number < count or storages[number] is not storage:
                raise foreign(storage.label)
            if ended and number in ended:
                refuse_ended(self, storage)
            if storage.first < 0:
                storage.first = ordinal
            storage.last = ordinal
            storage.written |= written
            if opened:
                opened[-1].touched.add(storage)
        self.block.append(i)
        self._ordinal = ordinal + 1
        return NkiInstruction(i, len(opened))

    def rewritten(self, i: Instruction, unused: Storage) -> None:
        """Note that a recorded instruction has other operands now; nothing uses `unused`."""
        unused.first = unused.last = -1
        unused.written = False
        self._touch(INSTRUCTIONS[i.opcode], i.args, i.ordinal)

    def replace(self, start: int, items: list[Instruction]) -> None:
        """Put other instructions in the place of those recorded since `start` in this block.

        Storages made since then begin and end where these use them; of older ones, only the end
        moves. There are no loops among them.
        """
        old = [i for i in self.block[start:] if isinstance(i, Instruction)]
        begin = old[0].ordinal if old else self._ordinal
        numbers = {i.ordinal: begin + n for n, i in enumerate(items) if i.ordinal >= 0}
        for s in self.program.storages:
            if s.first >= begin:
                s.first = s.last = -1
                s.written = False
        if self._open:
            self._open[-1].touched -= {s for s in self._open[-1].touched if s.first < 0}
        for n, i in enumerate(items):
            i.ordinal = begin + n
            i.after = tuple(numbers.get(o, o) for o in i.after if o < begin or o in numbers)
            self._touch(INSTRUCTIONS[i.opcode], i.args, i.ordinal)
        self.block[start:] = items
        self._ordinal = begin + len(items)

    def _touch(self, spec: Spec, args: dict[str, Any], ordinal: int) -> None:
        touched = self._open[-1].touched if self._open else None
        for name, role in spec._role_items:
            value = args[name]
            if type(value) is VirtualRegister:
                check_register(self, value)
            if value is None or not isinstance(role, Tensor):
                continue
            for access in (value,) if isinstance(value, Access) else tensors(value):
                storage = access.storage
                if not owns(self.program, storage):
                    raise foreign(storage.label)
                if storage.number in self.ended:
                    refuse_ended(self, storage)
                if storage.first < 0:
                    storage.first = ordinal
                storage.last = ordinal
                if "w" in role.mode:
                    storage.written = True
                if touched is not None:
                    touched.add(storage)
                if (dynamic := access.dynamic) is None:
                    continue
                check_dynamic(self, dynamic)
                if isinstance(dynamic.source, Access):
                    index = dynamic.source.storage
                    index.last = ordinal
                    if index.first < 0:
                        index.first = ordinal
                    if touched is not None:
                        touched.add(index)

    def assign(self, view: Any, value: Any) -> None:
        """`tensor[...] = value`: a copy."""
        if not isinstance(value, NkiTensor):
            memset(view, value)
        elif all(a.buffer.on_chip and engine_reaches(a, self.arch) for a in (view, value)):
            tensor_copy(view, value)
        else:
            dma_copy(view, value)

    def label(self, name: str, handle: NkiInstruction) -> None:
        """Note an instruction's `name=`, which schedules refer to."""
        self._named.setdefault(name, []).append(handle)

    @contextmanager
    def schedule(self, edges: Edges) -> Iterator[None]:
        """Trace one call of a kernel with a schedule."""
        outside, self._named = self._named, {}
        yield
        add_edges(edges, self._named, self.program, self.locations.text)
        for name, handles in self._named.items():  # an enclosing schedule may name them, too
            outside.setdefault(name, []).extend(handles)
        self._named = outside

    @contextmanager
    def no_reorder(self) -> Iterator[None]:
        before = self.order_group
        self._groups += 1
        self.order_group = self._groups
        yield
        self.order_group = before

    def finish(self) -> Program:
        """The program, once every instance has been traced."""
        self.program.locations = self.locations.table()
        self.program.facts["files"] = self._files
        return self.program
