"""Makes the profile of a launch (totals, engines, lines, doubts) of the times of its instructions.

Invariant: everything is computed from the timeline, so equal launches give equal bytes. Figures
that rest on guesses say so: `assumed_costs` are instructions without a documented cost,
`assumed_parameters` the figures of the architecture nobody publishes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from nki_dist.arch import Arch
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.spec import Cost
from nki_dist.program import Instruction
from nki_dist.timing.band import MEASURED
from nki_dist.timing.compiled.plan import Change
from nki_dist.timing.critical import (
    DMA_BUSY,
    DMA_LATENCY,
    PIPELINE,
    SEMAPHORE,
    TABLE,
    Piece,
    critical_path,
)
from nki_dist.timing.kinds import Kinds, added, durations, sums
from nki_dist.timing.report import EngineUse, LineUse, Profile
from nki_dist.timing.timeline import CoreTimeline, Timeline

_Line: TypeAlias = tuple[str, str, str]  # location, opcode, engine
ENGINES: Final = ("tensor", "vector", "scalar", "gpsimd", "sync")
_TENSOR: Final = (
    "matmul_init_cycles",
    "tensor_busy_fraction",
    "tensor_ramp_fraction",
    "tensor_ramp_ns",
)
# The figure that sets the length of a piece of the critical path that no compute engine works on.
_FIGURE: Final = {
    "dma data": "dma_engine_gbps",
    DMA_BUSY: "dma_engine_gbps",
    DMA_LATENCY: "dma_semaphore_ns",
    SEMAPHORE: "semaphore_ns",
    TABLE: "act_table_load_ns",
}
_TOGETHER: Final = 4096  # cores whose times are added in one go
_UNKNOWN: Final = "cost"  # stands for a cost that nobody documents
_DMA: Final = ("dma_element_ns", "dma_engine_gbps", "dma_semaphore_ns")


def make_profile(timeline: Timeline, kernel: str) -> Profile:
    """Summarise a timeline.

    Cores that have the same times are looked at once; sums of floats are those of all cores, one
    after the other, so that they round the same.
    """
    arch, cores = timeline.arch, timeline.distinct
    which = timeline.which
    times = Counter(which)
    total = timeline.total_ns
    kinds = _kinds(cores)
    flops, ideal = _tensor_work(timeline, kinds)
    read = sum(c.hbm_read * times[n] for n, c in enumerate(cores))
    written = sum(c.hbm_written * times[n] for n, c in enumerate(cores))
    moved = read + written
    pieces = critical_path(timeline)
    path = _Path(pieces, which)
    return Profile(
        kernel=kernel,
        platform=arch.instance,
        cores=len(which),
        total_us=total / 1000,
        overhead_us=sum(_overheads(timeline).values()) / 1000,
        instructions=sum(len(c.graph) * times[n] for n, c in enumerate(cores)),
        engines=_engines(timeline, kinds, total),
        lines=_lines(timeline, kinds, path),
        critical=dict(sorted(path.spent().items(), key=lambda item: (-item[1], item[0]))),
        hbm_read=read,
        hbm_written=written,
        flops=flops,
        all_flops=sum(
            k * cost.flops * times[n]
            for n, mine in enumerate(kinds)
            for cost, k in zip(mine.costs, mine.counts, strict=True)
        ),
        tflops=flops / total / 1000 if total else 0.0,
        mfu=ideal / total / len(which) if total else 0.0,
        mbu=moved / (total * arch.hbm_stack_gbps * timeline.stacks) if total else 0.0,
        beta1=any(c.graph.program.beta1 for c in cores),
        schedule=timeline.schedule,
        changes=_changes(timeline),
        assumed_us=_assumed_us(timeline, kinds, path),
        assumed_costs=_assumed_costs(timeline, kinds),
        assumed_parameters=_assumed_parameters(timeline, kinds),
        timeline=timeline,
    )


def _overheads(timeline: Timeline) -> dict[str, float]:
    """By figure, the ns on the device before and after the launch."""
    names = ["kernel_start_ns", "kernel_end_ns"]
    if any(c.seat.core for c in timeline.distinct):  # ranks have two cores
        names.append("kernel_pair_ns")
    return {name: getattr(timeline.arch, name) for name in names}


def _kinds(cores: Sequence[CoreTimeline]) -> list[Kinds]:
    """The kinds of each core's instructions; cores that executed the same share them."""
    cache: dict[int, Kinds] = {}
    for c in cores:
        if id(c.graph) not in cache:
            cache[id(c.graph)] = Kinds(c)
    return [cache[id(c.graph)] for c in cores]


