"""A profile in the terms of Neuron Explorer: what its `--output-format summary-json` prints.

Names, units and definitions are those of the table `Summary` in its schema reference, version 7.4.0
(tools/neuron-explorer/profile-schema-reference.rst). Fields called `_percent` are fractions from 0
to 1, as the tool prints them. Left out is what simulated time has no counterpart of: packets and
notifications, what a neural network's graph says (`_hlo`), sizes by kind of queue, weights apart
from other inputs. `total_time` has the start and the end of a kernel on the device in it, as
`Profile.device_us` has; `total_exec_time` hasn't.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Instruction
from nki_dist.program.walk import returned
from nki_dist.timing.timeline import CoreTimeline, Timeline

ENGINES: Final = ("tensor", "vector", "scalar", "sync", "gpsimd")
# How Explorer's fields begin for the ways descriptors are made; "" is for all transfers.
_MODES: Final = {
    "none": "static_dma",
    "swdge": "software_dynamic_dma",
    "hwdge": "hardware_dynamic_dma",
}
_COUNTED: Final = (
    "sbuf_read_bytes",
    "sbuf_write_bytes",
    "psum_read_bytes",
    "psum_write_bytes",
    "psum_read_sbuf_write_count",
    "psum_read_sbuf_write_bytes",
    "spill_save_bytes",
    "spill_reload_bytes",
)
_Spans = list[tuple[float, float]]


def summary(profile: Mapping[str, Any], timeline: Timeline, name: str = "") -> dict[str, Any]:
    """A summary for each rank, by name; a rank's physical cores are one, as in Explorer.

    Args:
        profile: `Profile.to_dict()`.
        name: what names begin with; the kernel's by default.
    """
    name = name or profile["kernel"]
    ranks: dict[int, list[CoreTimeline]] = {}
    for core in timeline.cores:
        ranks.setdefault(core.seat.rank, []).append(core)
    return {
        name if len(ranks) == 1 else f"{name}_rank_{rank}": _rank(
            cores, timeline, profile["overhead_us"] * 1000
        )
        for rank, cores in sorted(ranks.items())
    }


def _rank(cores: Sequence[CoreTimeline], timeline: Timeline, around: float) -> dict[str, Any]:
    arch = timeline.arch
    ns = max((max(c.done, default=0.0) for c in cores), default=0.0)
    total = ns + around
    found: dict[str, Any] = {
        "total_time": total / 1e9,
        "total_exec_time": ns / 1e9,
        # Its base clock is 1.4 GHz on Trainium1 and 1.2 GHz on Trainium2, as Sync's.
        "neuroncore_cycle_count": round(total * arch.engine_clock_ghz["sync"]),
    }
    found.update(_engines(cores, total))
    found.update(_dma(cores, total))
    found.update(_bytes(cores))
    found.update(_flops(cores, timeline))
    seconds, gbps = total / 1e9, arch.hbm_stack_gbps * len({c.seat.stack for c in cores})
    peak = arch.peak_tflops["bfloat16"] * 1e12 * len(cores)
    moved = found["hbm_read_bytes"] + found["hbm_write_bytes"]
    useful, hardware = found["model_flops"], found["hardware_flops"]
    ratio = peak / (gbps * 1e9)
    intensity = useful / moved if moved else 0.0
    found.update(
        mm_arithmetic_intensity=intensity,
        peak_flops_bandwidth_ratio=ratio,
        mbu_estimated_percent=_share(moved / (gbps * 1e9), seconds),
        mbu_min_read_util_percent=_share(
            found["inputs_and_weights_size_bytes"] / (gbps * 1e9), seconds
        ),
        mfu_estimated_percent=_share(useful / peak, seconds),
        mfu_inst_estimated_percent=_share(useful / peak, seconds),
        mfu_max_achievable_estimated_percent=min(intensity / ratio, 1.0),
        mfu_inst_max_achievable_estimated_percent=min(intensity / ratio, 1.0),
        hfu_estimated_percent=_share(hardware / peak, seconds),
    )
    return found


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def union_ns(spans: Iterable[tuple[float, float]]) -> float:
    """How much time the spans cover together."""
    total, reach = 0.0, 0.0
    for start, end in sorted(spans):
        if end > reach:
            total += end - max(start, reach)
            reach = end
    return total


def _engines(cores: Sequence[CoreTimeline], total: float) -> dict[str, Any]:
    """Instructions of engines and collectives; of several cores, an engine is active if any is."""
    spans: dict[str, _Spans] = {e: [] for e in (*ENGINES, "cc")}
    everything: _Spans = []
    activations: _Spans = []
    for core in cores:
        for at, i in enumerate(core.graph.executed):
            if at in core.dropped:
                continue
            span = (core.start[at], core.end[at])
            everything.append(span)
            # Where it ran: the compiler is taken to give some instructions to other engines.
            engine = core.queues[core.queue[at]]
            if engine in spans:
                spans[engine].append(span)
            if i.engine == "scalar" and INSTRUCTIONS[i.opcode].table:
                activations.append(span)
    found: dict[str, Any] = {}
    names = [(f"{engine}_engine", spans[engine]) for engine in ENGINES]
    for name, some in (*names, ("activate", activations)):
        found[f"{name}_instruction_time"] = _sum(some)
        found[f"{name}_instruction_count"] = len(some)
    found.update(cc_op_time=_sum(spans["cc"]), cc_op_count=len(spans["cc"]))
    for name, some in (*names, ("cc_op", spans["cc"]), ("total", everything)):
        found |= _active(name, some, total)
    return found


def _active(name: str, spans: _Spans, total: float) -> dict[str, float]:
    active = union_ns(spans)
    percent = _share(active, total)
    return {f"{name}_active_time": active / 1e9, f"{name}_active_time_percent": percent}


def _sum(spans: _Spans) -> float:
    """Seconds of all spans, those that overlap added."""
    return sum(end - start for start, end in spans) / 1e9


def _dma(cores: Sequence[CoreTimeline], total: float) -> dict[str, Any]:
    spans: dict[str, _Spans] = {mode: [] for mode in _MODES}
    sizes = dict.fromkeys(_MODES, 0)
    queues = 0
    for core in cores:
        used = set()
        for at, i in enumerate(core.graph.executed):
            t = core.transfers.get(i.ordinal)
            if t is None or at in core.dropped:
                continue
            spans[t.mode].append((core.start[at], core.end[at]))
            sizes[t.mode] += core.costs[i.ordinal].dma_bytes
            used.add(core.queue[at])
        queues += len(used)
    every = [span for of in spans.values() for span in of]
    size, count = sum(sizes.values()), len(every)
    found: dict[str, Any] = {
        **_active("dma", every, total),
        "dma_transfer_time": _sum(every),
        "dma_transfer_count": count,
        "dma_transfer_total_bytes": size,
        "dma_transfer_average_bytes": _share(size, count),
        "dma_packet_time": sum(sum(c.dma_busy) for c in cores) / 1e9,
        "dma_queue_count": queues,
    }
    for mode, name in _MODES.items():
        found |= _active(name, spans[mode], total)
        found[f"{name}_size"] = sizes[mode]
        found[f"{name}_size_percent"] = _share(sizes[mode], size)
    dynamic = union_ns([*spans["swdge"], *spans["hwdge"]])
    found["dynamic_dma_active_time_percent"] = _share(dynamic, total)
    found["dynamic_dma_size_percent"] = _share(size - sizes["none"], size)
    return found


def _bytes(cores: Sequence[CoreTimeline]) -> dict[str, Any]:
    """What was read and written where, and the sizes of inputs and results."""
    found = dict.fromkeys(_COUNTED, 0)
    for core in cores:
        for at, i in enumerate(core.graph.executed):
            if at in core.dropped:
                continue
            reads, writes = core.graph.tensors[i.ordinal]
            for name, accesses in (("read", reads), ("write", writes)):
                for a in accesses:
                    if a.region.on_chip:
                        found[f"{a.region.value}_{name}_bytes"] += a.nbytes
            to_sbuf = sum(a.nbytes for a in writes if a.region.value == "sbuf")
            from_psum = any(a.region.value == "psum" for a in reads)
            if from_psum and to_sbuf and i.ordinal not in core.transfers:
                found["psum_read_sbuf_write_count"] += 1
                found["psum_read_sbuf_write_bytes"] += to_sbuf
        for (_, what), (_, size) in core.changes.items():
            if what in ("spilled", "reloaded"):
                found["spill_save_bytes" if what == "spilled" else "spill_reload_bytes"] += size
    program = cores[0].graph.program
    inputs = sum(s.nbytes for s in program.storages if s.role == "input")
    results = {a.storage: a for _, a in returned(program.outputs) if isinstance(a, Access)}
    outputs = sum(s.nbytes for s in results if s.role != "input")
    return {
        **found,
        "hbm_read_bytes": sum(c.hbm_read for c in cores),
        "hbm_write_bytes": sum(c.hbm_written for c in cores),
        "inputs_and_weights_size_bytes": inputs,
        "inputs_outputs_weights_size_bytes": inputs + outputs,
    }


def _flops(cores: Sequence[CoreTimeline], timeline: Timeline) -> dict[str, Any]:
    """FLOPs of the Tensor engine; those of transposes only move data."""
    flops = {False: 0, True: 0}
    adjusted = {False: 0.0, True: 0.0}
    matmuls = 0
    peak = timeline.arch.peak_tflops
    for core in cores:
        for at, i in enumerate(core.graph.executed):
            if i.engine != "tensor" or at in core.dropped:
                continue
            n, moves = _tensor_flops(i, core.costs[i.ordinal].flops)
            matmuls += not moves
            flops[moves] += n
            # BF16-equivalent: by how much slower or faster the type's peak is.
            adjusted[moves] += n * peak["bfloat16"] / peak.get(_type(i), peak["bfloat16"])
    return {
        "model_flops": flops[False],
        "hardware_flops": flops[False] + flops[True],
        "transpose_flops": flops[True],
        "adjusted_hardware_flops": round(adjusted[False] + adjusted[True]),
        "adjusted_transpose_flops": round(adjusted[True]),
        "matmul_instruction_count": matmuls,
    }


def _tensor_flops(i: Instruction, flops: int) -> tuple[int, bool]:
    """FLOPs as Explorer counts them, and whether the instruction only moves data."""
    if flops:
        return flops, bool(i.args.get("is_transpose"))
    data = i.args.get("data")
    if not isinstance(data, Access):
        return 0, False
    # A product with the identity of as many rows.
    return 2 * data.shape[0] * data.free_size * data.shape[0], True


def _type(i: Instruction) -> str:
    name = str(getattr(i.args.get("moving", i.args.get("data")), "dtype", ""))
    return "float8" if name.startswith("float8") else name
