"""Tensors inside a launch beside what they should hold.

What is expected of a tensor is expected of what is left in it after the last write to it; what is
expected of a line, of what the line writes. Elements that nobody wrote are expected to be nothing.
Ranks: only tensors of the rank whose element is asked about are looked at.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from nki_dist.insight.expected import Group, groups_of, values_of
from nki_dist.insight.log import Log
from nki_dist.insight.regions import Region, region
from nki_dist.insight.replay import Hooks, Key, Place, Watch, key_of, replay
from nki_dist.insight.steps import Expected, index_in
from nki_dist.insight.wanted import rounding_of
from nki_dist.program import Access, Instruction

# Masks are written as large numbers or as infinities; from here on they are the same. A choice.
HUGE: Final = 1e20


@dataclass
class Checked:
    """A tensor, or what one instruction wrote, beside what is expected of it.

    Attributes:
        name: what the caller called it.
        region: its elements.
        ends: by element, the last number of the write that left it; -1 where nobody wrote.
        wanted: by element, in float64.
        of_tensor: a tensor is meant, not what an instruction wrote.
        got: the same.
        wrong: by element.
        errors: by element, relative.
    """

    name: str
    region: Region
    ends: np.ndarray
    wanted: np.ndarray = field(repr=False)
    of_tensor: bool = True
    got: np.ndarray = field(repr=False, default_factory=lambda: np.empty(0))
    wrong: np.ndarray = field(repr=False, default_factory=lambda: np.empty(0, bool))
    errors: np.ndarray = field(repr=False, default_factory=lambda: np.empty(0))

    @property
    def whole(self) -> bool:
        """Whether it is what a whole tensor holds at the end."""
        a = self.region.access
        return a is not None and self.of_tensor

    @property
    def when(self) -> int:
        """The last number of the last write to it."""
        return int(self.ends.max())

    @property
    def departs(self) -> int | None:
        """The last number of the first write that left something wrong; None if nothing is."""
        return int(self.ends[self.wrong].min()) if self.wrong.any() else None

    def worst(self) -> int:
        """Of the elements that the first wrong write left, the one that is off most."""
        first = self.wrong & (self.ends == self.departs)
        return int(np.argmax(np.where(first, self.errors, -1.0)))

    def judge(self, got: np.ndarray, rounding: float) -> None:
        """Compare with what was found."""
        self.got = got.astype(np.float64).reshape(-1)
        self.errors = errors_of(self.got, self.wanted)
        self.wrong = (self.errors > rounding) & (self.ends >= 0)

    def told(self, log: Log) -> Expected:
        """What a record tells of it."""
        at = self.worst() if self.wrong.any() else 0
        index = index_in(self.region.storage, self.region.dtype, int(self.region.places[at]))
        end = self.departs if self.wrong.any() else self.when
        assert end is not None
        number = log.begun.get(end, end)
        where = log.launched.where(log.cores[number], log.at(number))
        got, wanted = float(self.got[at]), float(self.wanted[at])
        return Expected(
            self.name, where, number, int(self.wrong.sum()), self.got.size, index, got, wanted
        )


def errors_of(got: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """By element, how far it is off, relative to what is expected of it and to the others.

    A number that is met again and again at the end of the scale is a mask's, and says nothing
    about how large the others are.
    """
    usual = np.abs(wanted[np.isfinite(wanted) & (np.abs(wanted) < HUGE)])
    if usual.size and (usual == usual.max()).sum() > 1 and (usual != usual.max()).any():
        usual = usual[usual != usual.max()]
    scale = 0.1 * float(np.sqrt((usual**2).mean())) if usual.size else 0.0
    with np.errstate(all="ignore"):
        found = np.abs(got - wanted) / (np.abs(wanted) + scale)
        masked = (np.abs(got) >= HUGE) & (np.abs(wanted) >= HUGE)
        same = (got == wanted) | (np.isnan(got) & np.isnan(wanted))
        same |= masked & (np.sign(got) == np.sign(wanted))
    found = np.where(np.isnan(found), 1.0, np.minimum(found, 1.0))
    return np.asarray(np.where(same, 0.0, found))


def checked(log: Log, expected: Mapping[Any, Any], rank: int) -> list[Checked]:
    """Everything that is expected, beside what the launch made.

    Raises:
        LaunchError: `expected` names what isn't there, or more than one thing, or has other shapes.
    """
    found: list[Checked] = []
    for name, values in expected.items():
        groups = groups_of(log, name, rank)
        for group, wanted in values_of(name, groups, values):
            ends = _ends(log, group)
            if (ends >= 0).any():
                found.append(Checked(group.name, group.region, ends, wanted, group.number is None))
    kept = _Kept(log, found)
    programs = log.launched.compiled.programs
    rounding = rounding_of([s.dtype for s in programs[0].storages])
    for one in found:
        one.judge(kept.values[id(one)], rounding)
    return sorted(found, key=lambda c: c.when)


def _ends(log: Log, group: Group) -> np.ndarray:
    """By element of a group, the last number of the write that left it there; -1 for none."""
    r = group.region
    if group.number is not None:
        return np.full(r.places.size, log.ended.get(group.number, group.number), np.int64)
    ends = np.full(r.places.size, -1, np.int64)
    for end in reversed(log.written.get(r.key, ())):
        if end in log.unwritten or (ends >= 0).all():
            break
        for w in log.writes(log.begun.get(end, end)):
            if w.key == r.key:
                ends[(ends < 0) & w.holds(r.places)] = end
    return ends


class _Kept(Watch):
    """Keeps what elements hold after the last write to them.

    Attributes:
        values: by the identity of what is checked.
    """

    def __init__(self, log: Log, asked: Sequence[Checked]) -> None:
        self._log = log
        self._after: dict[int, list[Checked]] = {}
        for one in asked:
            self._after.setdefault(log.begun.get(one.when, one.when), []).append(one)
        self._names = {(log.cores[n], log.at(n).ordinal) for n in self._after}
        self.values: dict[int, np.ndarray] = {}
        if asked:
            replay(log.launched, self)

    def linking(self, place: Place, i: Instruction) -> Hooks:
        if (place.slot.core, i.ordinal) not in self._names:
            return None, None

        def after(number: int) -> None:
            for one in self._after.get(number, ()):
                r = here(place, one.region)
                self.values[id(one)] = r.values(r.get(place.kit))

        return None, after


def here(place: Place, r: Region) -> Region:
    """The same elements, as the program of a core knows them."""
    if r.access is None:
        return r
    storage = next(s for s in place.program.storages if key_of(place.slot, s) == r.key)
    a = r.access
    return region(place.slot, Access(storage, a.offset, a.shape, a.strides, a.dtype))


def trusted(found: Sequence[Checked]) -> dict[tuple[Key, int], np.ndarray]:
    """The (sorted) bytes that are as expected, by memory and last number of their write."""
    made: dict[tuple[Key, int], np.ndarray] = {}
    for one in found:
        right = ~one.wrong & (one.ends >= 0)
        for end in np.unique(one.ends[right]):
            places = one.region.bytes_of(np.flatnonzero(right & (one.ends == end)))
            name = (one.region.key, int(end))
            made[name] = np.union1d(made[name], places) if name in made else places
    return made


__all__ = ["Checked", "checked", "here", "trusted"]
