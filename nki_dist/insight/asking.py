"""Watches for what a record is asked: writes to a tensor or from a line, what was alive there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from hashlib import blake2b
from typing import Any

import numpy as np

from nki_dist.errors import LaunchError
from nki_dist.insight.regions import region
from nki_dist.insight.replay import (
    Enough,
    Hooks,
    Key,
    Launched,
    Place,
    Watch,
    key_of,
    replay,
    title,
)
from nki_dist.insight.steps import Write, Writes, shown, table
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Instruction, Loop, Program, Storage, instructions
from nki_dist.program.storage import contiguous_strides
from nki_dist.program.walk import returned


def is_line(where: str | None, asked: str | int) -> bool:
    """Whether a kernel line is meant: "file.py:12", with or without folders, or 12."""
    if where is None:
        return False
    if isinstance(asked, int):
        return where.endswith(f":{asked}")
    return where == asked or where.endswith("/" + asked.lstrip("/")) or asked.endswith("/" + where)


def is_tensor(program: Program, s: Storage, asked: str | int) -> bool:
    """Whether a tensor is meant: by its name, or what the source calls it."""
    names = {s.name, s.called}
    return asked in names - {""} or (s.title == asked)


def check_known(launched: Launched, asked: str | int) -> None:
    """Some tensor or line of the kernel is meant.

    Raises:
        LaunchError: none is.
    """
    names: dict[str, None] = {}
    for program in launched.compiled.programs:
        for i in instructions(program.body):
            where = program.where(i.location)
            if is_line(where, asked):
                return
            names[where or ""] = None
        for s in program.storages:
            if is_tensor(program, s, asked):
                return
            names[s.title] = None
    near = get_close_matches(str(asked), names, 3, 0.3)
    raise LaunchError(
        f"{asked!r} is no tensor and no line of {launched.compiled.kernel}"
        + (f"; near are {', '.join(near)}" if near else ""),
        code="record-question",
        hint="ask for a tensor by name= or by what the kernel calls it, for a line as 'file.py:12'",
    )


def check_core(launched: Launched, core: int | None, rank: int | None) -> None:
    """There are such cores.

    Raises:
        LaunchError: there are none.
    """
    lnc, ranks = launched.slots[0].cores, launched.slots[0].ranks
    for name, value, count in (("core", core, lnc), ("rank", rank, ranks)):
        if value is not None and value not in range(count):
            raise LaunchError(
                f"{name}={value!r}; the launch has {name}s 0 to {count - 1}",
                code="record-question",
                numbers={"got": value, "least": 0, "most": count - 1},
            )


class _Writes(Watch):
    def __init__(self, asked: str | int, core: int | None, rank: int | None) -> None:
        self.found = Writes()
        self._asked, self._core, self._rank = asked, core, rank

    def linking(self, place: Place, i: Instruction) -> Hooks:
        slot, program = place.slot, place.program
        if self._core not in (None, slot.lnc_core) or self._rank not in (None, slot.rank):
            return None, None
        written = INSTRUCTIONS[i.opcode].writes(i)
        where = program.where(i.location)
        if not is_line(where, self._asked):
            written = [a for a in written if is_tensor(program, a.storage, self._asked)]
        if not written:
            return None, None
        regions: list[Any] = []

        def before(number: int) -> None:  # rows are chosen by what is there now
            regions[:] = [region(slot, a, place.kit) for a in written]

        def after(number: int) -> None:
            for r in regions:
                values = r.values(r.get(place.kit))
                what = (where, slot.lnc_core, slot.rank, title(i), r.storage.title, number)
                self.found.append(Write(*what, values))

        return before, after


def writes_of(launched: Launched, asked: str | int, core: int | None, rank: int | None) -> Writes:
    """Everything written to a tensor or from a line; see `Record.writes`."""
    check_known(launched, asked)
    check_core(launched, core, rank)
    watch = _Writes(asked, core, rank)
    replay(launched, watch)
    return watch.found


@dataclass
class Alive:
    """A tensor that was alive.

    Attributes:
        tensor: what messages call it.
        memory: "sbuf", "psum", "private_hbm", "shared_hbm".
        address: (partition, byte) on chip, or None.
        values: its contents, in the shape and type as allocated.
    """

    tensor: str
    memory: str
    address: tuple[int, int] | None
    values: np.ndarray = field(repr=False)

    def __str__(self) -> str:
        shape = "x".join(map(str, self.values.shape))
        place = (
            ""
            if self.address is None
            else f" at partition {self.address[0]} byte {self.address[1]}"
        )
        kind = f"{shape} {self.values.dtype} in {self.memory}{place}"
        return f"{self.tensor} ({kind}): {shown(self.values)}"


class Moment(list[Alive]):
    """The tensors that were alive when a core had carried out a line.

    Attributes:
        location, core, rank: which line, whose.
        step: number of the line's last instruction in the order of the launch.
    """

    def __init__(self, location: str, core: int, rank: int, step: int) -> None:
        super().__init__()
        self.location, self.core, self.rank, self.step = location, core, rank, step

    def __getitem__(self, at: Any) -> Any:
        """By position, or the newest tensor of a name."""
        if not isinstance(at, str):
            return super().__getitem__(at)
        found = [alive for alive in self if alive.tensor == at]
        if not found:
            raise KeyError(f"{at!r} wasn't alive; alive were {', '.join(a.tensor for a in self)}")
        return found[-1]

    def __str__(self) -> str:
        head = f"after {self.location}, rank {self.rank} core {self.core}, step {self.step}:"
        return head + "\n" + table([f"  {alive}" for alive in self], "  nothing")


class _At(Watch):
    """What was alive after one of some instructions, the one of number `times`; None: counts them.

    Attributes:
        seen: how many came, of those before the moment and at it.
        moment: None until it has come.
    """

    def __init__(self, core: int, rank: int, ends: Collection[int], times: int | None) -> None:
        self._core, self._rank, self._ends = core, rank, ends
        self._times = times
        self.seen = 0
        self.moment: Moment | None = None

    def linking(self, place: Place, i: Instruction) -> Hooks:
        slot = place.slot
        here = (slot.lnc_core, slot.rank) == (self._core, self._rank)
        if not here or i.ordinal not in self._ends:
            return None, None

        def after(number: int) -> None:
            self.seen += 1
            if self.seen - 1 != self._times:
                return
            where = place.program.where(i.location)
            self.moment = Moment(str(where), self._core, self._rank, number)
            self.moment += _alive(place, i)
            raise Enough

        return None, after


def _alive(place: Place, i: Instruction) -> Iterator[Alive]:
    for s in place.program.storages:
        if s.role in ("input", "constant") or not (
            s.role != "local" or s.first <= i.ordinal <= s.last
        ):
            continue
        whole = Access(s, 0, s.shape, contiguous_strides(s.shape), s.dtype)
        r = region(place.slot, whole)
        yield Alive(s.title, s.region.value, s.address, r.values(r.get(place.kit)))


def moment_of(launched: Launched, asked: str | int, core: int, rank: int, times: int) -> Moment:
    """What was alive after a line; see `Record.at`."""
    check_known(launched, asked)
    check_core(launched, core, rank)
    program = launched.compiled.programs[core]
    ends = _ends(program, asked)
    count = len(ends)
    if any(isinstance(item, Loop) for item in program.body):
        counts = _At(core, rank, ends, None)
        replay(launched, counts)
        count = counts.seen
    wanted = range(count)[times] if -count <= times < count else None
    if wanted is not None:
        watch = _At(core, rank, ends, wanted)
        replay(launched, watch)
        if watch.moment is not None:
            return watch.moment
    often = f"{count} time{'s' * (count > 1)}; times={times} is none of them" if count else "never"
    raise LaunchError(
        f"core {core} of rank {rank} carried out line {asked} {often}",
        code="record-question",
        numbers={"got": times, "least": -count, "most": count - 1} if count else None,
        hint="times=0 is the first and -1 the last; Record.writes(line) lists who did, and when",
    )


def _ends(program: Program, asked: str | int) -> frozenset[int]:
    """Ordinals of the instructions with which a line has been carried out.

    A line may come again without a loop of the program: Python's loops are unrolled, and helpers
    are called from several lines. What it makes in a row is taken to be several rounds if
    operations repeat themselves, and one line's doing if they don't.
    """
    ends: list[int] = []
    row: list[Instruction] = []

    def end_row() -> None:
        names = [i.opcode for i in row]
        for n in range(1, len(row) + 1):
            if len(row) % n == 0 and names == names[:n] * (len(row) // n):
                ends.extend(i.ordinal for i in row[n - 1 :: n])
                break
        row.clear()

    for i in instructions(program.body):
        if is_line(program.where(i.location), asked):
            row.append(i)
        elif row:
            end_row()
    end_row()
    return frozenset(ends)


class Digests(Watch):
    """A short word for everything each core wrote.

    Attributes:
        of: by core of the world, in its order: (number, ordinal, word, number of its end).
    """

    def __init__(self, launched: Launched) -> None:
        self.of: dict[int, list[tuple[int, int, bytes, int]]] = {s.core: [] for s in launched.slots}
        replay(launched, self)

    def linking(self, place: Place, i: Instruction) -> Hooks:
        slot, kept = place.slot, self.of[place.slot.core]
        written = INSTRUCTIONS[i.opcode].writes(i)
        regions: list[Any] = []

        def before(number: int) -> None:
            regions[:] = [region(slot, a, place.kit) for a in written]

        def after(number: int) -> None:
            word = blake2b(i.opcode.encode(), digest_size=8)
            for r in regions:
                word.update(f"{r.shape} {r.dtype}".encode())
                word.update(r.get(place.kit).tobytes())
            kept.append((number, i.ordinal, word.digest(), self.clock.now))

        return before, after


def output_access(launched: Launched, output: int | str) -> Access:
    """An output of the kernel, by number, place or name.

    Raises:
        LaunchError: there is none such.
    """
    leaves = list(returned(launched.compiled.programs[0].outputs))
    names = [path or a.storage.title for path, a in leaves]
    chosen = [
        a for n, (path, a) in enumerate(leaves) if output in (n, path) or output == a.storage.title
    ]
    if not chosen:
        raise LaunchError(
            f"output={output!r}; the kernel returned {len(leaves)} tensors: {', '.join(names)}",
            code="record-question",
            numbers={"returned": len(leaves)},
        )
    return chosen[0]


def element(a: Access, index: int | Sequence[int]) -> tuple[int, ...]:
    """The index of an element, from the beginning; a number does for one dimension.

    Raises:
        LaunchError: there is no such element.
    """
    given = tuple(index) if isinstance(index, (tuple, list, np.ndarray)) else (index,)
    numbers = [int(n) for n in given if isinstance(n, (int, np.integer))]
    at = tuple([n + (size if n < 0 else 0) for n, size in zip(numbers, a.shape)])
    fits = len(numbers) == len(given) == len(a.shape)
    if not fits or any(not 0 <= n < size for n, size in zip(at, a.shape)):
        example = ", ".join("0" for _ in a.shape)
        raise LaunchError(
            f"index={index!r}; the output has shape {a.shape}",
            code="record-question",
            hint=f"give one number for each dimension, such as ({example}), or as expected= an "
            "array of the output's shape",
            numbers={"got": [str(n) for n in given], "shape": list(a.shape)},
        )
    return at


def output_place(
    launched: Launched, output: int | str, index: int | Sequence[int], rank: int
) -> tuple[Key, np.ndarray, str]:
    """The memory, the bytes in it and the name of an element of what the kernel returned.

    Raises:
        LaunchError: there is no such output or element.
    """
    check_core(launched, None, rank)
    a = output_access(launched, output)
    at = element(a, index)
    storage = launched.compiled.programs[0].storages[a.storage.number]  # as it is run
    own = a.dtype is a.storage.dtype
    size = (storage.dtype if own else a.dtype).itemsize
    first = (a.offset + sum(n * s for n, s in zip(at, a.strides))) * size
    slot = next(s for s in launched.slots if s.rank == rank)
    return key_of(slot, storage), np.arange(first, first + size), f"{storage.title}{list(at)}"


__all__ = [
    "Alive",
    "Digests",
    "Moment",
    "check_core",
    "element",
    "moment_of",
    "output_access",
    "output_place",
    "writes_of",
]
