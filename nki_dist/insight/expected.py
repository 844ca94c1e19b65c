"""What `expected={...}` names: outputs, tensors by name, what a line writes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np

from nki_dist.errors import LaunchError
from nki_dist.insight.asking import check_core, is_line, is_tensor, output_access
from nki_dist.insight.log import Log
from nki_dist.insight.regions import Region
from nki_dist.insight.replay import Key, key_of
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import CoreSlot
from nki_dist.program import Access, instructions
from nki_dist.program.walk import returned

HINT = (
    "expected={...} takes an output's number or place, a tensor's name= or what the kernel calls "
    "it, or a line as 'file.py:12'; (name, core) where both cores have one"
)


@dataclass(frozen=True)
class Group:
    """One tensor, or what one instruction wrote.

    Attributes:
        name: what messages call it.
        region: its elements.
        number: of the instruction that wrote it, if a line is meant.
        whose: where it is made, to tell it from others of the name.
    """

    name: str
    region: Region
    number: int | None
    whose: str


def groups_of(log: Log, name: Any, rank: int) -> list[Group]:
    """What a name means, in the order of the kernel.

    Args:
        name: an output's number or place, a tensor, a line, or one of the last two with a core.

    Raises:
        LaunchError: nothing has the name, or tensors of several lines or cores.
    """
    core: int | None = None
    asked = name
    if isinstance(name, tuple) and len(name) == 2 and isinstance(name[1], int):
        asked, core = name
        check_core(log.launched, core, None)
    if _is_output(log, asked):
        a = output_access(log.launched, asked)
        slot = _slots(log, rank, 0)[0]
        storage = log.launched.compiled.programs[0].storages[a.storage.number]
        a = Access(storage, a.offset, a.shape, a.strides, a.dtype)
        r = Region(key_of(slot, storage), storage, a.dtype, a)
        return [Group(f"output {asked}", r, None, "")]
    if not isinstance(asked, str):
        raise LaunchError(
            f"expected= has a key {name!r}, which names no tensor",
            code="record-expected-name",
            hint=HINT,
        )
    slots = _slots(log, rank, core)
    found = _written_by(log, slots, asked) or _tensors(log, slots, asked)
    if not found:
        raise _unknown(log, slots, asked)
    return _told_apart(found, asked, core)


def _is_output(log: Log, asked: Any) -> bool:
    if isinstance(asked, (int, np.integer)) and not isinstance(asked, bool):
        return True  # output_access says which there are
    paths = [path for path, _ in returned(log.launched.compiled.programs[0].outputs)]
    return isinstance(asked, str) and bool(asked) and asked in paths


def _slots(log: Log, rank: int, core: int | None) -> list[CoreSlot]:
    check_core(log.launched, None, rank)
    slots = [s for s in log.launched.slots if s.rank == rank]
    return [s for s in slots if core in (None, s.lnc_core)]


def _written_by(log: Log, slots: Sequence[CoreSlot], asked: str) -> list[Group]:
    """What a line writes, each time that it is carried out."""
    cores = {s.core: s for s in slots}
    found = []
    for number, i in enumerate(log.instructions):
        slot = cores.get(log.cores[number]) if i is not None else None
        if slot is None or i is None:
            continue
        if not is_line(log.launched.where(slot.core, i), asked):
            continue
        for r in log.writes(number):
            whose = f"core {slot.lnc_core}" if r.key[0] == "local" else ""
            found.append(Group(f"{r.storage.title} at {asked}", r, number, whose))
    return found


def _tensors(log: Log, slots: Sequence[CoreSlot], asked: str) -> list[Group]:
    """Tensors of a name, or that a line allocates."""
    found: dict[Key, Group] = {}
    for slot in slots:
        program = log.launched.program(slot.core)
        makers = _first_writers(log, slot)
        for s in program.storages:
            where = None if s.location is None else program.where(s.location)
            if not (is_tensor(program, s, asked) or is_line(where, asked)):
                continue
            if s.role == "constant":
                continue
            key = key_of(slot, s)
            whole = Access(s, 0, s.shape, s.strides, s.dtype)
            line = makers.get(s.number)
            core = f"core {slot.lnc_core}" if s.role == "local" else ""
            if line is None and key in found:
                continue
            if line is None and not log.written.get(key):
                line = "nothing"
            group = Group(asked, Region(key, s, s.dtype, whole), None, f"{core}|{where}|{line}")
            found.setdefault(key, group)
    return list(found.values())


def _first_writers(log: Log, slot: CoreSlot) -> dict[int, str]:
    """By number of a storage, the line that writes it first."""
    program = log.launched.program(slot.core)
    found: dict[int, str] = {}
    for i in instructions(program.body):
        for a in INSTRUCTIONS[i.opcode].writes(i):
            found.setdefault(a.storage.number, str(program.where(i.location)))
    return found


def _told_apart(found: list[Group], asked: str, core: int | None) -> list[Group]:
    """Groups that are one name's: of one core and one line.

    Raises:
        LaunchError: they are of several.
    """
    cores = {g.whose.split("|")[0] for g in found} - {""}
    if len(cores) > 1:
        raise LaunchError(
            f"expected= has {asked!r}, which {' and '.join(sorted(cores))} have",
            code="record-expected-ambiguous",
            hint=f"say which: ({asked!r}, 0)",
        )
    written = [g for g in found if not g.whose.endswith("|nothing")]
    if not written:
        raise LaunchError(
            f"expected= has {asked!r}, to which nothing in the launch writes",
            code="record-expected-name",
            hint="name a tensor that the kernel writes to; arguments are what they are",
        )
    lines = list(dict.fromkeys(g.whose for g in written))
    if len(lines) > 1:
        where = [g.split("|")[2] for g in lines]
        raise LaunchError(
            f"expected= has {asked!r}, the name of tensors that are written first at "
            + ", ".join(where),
            code="record-expected-ambiguous",
            hint=f"name what a line writes: {where[0]!r}",
        )
    return written


def _unknown(log: Log, slots: Sequence[CoreSlot], asked: str) -> LaunchError:
    names: dict[str, None] = {}
    for slot in slots:
        program = log.launched.program(slot.core)
        written = _first_writers(log, slot)
        names.update((s.title, None) for s in program.storages if s.number in written)
    near = get_close_matches(asked, names, 3, 0.4)
    return LaunchError(
        f"expected= has {asked!r}, which is no tensor and no line of {log.launched.compiled.kernel}"
        + (f"; likely meant: {', '.join(near)}" if near else "")
        + f"; its tensors are {', '.join(names)}",
        code="record-expected-name",
        hint=HINT,
    )


def values_of(
    name: Any, groups: Sequence[Group], values: Any
) -> Iterator[tuple[Group, np.ndarray]]:
    """Groups with their expected elements, in float64.

    Args:
        values: an array of the group's shape; of several groups a list with one of these, or None,
            for each, or one array with as many rows.

    Raises:
        LaunchError: shapes or dtypes don't fit.
    """
    if len(groups) > 1:
        groups = _of_shape(name, groups, values)
    if len(groups) == 1:
        yield groups[0], _numbers(name, groups[0], values)
        return
    shape = groups[0].region.shape
    count = _length(values)
    if count != len(groups):
        size = "no list" if count is None else count
        raise LaunchError(
            f"expected[{name!r}] has {size}; {len(groups)} are made under this name, of shape "
            f"{shape}",
            code="record-expected-shape",
            hint="give a list with one array (or None) for each, in the order of the kernel",
            numbers={"got": size, "allowed": len(groups)},
        )
    for group, one in zip(groups, values):
        if one is not None:
            yield group, _numbers(name, group, one)


def _of_shape(name: Any, groups: Sequence[Group], values: Any) -> Sequence[Group]:
    """Of a line that writes several tensors, those that have the shape.

    Raises:
        LaunchError: none has, or several.
    """
    titles = list(dict.fromkeys(g.name for g in groups))
    if len(titles) == 1:
        return groups
    by_title = [[g for g in groups if g.name == title] for title in titles]
    fitting = [g for g in by_title if _fits(g, values)]
    if len(fitting) == 1:
        return fitting[0]
    has = ", ".join(f"{g[0].region.storage.title} {g[0].region.shape}" for g in by_title)
    raise LaunchError(
        f"expected= has {name!r}, a line that writes {has}",
        code="record-expected-ambiguous",
        hint="name the tensor; of a line, the tensor with the array's shape is meant",
    )


def _fits(groups: Sequence[Group], values: Any) -> bool:
    if len(groups) == 1:
        return bool(np.shape(values) == groups[0].region.shape)
    if _length(values) != len(groups):
        return False
    return all(v is None or np.shape(v) == g.region.shape for g, v in zip(groups, values))


def _length(values: Any) -> int | None:
    """Of a list, or of the first dimension of an array; None for anything else."""
    try:
        return len(values)
    except TypeError:
        return None


def _numbers(name: Any, group: Group, values: Any) -> np.ndarray:
    shape, dtype = group.region.shape, group.region.dtype
    try:
        given = np.asarray(values)
    except ValueError:  # lists of several lengths
        given = np.asarray(values, object)
    try:
        if given.dtype.kind in "cOSUmM":
            raise TypeError
        numbers = given.astype(np.float64)
    except (TypeError, ValueError):
        raise LaunchError(
            f"expected[{name!r}] has dtype {given.dtype}; {group.name} has {dtype}",
            code="record-expected-dtype",
            hint="give real numbers",
        ) from None
    if given.shape != shape:
        raise LaunchError(
            f"expected[{name!r}] has shape {given.shape}; {group.name} has {shape}",
            code="record-expected-shape",
            hint="give an array of the shape as the kernel allocates it, partitions first",
            numbers={"got": list(given.shape), "allowed": list(shape)},
        )
    if not dtype.is_float and not (np.isfinite(numbers) & (numbers == np.rint(numbers))).all():
        raise LaunchError(
            f"expected[{name!r}] has fractions; {group.name} has dtype {dtype}",
            code="record-expected-dtype",
            hint="give whole numbers",
        )
    return numbers.reshape(-1)


__all__ = ["Group", "groups_of", "values_of"]
