"""Leaves out loads and arithmetic that a loop repeats without need, as compilers move them out.

An instruction is left out where the same line made the same when it was last executed, and that is
still there. That is what moving what is invariant out of the innermost loop comes to; what comes
back after something else isn't kept: measured kernels do repeat that. Each copy of a static_range's
body is code of its own, whose results are kept side by side. The first tile lives on until the last
use of those left out, so large results of arithmetic, or of many copies, are made anew instead of
kept: a compiler that has to spill doesn't move them.

Follows: measured kernels whose HBM traffic counts such loads once; of the Mamba kernels those that
multiply the same tiles in every round of the innermost loop are as fast as those that do it once
(docs/accuracy.md).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Final, TypeAlias

from nki_dist.arch import Arch
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.spec import Spec
from nki_dist.program import UNROLLED, Access, Instruction
from nki_dist.timing.compiled.plan import Plan
from nki_dist.timing.order import AccessPair, OrderGraph, times_written

# Location, opcode, and which copy of the bodies of unrolled loops it is in.
Line: TypeAlias = tuple[int, str, int]

_MOVED: Final = frozenset({"dma", "vector", "scalar", "gpsimd"})
# The share of SBUF that a result may keep: of the Mamba kernels one keeps a twelfth, and one whose
# tiles are a seventh is reported to spill.
_SHARE: Final = 1 / 8


def drop_repeated(graph: OrderGraph, plan: Plan, arch: Arch) -> None:
    """Drop what its line made the time before."""
    writes = times_written(graph)
    most = arch.sbuf_usable_bytes * _SHARE
    changed: dict[int, int] = {}  # storage -> how often it was written so far
    number: dict[int, Hashable] = {}  # storage -> what it holds, where that has a name
    last: dict[Line, tuple[Hashable, int, int]] = {}  # line -> key, where, storage
    lines = _lines(graph)
    copies = Counter(line[:2] for line in set(lines))
    for at, i in enumerate(graph.executed):
        pair = graph.tensors[i.ordinal]
        key = _key(i, pair, INSTRUCTIONS[i.opcode], changed, number, writes)
        for a in pair[1]:
            changed[a.storage.number] = changed.get(a.storage.number, 0) + 1
        if key is None:
            continue
        line = lines[at]
        tile, side_by_side = pair[1][0].storage, copies[line[:2]]
        if tile.partition_bytes * side_by_side > most and (i.engine != "dma" or side_by_side > 1):
            continue
        target = tile.number
        before = last.get(line)
        if before is not None and before[0] == key:
            _, first, same = before
            number[target] = number[same]
            plan.dropped.add(at)
            plan.after[at] = first
            plan.same[target] = same
            moved = sum(a.nbytes for a in pair[0]) if i.engine == "dma" else 0
            plan.note(i.location, "repetition dropped", moved)
            continue
        number[target] = ("made", at)
        last[line] = (key, at, target)


def _lines(graph: OrderGraph) -> list[Line]:
    """By position, the code that was executed."""
    marks = graph.program.facts.get(UNROLLED, ())
    begins = [ordinal for ordinal, _ in marks]
    found: dict[int, Line] = {}
    for i in graph.executed:
        if i.ordinal not in found:
            mark = bisect_right(begins, i.ordinal)
            found[i.ordinal] = (i.location, i.opcode, marks[mark - 1][1] if mark else 0)
    return [found[i.ordinal] for i in graph.executed]


def _key(
    i: Instruction,
    pair: AccessPair,
    spec: Spec,
    changed: Mapping[int, int],
    number: Mapping[int, Hashable],
    writes: Mapping[int, int],
) -> Hashable | None:
    """What names the contents of a tile; None if the instruction isn't a new tile's only write."""
    reads, written = pair
    if (
        len(written) != 1
        or spec.synchronises
        or i.engine not in _MOVED
        or spec.effects.state is not None
        or i.after
    ):
        return None
    (dst,) = written
    whole = dst.offset == 0 and dst.size * dst.dtype.itemsize == dst.storage.nbytes
    if not dst.storage.region.on_chip or not whole or writes[dst.storage.number] != 1:
        return None
    if any(a.dynamic is not None for a in (*reads, *written)):
        return None
    values = []
    for a in reads:
        n = a.storage.number
        named = number.get(n) if writes.get(n) == 1 else None
        values.append((named or (n, changed.get(n, 0)), *_where(a)))
    plain = tuple((k, v) for k, v in i.args.items() if not isinstance(v, Access) and v is not None)
    try:
        key = (i.engine, _where(dst), tuple(values), plain)
        hash(key)
    except TypeError:  # lists of operands and the like aren't compared
        return None
    return key


def _where(a: Access) -> tuple[Hashable, ...]:
    return a.offset, a.shape, a.strides, a.dtype
