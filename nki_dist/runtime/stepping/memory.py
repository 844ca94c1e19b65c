"""Where tensors are while a kernel is debugged: every storage in memory of its own, from when it is
first touched.

A program that is compiled first can say when a tile's life ends, and tiles share memory then. Here
nobody knows what the kernel's Python will still look at, so a tile stays until Python has dropped
it (`lives`), or the round of the dynamic loop in which it was made has passed.

Invariant: what nobody has written holds `Program.unwritten`, as on other hosts.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from nki_dist.compiler.compile import compare_allocation
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.passes.elements import Elements
from nki_dist.dtypes.poison import is_poison
from nki_dist.errors import OutOfMemoryError, typed
from nki_dist.hbm.layout import Layout
from nki_dist.isa import INSTRUCTIONS
from nki_dist.ops.alignment import aligned, padded
from nki_dist.program import Access, Program, Storage, instructions
from nki_dist.runtime.host_memory import machine_bytes
from nki_dist.runtime.stepping.lives import Lives

SLAB: Final = 16 << 20  # bytes; large enough for the pages that Linux makes huge
LOOKED_AT: Final = 8  # tiles, for one whose memory can be used again

Bytes = np.ndarray[Any, np.dtype[np.uint8]]


class Arena:
    """Memory of this machine for one launch: Linux would promise more than there is.

    Args:
        most: bytes; None for what the machine has.
    """

    def __init__(self, most: int | None = None) -> None:
        self._most = machine_bytes() if most is None else most
        self._taken = 0
        self._slab = aligned(0)
        self._at = 0
        self._free: dict[int, list[Bytes]] = defaultdict(list)

    def fresh(self, nbytes: int) -> Bytes:
        """Uninitialised bytes that begin at a cache line.

        Raises:
            OutOfMemoryError: the launch would have more than there is.
        """
        self._taken += nbytes
        if self._taken > self._most:
            raise OutOfMemoryError(
                f"the debugged launch needs {self._taken} bytes of host memory by now, for "
                f"arguments, tensors and tiles that Python still holds; this machine has "
                f"{self._most}",
                code="host-memory",
                numbers={"got": self._taken, "most": self._most},
            )
        try:
            return aligned(nbytes)
        except MemoryError as error:
            raise typed(error) from error

    def take(self, size: int) -> Bytes:
        """Uninitialised bytes of a padded size: given back, or of a slab for many small tensors."""
        if free := self._free[size]:
            return free.pop()
        if size > SLAB // 4:
            return self.fresh(size)
        if self._at + size > len(self._slab):
            self._slab, self._at = self.fresh(SLAB), 0
        self._at += size
        return self._slab[self._at - size : self._at]

    def give(self, piece: Bytes) -> None:
        """Take back what `take` gave."""
        self._free[len(piece)].append(piece)


class RankMemory:
    """The HBM stack that the cores of a rank share.

    Args:
        arrays: the rank's inputs by index; they are copied.
        arena: where memory comes from.

    Attributes:
        cores: memory of the rank's cores.
    """

    def __init__(self, arrays: Sequence[np.ndarray[Any, Any]], arena: Arena) -> None:
        self._arena = arena
        self._inputs = [_copied(array, arena) for array in arrays]
        self._shared: dict[int, tuple[Program, Storage, Bytes]] = {}
        self.cores: list[CoreMemory] = []

    def agree(self, program: Program, storage: Storage) -> None:
        """Make a shared tensor, or refuse one that another core has made otherwise.

        Raises:
            NkiValidationError: the other core's allocation of this number differs.
        """
        first = self._shared.get(storage.index)
        if first is None:
            memory = self._arena.fresh(storage.nbytes)
            if storage.data is None:
                memory.view(storage.dtype.raw).fill(program.unwritten(storage.dtype))
            else:
                memory[:] = np.frombuffer(storage.data, np.uint8)
            self._shared[storage.index] = program, storage, memory
        else:
            compare_allocation(storage.index, first[:2], (program, storage))

    def adopt(self, program: Program, storage: Storage, contents: Bytes) -> None:
        """A tensor that was private until the kernel returned it."""
        self._shared.setdefault(storage.index, (program, storage, contents))

    def buffer(self, storage: Storage) -> Bytes:
        """The bytes of an input or a shared tensor."""
        if storage.role == "input":
            return self._inputs[storage.index]
        return self._shared[storage.index][2]

    def stack(self, compiled: Compiled, layout: Layout) -> Bytes:
        """The same as the HBM stack of an ordinary launch, as far as that is read afterwards."""
        stack = self._arena.fresh(layout.stack_bytes)
        for index in compiled.read_back:
            at = layout.offsets["input", index]
            stack[at : at + len(self._inputs[index])] = self._inputs[index]
        for s in compiled.shared:
            if s.role == "shared":
                at = layout.offsets["shared", s.index]
                stack[at : at + s.nbytes] = self.buffer(s)
        return stack


class CoreMemory:
    """What one core sees: its rank's memory, and SBUF, PSUM and private HBM of its own.

    Args:
        program: of the core.
        rank: the memory it shares.
        arena: for tiles; cores that run in turn can have one.
        lives: which tiles nobody can use any more.
        masks: of the core's kit, which end with their storages.

    Attributes:
        now: ordinal of the instruction that is about to run.
        moved: by ordinal, where instructions with run-time addresses have written.
    """

    def __init__(
        self,
        program: Program,
        rank: RankMemory,
        arena: Arena,
        lives: Lives,
        masks: dict[int, np.ndarray[Any, Any]],
    ) -> None:
        self._program = program
        self._rank = rank
        self._arena = arena
        self._lives = lives
        self._masks = masks
        self._sizes: dict[int, deque[int]] = defaultdict(deque)  # numbers, of every padded size
        self._pieces: dict[int, Bytes] = {}
        self.now = 0
        self.moved: dict[int, list[Access]] = defaultdict(list)
        rank.cores.append(self)

    def buffer(self, storage: Storage) -> Bytes:
        """The bytes of a storage; made and filled where nothing has touched it."""
        if storage.role != "local":
            return self._rank.buffer(storage)
        piece = self._pieces.get(storage.number)
        if piece is None:
            size, raw = padded(storage.nbytes), storage.dtype.raw
            self._reclaim(size)
            piece = self._pieces[storage.number] = self._arena.take(size)
            piece[: storage.nbytes].view(raw).fill(self._program.unwritten(storage.dtype))
            self._sizes[size].append(storage.number)
        return piece[: storage.nbytes]

    def _reclaim(self, size: int) -> None:
        """Look at some tiles of a size, the next time at others, for one that has ended."""
        numbers = self._sizes[size]
        for _ in range(min(LOOKED_AT, len(numbers))):
            number = numbers.popleft()
            if number not in self._pieces:
                continue
            if self._lives.ended(number, self.now):
                self.forget([number])
                return
            numbers.append(number)

    def unwritten(self, a: Access) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Which elements of a view hold what memory held at first.

        An element that was surely written isn't among them, but for copies of unwritten floats,
        which their payload gives away; one that perhaps was is if it still looks like that.
        """
        raw = np.ndarray(
            a.shape,
            a.dtype.raw,
            self.buffer(a.storage),
            a.offset * a.dtype.itemsize,
            tuple(s * a.dtype.itemsize for s in a.strides),
        )
        if self._program.unwritten(a.storage.dtype) == 0:  # zeros, which are as good as any number
            return np.zeros(a.shape, bool)
        same = is_poison(raw, a.dtype)
        if (a.dtype.is_float and a.dtype.bits >= 16) or not same.any():
            return same
        return same & ~self._written(a)

    def _written(self, a: Access) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """For each element of a view whether an instruction has surely written it."""
        s = a.storage
        if s.role not in ("local", "shared"):
            return np.ones(a.shape, bool)
        found, shared = Elements(s), s.role == "shared"
        for core in self._rank.cores if shared else [self]:
            for i in instructions(core._program.body):
                spec = INSTRUCTIONS[i.opcode]
                sure = [] if spec.effects.keeps(i) else core.moved.get(i.ordinal) or spec.writes(i)
                for w in sure:
                    same = w.storage is s or (shared and w.storage.key == s.key)
                    if same and w.dynamic is None:
                        found.units(w)[...] = True
        units = found.units(a)
        return units if units.ndim == len(a.shape) else np.logical_and.reduce(units, axis=-1)

    def forget(self, numbers: Iterable[int]) -> None:
        """Storages whose lives have ended."""
        for number in numbers:
            piece = self._pieces.pop(number, None)
            if piece is not None:
                self._arena.give(piece)
            self._masks.pop(number, None)


def _copied(array: np.ndarray[Any, Any], arena: Arena) -> Bytes:
    memory = arena.fresh(array.nbytes)
    np.copyto(np.ndarray(array.shape, array.dtype, memory), array)
    return memory
