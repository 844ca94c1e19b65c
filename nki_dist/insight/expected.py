"""What `expected=` says that tensors of a launch should hold, beside what they hold.

What is expected of a tensor is expected of what is left in it after the last write to it; what is
expected of a line, of what the line writes. Elements that nobody wrote are expected to be nothing.
Only tensors of the rank whose element is asked about are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import ml_dtypes
import numpy as np

from nki_dist.errors import LaunchError
from nki_dist.insight.capture import Looks
from nki_dist.insight.log import Log
from nki_dist.insight.probe import HUGE
from nki_dist.insight.query import check_core, is_line, is_tensor, output_access, unknown
from nki_dist.insight.regions import Region, region
from nki_dist.insight.replay import Key, Launched, Place, key_of
from nki_dist.insight.steps import Expected, index_in
from nki_dist.isa.core import CoreSlot
from nki_dist.program import Access, Storage
from nki_dist.program.walk import returned

# Differences that are rounding, relative to the results: what a kernel that works in the type comes
# to, by its bits of precision. A choice.
ROUNDING: Final = ((20, 3e-4), (10, 3e-3), (7, 2e-2), (0, 0.15))


@dataclass(eq=False)
class Checked:
    """A tensor, or what one instruction wrote, beside what is expected of it.

    Attributes:
        name: what the caller called it.
        region: its elements.
        ends: by element, the last number of the write that left it; -1 where nobody wrote.
        expected, got: by element, in float64.
        errors: by element, how far it is off, from 0 (as expected) to 1.
        wrong: by element, whether that is more than rounding.
    """

    name: str
    region: Region
    ends: np.ndarray
    expected: np.ndarray = field(repr=False, default_factory=lambda: np.empty(0))
    got: np.ndarray = field(repr=False, default_factory=lambda: np.empty(0))
    errors: np.ndarray = field(repr=False, default_factory=lambda: np.empty(0))
    wrong: np.ndarray = field(repr=False, default_factory=lambda: np.empty(0, bool))

    @property
    def last(self) -> int:
        """The last number of the last write to it."""
        return int(self.ends.max())

    @property
    def departs(self) -> int:
        """The last number of the first write that left something wrong; that of the last if none
        did."""
        return int(self.ends[self.wrong].min(initial=self.last))

    def worst(self) -> int:
        """Of the elements that the first wrong write left, the one that is off most."""
        first = self.wrong & (self.ends == self.departs)
        return int(np.argmax(np.where(first, self.errors, -1.0)))

    def farthest_off(self) -> tuple[int, ...]:
        """The index, within what is looked at, of the element that is off most."""
        return tuple(int(n) for n in np.unravel_index(np.argmax(self.errors), self.region.shape))

    def judge(self, got: np.ndarray, rounding: float) -> None:
        """Compare with what was found."""
        self.got = got.astype(np.float64).reshape(-1)
        self.errors = _errors(self.got, self.expected)
        self.wrong = (self.errors > rounding) & (self.ends >= 0)

    def told(self, log: Log) -> Expected:
        """What a record tells of it."""
        at = self.worst() if self.wrong.any() else 0
        number = log.begun.get(self.departs, self.departs)
        index = index_in(self.region.storage, int(self.region.places[at]))
        where, *_ = log.who(number)
        off, got, expected = int(self.wrong.sum()), float(self.got[at]), float(self.expected[at])
        return Expected(self.name, where, number, off, self.got.size, index, got, expected)


def _errors(got: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """By element, how far it is off, relative to what is expected of it and to the others.

    A number that is met again and again at the end of the scale is a mask's, and says nothing
    about how large the others are.
    """
    usual = np.abs(expected[np.isfinite(expected) & (np.abs(expected) < HUGE)])
    if usual.size and (usual == usual.max()).sum() > 1 and (usual != usual.max()).any():
        usual = usual[usual != usual.max()]
    scale = 0.1 * float(np.sqrt((usual**2).mean())) if usual.size else 0.0
    with np.errstate(all="ignore"):
        found = np.abs(got - expected) / (np.abs(expected) + scale)
        masked = (np.abs(got) >= HUGE) & (np.abs(expected) >= HUGE)
        same = (got == expected) | (np.isnan(got) & np.isnan(expected))
        same |= masked & (np.sign(got) == np.sign(expected))
    found = np.where(np.isnan(found), 1.0, np.minimum(found, 1.0))
    return np.asarray(np.where(same, 0.0, found))


def compared(log: Log, expected: Mapping[Any, Any], rank: int) -> list[Checked]:
    """Everything that is expected, beside what the launch made, in the order of the launch.

    Raises:
        LaunchError: `expected` names what isn't there, or more than one thing, or has other shapes.
    """
    found: list[Checked] = []
    for name, values in expected.items():
        found += _with_values(name, _named(log, name, rank), values)
    by_number: dict[int, list[Checked]] = {}  # of what wrote it last
    for one in found:
        by_number.setdefault(log.begun.get(one.last, one.last), []).append(one)
    rounding = rounding_of(log.launched)
    Looks(log, {n: partial(_judge, some, rounding) for n, some in by_number.items()}, after=True)
    return sorted(found, key=lambda c: c.last)


def _judge(some: Sequence[Checked], rounding: float, place: Place) -> None:
    for one in some:
        r = _here(place, one.region)
        one.judge(r.values(r.get(place.kit)), rounding)


def _here(place: Place, r: Region) -> Region:
    """The same elements, as the program of a core knows them."""
    storages = (s for s in place.program.storages if key_of(place.slot, s) == r.key)
    return replace(r, storage=next(storages))


def rounding_of(launched: Launched) -> float:
    """How far results may be off, relative to them, that were computed in a launch's types."""
    return max(map(_rounding, coarsest(launched)), default=_rounding(None))


