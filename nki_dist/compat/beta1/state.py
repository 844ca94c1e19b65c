"""What the Beta 1 front end remembers while one kernel is traced: open loops, borrowed tiles.

A result assigned to a tile (`dst[...] = nl.exp(x)`) is computed right into it where that is
possible; the result object then borrows the destination's storage. Invariant: before the storage
is written again, a borrower that is still alive gets a copy of its own.

Follows: `nki.language.affine_range`, `nki.language.loop_reduce` of the NKI 0.1 documentation.
"""

from __future__ import annotations

import linecache
import re
import sys
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import FrameType
from typing import Any, NamedTuple

from nki_dist.errors import LaunchError
from nki_dist.isa.spec import current_tracer


class State:
    """Of one trace of one program instance.

    Args:
        lowering: who makes instructions of operators on tiles (`lower`).
    """

    def __init__(self, lowering: Any) -> None:
        self.lowering = lowering
        trace: Any = current_tracer()
        self.start, self.first = len(trace.block), len(trace.program.storages)
        self.borrowers: dict[Any, list[weakref.ref[Any]]] = {}
        self.loops: list[Loop] = []
        self.joined: Any = None  # the mask before an `and`
        self.preloaded: set[Any] = set()
        self.blocks: set[Any] = set()  # storages of tensors with block dimensions
        self.homeless: set[Any] = set()  # storages in a memory that the kernel didn't choose
        self.starting: set[int] = set()  # ids of sums made by `+=`, which may start from nothing
        self.returned: Returned | None = None
        self._places: dict[Any, Any] = {}
        self._passes: dict[Any, int] = {}
        self._copies: dict[tuple[int | None, ...], int] = {}  # rounds of static loops -> number

    def next_round(self, loop: Loop) -> None:
        """An open loop goes on: whose copy of static loops' bodies is traced now is noted."""
        if loop.static or self._copies:
            rounds = tuple(each.now for each in self.loops if each.static)
            current_tracer().unroll(
                self._copies.setdefault(rounds, len(self._copies) + 1) if rounds else 0
            )

    def first_placement(self, site: int, placement: Any) -> Any:
        """The placement that this line gave in the first iteration of the open loops.

        AWS's tracer runs the body of affine_range and sequential_range once, so Python variables
        that a kernel counts addresses with advance once, not in every iteration.
        """
        loops = [loop for loop in self.loops if not loop.static]
        if not loops:
            return placement
        now = (loops[0], site, *(loop.now for loop in self.loops))
        number = self._passes[now] = self._passes.get(now, 0) + 1
        fixed = tuple(loop.now for loop in self.loops if loop.static)
        return self._places.setdefault((loops[0], site, number, fixed), placement)

    def lend(self, storage: Any, tile: Any) -> None:
        self.borrowers.setdefault(storage, []).append(weakref.ref(tile))

    def before_write(self, storage: Any) -> None:
        """Give living borrowers of a storage a copy of their own."""
        for reference in self.borrowers.pop(storage, ()):
            tile = reference()
            if tile is not None:
                tile.unshare()


_state: ContextVar[State | None] = ContextVar("nki_dist_beta1", default=None)


def state() -> State:
    """The state of the kernel being traced.

    Raises:
        LaunchError: no Beta 1 kernel is being traced.
    """
    found = _state.get()
    if found is None:
        raise LaunchError(
            "neuronxcc.nki.language and neuronxcc.nki.isa functions work only inside a kernel; "
            "decorate the function with @nki.jit and call it with arrays",
            code="outside-kernel",
        )
    return found


def active() -> bool:
    """Whether a Beta 1 kernel is being traced."""
    return _state.get() is not None


@contextmanager
def fresh_state(lowering: Any) -> Iterator[State]:
    made = State(lowering)
    token = _state.set(made)
    try:
        yield made
    finally:
        _state.reset(token)


class Returned(NamedTuple):
    """A return statement that ended a loop before its last iteration.

    Attributes:
        location: of the statement, as file:line.
        traced: iterations, the one with the statement included.
        total: iterations that the loop has.
    """

    location: str
    traced: int
    total: int


def _at_return(frame: FrameType) -> str | None:
    """Where a frame stands, if it is at a return statement."""
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    if not re.match(r"(.*:)?\s*return\b", line):
        return None
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


class LoopIndex(int):
    """The loop variable of an affine_range: an int that knows its loop."""

    loop: Loop

    def __new__(cls, value: int, loop: Loop) -> LoopIndex:
        made = super().__new__(cls, value)
        made.loop = loop
        return made

    def is_first(self) -> bool:
        return int(self) == self.loop.numbers[0]

    def is_last(self) -> bool:
        return int(self) == self.loop.numbers[-1]


class Loop:
    """An unrolled loop; partial sums of nl.loop_reduce live here, by the place that makes them."""

    def __init__(self, numbers: range, static: bool = False) -> None:
        self.numbers = numbers
        self.static = static
        self.partial: dict[Any, Any] = {}
        self.now: int | None = None

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[LoopIndex]:
        here = state()
        open_loops = here.loops
        depth = len(open_loops)
        for count, n in enumerate(self.numbers, 1):
            del open_loops[depth:]  # inner loops left by break
            open_loops.append(self)
            self.now = n
            here.next_round(self)
            try:
                yield LoopIndex(n, self)
            except GeneratorExit:  # break, return or an exception; nothing can be raised from here
                location = _at_return(sys._getframe(1))
                if location and not self.static and count < len(self.numbers):
                    here.returned = Returned(location, count, len(self.numbers))
                raise
        del open_loops[depth:]
        here.next_round(self)


def unrolled(*args: Any, **hints: Any) -> Any:
    """affine_range and sequential_range; hints to the compiler have no effect."""
    numbers = range(*(int(a) for a in args))
    return Loop(numbers) if active() else numbers


def unrolled_static(*args: Any) -> Any:
    """static_range, which AWS's tracer unrolls as well."""
    numbers = range(*(int(a) for a in args))
    return Loop(numbers, static=True) if active() else numbers


def place_of(excluded: set[Loop]) -> tuple[Any, ...]:
    """The iteration of every open loop but some."""
    return tuple(loop.now for loop in state().loops if loop not in excluded)
