"""Give on-chip tensors addresses, and say so when a memory is too small.

A storage is alive from the first to the last instruction that touches it (loops are widened by the
tracer). Addresses the kernel chose are checked and kept. An `OutOfMemoryError` is only raised where
no allocator could succeed: narrow tensors count for the quadrants of 32 partitions they need, and
tensors the kernel laid over each other count once. A packing that fails although the bytes suffice
is no error: the storage keeps no address and is listed in `facts["unplaced"]`.

AWS's compiler doesn't stop there: it may move instructions until less is alive at once, and spill
the rest to HBM. With `spill` a kernel is refused only where that can't help, because one
instruction's own operands are too large. So is one of Beta 1 that leaves placement in SBUF to the
compiler: the published profiles of such kernels (AccelOpt's of NKIBench) show the bytes spilled.

Invariant: of two automatically placed storages that are alive together no byte overlaps, and
neither overlaps what the kernel placed. Storages never share data here, whatever their addresses.

It doesn't model the traffic of spilling, nor moves of live tensors to defragment. Follows the
memory chapters of the NeuronCore architecture guides; on spilling, the memory hierarchy overview.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from nki_dist.arch import Arch
from nki_dist.compiler.notes import note
from nki_dist.compiler.passes.packing import Packer
from nki_dist.errors import (
    NkiWarning,
    OutOfMemoryError,
    SpilledWarning,
    as_warning,
    invalid,
)
from nki_dist.program import MemoryRegion, Program, Storage
from nki_dist.program.instruction import instructions
from nki_dist.program.walk import operands

LARGEST_SHOWN = 5
EMPTIED = (
    "copy each result to SBUF (nisa.tensor_copy) right after its last matmul, to free its bank, or "
    "keep fewer tiles in PSUM at once"
)


@dataclass(frozen=True)
class Space:
    """One on-chip memory: sizes in bytes per partition; `bank` is 0 where there are none."""

    name: str
    capacity: int
    align: int
    bank: int
    quadrants: int
    quadrant: int  # partitions

    def lacks(self, whose: str, need: int) -> str:
        """That there is less than is needed, in bytes, and in banks where there are some."""
        has = f"{self.name} has {self.capacity} usable bytes per partition"
        if self.bank:
            has += f" ({self.capacity // self.bank} banks)"
            return f"{has}, {whose} {need} ({-(-need // self.bank)} banks)"
        return f"{has}, {whose} {need}"

    def need(self, s: Storage) -> tuple[int, int]:
        """Bytes of a partition, and quadrants of them, that a tensor needs wherever it lies."""
        return -(-s.partition_bytes // self.align) * self.align, -(-s.shape[0] // self.quadrant)


def spaces(arch: Arch) -> dict[MemoryRegion, Space]:
    bank, quadrant = arch.psum_bank_bytes, arch.partition_quadrant
    rows = arch.partitions // quadrant, quadrant
    psum = arch.psum_usable_banks * bank
    return {
        MemoryRegion.sbuf: Space("SBUF", arch.sbuf_usable_bytes, arch.sbuf_min_align, 0, *rows),
        MemoryRegion.psum: Space("PSUM", psum, arch.psum_min_align, bank, *rows),
    }


def allocate(program: Program, arch: Arch, spill: bool = False, strict: bool = False) -> None:
    """Check capacities, honour the kernel's addresses and choose the others.

    Sets `address` of on-chip storages, and facts `peak_sbuf`, `peak_psum` (bytes per partition),
    `peak_hbm` (bytes of private HBM alive at once) and `unplaced` (storage numbers).

    Args:
        spill: take for granted that AWS's compiler reorders and spills what doesn't fit.
        strict: don't do so for kernels of Beta 1 either, which else give a SpilledWarning.

    Raises:
        OutOfMemoryError: more bytes are alive at once than the memory has; where they are spilled,
            an instruction works on more bytes than the memory has.
        NkiValidationError: an address given by the kernel isn't possible.
    """
    unplaced: list[int] = []
    memories = spaces(arch)
    for s in program.storages:
        if s.placed:
            _check_address(program, s, memories[s.region], arch)
    for region, space in memories.items():
        alive = [s for s in program.storages if s.region is region and s.first >= 0]
        order = sorted(alive, key=lambda s: (s.first, s.number))
        peak, overflow = _Sweep(program, space).run(order)
        if overflow is not None:
            error = _overflow(program, space, order, overflow, peak)
            compilers = program.beta1 and space.name == "SBUF" and not any(s.placed for s in order)
            if not spill and (strict or not compilers):
                raise error
            _check_instructions(program, region, space)
            if not spill:
                note(program, _spilled(error, peak - space.capacity))
        program.facts[f"peak_{region.value}"] = peak
        unplaced += _pack(order, space)
    program.facts["peak_hbm"] = peak_private(program, arch)
    program.facts["unplaced"] = sorted(unplaced)


def check_hbm(programs: Sequence[Program], arch: Arch) -> None:
    """The tensors that the cores share and their private ones must fit the HBM stack together.

    Raises:
        OutOfMemoryError: they don't.
    """
    shared = [s for s in programs[0].storages if s.role != "local"]
    need = sum(s.nbytes for s in shared) + sum(p.facts["peak_hbm"] for p in programs)
    if need > arch.hbm_stack_bytes:
        worst = max(shared, key=lambda s: s.nbytes, default=None)
        raise OutOfMemoryError(
            f"the HBM stack has {arch.hbm_stack_bytes} bytes on {arch.instance}, the launch needs "
            f"{need}: {sum(s.nbytes for s in shared)} for inputs and shared tensors, the rest for "
            f"private tensors of {len(programs)} core(s). Largest: "
            f"{_listing(programs[0], shared, lambda s: s.nbytes, 'bytes')}",
            location=None if worst is None else programs[0].where(worst.location),
            code="hbm-full",
            numbers={"got": need, "most": arch.hbm_stack_bytes},
        )


def _check_address(program: Program, s: Storage, space: Space, arch: Arch) -> None:
    assert s.address is not None
    partition, byte = s.address
    end = byte + s.partition_bytes
    problem = ""
    if partition < 0 or partition + s.partitions > arch.partitions:
        problem = (
            f"covers partitions {partition} to {partition + s.partitions - 1}; "
            f"allowed: 0 to {arch.partitions - 1}"
        )
    elif byte < 0 or end > space.capacity:
        problem = (
            f"covers bytes {byte} to {end - 1} of each partition; allowed: 0 to "
            f"{space.capacity - 1} on {arch.instance}"
        )
    elif byte % min(space.align, s.dtype.itemsize):
        # Published kernels place 16-bit tensors at any even address, so the memory's own
        # alignment, which is larger, guides our placement only.
        problem = f"starts at byte {byte}; must be a multiple of {s.dtype.itemsize}"
    elif 0 < s.partition_bytes <= space.bank and byte // space.bank != (end - 1) // space.bank:
        problem = (
            f"covers bytes {byte} to {end - 1} and so crosses a bank boundary; a tensor of at "
            f"most {space.bank} bytes per partition must lie inside one bank of {space.bank}"
        )
    if problem:
        message = f"address {s.address} of {s.label} {problem}"
        raise invalid(message, code="address-range", got=s.address).at(**program.at(s))


class _Sweep:
    """Walks through a program's time, counting the bytes alive per partition.

    Counts are kept in quadrant-bytes (bytes times quadrants) to give narrow tensors their due.
    """

    def __init__(self, program: Program, space: Space) -> None:
        self.program = program
        self.space = space
        self.cover: np.ndarray | None = None  # how many placed tensors lie over each cell

    def run(self, order: Sequence[Storage]) -> tuple[int, Storage | None]:
        """Peak in bytes per partition, and the tensor that first went beyond capacity."""
        space = self.space
        limit = space.capacity * space.quadrants
        now = peak = 0
        overflow: Storage | None = None
        for s, ended in in_time(order):
            for over in ended:
                now -= self._size(over, begins=False)
            now += self._size(s, begins=True)
            if now > peak:
                peak = now
                if now > limit and overflow is None:
                    overflow = s
        return -(-peak // space.quadrants), overflow

    def _cells(self, s: Storage) -> np.ndarray:
        assert s.address is not None
        space = self.space
        partition, byte, partitions, size = _rectangle(s)
        last_row = (partition + partitions - 1) // space.quadrant
        last = (byte + size - 1) // space.align
        if self.cover is None:
            self.cover = np.zeros((space.quadrants, -(-space.capacity // space.align)), np.int32)
        return self.cover[
            partition // space.quadrant : last_row + 1, byte // space.align : last + 1
        ]

    def _size(self, s: Storage, begins: bool) -> int:
        """How much a tensor adds as its life begins, or takes away as it ends."""
        if not s.placed:
            return prod(self.space.need(s))
        cells = self._cells(s)
        cells += 1 if begins else -1
        return int(np.count_nonzero(cells == begins)) * self.space.align


def _overflow(
    program: Program, space: Space, order: Sequence[Storage], at: Storage, need: int
) -> OutOfMemoryError:
    return OutOfMemoryError(
        f"{space.lacks('the kernel needs', need)} at its peak; it overflows with {at.label}. "
        "Largest tensors alive there: "
        + _listing(
            program, _alive_at(at, order), lambda s: s.partition_bytes, "bytes per partition"
        ),
        **program.at(at),
        hint=EMPTIED if space.bank else None,
        policy="check='capacity=spill' takes for granted that AWS's compiler reorders or spills",
        code="space-full",
        numbers={"got": need, "most": space.capacity},
    )


def _spilled(error: OutOfMemoryError, over: int) -> NkiWarning:
    """The same facts, of a kernel that is accepted all the same."""
    warning = as_warning(error, SpilledWarning)
    warning.message = (
        f"AWS's compiler for Beta 1 reorders this kernel, or spills at least {over} bytes per "
        f"partition to HBM and reloads them; values are the same. {error.message}"
    )
    warning.code = "spilled"
    return warning


def _check_instructions(program: Program, region: MemoryRegion, space: Space) -> None:
    """All operands of an instruction are in the memory together, whatever is spilled."""
    for i in instructions(program.body):
        used = {a.storage.number: a.storage for _, a in operands(i.args)}
        there = [s for s in used.values() if s.region is region]
        cells = sum(prod(space.need(s)) for s in there)
        if cells > space.capacity * space.quadrants:
            raise OutOfMemoryError(
                space.lacks("the operands of one instruction need", -(-cells // space.quadrants))
                + ", and spilling can't help: "
                + _listing(program, there, lambda s: s.partition_bytes, "bytes per partition"),
                **program.at(i),
                code="space-full",
                numbers={"got": -(-cells // space.quadrants), "most": space.capacity},
            )


def _listing(
    program: Program, storages: Iterable[Storage], size: Callable[[Storage], int], unit: str
) -> str:
    groups: dict[tuple[int, str, str | None], list[Storage]] = {}
    for s in sorted(storages, key=lambda s: (-size(s), s.number)):
        kind = s.label.removeprefix(s.title)  # tensors that a line makes again and again
        groups.setdefault((size(s), kind, program.where(s.location)), []).append(s)
    return "; ".join(
        (
            f"{len(found)} tensors like {found[0].label}, each "
            if found[1:]
            else f"{found[0].label}, "
        )
        + f"{nbytes} {unit}, allocated at {where or 'unknown line'}"
        for (nbytes, _, where), found in list(groups.items())[:LARGEST_SHOWN]
    )


def peak_private(program: Program, arch: Arch) -> int:
    """Most bytes of private HBM alive at once.

    Raises:
        OutOfMemoryError: more than the HBM stack has.
    """
    storages = [
        s
        for s in program.storages
        if s.region is MemoryRegion.private_hbm and s.role == "local" and s.first >= 0
    ]
    now = peak = 0
    for s, ended in in_time(storages):
        now += s.nbytes - sum(over.nbytes for over in ended)
        peak = max(peak, now)
        if now > arch.hbm_stack_bytes:
            raise OutOfMemoryError(
                f"the HBM stack has {arch.hbm_stack_bytes} bytes on {arch.instance}, the private "
                f"tensors alive at once need {now}; it overflows with {s.label}. Largest: "
                + _listing(program, _alive_at(s, storages), lambda t: t.nbytes, "bytes"),
                **program.at(s),
                code="hbm-full",
                numbers={"got": now, "most": arch.hbm_stack_bytes},
            )
    return peak


def in_time(storages: Iterable[Storage]) -> Iterator[tuple[Storage, list[Storage]]]:
    """Storages in the order in which their lives begin, each with those that have ended by then."""
    ends: list[tuple[int, int, Storage]] = []
    for s in sorted(storages, key=lambda s: (s.first, s.number)):
        ended = []
        while ends and ends[0][0] < s.first:
            ended.append(heapq.heappop(ends)[2])
        yield s, ended
        heapq.heappush(ends, (s.last, s.number, s))


def _alive_at(at: Storage, storages: Iterable[Storage]) -> list[Storage]:
    """Those that are alive when the life of one of them has begun."""
    begun = (at.first, at.number)
    return [s for s in storages if (s.first, s.number) <= begun and s.last >= at.first]


def _rectangle(s: Storage) -> tuple[int, int, int, int]:
    """(first partition, first byte, partitions, bytes)."""
    assert s.address is not None
    return (*s.address, s.shape[0], s.partition_bytes)


def _pack(order: Sequence[Storage], space: Space) -> list[int]:
    """Choose addresses; returns the numbers of storages for which there was no room."""
    packer = Packer(space.capacity, space.quadrants, space.align, space.bank)
    automatic = [s for s in order if not s.placed]
    if automatic:
        for partition, byte, partitions, size in {_rectangle(s) for s in order if s.placed}:
            first = partition // space.quadrant
            last = (partition + partitions - 1) // space.quadrant
            packer.reserve(byte, size, first, last - first + 1)
    unplaced: list[int] = []
    for s, ended in in_time(automatic):
        for over in ended:
            if over.address is not None:
                partition, byte = over.address
                packer.free((byte, partition // space.quadrant), *space.need(over))
        block = packer.take(*space.need(s))
        s.address = None if block is None else (block[1] * space.quadrant, block[0])
        if block is None:
            unplaced.append(s.number)
    return unplaced