def coarsest(launched: Launched) -> list[Storage]:
    """The tensors of numbers with the fewest bits."""
    found = [s for s in launched.compiled.programs[0].storages if s.dtype.is_float]
    most = max(map(_rounding, found), default=0)
    return [s for s in found if _rounding(s) == most]


def _rounding(s: Storage | None) -> float:
    finfo: Any = ml_dtypes.finfo
    bits = finfo(s.dtype.storage).nmant if s is not None and s.dtype.is_float else 23
    return next(rounding for least, rounding in ROUNDING if bits >= least)


def only_rounding(launched: Launched, c: Checked) -> str:
    """What hides in the rounding of coarser types than the tensor's own; "" if nothing does."""
    beyond = (c.errors > _rounding(c.region.storage)) & (c.ends >= 0)
    if not beyond.any():
        return ""
    some = coarsest(launched)
    names = ", ".join(dict.fromkeys(s.title for s in some[:4])) + (", ..." if some[4:] else "")
    return (
        f"{beyond.sum():,} of {beyond.size:,} elements of {c.name} are off by more than "
        f"{c.region.dtype} rounds (up to {100 * c.errors.max():.2g} %), though not more than "
        f"{some[0].dtype} does, which {names} {'has' if len(some) == 1 else 'have'}"
    )


def first_off(found: Sequence[Checked]) -> Checked | None:
    """What departs first, in the order of the launch, from what is expected."""
    return min((c for c in found if c.wrong.any()), key=lambda c: c.departs, default=None)


def trusted(found: Sequence[Checked]) -> dict[tuple[Key, int], np.ndarray]:
    """The (sorted) bytes that are as expected, by memory and last number of their write."""
    places: dict[tuple[Key, int], np.ndarray] = {}
    for one in found:
        right = ~one.wrong & (one.ends >= 0)
        for end in np.unique(one.ends[right]):
            here = one.region.bytes_of(np.flatnonzero(right & (one.ends == end)))
            name = (one.region.key, int(end))
            places[name] = np.union1d(places[name], here) if name in places else here
    return places


# ---- names --------------------------------------------------------------------------------------


def _named(log: Log, name: Any, rank: int) -> list[Checked]:
    """What a name means, in the order of the kernel.

    Args:
        name: an output's number or place, a tensor, a line, or one of the last two with a core.

    Raises:
        LaunchError: nothing that the launch writes has the name.
    """
    launched, core, query = log.launched, None, name
    fault = f"nothing in the launch writes to {name!r}"
    if isinstance(name, tuple) and len(name) == 2 and isinstance(name[1], int):
        query, core = name
    check_core(launched, core, rank)
    slots = [s for s in launched.slots if s.rank == rank and core in (None, s.lnc_core)]
    leaves = returned(launched.each[rank].programs[0].outputs)
    if isinstance(query, (int, np.integer)) or query in [path for path, _ in leaves if path]:
        r = region(slots[0], output_access(launched, query, rank))
        found = [Checked(f"output {query}", r, _ends(log, r))]
    elif not isinstance(query, str):
        found, fault = [], f"{name!r} names no tensor"
    else:
        found = list(_of_line(log, slots, query)) or list(_of_tensor(log, slots, query))
        fault = unknown(launched, query) or fault
    found = [c for c in found if c.last >= 0]
    if not found:
        raise LaunchError(
            f"expected=: {fault}",
            code="record-expected-name",
            hint="an output is named by number or place, a tensor by name= or by what the kernel "
            "calls it, a line as 'file.py:12'; (name, core) where both cores have one",
        )
    return found


