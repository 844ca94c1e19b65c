"""A program as text: `listing`.

One line per instruction, read from the instruction's declaration: engine, opcode, operands as
`name=tensor[pattern]:dtype`, attributes that differ from their defaults, and the kernel line.

Patterns show `start:stop` where a dimension is a plain slice of the storage, and
`+offset[stride x count, ...]` where it isn't. Nothing can read a listing back: the codec is for
that.
"""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from enum import Enum
from functools import cache
from inspect import Parameter
from pathlib import PurePath
from typing import Any, Final

from nki_dist.compiler.encode import parameters
from nki_dist.dtypes import DType
from nki_dist.errors import NkiError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Block, Dynamic, Instruction, Loop, Program, Storage

INDENT: Final = "  "


def listing(program: Program, source: bool = False, constants: bool = False) -> Iterator[str]:
    """The lines of a program's listing.

    Args:
        source: show the kernel's source line above the instructions it became, where its file is
            still there.
        constants: show the first bytes of constants, too.
    """
    yield (
        f"kernel {program.kernel}  platform {program.platform}  core {program.core} of "
        f"{program.cores}  instructions {len(program)}  registers {program.registers}"
    )
    for name in sorted(program.facts):
        yield f"fact {name} = {program.facts[name]!r}"
    if program.outputs is not None:
        yield f"returns {value_text(program.outputs)}"
    yield ""
    yield f"storages {len(program.storages)}"
    for s in program.storages:
        yield INDENT + storage_text(program, s)
        if constants and s.data is not None:
            yield INDENT * 2 + s.data[:32].hex(" ") + (" ..." if len(s.data) > 32 else "")
    yield ""
    yield from _Listing(program, source).block(program.body, 1)


def storage_text(program: Program, s: Storage) -> str:
    """One storage: name, memory, shape and dtype, address, life."""
    role = s.role if s.index < 0 else f"{s.role} {s.index}"
    parts = [
        f"{called(s):<12} {s.region.value:<11}",
        f"{'x'.join(map(str, s.shape))} {s.dtype}".ljust(22),
        role.ljust(10),
    ]
    if s.address is not None:
        by = "given" if s.placed else "chosen"
        parts.append(f"partition {s.address[0]} byte {s.address[1]:#x} ({by})")
    if s.first < 0:
        parts.append("never used")
    else:
        parts.append(f"lives {s.first}..{s.last}{'' if s.written else ', only read'}")
    place = _short(program, s.location)
    return "  ".join(parts) + (f"  ; {place}" if place else "")


def called(s: Storage) -> str:
    """Names needn't be unique, so the storage's number goes with them."""
    named = s.name or s.called
    return f"{named}#{s.number}" if named else s.title


def _short(program: Program, location: Any) -> str:
    """`file.py:12`, without directories."""
    if not isinstance(location, int) or not 0 <= location < len(program.locations):
        return ""
    file, line, _ = program.locations[location]
    return f"{PurePath(file).name}:{line}"


class _Listing:
    def __init__(self, program: Program, source: bool) -> None:
        self.program = program
        self.source = source
        self.width = len(str(max(len(program) - 1, 0)))
        self._last_line: tuple[str, int] | None = None

    def block(self, block: Block, depth: int) -> Iterator[str]:
        for item in block:
            if self.source:
                yield from self._source_line(item.location, depth)
            if isinstance(item, Loop):
                pad = " " * (self.width + 2) + INDENT * (depth - 1)
                place = _short(self.program, item.location)
                yield f"{pad}{loop_text(item)}" + (f"  ; {place}" if place else "")
                yield from self.block(item.body, depth + 1)
                yield f"{pad}end"
            else:
                yield self._line(item, depth)

    def _line(self, i: Instruction, depth: int) -> str:
        line = f"{i.ordinal:>{self.width}}: {INDENT * (depth - 1)}{instruction_text(i)}"
        place = _short(self.program, i.location)
        return f"{line}  ; {place}" if place else line

    def _source_line(self, location: int, depth: int) -> Iterator[str]:
        if not 0 <= location < len(self.program.locations):
            return
        file, line, _ = self.program.locations[location]
        if (file, line) != self._last_line:
            self._last_line = (file, line)
            text = linecache.getline(file, line).strip()
            if text:
                yield f"{' ' * (self.width + 2)}{INDENT * (depth - 1)}# {text}"


