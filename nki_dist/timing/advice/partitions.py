"""A rule about partitions that lie idle: tiles that use few of them and have long rows.

An engine takes as long for one partition as for all, and a DMA engine serves eight of them, so a
tile of few partitions with long rows leaves most of both unused. Idle partitions can get pieces of
each row, or rows of other tiles that don't depend on this one; `packs` says when. Where results for
pieces of a row are put together, the replay has two products and two small instructions of Vector.

Doesn't see: masks and gathers that follow rules of their own (`affine_select`, `local_gather`), a
few rows of a tile that has more, tiles whose addresses on chip are only known at run time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from nki_dist.arch import Arch
from nki_dist.isa.timing_rules import issue_cycles, product_cycles
from nki_dist.program import Instruction
from nki_dist.timing.advice.packs import LONG, Pack, packs
from nki_dist.timing.advice.rounds import at_once, independent, kinds
from nki_dist.timing.advice.suspect import Spent, Suspect, costliest, start_ns, with_costs
from nki_dist.timing.dma import shared
from nki_dist.timing.engines import drain_ns
from nki_dist.timing.fixed import Fixed
from nki_dist.timing.replay import Part
from nki_dist.timing.timeline import Timeline

_WAYS: Final = 2  # that a finding names


def idle_partitions(timeline: Timeline, spent: Spent) -> Iterator[Suspect]:
    """Tiles of few partitions with long rows."""
    arch = timeline.arch
    made: dict[int, dict[int, Fixed]] = {}
    durations: dict[str, float] = {}
    busy: dict[str, float] = {}
    joined = 1.0
    rows: set[int] = set()
    ways: dict[str, None] = {}
    for part in {id(p.graph): p for p in timeline.launch.parts}.values():
        changed = made[id(part.graph)] = {}
        for pack, way, costs, n in _better(part, arch):
            ways[way] = None
            joined = max(joined, n)
            rows.add(pack.rows)
            changed.update(costs)
        for i in part.graph.executed if changed else ():
            if i.ordinal in changed:
                line = part.graph.program.where(i.location) or "?"
                took = _work(part.fixed[i.ordinal])
                durations[line] = durations.get(line, 0.0) + took
                busy[i.engine] = busy.get(i.engine, 0.0) + took
    if not durations:
        return
    engine = max(busy, key=busy.__getitem__)
    yield Suspect(
        "idle partitions",
        f"{'DMA' if engine == 'dma' else engine.capitalize()} works {busy[engine] / 1000:,.1f} us "
        f"on tiles of {' to '.join(map(str, sorted({min(rows), max(rows)})))} of {arch.partitions} "
        f"partitions with long rows; {', or '.join([*ways][:_WAYS])}",
        costliest(durations, spent, durations),
        "AWS's performance guide, #5b: use sufficiently large tiles in the partition dimension",
        [with_costs(made, joined)],
        spent.of(durations),
    )


def _work(fixed: Fixed) -> float:
    return fixed.transfer.busiest[1] if fixed.transfer is not None else fixed.occupancy


def _better(part: Part, arch: Arch) -> Iterator[tuple[Pack, str, dict[int, Fixed], float]]:
    """Packs of a core, what to do with each, what its instructions cost then, and how many tiles
    are joined."""
    found = [pack for pack in packs(part.graph, arch) if pack.most(arch) > 1]
    kind = kinds(part, [i for pack in found if pack.joins for i in pack.members])
    sizes = independent(part.graph, kind) if kind else {}
    for pack in found:
        ways: list[tuple[str, dict[int, Fixed], float]] = []
        most = pack.most(arch)
        if pack.joins:
            many = {i.ordinal: at_once(sizes.get(kind[i.ordinal], [1]), most) for i in pack.members}
            costs = {i.ordinal: _joined(i, part, many[i.ordinal], arch) for i in pack.members}
            n = max(many.values())
            if n > 1:
                text = f"join tiles that don't depend on each other, up to {n:,.0f} in one"
                ways.append((text, costs, n))
        if pack.splits:
            costs = {i.ordinal: _in_pieces(i, part, pack, most, arch) for i in pack.members}
            shape = f"({pack.rows}, {pack.row:,}) as ({pack.rows * most}, {-(-pack.row // most):,})"
            ways.append((f"lay pieces of each row on idle partitions, {shape}", costs, 1.0))
        if ways:
            yield pack, *min(ways, key=lambda way: sum(map(_work, way[1].values())))


def _in_pieces(i: Instruction, part: Part, pack: Pack, most: int, arch: Arch) -> Fixed:
    fixed, (reads, writes) = part.fixed[i.ordinal], part.graph.tensors[i.ordinal]
    on_chip = [a for a in (*reads, *writes) if a.region.on_chip]
    length = pack.length(on_chip)
    if length >= LONG:
        pieces = min(most, length)
        if fixed.transfer is not None:
            rows = max(a.shape[0] for a in on_chip) * pieces
            fixed = replace(fixed, transfer=shared(fixed.transfer, fixed.cost, rows, arch))
        else:
            start = min(start_ns(i.engine, arch), fixed.occupancy)
            fixed = replace(fixed, occupancy=start + (fixed.occupancy - start) / pieces)
    if i.ordinal in pack.totals:
        fixed = replace(fixed, drain=fixed.drain + _put_together_ns(arch))
    return fixed


def _put_together_ns(arch: Arch) -> float:
    """Results of pieces turned, reduced, spread again and copied out of PSUM."""
    tensor, vector = (arch.engine_clock_ghz[name] for name in ("tensor", "vector"))
    product = product_cycles(arch.partitions, arch.partitions, arch) / tensor
    small = issue_cycles(arch.partitions, arch) / vector
    each = (product + drain_ns("tensor", arch), small + drain_ns("vector", arch))
    return 2 * (sum(each) + 2 * arch.semaphore_ns)


def _joined(i: Instruction, part: Part, n: float, arch: Arch) -> Fixed:
    fixed, (reads, writes) = part.fixed[i.ordinal], part.graph.tensors[i.ordinal]
    if fixed.transfer is None:
        return replace(fixed, occupancy=fixed.occupancy / n)
    rows = max(a.shape[0] for a in (*reads, *writes) if a.region.on_chip)
    whole = replace(
        fixed.cost,
        dma_bytes=round(fixed.cost.dma_bytes * n),
        dma_elements=round(fixed.cost.dma_elements * n),
    )
    return replace(fixed, transfer=shared(fixed.transfer, whole, round(rows * n), arch, n))
