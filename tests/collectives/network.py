"""A group whose messages are queues: runs algorithms without kernels, hosts or worlds."""

from __future__ import annotations

from collections import Counter, deque

from nki_dist.collectives.party import Bundle, Party


class Network:
    """Runs the generators of all members, always the first that can go on, or the last."""

    def __init__(self, size: int, last_first: bool = False) -> None:
        self.queues: dict[tuple[int, int], deque] = {}
        self.sent: Counter = Counter()
        self.by_member = [0] * size  # messages
        self.order = list(reversed(range(size))) if last_first else list(range(size))
        self.members = [self._member(n, size) for n in range(size)]

    def _member(self, me: int, size: int) -> Party:
        def send_to(core, payload):
            arrays = payload.arrays if isinstance(payload, Bundle) else (payload,)
            for array in arrays if payload is not None else ():
                array.setflags(write=False)  # nobody may write a payload again
                self.sent[me] += array.nbytes
            self.by_member[me] += 1
            self.queues.setdefault((me, core), deque()).append(payload)

        return Party(me, tuple(range(size)), send_to, lambda core: (core, me))

    def run(self, start):
        """`start(exchange)` is each member's generator; returns what they return."""
        results, waits = {}, {}
        running = {n: start(self.members[n]) for n in self.order}
        values = dict.fromkeys(running)
        while running:
            ready = [n for n in self.order if n in running and self._ready(waits.get(n))]
            assert ready, f"everybody waits: {waits}"
            n = ready[0]
            if waits.get(n) is not None:
                values[n] = self.queues[waits[n]].popleft()
            try:
                waits[n] = running[n].send(values[n])
            except StopIteration as stop:
                results[n] = stop.value
                del running[n]
        assert not any(self.queues.values()), "messages nobody took"
        return [results[n] for n in range(len(results))]

    @property
    def messages(self) -> int:
        return sum(self.by_member)

    def _ready(self, wait):
        return wait is None or bool(self.queues.get(wait))
