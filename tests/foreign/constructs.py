"""What a compiled kernel consists of, in a vocabulary small enough to be listed.

`of(compiled)` gives the constructs of a kernel, each a line of text with the source line that has
it. The list of those of published kernels (`constructs.txt`) is made with it, by tracing them
(`make foreign`); the test beside it makes the same list of kernels of our own.

What counts: which instruction on which engine, the memory and dtype of every operand together,
the form of its access pattern (rank, strides of zero or below, steps, a view of another dtype, a
first partition other than 0, run-time offsets by kind), every attribute's value where it is one of
a few and its kind where it is a number, allocations, loops, and of its source the names of `nl` and
Python's syntax (`python`). What doesn't: sizes. Of Beta 1's kernels, whose compiler chooses
memories and dtypes of intermediates and makes several instructions of one, it is the names of `nl`
and `nisa`, the instructions, and views of many dimensions.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

from nki_dist.compiler.compiled import Compiled
from nki_dist.dtypes import DType
from nki_dist.program import Access, Loop, Program
from nki_dist.program.register import VirtualRegister
from tests.foreign import python

DEFAULTS = frozenset({"unknown", "idle", "none", "error"})
"""Attributes that leave the choice open; kernels that give them no value have them, too."""

VALUES = frozenset({"value", "operand0", "operand1", "on_false_value", "initial", "imm0", "imm1"})
"""Attributes that are numbers of the tile, so that its dtype matters."""

MANY = "more than four free dimensions"


def of(compiled: Compiled) -> dict[str, str]:
    """The constructs of all cores' programs, each with the line (`file:line`) that comes first."""
    beta1 = any(program.beta1 for program in compiled.programs)
    found: dict[str, str] = {}
    for text, location in python.of(compiled).items():
        if not beta1:
            found[text] = location
        elif text.startswith(("nl.", "nisa.")):  # rules about Python came after Beta 1
            found[f"beta1 {text}"] = location
    for program in compiled.programs:
        for text, location in _of(program):
            if not beta1:
                found.setdefault(text, location or "")
            elif " on " in text or MANY in text:
                found.setdefault(f"beta1 {text}", location or "")
    return found


def _of(program: Program) -> Iterator[tuple[str, str | None]]:
    for storage in program.storages:
        where = program.where(storage.location) if isinstance(storage.location, int) else None
        yield from ((text, where) for text in _allocation(storage))
    if program.cores > 1:
        yield f"grid of {program.cores} cores", None
    yield from _block(program, program.body, 0)


def _allocation(s: Any) -> Iterator[str]:
    yield f"{s.role} in {s.region.value}, {len(s.shape)} dimensions"
    yield f"{s.role} in {s.region.value} of {s.dtype}"
    if s.placed:
        yield f"address given in {s.region.value}"


def _block(program: Program, block: Any, depth: int) -> Iterator[tuple[str, str | None]]:
    for item in block:
        where = program.where(item.location)
        if isinstance(item, Loop):
            bounds = "".join(
                "r" if isinstance(v, VirtualRegister) else "n" for v in (item.start, item.stop)
            )
            yield f"{item.kind} loop, bounds {bounds}, depth {depth + 1}", where
            yield from _block(program, item.body, depth + 1)
        else:
            for text in _instruction(item, program.platform):
                yield text, where


def _instruction(i: Any, platform: str) -> Iterator[str]:
    op = i.opcode
    yield f"{op} on {i.engine}"
    tensors = {name: v for name, v in i.args.items() if isinstance(v, Access)}
    kinds = ", ".join(f"{name}={_kind(a)}" for name, a in tensors.items())
    yield f"{op}: {kinds}"
    for name, a in tensors.items():
        for form in _forms(a, i.engine):
            yield f"{op}.{name}: {form}"
    for name, value in i.args.items():
        if isinstance(value, Access) or value is None or value is False:
            continue
        text = _value(value)
        if name in VALUES and "dst" in tensors and tensors["dst"].dtype.is_integer:
            text += f" into {tensors['dst'].dtype}"
        if text not in DEFAULTS:
            yield f"{op}.{name}={text}"
    if i.accumulation:
        yield f"{op} accumulation {i.accumulation}"


def _kind(a: Access) -> str:
    return f"{'hbm' if a.region.is_hbm else a.region.value} {a.dtype}"


def _forms(a: Access, engine: str) -> Iterator[str]:
    yield f"rank {len(a.shape)}"
    if pieces(a) > 4:
        yield MANY
    moving = [s for s, n in zip(a.strides[1:], a.shape[1:]) if n > 1]
    if 0 in moving:
        yield "stride 0"
    if any(s < 0 for s in moving):
        yield "stride below 0"
    if moving and moving[-1] > 1:
        yield "steps in the last dimension"
    if a.dtype is not a.storage.dtype:
        yield f"{a.storage.dtype} as {a.dtype}"
    if a.region.on_chip:
        if a.start_partition:
            quadrant = engine != "dma" and a.start_partition % 32 == 0
            yield f"from {f'partition {a.start_partition}' if quadrant else 'another partition'}"
        if a.shape[0] > 1 and a.strides[0] != a.partition_stride:
            yield "partitions by other steps"
    if a.dynamic is not None:
        source = "register" if isinstance(a.dynamic.source, VirtualRegister) else "tensor"
        yield f"run-time {a.dynamic.kind} offset in a {source}"


def pieces(a: Access) -> int:
    """Free dimensions that an engine counts, contiguous ones as one."""
    steps: list[int] = []
    for n, stride in zip(a.shape[1:], a.strides[1:]):
        if n > 1 and steps and steps[-1] == n * stride:
            steps[-1] = stride
        elif n > 1:
            steps.append(stride)
    return len(steps)


def _value(value: Any) -> str:
    if isinstance(value, (bool, str)):
        return repr(value)
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, DType):
        return str(value)
    if isinstance(value, (int, float)):
        return f"{type(value).__name__}{' 0' if not value else ''}"
    if isinstance(value, VirtualRegister):
        return "register"
    if isinstance(value, (list, tuple)):
        inner = sorted({_kind(v) if isinstance(v, Access) else type(v).__name__ for v in value})
        return f"{type(value).__name__} of {', '.join(inner)}"
    return getattr(value, "name", None) or type(value).__name__
