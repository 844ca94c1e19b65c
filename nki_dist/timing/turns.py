"""Puts copies that name no queue into the order in which compiled kernels trigger them.

They have one queue, whose order was settled before anything runs: each stands where it can begin in
the order the kernel is written, and waits there for its semaphores while those behind it wait, too.
A store stands where its data is made, a load where the room that it fills is free, those of one
place in the order in which they are needed.

Not so in kernels of Beta 1, whose compiler decides when loads are made. Follows: attention and MLP
kernels of nki-library; a matmul in 78 block sizes (docs/accuracy.md, block sizes).
"""

from __future__ import annotations

from collections.abc import Sequence

from nki_dist.timing.compiled.plan import Plan
from nki_dist.timing.compiled.rotation import Stay
from nki_dist.timing.order import OrderGraph


def turns(
    graph: OrderGraph, plan: Plan, stays: list[Stay], users: Sequence[Sequence[int]], of: list[int]
) -> list[int]:
    """All positions in the order of their turns: that of the kernel, but for transfers.

    Invariant: every transfer comes after those that it, or anything it waits for, depends on. Its
    place is behind all it waits for in the order written, and whatever these wait for lies further
    ahead still.

    Args:
        stays: on chip, of pieces that anybody waits for room of.
        users: by position, those that need its result.
        of: positions of the transfers, in program order.
    """
    opens: dict[int, int] = {}
    for stay in stays:
        for at in stay.waiting:
            opens[at] = max(opens.get(at, -1), stay.opens)
    # where it can begin, where it is needed, and its own position
    found = {at: (at, at, at) for at in range(len(graph))}
    first, now = -1, None
    for at in of:
        if graph.rounds[at] != now:  # rounds of a loop don't overlap in a queue
            now = graph.rounds[at]
            first = at
        reads, writes = graph.tensors[graph.executed[at].ordinal]
        begins = max(first, opens.get(at, -1), plan.after.get(at, -1), *graph.before(at), -1)
        need = at
        if all(a.region.is_hbm for a in reads) and all(a.region.on_chip for a in writes):
            need = min(users[at], default=at)
        found[at] = begins, need, at
    return sorted(found, key=found.__getitem__)