class _Path:
    """The critical path in columns.

    Attributes:
        cores, positions: whose pieces they are; cores by their number in `distinct`.
        names, what: the things that time was spent on, and for each piece the number of its own.
        took: ns.
    """

    def __init__(self, pieces: Sequence[Piece], which: Sequence[int]) -> None:
        columns = zip(*pieces, strict=True) if pieces else ((),) * 5
        cores, positions, starts, ends, what = columns
        numbers: dict[str, int] = {}
        self.what = np.array([numbers.setdefault(w, len(numbers)) for w in what], np.intp)
        self.names = list(numbers)
        self.cores = np.array([which[core] for core in cores], np.intp)
        self.positions = np.array(positions, np.intp)
        self.took = durations(starts, ends)

    def spent(self) -> dict[str, float]:
        """Microseconds by what they were spent on."""
        us = sums(self.what, self.took / 1000, len(self.names))
        return dict(zip(self.names, us, strict=True))

    def of(self, by_core: Sequence[NDArray[np.intp]]) -> NDArray[np.intp]:
        """For each piece, the number that its core has at its position."""
        if len(by_core) == 1:
            return by_core[0][self.positions]
        first = np.cumsum([0, *map(len, by_core)])
        return np.concatenate(by_core)[first[self.cores] + self.positions]


def _engines(timeline: Timeline, kinds: Sequence[Kinds], total: float) -> list[EngineUse]:
    uses = [
        _engines_of(core, k, timeline.arch, total)
        for core, k in zip(timeline.distinct, kinds, strict=True)
    ]
    return [EngineUse(number, *use) for number, n in enumerate(timeline.which) for use in uses[n]]


def _engines_of(
    core: CoreTimeline, kinds: Kinds, arch: Arch, total: float
) -> list[tuple[str, int, float, float]]:
    ends: Sequence[float] = core.end
    if core.busy_end:
        ends = [core.busy_end.get(at, end) for at, end in enumerate(core.end)]
    names = sorted({i.engine for i in kinds.examples} - {*ENGINES, "dma"})
    names = [*ENGINES, "dma", *names]
    place = {name: n for n, name in enumerate(names)}
    engine = np.array([place[i.engine] for i in kinds.examples], np.intp)[kinds.of]
    took = durations(core.start, ends)
    count = np.bincount(engine, minlength=len(names)).tolist()
    loads = sorted(core.table_loads)
    if loads:  # each follows its instruction
        after = np.array(loads) + 1
        loading = [core.table_loads[at].end - core.table_loads[at].start for at in loads]
        took, engine = np.insert(took, after, loading), np.insert(engine, after, engine[loads])
    busy = sums(engine, took, len(names))
    busy[place["dma"]] = sum(core.dma_busy) / arch.dma_engines
    return [
        (e, count[n], busy[n] / 1000, busy[n] / total if total else 0.0)
        for n, e in enumerate(names)
    ]


def _lines(timeline: Timeline, kinds: Sequence[Kinds], path: _Path) -> list[LineUse]:
    """What was spent on each kernel line; the same instruction on one line is one entry."""
    numbers: dict[_Line, int] = {}
    by_core: list[NDArray[np.intp]] = []
    took: list[NDArray[np.float64]] = []
    for core, k in zip(timeline.distinct, kinds, strict=True):
        lines = [
            numbers.setdefault((core.graph.line(i.location), i.opcode, i.engine), len(numbers))
            for i in k.examples
        ]
        by_core.append(np.array(lines, np.intp)[k.of])
        took.append(durations(core.start, core.end))
    n = len(numbers)
    times = Counter(timeline.which)
    count, longest = np.zeros(n, np.intp), np.zeros(n)
    for number, (line, ns) in enumerate(zip(by_core, took, strict=True)):
        count += times[number] * np.bincount(line, minlength=n)
        np.maximum.at(longest, line, ns)
    columns = (
        count.tolist(),
        _in_turn(by_core, took, timeline.which, n),
        longest.tolist(),
        sums(path.of(by_core), path.took, n),
    )
    uses = [
        LineUse(*key, executed, total / 1000, most / 1000, critical / 1000)
        for key, executed, total, most, critical in zip(numbers, *columns, strict=True)
    ]
    return sorted(uses, key=lambda x: (-x.critical_us, -x.total_us, x.location, x.opcode))


def _in_turn(
    lines: Sequence[NDArray[np.intp]],
    took: Sequence[NDArray[np.float64]],
    which: Sequence[int],
    n: int,
) -> list[float]:
    """The ns of each line over all cores, added one after the other."""
    total = [0.0] * n
    for start in range(0, len(which), _TOGETHER):
        some = which[start : start + _TOGETHER]
        line = np.concatenate([np.arange(n), *[lines[k] for k in some]])
        total = sums(line, np.concatenate([total, *[took[k] for k in some]]), n)
    return total


def _changes(timeline: Timeline) -> list[Change]:
    """What the compiler is taken to change, the most bytes first."""
    found: dict[tuple[str, str], list[int]] = {}
    times = Counter(timeline.which)
    for n, core in enumerate(timeline.distinct):
        for (location, what), (count, size) in core.changes.items():
            entry = found.setdefault((core.graph.line(location), what), [0, 0])
            entry[0] += count * times[n]
            entry[1] += size * times[n]
    changes = [Change(*key, count, size) for key, (count, size) in found.items()]
    return sorted(changes, key=lambda c: (-c.bytes, -c.count, c.location, c.what))


