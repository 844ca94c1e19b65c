"""Rules about compute engines: PSUM emptied by a crowded one, products in float32."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nki_dist.arch import Arch
from nki_dist.dtypes import bfloat16, float32
from nki_dist.errors import NkiError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Instruction
from nki_dist.program import instructions as all_instructions
from nki_dist.timing.advice.suspect import (
    Change,
    Spent,
    Suspect,
    critical,
    line_of,
    of_lines,
    rewritten,
)
from nki_dist.timing.replay import Part
from nki_dist.timing.timeline import Timeline

_COMPUTE: Final = ("vector", "scalar")  # those that reach PSUM and may be told so
_IDLE: Final = 0.7  # of the crowded one's time, what another may be busy to count as idle


def crowded_engine(timeline: Timeline, spent: Spent) -> Iterator[Suspect]:
    """Instructions that empty PSUM, where another engine that reaches it has less to do."""
    arch = timeline.arch
    busy, durations = _busy(timeline)
    crowded, other = sorted(_COMPUTE, key=lambda e: -busy[e])
    if not busy[crowded] or busy[other] > _IDLE * busy[crowded]:
        return
    movable = _movable(timeline, crowded, other, arch)
    lines = critical(movable, spent, durations)
    if not lines:
        return
    yield Suspect(
        "PSUM emptied by a busy engine",
        f"{crowded.capitalize()} is busy {busy[crowded] / 1000:,.1f} us, {other.capitalize()} "
        f"{busy[other] / 1000:,.1f} us; instructions on {crowded.capitalize()} copy results out of "
        f"PSUM: give them, or every second, to engine=nki.isa.{other}_engine",
        lines,
        "AWS's performance guide, #3: overlap execution across compute engines",
        [_moved(lines, crowded, other, arch, every) for every in (1, 2)],
        spent.of(lines),
    )


def _busy(timeline: Timeline) -> tuple[dict[str, float], dict[str, float]]:
    """ns by engine, of the core where it is busiest; and by line."""
    busy = dict.fromkeys(_COMPUTE, 0.0)
    durations: dict[str, float] = {}
    for core in timeline.cores:
        here = dict.fromkeys(_COMPUTE, 0.0)
        for at, i in enumerate(core.graph.executed):
            if i.engine in here and at not in core.dropped:
                took = core.end[at] - core.start[at]
                here[i.engine] += took
                line = line_of(core, i)
                durations[line] = durations.get(line, 0.0) + took
        for engine, ns in here.items():
            busy[engine] = max(busy[engine], ns)
    return busy, durations


def _movable(timeline: Timeline, engine: str, other: str, arch: Arch) -> set[str]:
    """Lines with instructions of one engine that empty PSUM and that another could run."""
    found: set[str] = set()
    seen = set()
    for core in timeline.cores:
        program = core.graph.program
        if id(program) in seen:
            continue
        seen.add(id(program))
        for i in all_instructions(program.body):
            if i.engine == engine and _runs_on(i, other, arch):
                reads, writes = core.graph.tensors[i.ordinal]
                psum = any(a.region.value == "psum" for a in reads)
                if psum and all(a.region.value != "psum" for a in writes):
                    found.add(line_of(core, i))
    return found


def _runs_on(i: Instruction, engine: str, arch: Arch) -> bool:
    spec = INSTRUCTIONS[i.opcode]
    if not spec.has_engine or engine not in spec.engines:
        return False
    try:
        spec.verify(_on(i, engine), arch)
    except NkiError:  # such as an operand in a memory that the engine doesn't reach
        return False
    return True


def _on(i: Instruction, engine: str) -> Instruction:
    made = i.with_args(i.args)
    made.engine = engine
    return made


def _moved(lines: list[str], engine: str, other: str, arch: Arch, every: int) -> Change:
    def change(_: int, part: Part) -> Part:
        wanted = of_lines(part.graph.program, lines)
        made = {}
        for i in all_instructions(part.graph.program.body):
            if i.engine == engine and i.location in wanted and _runs_on(i, other, arch):
                made[i.ordinal] = i
        chosen = [i for n, i in enumerate(made.values()) if n % every == 0]
        return rewritten(part, {i.ordinal: _on(i, other) for i in chosen}, arch)

    return change


def wide_products(timeline: Timeline, spent: Spent) -> Iterator[Suspect]:
    """Products in float32, which Tensor makes in several passes."""
    arch = timeline.arch
    durations: dict[str, float] = {}
    count = 0
    for core in timeline.cores:
        for at, i in enumerate(core.graph.executed):
            if i.engine == "tensor" and at not in core.dropped and _narrowed(i) is not None:
                line = line_of(core, i)
                durations[line] = durations.get(line, 0.0) + core.end[at] - core.start[at]
                count += 1
    lines = critical(durations, spent, durations)
    if not lines:
        return
    yield Suspect(
        "float32 products",
        (
            f"1 product of float32 takes {arch.matmul_fp32_passes} passes; in bfloat16, with sums "
            "still in float32, it takes one"
            if count == 1
            else f"{count:,} products of float32 take {arch.matmul_fp32_passes} passes each; in "
            "bfloat16, with sums still in float32, they take one"
        ),
        lines,
        "AWS's guide to Trainium: a product of float32 costs roughly 4 times as much",
        [_narrow(lines, arch)],
        spent.of(lines),
    )


def _narrowed(i: Instruction) -> Instruction | None:
    """The same in bfloat16; None if none of what it multiplies is float32."""
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


def _narrow(lines: list[str], arch: Arch) -> Change:
    def change(_: int, part: Part) -> Part:
        wanted = of_lines(part.graph.program, lines)
        made = {}
        for i in all_instructions(part.graph.program.body):
            if i.engine == "tensor" and i.location in wanted:
                narrow = _narrowed(i)
                if narrow is not None:
                    made[i.ordinal] = narrow
        return rewritten(part, made, arch)

    return change
