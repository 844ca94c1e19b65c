"""Decides what goes to HBM and comes back because it doesn't fit on chip: which bytes, and when.

In the order written, whenever a piece has no room, the one whose next use lies farthest ahead
leaves (Belady's rule, which moves least for pieces of one size). It is saved after its last use
and loaded before the next one; what was loaded from an input needn't be saved. Only what the kernel
didn't place can leave. So much more leaves as DMA moves while a save and a load wait to begin:
otherwise everybody who needs room would wait for both. Not so in kernels of Beta 1: one that spills
(matmul_v2_b16 in bench/data) takes the time of such waits.

Follows: AWS's description of spills in its profiles; A2, "memory hierarchy".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heappop, heappush

from nki_dist.arch import Arch
from nki_dist.program import MemoryRegion
from nki_dist.timing.capacity import capacities, needed_bytes
from nki_dist.timing.compiled.plan import Plan
from nki_dist.timing.order import OrderGraph
from nki_dist.timing.pieces import pieces


def spill(graph: OrderGraph, plan: Plan, arch: Arch) -> None:
    """Find the pieces of tensors that leave SBUF for a while."""
    storages = graph.program.storages
    most = capacities(storages, arch)[MemoryRegion.sbuf]
    needed = {
        s.number: needed_bytes(s, arch)
        for s in storages
        if s.region is MemoryRegion.sbuf and not s.placed and s.first >= 0
    }
    if sum(needed.values()) <= most:
        return
    if _fits(_tensors(graph, plan, needed), needed, most):  # whole, which is quicker to tell
        return
    what = pieces(graph, plan, needed)
    by_position = what.touched
    size = [what.part(n, needed[s.number]) for n, s in enumerate(what.storages)]
    nbytes = [what.part(n, s.nbytes) for n, s in enumerate(what.storages)]
    if _fits(by_position, dict(enumerate(size)), most):
        return
    uses: dict[int, list[int]] = {}
    for at, numbers in enumerate(by_position):
        for n in numbers:
            uses.setdefault(n, []).append(at)
    turn = dict.fromkeys(uses, 0)  # how many uses are over
    there: dict[int, int] = {}  # piece -> its last use so far
    farthest: list[tuple[int, int]] = []  # (-next use, piece)
    gone: dict[int, int] = {}  # piece -> bytes saved
    loaded = _loaded(graph, needed)
    saved = {n for n, s in enumerate(what.storages) if s.number in loaded}  # HBM has what they hold
    waiting = 2 * arch.dma_semaphore_ns * arch.dma_engines * arch.dma_engine_gbps  # bytes
    most -= int(waiting / arch.partition_quadrant) if plan.close else 0
    used = 0
    for at, numbers in enumerate(by_position):
        if not numbers:
            continue
        written = what.written[at]
        for n in numbers:
            if n not in there:
                used += size[n]
                if n in gone:
                    plan.renewed[what.storages[n].number, what.spans[n][0], at] = gone.pop(n)
                    plan.note(graph.executed[at].location, "reloaded", nbytes[n])
            there[n] = at
            if n in written and at != uses[n][0]:
                saved.discard(n)
        while used > most:
            while farthest and (
                farthest[0][1] not in there
                or farthest[0][1] in numbers
                or -farthest[0][0] != uses[farthest[0][1]][turn[farthest[0][1]]]
            ):
                heappop(farthest)
            if not farthest:
                break  # one instruction's own operands
            victim = heappop(farthest)[1]
            last = there.pop(victim)
            used -= size[victim]
            gone[victim] = 0 if victim in saved else nbytes[victim]
            if gone[victim]:
                saved.add(victim)
                plan.note(graph.executed[last].location, "spilled", nbytes[victim])
        for n in numbers:
            turn[n] += 1
            if turn[n] == len(uses[n]):
                used -= size[n]
                del there[n]
            else:
                heappush(farthest, (-uses[n][turn[n]], n))


def _tensors(graph: OrderGraph, plan: Plan, of: Collection[int]) -> list[set[int]]:
    """By position, the storages that an instruction touches; none if it is dropped."""
    same, found = plan.same, []
    for at, i in enumerate(graph.executed):
        reads, writes = graph.tensors[i.ordinal] if at not in plan.dropped else ((), ())
        numbers = {a.storage.number for a in (*reads, *writes)}
        found.append({m for n in numbers if (m := same.get(n, n)) in of})
    return found


def _fits(by_position: Sequence[Collection[int]], size: Mapping[int, int], most: int) -> bool:
    """Whether all that is in use at once, from first to last use, has room in the order written."""
    last = {n: at for at, numbers in enumerate(by_position) for n in numbers}
    there: set[int] = set()
    used = 0
    for at, numbers in enumerate(by_position):
        for n in numbers:
            if n not in there:
                there.add(n)
                used += size[n]
        if used > most:
            return False
        for n in numbers:
            if last[n] == at:
                used -= size[n]
    return True


def _loaded(graph: OrderGraph, of: Collection[int]) -> set[int]:
    """Tensors whose only writes are loads of what nobody writes; they needn't be saved."""
    constant = {s.number for s in graph.program.storages if not s.written}
    found, other = set(), set()
    for i in graph.executed:
        reads, writes = graph.tensors[i.ordinal]
        numbers = {a.storage.number for a in writes if a.storage.number in of}
        if i.engine == "dma" and all(a.storage.number in constant for a in reads):
            found |= numbers
        else:
            other |= numbers
    return found - other
