"""Moves blocks of a Beta 1 kernel to SBUF where more are alive than PSUM holds.

PSUM has 8 banks. Blocks have storages and lifetimes of their own, so a tensor may have many more as
long as few are alive at once. Where more are, AWS's compiler copies results out of PSUM; so does
this: at the instruction that finds PSUM full, the block that costs least from there on (matmuls
still to come, then the longest life) moves to a tile in SBUF of the same shape and dtype. What
reads it later reads SBUF. What the Tensor engine still writes to it goes through PSUM, and Vector
copies it, or adds it where the matmul would have added: in float32 and in the same order as in
PSUM, so that no value changes.

Only blocks leave: a tile without block dimensions, or one that the kernel placed, is where the
kernel put it, and the allocator reports what doesn't fit. Two banks are kept for what passes
through, one being filled while the other is copied.

Not from a document: which block AWS's compiler picks. Follows: "NKI Programming Model" (PSUM
accumulation) of the NKI 0.1 documentation; engine access to PSUM in the architecture guides.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import prod
from typing import Any

from nki_dist.arch import Arch
from nki_dist.compat.beta1.recorded import PRODUCT, ZERO, Contents, Recorded
from nki_dist.compiler.passes.allocate import spaces
from nki_dist.isa import INSTRUCTIONS
from nki_dist.language.tensor import NkiTensor, make
from nki_dist.program import Access, Instruction, MemoryRegion, Storage, psum, sbuf
from nki_dist.program.storage import contiguous_strides

PASSING = 2  # banks

NewTile = Callable[[tuple[int, ...], Any, MemoryRegion, Storage], NkiTensor]


@dataclass
class Leaver:
    """A block that leaves PSUM.

    Attributes:
        at: the first position where it is elsewhere.
        home: the tile in SBUF.
        contents: what its elements hold, which says whether a matmul adds.
    """

    at: int
    home: NkiTensor
    contents: Contents


def evacuate(
    recorded: Recorded, blocks: Collection[Storage], arch: Arch, new_tile: NewTile
) -> list[Instruction] | None:
    """The program with blocks moved to SBUF where PSUM is full; None if it never is.

    Args:
        blocks: storages of tensors with block dimensions.
        new_tile: makes a tile: shape, dtype, memory, the storage that it stands for.
    """
    lives = [s for s in recorded.uses if s.region is psum and s.role == "local"]
    if any(s.placed for s in lives):
        return None  # the kernel manages PSUM itself
    movable = {s for s in lives if s in blocks and recorded.is_local(s) and _plain(recorded, s)}
    space = spaces(arch)[psum]
    capacity = space.capacity * space.quadrants
    sizes = {s: prod(space.need(s)) for s in lives}
    if not _leaving(recorded, movable, sizes, capacity):
        return None
    capacity -= PASSING * arch.psum_bank_bytes * space.quadrants
    leaving = _leaving(recorded, movable, sizes, capacity)
    leavers = {
        s: Leaver(at, new_tile(s.shape, s.dtype, sbuf, s), Contents(s)) for s, at in leaving.items()
    }
    return _Rewriter(recorded, leavers, arch, new_tile).run()


def _plain(recorded: Recorded, storage: Storage) -> bool:
    """Whether every matmul to a block surely either adds or replaces."""
    contents = Contents(storage)
    for at in recorded.uses[storage]:
        i = recorded.items[at]
        assert i is not None
        spec = INSTRUCTIONS[i.opcode]
        for a in spec.writes(i):
            if a.storage is not storage:
                continue
            if a.dynamic is not None or (spec.accumulates and adds(i, a, contents) is None):
                return False
        contents.follow(i)
    return True


def adds(i: Instruction, dst: Access, contents: Contents) -> bool | None:
    """Whether a matmul adds to what its destination holds; None if to a part of it.

    To zeros beside products it may add, too: where a block is in SBUF, the zeros are.
    """
    accumulate: bool | None = i.args["accumulate"]
    if accumulate is not None:
        return accumulate
    least, most = contents.within(dst)
    if most == PRODUCT and least >= ZERO:
        return True
    return None if least < most and least <= PRODUCT <= most else False


def _leaving(
    recorded: Recorded, movable: set[Storage], sizes: dict[Storage, int], capacity: int
) -> dict[Storage, int]:
    """The blocks that leave so that no more than `capacity` is in use, and where each does."""
    uses = recorded.uses
    products = {s: [at for at in uses[s] if _by_tensor(recorded.items[at], s)] for s in movable}
    leaving: dict[Storage, int] = {}
    there: dict[Storage, None] = {}
    ends: list[tuple[int, int, Storage]] = []
    used = 0
    for s in sorted(sizes, key=lambda s: (uses[s][0], s.number)):
        at = uses[s][0]
        while ends and ends[0][0] < at:
            gone = heapq.heappop(ends)[2]
            if gone in there:
                del there[gone]
                used -= sizes[gone]
        there[s] = None
        used += sizes[s]
        heapq.heappush(ends, (uses[s][-1], s.number, s))
        while used > capacity:
            chosen = [b for b in there if b in movable]
            if not chosen:
                break  # the allocator says what doesn't fit

            def cost(b: Storage, at: int = at) -> tuple[float, int, int]:
                ahead = len(products[b]) - bisect_left(products[b], at)
                return (ahead + (uses[b][0] < at)) / sizes[b], -uses[b][-1], b.number

            best = min(chosen, key=cost)
            leaving[best] = at
            del there[best]
            used -= sizes[best]
    return leaving


def _by_tensor(i: Instruction | None, storage: Storage) -> bool:
    """Whether the Tensor engine, which writes PSUM only, writes to a tile."""
    if i is None or i.engine != "tensor":
        return False
    return any(a.storage is storage for a in INSTRUCTIONS[i.opcode].writes(i))


class _Rewriter:
    """Writes the program in which some blocks leave PSUM."""

    def __init__(
        self, recorded: Recorded, leavers: dict[Storage, Leaver], arch: Arch, new_tile: NewTile
    ) -> None:
        self.recorded = recorded
        self.leavers = leavers
        self.arch = arch
        self.new_tile = new_tile
        self.result: list[Instruction] = []

    def run(self) -> list[Instruction]:
        moves: dict[int, list[Storage]] = {}  # after which position a block is copied out
        for s, leaver in self.leavers.items():
            before = bisect_left(self.recorded.uses[s], leaver.at)
            if before:
                moves.setdefault(self.recorded.uses[s][before - 1], []).append(s)
        for at, i in enumerate(self.recorded.items):
            assert i is not None
            self._instruction(at, i)
            for s in moves.get(at, ()):
                inside = make(s, 0, s.shape, s.strides, s.dtype)
                self._emit("tensor_copy", i, dst=self.leavers[s].home, src=inside)
        return self.result

    def _instruction(self, at: int, i: Instruction) -> None:
        """One instruction, with its operands where they are by then."""
        spec = INSTRUCTIONS[i.opcode]
        through: list[tuple[Access, NkiTensor, bool]] = []
        args, moved = dict(i.args), False
        for name, value in i.args.items():
            given = value if isinstance(value, list) else [value]
            found = [self._operand(i, at, name, v, through) for v in given]
            if any(a is not b for a, b in zip(found, given)):
                args[name] = found if isinstance(value, list) else found[0]
                moved = True
        for s in {a.storage for a in spec.writes(i)} & self.leavers.keys():
            self.leavers[s].contents.follow(i)
        if moved:
            if through and spec.accumulates:
                args["accumulate"] = False
            i.change(args)
            spec.verify(i, self.arch)
        self.result.append(i)
        for home, passing, adding in through:
            if adding:
                self._emit("tensor_tensor", i, dst=home, data1=home, data2=passing, op="add")
            else:
                self._emit("tensor_copy", i, dst=home, src=passing)

    def _operand(self, i: Instruction, at: int, name: str, value: Any, through: list[Any]) -> Any:
        """An operand where it is now; a result of the Tensor engine passes through PSUM."""
        leaver = self.leavers.get(value.storage) if isinstance(value, Access) else None
        if leaver is None or at < leaver.at:
            return value
        there = leaver.home.storage
        home = make(there, value.offset, value.shape, value.strides, value.dtype, value.dynamic)
        role: Any = INSTRUCTIONS[i.opcode].roles[name]
        if i.engine != "tensor" or "w" not in role.mode:
            return home
        start = value.start_partition
        shape = (start + value.shape[0], value.free_size)
        whole = self.new_tile(shape, value.dtype, psum, value.storage)
        strides = (whole.strides[0], *contiguous_strides(value.shape[1:]))
        offset = start * whole.strides[0]
        passing = make(whole.storage, offset, value.shape, strides, value.dtype)
        adding = INSTRUCTIONS[i.opcode].accumulates and adds(i, value, leaver.contents)
        through.append((home, passing, bool(adding)))
        return passing

    def _emit(self, opcode: str, like: Instruction, **args: Any) -> None:
        """Add an instruction at the line of another."""
        spec = INSTRUCTIONS[opcode]
        for name, role in spec.roles.items():
            args[name] = role.accept(name, args[name])
        added = Instruction(opcode, args, "", like.location, -1)
        added.order_group = like.order_group
        added.engine = spec.choose_engine(added, self.arch)
        spec.verify(added, self.arch)
        self.result.append(added)
