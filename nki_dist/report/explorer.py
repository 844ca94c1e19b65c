"""A profile in the terms of Neuron Explorer: what its `--output-format summary-json` prints.

Names, units and definitions are those of the table `Summary` in its schema reference, version 7.4.0
(tools/neuron-explorer/profile-schema-reference.rst): those fields that published programs read.
Fields called `_percent` are fractions from 0 to 1, as the tool prints them. `total_time` has the
start and the end of a kernel on the device in it, as `Profile.device_us` has; `total_exec_time`
hasn't.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from nki_dist.program import Access, Instruction
from nki_dist.program.walk import returned
from nki_dist.report.figures import covered
from nki_dist.timing.timeline import CoreTimeline, Timeline

ENGINES: Final = ("tensor", "vector", "scalar", "sync", "gpsimd")
_END: Final = np.array([np.inf])


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


def _rank(cores: Sequence[CoreTimeline], timeline: Timeline, overhead_ns: float) -> dict[str, Any]:
    arch = timeline.arch
    ns = max((max(c.done, default=0.0) for c in cores), default=0.0)
    total = ns + overhead_ns
    found = {**_active(cores, total), **_bytes(cores), **_flops(cores)}
    seconds, gbps = total / 1e9, arch.hbm_stack_gbps * len({c.seat.stack for c in cores})
    peak = arch.peak_tflops["bfloat16"] * 1e12 * len(cores)
    moved = found["hbm_read_bytes"] + found["hbm_write_bytes"]
    useful, ratio = found["model_flops"], peak / (gbps * 1e9)
    intensity = useful / moved if moved else 0.0
    return {
        "total_time": seconds,
        "total_exec_time": ns / 1e9,
        # Its base clock is 1.4 GHz on Trainium1 and 1.2 GHz on Trainium2, as Sync's.
        "neuroncore_cycle_count": round(total * arch.engine_clock_ghz["sync"]),
        **found,
        "mm_arithmetic_intensity": intensity,
        "peak_flops_bandwidth_ratio": ratio,
        "mbu_estimated_percent": _share(moved / (gbps * 1e9), seconds),
        "mfu_estimated_percent": _share(useful / peak, seconds),
        "mfu_max_achievable_estimated_percent": min(intensity / ratio, 1.0),
        "hfu_estimated_percent": _share(found["hardware_flops"] / peak, seconds),
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def _active(cores: Sequence[CoreTimeline], total: float) -> dict[str, Any]:
    """Of engines and DMA: of several cores, one is active if any is."""
    spans: dict[str, list[tuple[float, float]]] = {name: [] for name in (*ENGINES, "dma")}
    for core in cores:
        for at, i in enumerate(core.graph.executed):
            # Where it ran: the compiler is taken to give some instructions to other engines.
            name = "dma" if i.ordinal in core.transfers else core.queues[core.queue[at]]
            if at not in core.dropped and name in spans:
                spans[name].append((core.start[at], core.end[at]))
    found: dict[str, Any] = {}
    for name, some in spans.items():
        called = name if name == "dma" else f"{name}_engine"
        active = float(covered(np.array(sorted(some)), _END)[0]) if some else 0.0
        found[f"{called}_active_time"] = active / 1e9
        found[f"{called}_active_time_percent"] = _share(active, total)
        found["dma_transfer_count" if name == "dma" else f"{called}_instruction_count"] = len(some)
    return found


def _bytes(cores: Sequence[CoreTimeline]) -> dict[str, Any]:
    """What was read and written where, and the size of inputs and results together."""
    found = {f"{m}_{way}_bytes": 0 for m in ("sbuf", "psum") for way in ("read", "write")}
    found |= dict.fromkeys(
        ("psum_read_sbuf_write_count", "spill_save_bytes", "spill_reload_bytes"), 0
    )
    for core in cores:
        for at, i in enumerate(core.graph.executed):
            if at in core.dropped:
                continue
            reads, writes = core.graph.tensors[i.ordinal]
            for name, accesses in (("read", reads), ("write", writes)):
                for a in accesses:
                    if a.region.on_chip:
                        found[f"{a.region.value}_{name}_bytes"] += a.nbytes
            copied = (
                any(a.region.value == "psum" for a in reads) and i.ordinal not in core.transfers
            )
            found["psum_read_sbuf_write_count"] += copied and any(
                a.region.value == "sbuf" for a in writes
            )
        for (_, what), (_, size) in core.changes.items():
            if what in ("spilled", "reloaded"):
                found["spill_save_bytes" if what == "spilled" else "spill_reload_bytes"] += size
    program = cores[0].graph.program
    results = {a.storage for _, a in returned(program.outputs) if isinstance(a, Access)}
    given = {s for s in program.storages if s.role == "input"}
    return {
        **found,
        "hbm_read_bytes": sum(c.hbm_read for c in cores),
        "hbm_write_bytes": sum(c.hbm_written for c in cores),
        "inputs_outputs_weights_size_bytes": sum(s.nbytes for s in given | results),
    }


def _flops(cores: Sequence[CoreTimeline]) -> dict[str, Any]:
    """FLOPs of the Tensor engine; those of transposes only move data."""
    flops, matmuls = {False: 0, True: 0}, 0
    for core in cores:
        for at, i in enumerate(core.graph.executed):
            if i.engine == "tensor" and at not in core.dropped:
                n, moves = _tensor_flops(i, core.costs[i.ordinal].flops)
                matmuls += not moves
                flops[moves] += n
    return {
        "model_flops": flops[False],
        "hardware_flops": flops[False] + flops[True],
        "transpose_flops": flops[True],
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
