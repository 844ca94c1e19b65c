"""The answers of a record as objects: writes, and the steps of the way that a number has come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from nki_dist.errors import LaunchError
from nki_dist.program import Storage

SHOWN = 6  # values in a line of a table
LINES = 40  # lines of a table


def unanswered(text: str, hint: str | None = None, **numbers: Any) -> LaunchError:
    """The error of a question that a record has no answer to."""
    return LaunchError(text, code="record-question", hint=hint, numbers=numbers or None)


def elements(name: str, index: Sequence[int], count: int) -> str:
    """The first of some elements, and how many more there are: "tile[0, 3] and 4 more"."""
    return f"{name}{list(index)}" + (f" and {count - 1:,} more" if count > 1 else "")


class Printed:
    """In a notebook it shows what `print` does."""

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


@dataclass
class At(Printed):
    """Where and when something was written.

    Attributes:
        location: "file.py:12" of the kernel's line, or None.
        core: within the rank; the rank's number.
        instruction: such as "nisa.activation".
        tensor: what messages call the tensor.
        step: number of the instruction in the order in which the launch was carried out, over all
            cores. Cores take turns when they wait for each other.
    """

    location: str | None
    core: int
    rank: int
    instruction: str
    tensor: str
    step: int

    @property
    def who(self) -> str:
        """The rank and the core."""
        return f"rank {self.rank} core {self.core}"


@dataclass
class Write(At):
    """What one instruction wrote to one tensor.

    Attributes:
        values: of the elements written, in the shape in which the instruction writes them.
    """

    values: np.ndarray = field(repr=False, default_factory=lambda: np.empty(0))

    def __str__(self) -> str:
        shape = "x".join(map(str, self.values.shape))
        return (
            f"step {self.step} {self.who} {self.location} {self.instruction} wrote "
            f"{shape} {self.values.dtype} to {self.tensor}: {shown(self.values)}"
        )


class Writes(Printed, list[Write]):
    """Writes in the order in which they happened; printed as a table."""

    def __str__(self) -> str:
        return table([str(w) for w in self], "no writes")


@dataclass
class NonFinite(At):
    """An element that isn't finite.

    Attributes:
        index: of the element in its tensor.
        value: inf, -inf or nan.
        count: how many elements the instruction made like this.
        made: True if the instruction made it; False if it was read from an argument.
    """

    index: tuple[int, ...]
    value: float
    count: int
    made: bool

    def __str__(self) -> str:
        how = "made" if self.made else f"read from argument {self.tensor}"
        where = elements(self.tensor, self.index, self.count)
        who = f"{self.instruction} at {self.location}, {self.who}, step {self.step}"
        return f"{self.value} at {where}, {how} by {who}"


@dataclass
class Source:
    """What was read that nothing in the launch wrote.

    Attributes:
        kind: "argument", "constant", "unwritten" (memory that nobody had written) or "state" (a
            register or sum as it is at first, or a loop's count).
        name: of the argument or tensor.
        rank: whose.
        index: of the first of the elements in the tensor.
        count: how many.
        values: of the elements, if they are known.
        elements: which they are, numbered through the tensor.
        shape: of the tensor.
    """

    kind: str
    name: str
    rank: int
    index: tuple[int, ...] = ()
    count: int = 0
    values: np.ndarray = field(repr=False, default_factory=lambda: np.empty(0))
    elements: np.ndarray = field(repr=False, default_factory=lambda: np.empty(0, np.int64))
    shape: tuple[int, ...] = field(repr=False, default=())

    @property
    def part(self) -> str:
        """Which elements, as a slice where they are one: "w[0:384, 7]"."""
        if not self.shape or not self.elements.size:
            return self.name
        each = [np.unique(n) for n in np.unravel_index(self.elements, self.shape)]
        named = ", ".join(_range(n) for n in each)
        whole = int(np.prod([n.size for n in each])) == self.elements.size
        few = "" if whole else f"{plural(self.elements.size, 'element')} within "
        return f"{few}{self.name}[{named}]"

    def __str__(self) -> str:
        what = elements(self.name, self.index, self.count) if self.index else self.name
        values = f": {shown(self.values)}" if self.values.size else ""
        kind = "memory that nobody wrote," if self.kind == "unwritten" else self.kind
        return f"{kind} {what} of rank {self.rank}{values}"


@dataclass
class Step(At):
    """A write on the way to the number that was asked for.

    Attributes:
        index: in its tensor, of the first of the elements that matter.
        count: how many elements that this instruction wrote matter.
        values: of those elements.
        moved: it passed on what it read, bit by bit.
        made_non_finite: it made something that isn't finite of finite numbers, or NaN of numbers
            that aren't.
        reads: the steps and sources that these elements depend on.
        elements: which they are, numbered through the tensor as it was allocated.
        shape: of that tensor; dtype: in which they were written.
        odd: what else happened there, if it was looked for: facts that are often mistakes.
    """

    index: tuple[int, ...]
    count: int
    values: np.ndarray = field(repr=False)
    moved: bool = False
    made_non_finite: bool = False
    reads: list[Step | Source] = field(repr=False, default_factory=list)
    elements: np.ndarray = field(repr=False, default_factory=lambda: np.empty(0, np.int64))
    shape: tuple[int, ...] = field(repr=False, default=())
    dtype: str = field(repr=False, default="")
    odd: list[str] = field(repr=False, default_factory=list)

    @property
    def part(self) -> str:
        """The elements that matter."""
        return elements(self.tensor, self.index, self.count)

    def __str__(self) -> str:
        return (
            f"step {self.step} {self.who} {self.location} {self.instruction} wrote {self.part}"
            f"{self._from()}: {shown(self.values)}"
        )

    def _from(self) -> str:
        """Which steps, by number, and which sources it read."""
        steps = sorted({r.step for r in self.reads if isinstance(r, Step)})
        sources = dict.fromkeys(_named(r) for r in self.reads if isinstance(r, Source))
        more = ", ..." if len(steps) > SHOWN else ""
        numbers = ", ".join(map(str, steps[:SHOWN])) + more
        named = [f"step{'s' * (len(steps) > 1)} {numbers}"] if steps else []
        named += sources
        return f" (of {' and '.join(named)})" if named else ""


@dataclass
class Expected:
    """What was expected of a tensor, or of what a line writes, and what it holds.

    Attributes:
        name: as it was given.
        location: the line that wrote it last, or the first wrong element of it.
        step: number of that instruction.
        off: how many elements are wrong, beyond rounding; `size`, of how many.
        index: of the one that is off most of those written there; of the first if none is.
        got, wanted: its values.
    """

    name: str
    location: str | None
    step: int
    off: int
    size: int
    index: tuple[int, ...]
    got: float
    wanted: float

    def __str__(self) -> str:
        if not self.off:
            return f"{self.name}: as expected"
        return (
            f"{self.name}: {self.off:,} of {plural(self.size, 'element')} off from {self.location} "
            f"on, such as {list(self.index)}: {self.got:.6g}, expected {self.wanted:.6g}"
        )


def _range(numbers: np.ndarray) -> str:
    low, high = int(numbers[0]), int(numbers[-1]) + 1
    if high - low == numbers.size:
        return f"{low}:{high}" if numbers.size > 1 else str(low)
    steps = np.unique(np.diff(numbers))
    if steps.size == 1:
        return f"{low}:{high}:{steps[0]}"
    runs = np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1)
    few = len(runs) <= SHOWN
    return " and ".join(map(_range, runs)) if few else f"{numbers.size} of {low}:{high}"


def _named(source: Source) -> str:
    return f"{source.name} where nobody wrote" if source.kind == "unwritten" else source.name


@dataclass(eq=False, repr=False)
class Origin(Printed, Sequence[Step]):
    """Where a number came from; see `Record.origin`.

    The first step is the one to look at first, for the reason that `why` gives. The others follow
    from the result back to the arguments.

    Attributes:
        value: the number that was asked for.
        what: which it is.
        why: why the first step is first.
        steps: the same as the sequence.
        sources: arguments, constants and unwritten memory that it depends on.
        complete: False if the walk back ended at its limit.
        expected: every tensor that was compared with what `expected=` says of it, in the order of
            the launch: Expected objects.
    """

    value: Any
    what: str
    why: str
    steps: list[Step]
    sources: list[Source]
    complete: bool
    expected: list[Expected]

    def __getitem__(self, at: Any) -> Any:
        return self.steps[at]

    def __len__(self) -> int:
        return len(self.steps)

    def __str__(self) -> str:
        lines = [f"{self.what} = {self.value}"]
        if self.steps:
            lines += [f"  look at {self.steps[0]}", f"    because {self.why}"]
        lines += [f"  compare {one}" for one in self.expected[:LINES]]
        rest = [f"  from    {s}" for s in self.steps[1:]]
        lines += rest[:LINES]
        if len(rest) > LINES:
            lines.append(f"  ... and {len(rest) - LINES} more steps")
        if not self.complete:
            lines.append("  ... and further back: origin(..., limit=None) follows all of it")
        lines += [f"  reads   {s}" for s in self.sources[:LINES]]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<origin of {self.what}: {len(self)} steps>"


def shown(values: np.ndarray) -> str:
    """Some values, short."""
    flat = np.asarray(values).reshape(-1)
    text = ", ".join(
        f"{v:.6g}" if isinstance(v, (int, float)) else str(v) for v in flat[:SHOWN].tolist()
    )
    return text + (", ..." if flat.size > SHOWN else "")


def table(lines: Sequence[str], empty: str) -> str:
    """Lines of a table, not too many."""
    if not lines:
        return empty
    more = [f"... and {len(lines) - LINES} more"] if len(lines) > LINES else []
    return "\n".join([*lines[:LINES], *more])


def index_in(storage: Storage, place: int) -> tuple[int, ...]:
    """The index of the element of a tensor whose first byte is known.

    Of a tensor that is looked at as another type, that of the element which the byte is in.
    """
    size = storage.dtype.itemsize
    return tuple(int(n) for n in np.unravel_index(place // size, storage.shape))


def plural(count: int, noun: str) -> str:
    """A count and what is counted."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
