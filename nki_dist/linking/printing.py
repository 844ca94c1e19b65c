"""A linked program as text: `listing`.

Kinds come once, with `%n` for their operands. An instruction has one line: its ordinal and title,
its kind, and where the kind's operands begin. What isn't a storage of the program (scratch, panels,
accumulators) is called by its space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from nki_dist.compiler.disasm import called, loop_text, value_text
from nki_dist.isa import INSTRUCTIONS
from nki_dist.linking.kinds import Run
from nki_dist.linking.linked import Late, Linked, LinkedExchange, LinkedLoop, Segment
from nki_dist.linking.lowering import Slot
from nki_dist.ops.operation import Operation, RegisterNumber
from nki_dist.ops.place import Place, Space
from nki_dist.program import Instruction

INDENT: Final = "  "
_SHOWN: Final = 4  # elements of a constant array


def listing(linked: Linked) -> Iterator[str]:
    """The lines of a linked program's listing."""
    program = linked.program
    yield (
        f"linked {program.kernel}  platform {program.platform}  core {program.core} of "
        f"{program.cores}  kinds {len(linked.kinds)}  runs {len(linked.runs)}"
    )
    yield ""
    for space, count in linked.spaces.items():
        if count:
            yield f"{INDENT}{space_text(space)}: {count} bytes"
    for panel in linked.panels:
        yield f"{INDENT}panel {panel.number}: {panel.nbytes} bytes"
    for number, kind in enumerate(linked.kinds):
        yield f"kind {number}" + (f", {kind.scratch} bytes of scratch" if kind.scratch else "")
        for o in kind.operations:
            yield INDENT + operation_text(o)
    yield ""
    yield from _block(linked, linked.body, "")


def operation_text(o: Operation) -> str:
    """`function  arguments`, places as `space+offset[elements:stride, ...] dtype`."""
    return f"{o.function.name}  {', '.join(map(_argument, o.arguments))}"


def space_text(space: Space) -> str:
    """How a space is called."""
    what, of = space
    if what == "operand":
        return f"%{of}"
    return what if what == "scratch" else f"{what} {of}"


def _argument(a: Any) -> str:
    if type(a) is Place:
        return f"{space_text(a.space)}{a.within}"
    if isinstance(a, RegisterNumber):
        return f"r{int(a)}"
    if isinstance(a, Slot):
        return a.value
    if isinstance(a, np.ndarray):
        shown = ", ".join(map(str, a.reshape(-1)[:_SHOWN].tolist()))
        more = ", ..." if a.size > _SHOWN else ""
        return f"{'x'.join(map(str, a.shape))} {a.dtype} [{shown}{more}]"
    return str(a) if isinstance(a, np.generic) else value_text(a)


def _block(linked: Linked, block: Sequence[Any], pad: str) -> Iterator[str]:
    for item in block:
        if isinstance(item, LinkedLoop):
            yield f"{pad}{loop_text(item.loop)}"
            yield from _block(linked, item.body, pad + INDENT)
            yield f"{pad}end"
        elif isinstance(item, LinkedExchange):
            yield f"{pad}{_head(item.instruction)}  waits for other cores"
        else:
            yield from (pad + line for line in _straight(linked, item))


def _straight(linked: Linked, straight: Segment) -> Iterator[str]:
    for n, (run, i) in enumerate(zip(straight.steps, straight.instructions, strict=True)):
        if isinstance(run, Late):
            yield f"{_head(i)}  at run time"
        elif n in straight.births:
            yield f"{i.ordinal}: begins  {_run(linked, linked.runs[run])}"
        else:
            yield f"{_head(i)}  {_run(linked, linked.runs[run])}"


def _head(i: Instruction) -> str:
    return f"{i.ordinal}: {INSTRUCTIONS[i.opcode].title}"


def _run(linked: Linked, run: Run) -> str:
    bases = []
    for (what, of), offset in run.bases:
        storages = linked.program.storages
        name = called(storages[int(of)]) if what == "storage" else space_text((what, of))
        bases.append(f"{name}+{offset}")
    return f"kind {run.kind}({', '.join(bases)})" if linked.kinds[run.kind].operations else "-"
