"""Simulated time of DMA: what transfers ask for, and the engines of a core.

A DMA instruction is triggered on its queue once its semaphores allow it; `dma_semaphore_ns` passes
between trigger and use, most of it before the data moves. Every 8 partitions have their engine; a
row (one partition's share) takes its bytes at the engine's rate, at least `dma_efficient_bytes` of
them, or its discontiguous pieces if they take longer. Bytes from and to HBM also pass the stack,
whose bandwidth is shared equally by its cores that move data.

A transfer begins when each of its engines has at most one other to move before it (`takes_at`), and
engines serve transfers in that order. Packets of less than `dma_efficient_bytes` are the exception:
an engine takes turns between queues, a packet of each, so a transfer of small packets gets a small
share while there are others and goes at full rate in between; each engine has one such transfer at
a time. Its work is added to that of the transfers beside it when it is over.

Who makes descriptors where a kernel doesn't say: nobody, in the order written and in kernels of
Beta 1, where they are static; later compilers leave a copy's to the hardware, if it can make them.

Queues, a choice of ours: in the order written, static descriptors go round the 16 queues of a core,
each of which moves one transfer at a time; as compiled, they have one queue that any number may
leave. Hardware descriptors go to the queue of the engine that commands them (Sync unless the kernel
says Scalar), software descriptors to GpSimd's.

Doesn't model: turns between large packets, the stack's bandwidth that small packets take, QoS
classes, time GpSimd itself spends on software descriptors, descriptor fetches from HBM.
Follows: DMAO, DMAB, DGE; pictures of profiles in AWS's tutorial of a matmul's optimisation, where
all packets are dynamic; A3's time of an instruction of DGE.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from nki_dist.arch import Arch
from nki_dist.isa.spec import Cost
from nki_dist.program import Access, Instruction
from nki_dist.timing.stack import HbmBandwidth


@dataclass(frozen=True)
class Transfer:
    """A DMA instruction's demands.

    Attributes:
        mode: who writes descriptors: "none" (static), "hwdge" or "swdge".
        queue: name of its queue, or "" for the next of the static ones.
        issue_ns: time until its queue can trigger another.
        lead_ns: from the trigger to the first byte.
        parts: (engine, ns) for each DMA engine it uses.
        packets: the most that one engine has to move, if they are small; else 0. Where engines
            take turns between queues, such a transfer has a small share.
        packet_ns: what one of its packets takes an engine.
        hbm_read, hbm_written: bytes.
        engines: those of `parts`; `busiest`: the part that takes longest.
    """

    mode: str
    queue: str
    issue_ns: float
    lead_ns: float
    parts: tuple[tuple[int, float], ...]
    packets: float
    packet_ns: float
    hbm_read: int
    hbm_written: int
    engines: tuple[int, ...] = field(init=False, repr=False, compare=False)
    busiest: tuple[int, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "engines", tuple([e for e, _ in self.parts]))
        object.__setattr__(self, "busiest", max(self.parts, key=lambda part: part[1]))


def transfer(
    i: Instruction,
    cost: Cost,
    reads: Sequence[Access],
    writes: Sequence[Access],
    arch: Arch,
    generates: bool = False,
) -> Transfer:
    """Work out the demands of a DMA instruction.

    Args:
        generates: the compiler leaves the descriptors of copies to the hardware if it can make
            them and the kernel doesn't say otherwise.
    """
    mode = _mode(i, (*reads, *writes), arch)
    queue = _queue(i, mode)
    # Only instructions that may say which engine commands the hardware have such descriptors.
    by_hardware = generates and arch.has_hwdge and "engine" in i.args
    if mode == "none" and by_hardware and not _requested(i):
        mode = "hwdge"
    issue = {
        "none": arch.dma_trigger_ns,
        "hwdge": arch.dma_issue_hwdge_ns,
        "swdge": arch.dma_issue_swdge_ns,
    }[mode]
    lead = max(issue, arch.dma_semaphore_ns * arch.dma_lead_fraction)
    parts = _parts(cost, (*writes, *reads), arch)
    return Transfer(
        mode,
        queue,
        issue,
        lead,
        parts,
        *_packets(cost, parts, arch),
        sum(a.nbytes for a in reads if a.region.is_hbm),
        sum(a.nbytes for a in writes if a.region.is_hbm),
    )


def spilling(size: int, arch: Arch) -> Transfer:
    """The demands of saving or loading a spilled tensor: large packets on all engines."""
    ns = size / arch.dma_engines / arch.dma_engine_gbps
    parts = tuple((e, ns) for e in range(arch.dma_engines))
    packet_ns = arch.dma_packet_bytes / arch.dma_engine_gbps
    return Transfer("none", "", 0.0, 0.0, parts, 0.0, packet_ns, size, 0)


def _label(value: Any) -> str:
    return getattr(value, "name", "") or ""


def _requested(i: Instruction) -> str:
    mode = _label(i.args.get("dge_mode"))
    return "" if mode == "unknown" else mode


def _mode(i: Instruction, accesses: Sequence[Access], arch: Arch) -> str:
    """As asked; else static descriptors where addresses are, and the best that can do otherwise."""
    if requested := _requested(i):
        return requested
    kinds = {a.dynamic.kind for a in accesses if a.dynamic is not None}
    if kinds - {"scalar"} or (kinds and not arch.has_hwdge):
        return "swdge"
    return "hwdge" if kinds else "none"


def _queue(i: Instruction, mode: str) -> str:
    if mode == "hwdge":
        hint = _label(i.args.get("engine"))
        return f"dma hwdge {'scalar' if hint == 'scalar' else 'sync'}"
    return "dma swdge" if mode == "swdge" else ""


def first_partition(a: Access) -> int:
    """Where an access on chip begins; 0 in HBM."""
    if not a.region.on_chip:
        return 0
    address = a.storage.address
    return a.start_partition + (address[0] if address else 0)


def _parts(cost: Cost, accesses: Sequence[Access], arch: Arch) -> tuple[tuple[int, float], ...]:
    """Time on each DMA engine."""
    on_chip = [a for a in accesses if a.region.on_chip]
    if on_chip:
        widest = max(on_chip, key=lambda a: a.shape[0])
        return _by_rows(cost, first_partition(widest), widest.shape[0], arch)
    # Within HBM: dealt out in packets.
    packets = -(-cost.dma_bytes // arch.dma_packet_bytes)
    shares = min(arch.dma_engines, max(cost.dma_elements, packets))
    each = _row_ns(cost.dma_bytes / shares, cost.dma_elements / shares, arch)
    return tuple((e, each) for e in range(shares))


def _by_rows(cost: Cost, first: int, rows: int, arch: Arch) -> tuple[tuple[int, float], ...]:
    """Time on each DMA engine of a transfer whose rows lie on partitions from `first` on."""
    per_row = _row_ns(cost.dma_bytes / rows, cost.dma_elements / rows, arch)
    share = arch.dma_partitions_per_engine
    parts = []
    row = first
    while row < first + rows:
        n = min(share - row % share, first + rows - row)
        parts.append((row // share % arch.dma_engines, n * per_row))
        row += n
    return tuple(parts)


def shared(t: Transfer, cost: Cost, rows: int, arch: Arch) -> Transfer:
    """The demands of a transfer whose data lay on other partitions, so many of them."""
    cost = replace(cost, dma_elements=max(cost.dma_elements, rows))
    parts = _by_rows(cost, t.engines[0] * arch.dma_partitions_per_engine, rows, arch)
    packets, packet_ns = _packets(cost, parts, arch)
    return replace(t, parts=parts, packets=packets, packet_ns=packet_ns)


def _packets(cost: Cost, parts: tuple[tuple[int, float], ...], arch: Arch) -> tuple[float, float]:
    """Packets of the busiest engine, if they are smaller than DMA moves well, and the ns of one."""
    size = min(cost.dma_bytes / max(cost.dma_elements, 1), arch.dma_packet_bytes)
    each = _row_ns(size, 1, arch)
    if cost.dma_bytes >= cost.dma_elements * arch.dma_efficient_bytes:
        return 0.0, each
    return cost.dma_elements * max(ns for _, ns in parts) / sum(ns for _, ns in parts), each


def _row_ns(size: float, pieces: float, arch: Arch) -> float:
    """A row, on one partition; a short one takes as long as one that DMA moves well."""
    long = max(size, arch.dma_efficient_bytes) / arch.dma_engine_gbps
    return max(long, pieces * arch.dma_element_ns)


def _equal_engines(engines: int, transfers: Iterable[Transfer]) -> tuple[list[int], int]:
    """For each engine the number of its block: those that every transfer asks for the same.

    Returns:
        besides, how many blocks transfers ask for.
    """
    demands: list[list[tuple[int, float]]] = [[] for _ in range(engines)]
    for n, parts in enumerate(dict.fromkeys([t.parts for t in transfers])):
        for engine, ns in parts:
            demands[engine].append((n, ns))
    numbers: dict[tuple[tuple[int, float], ...], int] = {}
    blocks = [numbers.setdefault(tuple(each), len(numbers)) for each in demands]
    return blocks, len(numbers) - (() in numbers)


class _Demand(NamedTuple):
    """What a transfer asks of the blocks: (block, ns) of each, the blocks, and the busiest part."""

    transfer: Transfer
    parts: tuple[tuple[int, float], ...]
    blocks: tuple[int, ...]
    busiest: tuple[int, float]


class DmaEngines:
    """The DMA engines of one core; each moves large packets in the order it is asked.

    Engines that every transfer asks for the same always are in the same state, so it's kept once
    for each such block; most kernels' transfers all use all engines, evenly.

    Args:
        transfers: all that will be run, but for those that ask all engines for the same; None if
            that isn't known: then every engine is a block.

    Attributes:
        free: when each block has moved all it was given.
        before: when it has moved all but the last of that.
        user: whose data it moves last, as `run` was told.
    """

    def __init__(self, arch: Arch, transfers: Iterable[Transfer] | None = None) -> None:
        engines = arch.dma_engines
        self._block, self._used = [*range(engines)], engines
        if transfers is not None:
            self._block, self._used = _equal_engines(engines, transfers)
        blocks = max(self._block) + 1
        self.free = [0.0] * blocks
        self.before = [0.0] * blocks
        self.user = [-1] * blocks
        self._busy = [0.0] * blocks
        self._taken = [0.0] * blocks  # by transfers of large packets, up to `free`
        self._turn_ns = [0.0] * blocks  # a packet of the last transfer of large ones
        self._scattered: dict[int, _Scattered] = {}  # by block
        self._demands: dict[int, _Demand] = {}  # by identity of the transfer

    @property
    def busy(self) -> list[float]:
        """Ns that each engine was moving data."""
        return [self._busy[block] for block in self._block]

    def _demand(self, t: Transfer) -> _Demand:
        found = self._demands.get(id(t))
        if found is None:
            parts = tuple({self._block[e]: ns for e, ns in t.parts}.items())
            blocks = tuple([block for block, _ in parts])
            busiest = self._block[t.busiest[0]], t.busiest[1]
            found = self._demands[id(t)] = _Demand(t, parts, blocks, busiest)
        return found

    def takes_at(self, t: Transfer) -> float:
        """When every engine of a transfer has at most one other to move before."""
        before = self.before
        blocks = self._demand(t).blocks
        if len(blocks) == 1:
            return before[blocks[0]]
        return max([before[block] for block in blocks])

    def run(
        self, who: int, t: Transfer, since: float, at: float, stack: HbmBandwidth
    ) -> tuple[float, int]:
        """Move the data of a transfer from time `at`, for which it waited since `since`.

        Returns:
            its end, and the transfer it had to wait for (or -1).
        """
        free, user, parts = self.free, self.user, self._demand(t).parts
        starts = [free[e] if free[e] > at else at for e, _ in parts]
        ends = [start + ns for start, (_, ns) in zip(starts, parts, strict=True)]
        end = max(ends)
        last = parts[ends.index(end)][0]
        blocker = user[last] if free[last] > since else -1
        # Where the stack is the bottleneck, all engines of the transfer wait for it.
        late = stack.run(self, t.hbm_read + t.hbm_written, min(starts), end) - end
        for (e, ns), until in zip(parts, ends, strict=True):
            self._taken[e] += until + late - max(free[e], at)
            self.before[e], free[e] = free[e], until + late
            self._busy[e] += ns
            user[e] = who
            self._turn_ns[e] = t.packet_ns
        return end + late, blocker

    def delay(self, since: float, by: float) -> None:
        """What is asked for later waits longer, as another core had a share of the stack."""
        for block, free in enumerate(self.free):
            if free > since:
                self.free[block] = free + by
                self._taken[block] += by

    # ---- transfers of small packets -------------------------------------------------------------

    def scatters(self, t: Transfer) -> bool:
        """Whether none of a transfer's engines moves small packets already."""
        return self._scattered.keys().isdisjoint(self._demand(t).blocks)

    def all_scatter(self) -> bool:
        """Whether every engine that transfers ask for moves small packets already."""
        return len(self._scattered) == self._used

    def scatter(self, t: Transfer, at: float) -> float:
        """Begin a transfer of small packets; when to look after it."""
        demand = self._demand(t)
        block, work = demand.busiest
        what = _Scattered(block, work, work / t.packets, at, self._moved(block, at))
        self._scattered.update(dict.fromkeys(demand.blocks, what))
        return self._next(what, at)

    def scattered(self, t: Transfer, at: float) -> float:
        """Look after a transfer of small packets: when to do so again, or `at` if it is over."""
        demand = self._demand(t)
        what = self._scattered[demand.blocks[0]]
        moved = self._moved(what.block, at)
        shared = moved - what.moved
        what.left -= (at - what.looked - shared) + shared * self._share(what)
        what.looked, what.moved = at, moved
        again = self._next(what, at)
        if what.left > 1e-6 and again > at:
            return again
        for e, ns in demand.parts:
            del self._scattered[e]
            self._busy[e] += ns
            if self.free[e] > at:
                self.free[e] += ns  # which the others had to wait for
        return at

    def _moved(self, block: int, now: float) -> float:
        """Time that an engine spent on large packets until now."""
        return self._taken[block] - max(0.0, self.free[block] - now)

    def _share(self, what: _Scattered) -> float:
        """What small packets have of their engine while it also moves large ones."""
        return what.packet_ns / (what.packet_ns + self._turn_ns[what.block])

    def _next(self, what: _Scattered, now: float) -> float:
        shared = self.free[what.block] - now
        if shared <= 0:
            return now + what.left
        return now + min(max(shared, 1.0), what.left / self._share(what))


@dataclass
class _Scattered:
    """A transfer of small packets under way.

    Attributes:
        block: its busiest.
        left: ns of work there.
        packet_ns: what one of its packets takes.
        looked: when it was looked at last.
        moved: ns that the engine had spent on large packets by then.
    """

    block: int
    left: float
    packet_ns: float
    looked: float
    moved: float