def instruction_text(i: Instruction) -> str:
    """Engine, opcode, operands and the attributes that aren't the default."""
    defaults = _defaults(i.opcode)
    decided = {"accumulate": i.accumulation} if i.accumulation else {}
    parts = [
        f"{name}={value_text(value)}"
        for name, value in {**i.args, **decided}.items()
        if not (name in defaults and _same(value, defaults[name]))
    ]
    if i.after:
        parts.append("after=" + ",".join(map(str, i.after)))
    if i.order_group:
        parts.append(f"no_reorder={i.order_group}")
    return f"{i.engine:<7} {i.opcode:<16} " + "  ".join(parts)


@cache
def _defaults(opcode: str) -> dict[str, Any]:
    """Default of each optional parameter, as its role stores it."""
    spec = INSTRUCTIONS[opcode]
    found = {}
    for name in parameters(opcode):
        default = spec.signature.parameters[name].default
        if default is Parameter.empty:
            continue
        role = spec.roles.get(name)
        try:
            found[name] = default if role is None else role.accept(name, default)
        except NkiError:
            continue  # a default that only means "not given"; what is given is always shown
    return found


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


def loop_text(loop: Loop) -> str:
    if loop.kind == "for":
        step = f" step {loop.step}" if loop.step != 1 else ""
        return f"for {loop.register} in {loop.start} to {loop.stop}{step}:"
    into = f" into {loop.register}" if loop.register is not None else ""
    return f"while {loop.condition}{into}:"


def value_text(value: Any) -> str:
    """An argument or output as the listing shows it."""
    if isinstance(value, Access):
        return access_text(value)
    if isinstance(value, (Enum, DType)):
        return value.name
    if isinstance(value, (list, tuple)):
        inside = ", ".join(map(value_text, value))
        if isinstance(value, list):
            return f"[{inside}]"
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k!r}: {value_text(v)}" for k, v in value.items()) + "}"
    if hasattr(value, "fields"):
        return f"{value.class_name}{value_text(value.fields)}"
    return value if isinstance(value, str) else repr(value)


def access_text(a: Access) -> str:
    """`tensor[slices]:dtype`, or `tensor+offset[stride x count, ...]:dtype` for other patterns."""
    slices = _slices(a)
    if slices is None:
        pattern = ", ".join(f"{s} x {n}" for s, n in zip(a.strides, a.shape, strict=True))
        slices = f"+{a.offset}[{pattern}]"
    moved = "" if a.dynamic is None else f" @{_dynamic_text(a.dynamic)}"
    return f"{called(a.storage)}{slices}:{a.dtype}{moved}"


def _slices(a: Access) -> str | None:
    """The access as slices of the storage's own dimensions, if it is that."""
    s = a.storage
    if len(a.shape) != len(s.shape) or a.dtype is not s.dtype:
        return None
    at = a.offset
    parts = []
    for n, stride, count, whole in zip(a.shape, a.strides, s.strides, s.shape, strict=True):
        start, at = divmod(at, count)
        if n != 1 and stride % count:
            return None
        step = stride // count if n != 1 else 1
        stop = start + (n - 1) * step + 1
        if step < 1 or stop > whole:
            return None
        parts.append(f"{start}:{stop}" + (f":{step}" if step != 1 else ""))
    return f"[{', '.join(parts)}]"


def _dynamic_text(dynamic: Dynamic) -> str:
    source = dynamic.source
    shown = access_text(source) if isinstance(source, Access) else repr(source)
    return f"{dynamic.kind}({shown} x {dynamic.stride}, dim {dynamic.dim} < {dynamic.limit})"
