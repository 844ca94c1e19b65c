"""A rule about what is loaded again although nothing changed: hoist it, and keep the tile.

`values` says what is repeated. The replay does without it, as far as there is room for the tiles
that stay: half of SBUF.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from nki_dist.arch import Arch
from nki_dist.program import Storage
from nki_dist.timing.advice.suspect import (
    Spent,
    Suspect,
    costliest,
    distinct,
    durations,
    executed,
)
from nki_dist.timing.advice.values import repetitions
from nki_dist.timing.fixed import Part
from nki_dist.timing.order import OrderGraph
from nki_dist.timing.timeline import Timeline

_SHARE: Final = 0.5  # of SBUF that tiles may take which stay


def repeated_loads(timeline: Timeline, spent: Spent) -> Suspect | None:
    """Loads of what was loaded before."""
    again: dict[int, dict[int, int]] = {}
    stay_bytes = 0
    for part in distinct(timeline):
        again[id(part.graph)], tiles = _hoisted(part, timeline.arch)
        stay_bytes = max(stay_bytes, sum(s.partition_bytes for s in tiles))
    found = [x for x in executed(timeline) if x[1] in again[id(x[0].graph)]]
    if not found:
        return None
    count, lines = len(found), durations(found)
    size = sum(core.transfers[i.ordinal].hbm_read for core, _, i in found)
    hoisted = f"the tiles ({stay_bytes:,} bytes of each partition)" if stay_bytes else "the tile"

    def change(_: int, part: Part) -> Part:
        return _without(part, again[id(part.graph)])

    return Suspect(
        "repeated loads",
        f"{'1 load fetches' if count == 1 else f'{count:,} loads fetch'} {size:,} bytes again "
        f"that were loaded before and didn't change; load them once, before the loop, and keep "
        f"{hoisted}",
        costliest(lines, spent),
        "AWS's performance guide, #1: exploit temporal locality to minimize input data reloading",
        [change],
        spent.dma,
    )


def _without(part: Part, again: Mapping[int, int]) -> Part:
    """The same without loads: what follows only waits for the first that fetched it."""
    graph = part.graph
    data, reuse, same = list(graph.data), list(graph.reuse), dict(part.plan.same)
    for at, first in again.items():
        data[at], reuse[at] = (first,), ()
        for a, b in zip(_writes(graph, at), _writes(graph, first), strict=True):
            if a is not b:
                same[a.number] = same.get(b.number, b.number)
    plan = replace(part.plan, dropped={*part.plan.dropped, *again}, same=same)
    return Part(replace(graph, data=data, reuse=reuse), plan, part.fixed)


def _hoisted(part: Part, arch: Arch) -> tuple[dict[int, int], set[Storage]]:
    """What needn't be loaded, by position: the first that did; and the tiles that stay for it."""
    graph, left = part.graph, _SHARE * arch.sbuf_usable_bytes
    found: dict[int, int] = {}
    tiles: set[Storage] = set()
    again = repetitions(graph, part.fixed, part.plan.dropped)
    for at, first in sorted(again.items(), reverse=True):
        more = {*_writes(graph, first)}.difference(tiles, _writes(graph, at))
        size = sum(s.partition_bytes for s in more)
        if size <= left:
            left -= size
            tiles |= more
            found[at] = first
    return found, tiles


def _writes(graph: OrderGraph, at: int) -> list[Storage]:
    return [a.storage for a in graph.tensors[graph.executed[at].ordinal][1]]
