"""How many messages the members of a group send in a collective: counted by letting them.

Payloads have no elements: who sends what to whom depends on places in the group, never on values.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np

from nki_dist import dtypes
from nki_dist.collectives.party import Party, Waiting
from nki_dist.collectives.reduction import reduction


def count_messages(algorithm: Any, opcode: str, size: int) -> list[int]:
    """By place in the group, the messages sent in all_gather, reduce_scatter or all_reduce.

    Args:
        algorithm: an `Algorithm` made for a group of that size.
    """
    sent = [0] * size
    queues: dict[tuple[int, int], deque[Any]] = {}
    waiting: dict[tuple[int, int], int] = {}
    ready: deque[tuple[int, Any]] = deque((n, None) for n in range(size))

    def member(me: int) -> Party:
        def post(other: int, payload: Any) -> None:
            sent[me] += 1
            queues.setdefault((me, other), deque()).append(payload)
            if waiting.pop((me, other), None) is not None:
                ready.append((other, queues[me, other].popleft()))

        return Party(me, tuple(range(size)), post, lambda other: (other, me))

    running = [_exchange(algorithm, opcode, member(n)) for n in range(size)]
    left = size
    while ready:
        n, payload = ready.popleft()
        try:
            wait = running[n].send(payload)
        except StopIteration:
            left -= 1
            continue
        if queues.get(wait):
            ready.append((n, queues[wait].popleft()))
        else:
            waiting[wait] = n
    assert not left and not any(queues.values()), f"{algorithm} with {size} members comes to no end"
    return sent


def _exchange(algorithm: Any, opcode: str, x: Party) -> Waiting:
    if opcode == "all_gather":
        return (yield from algorithm.all_gather(x, np.empty(0, np.uint8)))
    add = reduction("add", dtypes.float32)
    if opcode == "reduce_scatter":
        chunks = [np.empty(0, np.float32) for _ in x.cores]
        return (yield from algorithm.reduce_scatter(x, chunks, add))
    return (yield from algorithm.all_reduce(x, np.empty(0, np.float32), add))
