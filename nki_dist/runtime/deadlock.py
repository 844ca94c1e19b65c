"""Deadlocks: who is at fault where cores can't go on, and how that is told.

Cores at rest wait or have finished, and which they do depends on the program alone: every message
is for a wait of its own. So this looks at nothing but where everybody stands, and says the same
whichever host ran the cores, in whatever order, and with any algorithm of a collective.

A core in a collective waits for all members of the group that aren't in it, too. Nobody is at fault
only because he waits for somebody who waits: cores that nobody waits for are left out, then those
that only these waited for, and so on. What remains are cores that have finished, and circles. There

- a core that has finished is at fault, unless there are more of its kind than wait for it: then
  those that wait do what nobody else does;
- in a circle all are at fault but for the largest number that are in one operation;
- of equal numbers the fewer in the whole world are at fault, else who has finished, as he surely
  never comes, else the lower rank.

Equal cores are told once, those at fault first. Time and memory are of the order of all groups'
members together.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from nki_dist.collectives.operations import OPERATIONS, Kind
from nki_dist.errors import CollectiveMismatchError, DeadlockError, NkiError
from nki_dist.ranges import named, ranges, shown
from nki_dist.runtime.messages import (
    Message,
    Wait,
    agree,
    core_names,
    details,
    error_core,
    title,
    told,
)

SETTLES: Final = 3.0  # seconds that others have to come to rest in, once two cores disagree
LINES: Final = 14  # that a message has of cores at fault, and of others
SIDES: Final = 32  # operations of one group that are told apart
MIXED: Final = -1  # all further ones


def deadlock(waits: Iterable[Wait], finished: Iterable[int]) -> NkiError:
    """The error that explains who waits for what, or who disagrees about an operation.

    Args:
        waits: of every core that waits, at least one.
        finished: the cores that have come to their end.
    """
    return _Rest(sorted(waits, key=lambda w: w.core), sorted(finished)).error()


def together(wait: Wait) -> bool:
    """Whether it waits for all members of a group: nobody leaves before all have come."""
    operation = OPERATIONS.get(wait.what["op"])
    if operation is None or not wait.lnc or "group" not in wait.what:
        return False
    across = wait.core // wait.lnc != wait.source // wait.lnc
    return across and operation.kind in (Kind.ALGORITHM, Kind.DIRECT)


def waiting(waits: Iterable[Wait]) -> list[str]:
    """Who waits for whom, equal cores once."""
    ordered = sorted(waits, key=lambda w: w.core)
    return _Rest(ordered, ())._lines((), ()) if ordered else []


@dataclass
class _Side:
    """Cores that wait in one operation of one group, or alone, and for whom.

    Attributes:
        wait: of one of them.
        cores: all of them.
        missed: the cores that they wait for.
    """

    wait: Wait
    cores: list[int] = field(default_factory=list)
    missed: list[int] = field(default_factory=list)


class _Rest:
    """Where all cores stand; see the module's docstring."""

    def __init__(self, waits: Sequence[Wait], finished: Sequence[int]) -> None:
        self.waits = {w.core: w for w in waits}
        self.finished = dict.fromkeys(finished)
        self.lnc = waits[0].lnc
        self._numbered: dict[int, tuple[int, int]] = {}
        self._kinds: dict[str, int] = {}
        self._groups: dict[tuple[int, ...], int] = {}
        self.does = {w.core: (self._number(w.what), w.number, w.channel) for w in waits}
        self.sides = self._sides()
        self.of = {core: side for side in self.sides for core in side.cores}
        self.common = Counter(self._state(core) for core in (*self.waits, *self.finished))
        self.met = self._gone_on()

    def _number(self, what: dict[str, Any]) -> tuple[int, int]:
        """Of a description without its group, and of its group; equal for equal ones."""
        found = self._numbered.get(id(what))
        if found is None:
            group = tuple(what.get("group", ()))
            bare = repr({k: v for k, v in what.items() if k != "group"})
            kind = self._kinds.setdefault(bare, len(self._kinds))
            found = kind, self._groups.setdefault(group, len(self._groups))
            self._numbered[id(what)] = found
        return found

    def _state(self, core: int) -> Hashable:
        """Equal for cores that are told together."""
        wait, lnc = self.waits.get(core), self.lnc or 1
        if wait is None:
            return "finished", core % lnc
        inside = self.lnc and wait.source // lnc == core // lnc
        place = core % lnc, wait.source % lnc if inside else -1
        kind, _ = self._number(wait.what)
        lone = core if not self.lnc else -1
        return kind, wait.number, wait.channel, wait.location, place, lone

    def _kinds_of(self, cores: Iterable[int]) -> list[list[int]]:
        """Cores of one state each, in the order in which the states come."""
        kinds: dict[Hashable, list[int]] = defaultdict(list)
        for core in cores:
            kinds[self._state(core)].append(core)
        return list(kinds.values())

    # ---- who waits for whom -------------------------------------------------------------------

    def _sides(self) -> list[_Side]:
        found: dict[Hashable, _Side] = {}
        several: dict[Hashable, int] = Counter()
        for core, wait in self.waits.items():
            key: Hashable = ("alone", core)
            if together(wait):
                group = ("group", self._number(wait.what)[1], core % self.lnc)
                key = (*group, self.does[core])
                if key not in found:
                    several[group] += 1
                    if several[group] > SIDES:
                        key = (*group, MIXED)
            if key not in found:
                found[key] = _Side(wait)
            found[key].cores.append(core)
        for key, side in found.items():
            side.missed = self._missed(side, mixed=MIXED in key)  # type: ignore[operator]
        return list(found.values())

    def _missed(self, side: _Side, mixed: bool) -> list[int]:
        wait = side.wait
        if not together(wait):
            return [wait.source]
        lead, mine = wait.core % self.lnc, self.does[wait.core]
        cores = [rank * self.lnc + lead for rank in wait.what["group"]]
        return [c for c in cores if mixed or self.does.get(c) != mine] or [wait.source]

    def _circles(self) -> list[int]:
        """Waiting cores that remain when those that nobody waits for are left out, repeatedly."""
        waited: Counter[int] = Counter()
        for side in self.sides:
            waited.update(side.missed)
        left = {id(side): len(side.cores) for side in self.sides}
        out = [core for core in self.waits if not waited[core]]
        gone = set(out)
        while out:
            side = self.of[out.pop()]
            left[id(side)] -= 1
            if left[id(side)]:
                continue
            for other in side.missed:
                waited[other] -= 1
                if not waited[other] and other in self.waits and other not in gone:
                    gone.add(other)
                    out.append(other)
        return [core for core in self.waits if core not in gone]

    # ---- who is at fault ----------------------------------------------------------------------

    def _at_fault(self) -> list[int]:
        if self.met is not None:
            return [self._odd(self.met)]
        over = {core for side in self.sides for core in side.missed if core in self.finished}
        if over:
            sides = (side for side in self.sides if not over.isdisjoint(side.missed))
            waiting = [core for side in sides for core in side.cores]
            return min(sorted(over), sorted(waiting), key=self._weight)
        ordered = sorted(self._kinds_of(self._circles()), key=self._weight)
        return [core for kind in ordered[:-1] or ordered for core in kind] or list(self.waits)

    def _odd(self, wait: Wait) -> int:
        """Of a core and the one whose message it can't take: whose operation fewer are in."""
        assert wait.met is not None
        mine = sum(agree(w, wait) for w in self.waits.values()) - 1
        theirs = sum(agree(w, wait.met) for w in self.waits.values())
        return wait.core if theirs > mine else wait.met.source

    def _gone_on(self) -> Wait | None:
        """A wait that met a message whose sender has gone on: nothing else tells of it."""
        for wait in self.waits.values():
            if wait.met is not None:
                now = self.waits.get(wait.met.source)
                if now is None or now.channel != wait.channel or not agree(now, wait.met):
                    return wait
        return None

    def _weight(self, cores: list[int]) -> tuple[int, int, bool, int]:
        """The smaller, the more surely at fault."""
        common = self.common[self._state(cores[0])]
        return len(cores), common, cores[0] not in self.finished, cores[0]

    # ---- what is said -------------------------------------------------------------------------

    def error(self) -> NkiError:
        fault = self._at_fault()
        pair = self._disagree(fault)
        error = self._deadlock(fault) if pair is None else self._mismatch(fault, *pair)
        first = fault[0]
        side: Wait | Message = self.waits.get(first) or self._waiter(first)
        if self.met is not None and self.met.met is not None and first != self.met.core:
            side = self.met.met  # what it sent says where it was
        line, what = side.location, title(side.what)
        error.at(location=line, core=error_core(first, self.lnc), instruction=what)
        told = {"at_fault": fault, "waiting": self.waits, "finished": self.finished}
        error.numbers = {name: self._numbers(cores) for name, cores in told.items() if cores}
        error.picture = self._picture(fault, pair)
        return error

    def _picture(
        self, fault: Sequence[int], pair: tuple[Wait, Wait | Message] | None
    ) -> dict[str, Any]:
        """Equal cores as one, and whom they wait for; see `codes.picture`."""
        first = set(fault)
        cores = sorted((*self.waits, *self.finished), key=lambda c: (c not in first, c))
        few = self._kinds_of(cores)[: 2 * LINES]
        place = {core: n for n, cores in enumerate(few) for core in cores}
        nodes, edges = [], set()
        for n, cores in enumerate(few):
            wait, name = self.waits.get(cores[0]), self._names(cores)
            line = None if wait is None else wait.location
            what = self._line(cores).removeprefix(name)
            at_fault = not first.isdisjoint(cores)
            nodes.append({"name": name, "what": what, "line": line, "fault": at_fault})
            missed = () if wait is None else self.of[cores[0]].missed
            edges |= {(n, place[core]) for core in missed if core in place}
        sides = [
            {
                "name": f"{self._names([_core(side)])}: {title(side.what)}",
                "line": side.location,
                "fields": {name: shown(value) for name, value in details(side).items()},
            }
            for side in pair or ()
        ]
        return {"kind": "waits", "nodes": nodes, "edges": sorted(edges), "sides": sides}

    def _numbers(self, cores: Iterable[int]) -> str:
        lnc = self.lnc or 1
        return named([c // lnc for c in cores], "rank" if self.lnc else "core")

    def _names(self, cores: Collection[int]) -> str:
        return core_names(cores, self.lnc)

    def _waiter(self, core: int) -> Wait:
        """Of a core that waits for this one."""
        found = (side.wait for side in self.sides if core in side.missed)
        return next(found, next(iter(self.waits.values())))

    def _disagree(self, fault: Sequence[int]) -> tuple[Wait, Wait | Message] | None:
        """A wait and what it meets, if that is another operation: of one who is at fault."""
        if self.met is not None and self.met.met is not None:
            return self.met, self.met.met
        first = self.waits.get(fault[0])
        if first is None:
            return None
        circle = set(self._circles())
        for core in self.of[first.core].missed:
            other = self.waits.get(core)
            if other is None or not {core, first.core} <= circle or other.channel != first.channel:
                continue
            if not agree(other, first):
                return other, first
        return None

    def _mismatch(self, fault: Sequence[int], one: Wait | Message, two: Wait | Message) -> NkiError:
        """Who is at fault comes first."""
        wait, other = (one, two) if _core(two) in fault else (two, one)
        mine, theirs = details(wait), details(other)
        apart = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
        hint = f"make {' and '.join(apart)} the same in both calls"
        if title(wait.what) != title(other.what):
            hint = f"let all run the {title(other.what)} and the {title(wait.what)} in one order"
        equal, same = self._equal_cores(wait), self._equal_cores(other)
        told = {*equal, *same}
        lines = self._lines(fault, told)
        return CollectiveMismatchError(
            f"{self._names(same)} and {self._names(equal)} disagree: {_written(other)} at "
            f"{other.location} meets {_written(wait)} at {wait.location}"
            + "".join(f"\n  - {line}" for line in lines),
            code="exchange-mismatch",
            hint=hint,
        )

    def _equal_cores(self, side: Wait | Message) -> list[int]:
        core = _core(side)
        if isinstance(side, Message):
            return [core]
        return [c for c in self.waits if self._state(c) == self._state(core)]

    def _deadlock(self, fault: Sequence[int]) -> NkiError:
        return DeadlockError(
            "no core can go on: every core is waiting for a message that nobody will send\n  - "
            + "\n  - ".join(self._lines(fault, ())),
            hint=self._remedy(fault[0]),
        )

    def _lines(self, fault: Sequence[int], without: Collection[int]) -> list[str]:
        """Cores of one state each, those at fault first."""
        first, lines = set(fault), list[str]()
        told = [c for c in (*sorted(self.waits), *sorted(self.finished)) if c not in without]
        for at_fault in (True, False):
            kinds = self._kinds_of(c for c in told if (c in first) == at_fault)
            lines += [self._line(cores) for cores in kinds[:LINES]]
            rest = kinds[LINES:]
            if rest:
                cores = [c for each in rest for c in each]
                lines.append(f"{self._names(cores)}: {len(cores):,} more, in {len(rest)} states")
        return lines

    def _line(self, cores: Sequence[int]) -> str:
        name, several = self._names(cores), len(cores) > 1
        wait = self.waits.get(cores[0])
        if wait is None:
            verb = "have finished their programs" if several else "has finished its program"
            return f"{name} {verb}"
        said, whats = details(wait), [self.waits[c].what for c in cores]
        groups = {self._number(what)[1]: what.get("group", ()) for what in whats}
        if len(groups) > 1:
            said["group"] = f"one of {len(groups):,} of {ranges(map(len, groups.values()))} ranks"
        verb = "wait in" if several else "waits in"
        return told(f"{name} {verb}", wait, said, self._whom(cores))

    def _whom(self, cores: Sequence[int]) -> str:
        wait = self.waits[cores[0]]
        if len(cores) > 1 and self.lnc and wait.source // self.lnc == wait.core // self.lnc:
            return f"core {wait.source % self.lnc} of the same rank"
        sides = {id(side): side for side in map(self.of.__getitem__, cores)}
        return self._names({core for side in sides.values() for core in side.missed})

    def _remedy(self, first: int) -> str | None:
        """What lets cores go on, where the first at fault shows it."""
        wait = self.waits.get(first) or self._waiter(first)
        missed = self.of[wait.core].missed
        over = [core for core in missed if core in self.finished]
        me = self._names(self.of[wait.core].cores)
        if over:
            partner = self._names(over)
            return (
                f"let {partner} run the {wait.title} at {wait.location} with {me}, as often; is it "
                "in a branch or loop over nl.program_id or data?"
            )
        if wait.core == wait.source:
            return f"{wait.title} at {wait.location} names {me} itself as partner: name another"
        for other in filter(None, map(self.waits.get, missed)):
            if wait.title != other.title:
                who = "both cores" if len(self.waits) == 2 else "all"
                return (
                    f"let {who} run the {wait.title} at {wait.location} and the {other.title} at "
                    f"{other.location}, in one order"
                )
            if wait.channel != other.channel and other.source == wait.core:
                both = f"{wait.matched_by} and {other.matched_by}"
                return f"make {both} the same number in both calls"
        return None


def _written(side: Wait | Message) -> str:
    said = ", ".join(f"{k}={shown(v)}" for k, v in details(side).items())
    return f"{title(side.what)}({said})"


def _core(side: Wait | Message) -> int:
    return side.core if isinstance(side, Wait) else side.source
