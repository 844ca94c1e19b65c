"""Members of a group send arrays to each other: what algorithms are written against.

A `Party` is one member that takes part in one collective. `send` never waits; `receive` is a
generator that yields what it waits for and returns the payload. All collectives between two cores
share one channel, so two different operations meet, are compared by `what`, and the difference is
reported.

Invariants that every algorithm keeps, and that make results independent of transport and timing:
a payload is never written again by anybody, neither its sender nor its receiver, or not before all
members have said that they don't need it any more (`in_place`); between any two members, receives
are in the order of the sends.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

CHANNEL: Final = "collective"

Array: TypeAlias = "np.ndarray[Any, Any]"
Waiting: TypeAlias = Generator[Any, Any, Any]


class Bundle(NamedTuple):
    """Several arrays in one message."""

    arrays: tuple[Array, ...]

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in self.arrays)


class Party(NamedTuple):
    """See the module's docstring.

    Attributes:
        me: own position in the group.
        cores: world number of each member's core.
        send_to: `send_to(core, payload)` sends.
        await_from: `await_from(core)` gives what to yield for the next payload of that core.
    """

    me: int
    cores: tuple[int, ...]
    send_to: Callable[[int, Any], None]
    await_from: Callable[[int], Any]

    @property
    def size(self) -> int:
        return len(self.cores)

    def send(self, member: int, payload: Array) -> None:
        self.send_to(self.cores[member], payload)

    def receive(self, member: int) -> Waiting:
        payload = yield self.await_from(self.cores[member])
        return payload

    def send_all(self, member: int, arrays: Sequence[Array]) -> None:
        self.send_to(self.cores[member], Bundle(tuple(arrays)))

    def receive_all(self, member: int) -> Waiting:
        bundle = yield self.await_from(self.cores[member])
        return bundle.arrays

    def among(self, members: Sequence[int]) -> Party:
        """The same member within a part of the group, given by positions."""
        cores = tuple(self.cores[m] for m in members)
        return self._replace(me=list(members).index(self.me), cores=cores)

    def all_to_all(self, outgoing: Sequence[Array]) -> Waiting:
        """Send `outgoing[m]` to each member m; returns what each sent, in the group's order."""
        found = [outgoing[self.me]] * self.size
        for distance in range(1, self.size):
            other = (self.me + distance) % self.size
            self.send(other, outgoing[other])
        for distance in range(1, self.size):
            other = (self.me - distance) % self.size
            found[other] = yield from self.receive(other)
        return found
