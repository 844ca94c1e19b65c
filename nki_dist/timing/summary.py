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
    return _Summary(timeline).profile(kernel)


class _Summary:
    """A timeline, added up.

    Attributes:
        each: distinct cores, the kinds of their instructions, and how many cores have their times.
        overheads: by figure, the ns on the device before and after the launch.
    """

    def __init__(self, timeline: Timeline) -> None:
        self.timeline, self.arch, self.which = timeline, timeline.arch, timeline.which
        cores, times = timeline.distinct, Counter(self.which)
        kinds = {graph: Kinds(c) for graph, c in {id(c.graph): c for c in cores}.items()}
        self.each = [(c, kinds[id(c.graph)], times[n]) for n, c in enumerate(cores)]
        self.total = timeline.total_ns
        self.path = _Path(critical_path(timeline), self.which)
        names = ["kernel_start_ns", "kernel_end_ns"]
        if any(c.seat.core for c in cores):  # ranks have two cores
            names.append("kernel_pair_ns")
        self.overheads: dict[str, float] = {name: getattr(self.arch, name) for name in names}

    def profile(self, kernel: str) -> Profile:
        timeline, total, cores = self.timeline, self.total, len(self.which)
        flops, ideal = self._tensor_work()
        read = sum(c.hbm_read * times for c, _, times in self.each)
        written = sum(c.hbm_written * times for c, _, times in self.each)
        bandwidth = total * self.arch.hbm_stack_gbps * timeline.stacks
        spent = sorted(self.path.spent().items(), key=lambda item: (-item[1], item[0]))
        return Profile(
            kernel=kernel,
            platform=self.arch.instance,
            cores=cores,
            total_us=total / 1000,
            overhead_us=sum(self.overheads.values()) / 1000,
            instructions=sum(len(c.graph) * times for c, _, times in self.each),
            engines=self._engines(),
            lines=self._lines(),
            critical=dict(spent),
            hbm_read=read,
            hbm_written=written,
            flops=flops,
            all_flops=sum(
                k * cost.flops * times
                for _, kinds, times in self.each
                for cost, k in zip(kinds.costs, kinds.counts, strict=True)
            ),
            tflops=flops / total / 1000 if total else 0.0,
            mfu=ideal / total / cores if total else 0.0,
            mbu=(read + written) / bandwidth if total else 0.0,
            beta1=any(c.graph.program.beta1 for c, _, _ in self.each),
            schedule=timeline.schedule,
            changes=self._changes(),
            assumed_us=self._assumed_us(),
            assumed_costs=self._assumed_costs(),
            assumed_parameters=self._assumed_parameters(),
            timeline=timeline,
        )

    def _engines(self) -> list[EngineUse]:
        uses = [self._engines_of(core, kinds) for core, kinds, _ in self.each]
        return [EngineUse(number, *use) for number, n in enumerate(self.which) for use in uses[n]]

    def _engines_of(self, core: CoreTimeline, kinds: Kinds) -> list[tuple[str, int, float, float]]:
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
        busy[place["dma"]] = sum(core.dma_busy) / self.arch.dma_engines
        return [
            (e, count[n], busy[n] / 1000, busy[n] / self.total if self.total else 0.0)
            for n, e in enumerate(names)
        ]

    def _lines(self) -> list[LineUse]:
        """What was spent on each kernel line; the same instruction on one line is one entry."""
        numbers: dict[_Line, int] = {}
        by_core: list[NDArray[np.intp]] = []
        took: list[NDArray[np.float64]] = []
        for core, kinds, _ in self.each:
            lines = [
                numbers.setdefault((core.graph.line(i.location), i.opcode, i.engine), len(numbers))
                for i in kinds.examples
            ]
            by_core.append(np.array(lines, np.intp)[kinds.of])
            took.append(durations(core.start, core.end))
        n = len(numbers)
        count, longest = np.zeros(n, np.intp), np.zeros(n)
        for (*_, times), line, ns in zip(self.each, by_core, took, strict=True):
            count += times * np.bincount(line, minlength=n)
            np.maximum.at(longest, line, ns)
        total = [0.0] * n  # over all cores, added one after the other
        for start in range(0, len(self.which), _TOGETHER):
            some = self.which[start : start + _TOGETHER]
            line = np.concatenate([np.arange(n), *[by_core[k] for k in some]])
            total = sums(line, np.concatenate([total, *[took[k] for k in some]]), n)
        critical = sums(self.path.of(by_core), self.path.took, n)
        columns = zip(numbers, count.tolist(), total, longest.tolist(), critical, strict=True)
        uses = [LineUse(*key, k, *(ns / 1000 for ns in times)) for key, k, *times in columns]
        return sorted(uses, key=lambda x: (-x.critical_us, -x.total_us, x.location, x.opcode))

    def _changes(self) -> list[Change]:
        """What the compiler is taken to change, the most bytes first."""
        found: dict[tuple[str, str], list[int]] = {}
        for core, _, times in self.each:
            for (location, what), (count, size) in core.changes.items():
                entry = found.setdefault((core.graph.line(location), what), [0, 0])
                entry[0] += count * times
                entry[1] += size * times
        changes = [Change(*key, count, size) for key, (count, size) in found.items()]
        return sorted(changes, key=lambda c: (-c.bytes, -c.count, c.location, c.what))

    def _tensor_work(self) -> tuple[int, float]:
        """FLOPs of the Tensor engines, and the ns they would take at the peak of their dtypes."""
        flops, ideal = 0, 0.0
        peak = self.arch.peak_tflops
        each: list[list[tuple[int, float]]] = []
        for _, kinds, _ in self.each:
            work = Counter[str]()
            for i, cost, count in zip(kinds.examples, kinds.costs, kinds.counts, strict=True):
                if i.engine == "tensor":
                    work[_input_dtype(i)] += count * cost.flops
            each.append([(n, n / (peak.get(d, peak["bfloat16"]) * 1000)) for d, n in work.items()])
        for number in self.which:
            for n, ns in each[number]:
                flops += n
                ideal += ns
        return flops, ideal

    def _assumed_costs(self) -> dict[str, int]:
        """Instructions without a documented cost: how often each was executed."""
        found = Counter[str]()
        for core, kinds, times in self.each:
            left_out = Counter[int](kinds.of[sorted(core.dropped)].tolist())
            for n, (i, cost) in enumerate(zip(kinds.examples, kinds.costs, strict=True)):
                if not cost.known and kinds.counts[n] > left_out[n]:
                    found[i.opcode] += (kinds.counts[n] - left_out[n]) * times
        return dict(sorted(found.items()))

    def _assumed_us(self) -> float:
        """Time on the device that rests on costs and figures nobody publishes."""
        arch, path = self.arch, self.path
        if arch.generation not in MEASURED:
            return (self.total + sum(self.overheads.values())) / 1000
        assumed = {*arch.assumptions(), _UNKNOWN}
        ns = sum(ns for name, ns in self.overheads.items() if name in assumed)
        guessed = np.zeros(len(path.took), bool)
        for number, (_, k, _) in enumerate(self.each):
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

    def _assumed_parameters(self) -> dict[str, str]:
        """Unpublished figures that this launch's times rest on, with the reason for each."""
        used, assumed = self._used_parameters(), self.arch.assumptions()
        return {key: assumed[key] for key in sorted(assumed) if {key, key.partition(".")[0]} & used}

    def _used_parameters(self) -> set[str]:
        kinds = [k for _, k, _ in self.each]
        engines = {i.engine for k in kinds for i in k.examples}
        opcodes = {i.opcode for k in kinds for i in k.examples}
        # Most instructions share theirs with others of the same pattern.
        transfers = {id(t): t for c, _, _ in self.each for t in c.transfers.values()}.values()
        modes = {t.mode for t in transfers}
        used = {f"{t}.{e}" for e in engines for t in ("engine_clock_ghz", "dependent_latency")}
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


def _input_dtype(i: Instruction) -> str:
    """The name of what a product multiplies; float8 has one peak for all its kinds."""
    name = str(getattr(i.args.get("moving", i.args.get("data")), "dtype", ""))
    return "float8" if name.startswith("float8") else name


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