def _tensor_work(timeline: Timeline, kinds: Sequence[Kinds]) -> tuple[int, float]:
    """FLOPs of the Tensor engines, and the ns they would take at the peak of their dtypes."""
    flops, ideal = 0, 0.0
    peak = timeline.arch.peak_tflops
    each: list[list[tuple[int, float]]] = []
    for k in kinds:
        by_dtype = Counter[str]()
        for i, cost, count in zip(k.examples, k.costs, k.counts, strict=True):
            if i.engine == "tensor":
                by_dtype[_input_dtype(i)] += count * cost.flops
        each.append(
            [(n, n / (peak.get(dtype, peak["bfloat16"]) * 1000)) for dtype, n in by_dtype.items()]
        )
    for number in timeline.which:
        for n, ns in each[number]:
            flops += n
            ideal += ns
    return flops, ideal


def _input_dtype(i: Instruction) -> str:
    """The name of what a product multiplies; float8 has one peak for all its kinds."""
    name = str(getattr(i.args.get("moving", i.args.get("data")), "dtype", ""))
    return "float8" if name.startswith("float8") else name


def _assumed_costs(timeline: Timeline, kinds: Sequence[Kinds]) -> dict[str, int]:
    """Instructions without a documented cost: how often each was executed."""
    found = Counter[str]()
    times = Counter(timeline.which)
    for number, (core, k) in enumerate(zip(timeline.distinct, kinds, strict=True)):
        left_out = Counter[int](k.of[sorted(core.dropped)].tolist())
        for n, (i, cost) in enumerate(zip(k.examples, k.costs, strict=True)):
            if not cost.known and k.counts[n] > left_out[n]:
                found[i.opcode] += (k.counts[n] - left_out[n]) * times[number]
    return dict(sorted(found.items()))


def _assumed_us(timeline: Timeline, kinds: Sequence[Kinds], path: _Path) -> float:
    """Time on the device that rests on costs and figures nobody publishes."""
    arch, overheads = timeline.arch, _overheads(timeline)
    if arch.generation not in MEASURED:
        return (timeline.total_ns + sum(overheads.values())) / 1000
    assumed = {*arch.assumptions(), _UNKNOWN}
    ns = sum(ns for name, ns in overheads.items() if name in assumed)
    guessed = np.zeros(len(path.took), bool)
    for number, k in enumerate(kinds):
        mine = np.flatnonzero(path.cores == number)
        pairs = path.what[mine] * len(k.examples) + k.of[path.positions[mine]]
        different, which = np.unique(pairs, return_inverse=True)
        rests = []
        for pair in different.tolist():
            what, kind = divmod(pair, len(k.examples))
            figures = _figures(path.names[what], k.examples[kind].engine, k.costs[kind])
            rests.append(not assumed.isdisjoint(figures))
        guessed[mine] = np.array(rests, bool)[which]
    return added(ns, path.took[guessed]) / 1000


def _figures(kind: str, engine: str, cost: Cost) -> tuple[str, ...]:
    """What the length of a piece of the critical path rests on; of a cost nobody knows, itself."""
    if kind == engine:
        clock = ("engine_clock_ghz", f"engine_clock_ghz.{engine}")
        return (*clock, *cost.figures, *(() if cost.known else (_UNKNOWN,)))
    if kind != PIPELINE:
        return (_FIGURE[kind],) if kind in _FIGURE else ()
    if engine == "scalar":
        return ("activate_latency_ns",)
    return ("dependent_latency", f"dependent_latency.{engine}")


def _assumed_parameters(timeline: Timeline, kinds: Sequence[Kinds]) -> dict[str, str]:
    """Unpublished figures that this launch's times rest on, with the reason for each."""
    used = _used_parameters(timeline, kinds)
    assumed = timeline.arch.assumptions()
    return {key: assumed[key] for key in sorted(assumed) if {key, key.partition(".")[0]} & used}


def _used_parameters(timeline: Timeline, kinds: Sequence[Kinds]) -> set[str]:
    engines = {i.engine for k in kinds for i in k.examples}
    opcodes = {i.opcode for k in kinds for i in k.examples}
    # Most instructions share theirs with others of the same pattern.
    transfers = {id(t): t for c in timeline.distinct for t in c.transfers.values()}.values()
    modes = {t.mode for t in transfers}
    used = {f"{table}.{e}" for e in engines for table in ("engine_clock_ghz", "dependent_latency")}
    conditions = {
        ("semaphore_ns", "dynamic_address_cycles"): bool(engines),
        _TENSOR: "tensor" in engines,
        ("register_cycles",): "sync" in engines,
        ("activate_latency_ns", "act_table_load_ns"): "scalar" in engines,
        _DMA: bool(transfers),
        ("dma_trigger_ns",): "none" in modes,
        ("dma_issue_hwdge_ns",): "hwdge" in modes,
        ("dma_issue_swdge_ns",): "swdge" in modes,
        ("hbm_stack_gbps",): any(t.hbm_read or t.hbm_written for t in transfers),
    }
    for opcode in opcodes:
        meets = INSTRUCTIONS[opcode].meets
        used.update(meets.figures.split() if meets is not None else ())
    for k in kinds:
        used.update(*(cost.figures for cost in k.costs))
    return used.union(*(names for names, holds in conditions.items() if holds))