def _of_line(log: Log, slots: Sequence[CoreSlot], query: str) -> Iterator[Checked]:
    """What a line writes, each time that it is carried out."""
    cores = {s.core for s in slots}
    for number, i in enumerate(log.instructions):
        core = log.cores[number]
        if i is not None and core in cores and is_line(log.launched.where(core, i), query):
            for r in log.writes(number):
                ends = np.full(r.places.size, log.ended.get(number, number), np.int64)
                yield Checked(f"{r.storage.title} at {query}", r, ends)


def _of_tensor(log: Log, slots: Sequence[CoreSlot], query: str) -> Iterator[Checked]:
    """Tensors of a name; what cores share counts once."""
    seen = set()
    for slot in slots:
        program = log.launched.program(slot.core)
        for s in program.storages:
            key = key_of(slot, s)
            if is_tensor(s, query) and key not in seen:
                seen.add(key)
                r = region(slot, Access(s, 0, s.shape, s.strides, s.dtype))
                yield Checked(query, r, _ends(log, r))


def _ends(log: Log, r: Region) -> np.ndarray:
    """By element, the last number of the write that left it there; -1 for none."""
    ends = np.full(r.places.size, -1, np.int64)
    for end, taken in log.left_by(r.key, np.unique(r.places)):
        if end is not None:
            ends[np.isin(r.places, taken)] = end
    return ends


# ---- values -------------------------------------------------------------------------------------


def _with_values(name: Any, found: Sequence[Checked], values: Any) -> Iterator[Checked]:
    """What something is expected of.

    Args:
        values: an array of the shape that one of them has; or a list with an array, or None, for
            each of those that have its shape, or one array with as many rows.

    Raises:
        LaunchError: shapes or dtypes don't fit.
    """
    one = [c for c in found if c.region.shape == _shape(values)]
    each = list(values) if np.iterable(values) else []
    shapes = {_shape(v) for v in each if v is not None}
    several = [c for c in found if c.region.shape in shapes]
    if len(found) == 1 or len(one) == 1:
        pairs = [((one or found)[0], values)]
    elif several and len(several) == len(each):
        pairs = list(zip(several, each))
    else:
        raise LaunchError(
            f"expected[{name!r}] has shape {_shape(values)}; under this name are made "
            + ", ".join(f"{c.region.storage.title} {c.region.shape}" for c in found),
            code="record-expected-ambiguous" if one else "record-expected-shape",
            hint="give a list with one array (or None) for each, in the order of the kernel; or "
            f"name a line, or a core: ({name!r}, 0)",
            numbers={"got": list(_shape(values) or ()), "allowed": len(found)},
        )
    for checked, given in pairs:
        if given is not None:
            checked.expected = _numbers(name, checked, given)
            yield checked


def _shape(values: Any) -> tuple[int, ...] | None:
    """None for lists of several lengths."""
    try:
        return tuple(np.shape(values))
    except ValueError:
        return None


def _numbers(name: Any, checked: Checked, values: Any) -> np.ndarray:
    shape, dtype = checked.region.shape, checked.region.dtype
    if _shape(values) != shape:
        raise LaunchError(
            f"expected[{name!r}] has shape {_shape(values)}; {checked.name} has {shape}",
            code="record-expected-shape",
            hint="give an array of the shape as the kernel allocates it, partitions first",
            numbers={"got": list(_shape(values) or ()), "allowed": list(shape)},
        )
    given = np.asarray(values)
    numbers = given.astype(np.float64) if given.dtype.kind not in "cOSUmM" else None
    if numbers is None or not (dtype.is_float or (numbers == np.rint(numbers)).all()):
        raise LaunchError(
            f"expected[{name!r}] has dtype {given.dtype}; {checked.name} has {dtype}",
            code="record-expected-dtype",
            hint="give real numbers, for integers whole ones",
        )
    return numbers.reshape(-1)
