"""From a timeline to its `Profile`.

Invariant: everything is computed from the timeline, so equal launches give equal bytes. Figures
that rest on guesses say so: `assumed_costs` are instructions without a documented cost,
`assumed_parameters` the figures of the architecture nobody publishes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, Final, TypeAlias

import numpy as np

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
from nki_dist.timing.report import EngineUse, LineUse, Profile
from nki_dist.timing.timeline import CoreTimeline, Timeline

_Priced: TypeAlias = list[list[tuple[Cost, int]]]  # see `_costs`, by core
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
_DMA: Final = ("dma_element_ns", "dma_engine_gbps", "dma_floor_ns", "dma_semaphore_ns")


def make_profile(timeline: Timeline, kernel: str) -> Profile:
    """Summarise a timeline.

    Cores that have the same times are looked at once; sums of floats are those of all cores, one
    after the other, so that they round the same.
    """
    arch, cores = timeline.arch, timeline.distinct
    which = timeline.which
    times = Counter(which)
    total = timeline.total_ns
    flops, ideal = _tensor_work(timeline)
    read = sum(c.hbm_read * times[n] for n, c in enumerate(cores))
    written = sum(c.hbm_written * times[n] for n, c in enumerate(cores))
    moved = read + written
    pieces = critical_path(timeline)
    priced = [_costs(c) for c in cores]
    spent: dict[str, float] = {}
    for p in pieces:
        spent[p.kind] = spent.get(p.kind, 0.0) + (p.end - p.start) / 1000
    return Profile(
        kernel=kernel,
        platform=arch.instance,
        cores=len(which),
        total_us=total / 1000,
        overhead_us=_around(timeline) / 1000,
        instructions=sum(len(c.graph) * times[n] for n, c in enumerate(cores)),
        engines=_engines(timeline, total),
        lines=_lines(timeline, pieces),
        critical=dict(sorted(spent.items(), key=lambda item: (-item[1], item[0]))),
        hbm_read=read,
        hbm_written=written,
        flops=flops,
        all_flops=sum(
            k * cost.flops * times[n] for n, costs in enumerate(priced) for cost, k in costs
        ),
        tflops=flops / total / 1000 if total else 0.0,
        mfu=ideal / total / len(which) if total else 0.0,
        mbu=moved / (total * arch.hbm_stack_gbps * timeline.stacks) if total else 0.0,
        beta1=any(c.graph.program.beta1 for c in cores),
        schedule=timeline.schedule,
        changes=_changes(timeline),
        assumed_us=_assumed_us(timeline, pieces),
        assumed_costs=_assumed_costs(timeline, priced),
        assumed_parameters=_assumed_parameters(timeline, priced),
        timeline=timeline,
    )


def _paired(timeline: Timeline) -> bool:
    """Whether ranks have two cores."""
    return any(c.seat.core for c in timeline.distinct)


def _around(timeline: Timeline) -> float:
    """Nanoseconds on the device before and after the launch."""
    arch = timeline.arch
    around: float = arch.kernel_start_ns + arch.kernel_end_ns
    return around + (arch.kernel_pair_ns if _paired(timeline) else 0)


def _costs(core: CoreTimeline) -> list[tuple[Cost, int]]:
    """The costs of what a core executed, and how often; many instructions share theirs."""
    costs = [core.costs[i.ordinal] for i in core.graph.executed]
    each = {id(cost): cost for cost in costs}
    return [(each[key], n) for key, n in Counter(map(id, costs)).items()]


def _engines(timeline: Timeline, total: float) -> list[EngineUse]:
    uses = [_engines_of(core, timeline.arch, total) for core in timeline.distinct]
    return [EngineUse(number, *use) for number, n in enumerate(timeline.which) for use in uses[n]]


def _engines_of(
    core: CoreTimeline, arch: Arch, total: float
) -> list[tuple[str, int, float, float]]:
    busy: dict[str, float] = defaultdict(float)
    executed, loads = core.graph.executed, core.table_loads
    ends: Sequence[float] = core.end
    if core.busy_end:
        ends = [core.busy_end.get(at, end) for at, end in enumerate(core.end)]
    for at, (i, start, end) in enumerate(zip(executed, core.start, ends, strict=True)):
        if i.engine != "dma":
            busy[i.engine] += end - start
            if at in loads:
                busy[i.engine] += loads[at].end - loads[at].start
    busy["dma"] = sum(core.dma_busy) / arch.dma_engines
    count = Counter(map(attrgetter("engine"), executed))
    names = [*ENGINES, "dma", *sorted(set(count) - {*ENGINES, "dma"})]
    return [(e, count[e], busy[e] / 1000, busy[e] / total if total else 0.0) for e in names]


class _Lines:
    """The kernel lines of one core; the same instruction on one line is one entry.

    Attributes:
        took: of each entry, ns of every execution.
    """

    def __init__(self, core: CoreTimeline) -> None:
        self._where = core.graph.program.where
        self._known: dict[tuple[int, str, str], _Line] = {}
        took: dict[_Line, list[float]] = {}
        for i, start, end in zip(core.graph.executed, core.start, core.end, strict=True):
            took.setdefault(self.of(i), []).append(end - start)
        self.took = {line: np.array(ns) for line, ns in took.items()}

    def of(self, i: Instruction) -> _Line:
        short = (i.location, i.opcode, i.engine)
        line = self._known.get(short)
        if line is None:
            where = self._where(i.location) or "?"
            line = self._known[short] = (where, i.opcode, i.engine)
        return line


def _lines(timeline: Timeline, pieces: list[Piece]) -> list[LineUse]:
    which = timeline.which
    cores = [_Lines(core) for core in timeline.distinct]
    nothing = np.zeros(0)
    critical: dict[_Line, float] = {}
    for p in pieces:
        n = which[p.core]
        line = cores[n].of(timeline.distinct[n].graph.executed[p.position])
        critical[line] = critical.get(line, 0.0) + (p.end - p.start)
    uses = []
    for line in dict.fromkeys(line for core in cores for line in core.took):
        took = [core.took.get(line, nothing) for core in cores]
        count = sum(map(len, map(took.__getitem__, which)))
        longest = max((float(ns.max()) for ns in took if len(ns)), default=0.0)
        total = _in_turn(took, which)
        uses.append(
            LineUse(
                *line, count, total / 1000, max(longest, 0.0) / 1000, critical.get(line, 0.0) / 1000
            )
        )
    return sorted(uses, key=lambda x: (-x.critical_us, -x.total_us, x.location, x.opcode))


def _in_turn(took: Sequence[np.ndarray], which: Sequence[int]) -> float:
    """The sum over all cores, added one after the other."""
    total = np.zeros(1)
    for start in range(0, len(which), _TOGETHER):
        each = [took[n] for n in which[start : start + _TOGETHER]]
        total = np.add.accumulate(np.concatenate([total, *each]))[-1:]
    return float(total[0])


def _changes(timeline: Timeline) -> list[Change]:
    """What the compiler is taken to change, the most bytes first."""
    found: dict[tuple[str, str], list[int]] = {}
    times = Counter(timeline.which)
    for n, core in enumerate(timeline.distinct):
        for (location, what), (count, size) in core.changes.items():
            entry = found.setdefault((core.graph.program.where(location) or "?", what), [0, 0])
            entry[0] += count * times[n]
            entry[1] += size * times[n]
    changes = [Change(*key, count, size) for key, (count, size) in found.items()]
    return sorted(changes, key=lambda c: (-c.bytes, -c.count, c.location, c.what))


def _tensor_work(timeline: Timeline) -> tuple[int, float]:
    """FLOPs of the Tensor engines, and the ns they would take at the peak of their dtypes."""
    flops, ideal = 0, 0.0
    peak = timeline.arch.peak_tflops
    each: list[list[tuple[int, float]]] = []
    for core in timeline.distinct:
        by_dtype = Counter[str]()
        names: dict[Any, str] = {}
        for i in core.graph.executed:
            if i.engine == "tensor":
                dtype = _input_dtype(i)
                if dtype not in names:
                    names[dtype] = _float8(dtype)
                by_dtype[names[dtype]] += core.costs[i.ordinal].flops
        each.append(
            [(n, n / (peak.get(name, peak["bfloat16"]) * 1000)) for name, n in by_dtype.items()]
        )
    for number in timeline.which:
        for n, ns in each[number]:
            flops += n
            ideal += ns
    return flops, ideal


def _input_dtype(i: Instruction) -> Any:
    return getattr(i.args.get("moving", i.args.get("data")), "dtype", "")


def _float8(dtype: Any) -> str:
    """The name of a dtype; float8 has one peak for all its kinds."""
    name = str(dtype)
    return "float8" if name.startswith("float8") else name


def _assumed_costs(timeline: Timeline, priced: _Priced) -> dict[str, int]:
    """Instructions without a documented cost: how often each was executed."""
    found = Counter[str]()
    times = Counter(timeline.which)
    for number, (core, costs) in enumerate(zip(timeline.distinct, priced, strict=True)):
        if all(cost.known for cost, _ in costs):
            continue
        for at, i in enumerate(core.graph.executed):
            if at not in core.dropped and not core.costs[i.ordinal].known:
                found[i.opcode] += times[number]
    return dict(sorted(found.items()))


def _assumed_us(timeline: Timeline, pieces: list[Piece]) -> float:
    """Time on the device that rests on costs and figures nobody publishes."""
    arch = timeline.arch
    around = [("kernel_start_ns", arch.kernel_start_ns), ("kernel_end_ns", arch.kernel_end_ns)]
    if _paired(timeline):
        around.append(("kernel_pair_ns", arch.kernel_pair_ns))
    if arch.generation not in MEASURED:
        return (timeline.total_ns + sum(ns for _, ns in around)) / 1000
    assumed = {*arch.assumptions(), _UNKNOWN}
    ns = sum(ns for name, ns in around if name in assumed)
    known: dict[tuple[str, str, int], bool] = {}
    which = timeline.which
    for p in pieces:
        core = timeline.distinct[which[p.core]]
        i = core.graph.executed[p.position]
        cost = core.costs[i.ordinal]
        key = (p.kind, i.engine, id(cost))
        guessed = known.get(key)
        if guessed is None:
            guessed = known[key] = not assumed.isdisjoint(_figures(p.kind, i.engine, cost))
        if guessed:
            ns += p.end - p.start
    return ns / 1000


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


def _assumed_parameters(timeline: Timeline, priced: _Priced) -> dict[str, str]:
    """Unpublished figures that this launch's times rest on, with the reason for each."""
    used = _used_parameters(timeline, priced)
    assumed = timeline.arch.assumptions()
    return {key: assumed[key] for key in sorted(assumed) if {key, key.partition(".")[0]} & used}


def _used_parameters(timeline: Timeline, priced: _Priced) -> set[str]:
    executed = [c.graph.executed for c in timeline.distinct]
    engines = {engine for e in executed for engine in {*map(attrgetter("engine"), e)}}
    opcodes = {opcode for e in executed for opcode in {*map(attrgetter("opcode"), e)}}
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
    for costs in priced:
        used.update(*(cost.figures for cost, _ in costs))
    return used.union(*(names for names, holds in conditions.items() if holds))
