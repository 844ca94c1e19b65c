"""The order graph of a small launch in Graphviz' language: what had to come before what.

A node is an executed instruction with its kernel line and times, a cluster is a core. Edges are
those of `timing.order`: solid where a result is needed, dashed where memory is used again, dotted
where only the issue counts; bold ones are messages. What the critical path goes through is framed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePath
from typing import Final

from nki_dist.errors import LaunchError
from nki_dist.timing.critical import critical_path
from nki_dist.timing.timeline import CoreTimeline, Timeline

MOST: Final = 500  # instructions: more can't be read
_COLORS: Final = {
    "tensor": "#cfe2f7",
    "vector": "#cdeee0",
    "scalar": "#f9e6bd",
    "gpsimd": "#e0dcf6",
    "dma": "#fbd9c8",
    "cc": "#f6d0e0",
}
_STYLES: Final = {"data": "solid", "reuse": "dashed", "issue": "dotted"}


def dot(timeline: Timeline, kernel: str) -> str:
    """A digraph.

    Raises:
        LaunchError: the launch has more than `MOST` instructions.
    """
    count = sum(len(c.graph) for c in timeline.cores)
    if count > MOST:
        raise LaunchError(
            f"kernel {kernel} executed {count:,} instructions; a drawing of its order graph can be "
            f"read with at most {MOST}: launch it with smaller tensors",
            code="profile-graph",
            numbers={"got": count, "most": MOST},
        )
    lines = [f"digraph {json.dumps(kernel)} {{", "  rankdir=TB;"]
    lines.append('  node [shape=box, style="rounded,filled", fontname="Helvetica", fontsize=10];')
    critical = {(p.core, p.position) for p in critical_path(timeline)}
    for number, core in enumerate(timeline.cores):
        lines.append(f"  subgraph cluster_{number} {{")
        lines.append(f'    label="rank {core.seat.rank} core {core.seat.core}"; color="#cccccc";')
        lines += [f"    {line}" for line in _nodes(number, core, critical)]
        lines.append("  }")
    for number, core in enumerate(timeline.cores):
        lines += [f"  {line}" for line in _edges(number, core)]
    for d in timeline.deliveries:
        label = json.dumps(d.channel, ensure_ascii=False)
        lines.append(f"  {_id(*d.source)} -> {_id(*d.target)} [style=bold, label={label}];")
    return "\n".join([*lines, "}", ""])


def _id(core: int, position: int) -> str:
    return f"n{core}_{position}"


def _nodes(number: int, core: CoreTimeline, critical: set[tuple[int, int]]) -> Iterator[str]:
    for at, i in enumerate(core.graph.executed):
        line = PurePath(core.graph.program.where(i.location) or "?").name
        label = f"{i.opcode} ({i.engine})\n{line}\n"
        fill = _COLORS.get(i.engine, "#e8e8e8")
        if at in core.dropped:
            label, fill = label + "left out", "#ffffff"
        else:
            label += f"{core.start[at] / 1000:.3f} to {core.done[at] / 1000:.3f} us"
        pen = 'color="#c03030", penwidth=2' if (number, at) in critical else 'color="#888888"'
        text = json.dumps(label, ensure_ascii=False)
        yield f'{_id(number, at)} [label={text}, fillcolor="{fill}", {pen}];'


def _edges(number: int, core: CoreTimeline) -> Iterator[str]:
    graph = core.graph
    for kind, edges in (("data", graph.data), ("reuse", graph.reuse), ("issue", graph.issue)):
        for at, before in enumerate(edges):
            for p in before:
                yield f"{_id(number, p)} -> {_id(number, at)} [style={_STYLES[kind]}];"
