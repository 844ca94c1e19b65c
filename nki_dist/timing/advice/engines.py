"""Rules about compute engines: PSUM emptied by a crowded one, products in float32."""

from __future__ import annotations

from typing import Final

from nki_dist.arch import Arch
from nki_dist.dtypes import bfloat16, float32
from nki_dist.errors import NkiError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Instruction, instructions
from nki_dist.timing.advice.suspect import (
    Spent,
    Suspect,
    busy_ns,
    critical,
    distinct,
    durations,
    executed,
    rewritten,
)
from nki_dist.timing.order import OrderGraph
from nki_dist.timing.timeline import Timeline

_COMPUTE: Final = ("vector", "scalar")  # those that reach PSUM and may be told so
_IDLE: Final = 0.7  # of the crowded one's time, what another may be busy to count as idle


def crowded_engine(timeline: Timeline, spent: Spent) -> Suspect | None:
    """Instructions that empty PSUM, where another engine that reaches it has less to do."""
    each = [busy_ns(core) for core in timeline.cores]  # the core where an engine is busiest counts
    busy = {e: max((ns.get(e, 0.0) for ns in each), default=0.0) for e in _COMPUTE}
    crowded, other = sorted(_COMPUTE, key=lambda e: -busy[e])
    if not busy[crowded] or busy[other] > _IDLE * busy[crowded]:
        return None
    movable = {
        part.graph.line(i.location)
        for part in distinct(timeline)
        for i in instructions(part.graph.program.body)
        if i.engine == crowded and _empties_psum(i, part.graph) and _on(i, other, timeline.arch)
    }
    took = durations(x for x in executed(timeline) if x[2].engine in _COMPUTE)
    lines = critical({line: took.get(line, 0.0) for line in movable}, spent)
    if not lines:
        return None

    def moved(i: Instruction) -> Instruction | None:
        return _on(i, other, timeline.arch) if i.engine == crowded else None

    return Suspect(
        "PSUM emptied by a busy engine",
        f"{crowded.capitalize()} is busy {busy[crowded] / 1000:,.1f} us, {other.capitalize()} "
        f"{busy[other] / 1000:,.1f} us; instructions on {crowded.capitalize()} copy results out of "
        f"PSUM: give them, or every second, to engine=nki.isa.{other}_engine",
        lines,
        "AWS's performance guide, #3: overlap execution across compute engines",
        [rewritten(lines, moved, timeline.arch, every) for every in (1, 2)],
        spent.of(lines),
    )


def _empties_psum(i: Instruction, graph: OrderGraph) -> bool:
    reads, writes = graph.tensors[i.ordinal]
    psum = any(a.region.value == "psum" for a in reads)
    return psum and all(a.region.value != "psum" for a in writes)


def _on(i: Instruction, engine: str, arch: Arch) -> Instruction | None:
    """The same on another engine; None if that can't run it."""
    spec, moved = INSTRUCTIONS[i.opcode], i.with_args(i.args)
    moved.engine = engine
    if not spec.has_engine or engine not in spec.engines:
        return None
    try:
        spec.verify(moved, arch)
    except NkiError:  # such as an operand in a memory that the engine doesn't reach
        return None
    return moved


def wide_products(timeline: Timeline, spent: Spent) -> Suspect | None:
    """Products in float32, which Tensor makes in several passes."""
    arch = timeline.arch
    found = [x for x in executed(timeline) if _narrowed(x[2]) is not None]
    lines = critical(durations(found), spent)
    if not lines:
        return None
    return Suspect(
        "float32 products",
        (
            f"1 product of float32 takes {arch.matmul_fp32_passes} passes; in bfloat16, with sums "
            "still in float32, it takes one"
            if len(found) == 1
            else f"{len(found):,} products of float32 take {arch.matmul_fp32_passes} passes each; "
            "in bfloat16, with sums still in float32, they take one"
        ),
        lines,
        "AWS's guide to Trainium: a product of float32 costs roughly 4 times as much",
        [rewritten(lines, _narrowed, arch)],
        spent.of(lines),
    )


def _narrowed(i: Instruction) -> Instruction | None:
    """A product in bfloat16; None if none of what it multiplies is float32."""
    if i.engine != "tensor":
        return None
    wide = {
        name: a
        for name in ("stationary", "moving", "data")
        if isinstance(a := i.args.get(name), Access) and a.dtype is float32
    }
    narrow = {
        name: Access(a.storage, a.offset, a.shape, a.strides, bfloat16, a.dynamic)
        for name, a in wide.items()
    }
    return i.with_args({**i.args, **narrow}) if narrow else None
