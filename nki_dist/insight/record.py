"""A launch that can be asked what happened inside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nki_dist.errors import LaunchError
from nki_dist.forks import cached_property
from nki_dist.insight.asking import (
    Moment,
    check_core,
    element,
    moment_of,
    output_access,
    output_place,
    writes_of,
)
from nki_dist.insight.between import Between, beside
from nki_dist.insight.finite import first_non_finite
from nki_dist.insight.log import Log
from nki_dist.insight.origin import Walk
from nki_dist.insight.parting import parting
from nki_dist.insight.repair import Repair, Repairs
from nki_dist.insight.replay import Launched
from nki_dist.insight.steps import Difference, NonFinite, Origin, Writes
from nki_dist.insight.suspects import suspect_of
from nki_dist.insight.tables import html_text, plural
from nki_dist.insight.trial import Trial
from nki_dist.insight.wanted import Wanted


class Record:
    """A launch, kept so that it can be carried out again for every question.

    Holds copies of the arguments, the compiled programs and the outputs. A question is answered by
    running the launch again in this process, whatever its world's host is, and keeping what was
    asked for. Made by `nki.record` and `World.record`.

    Steps are numbers of instructions in the order in which the launch is carried out, over all
    cores; cores take turns when they wait for each other.

    Attributes:
        outputs: what the kernel returned; of a world, a list with what each rank returned.
        reports: what each core told after the launch.
        launched: what the launch was made of.
    """

    def __init__(self, outputs: Any, launched: Launched, reports: Sequence[Any]) -> None:
        self.outputs = outputs
        self.reports = list(reports)
        self.launched = launched

    @cached_property
    def _log(self) -> Log:
        return Log(self.launched)

    def writes(self, where: str | int, core: int | None = None, rank: int | None = None) -> Writes:
        """What was written to a tensor or from a line.

        Args:
            where: the tensor's `name=`, or what the kernel calls it; or a kernel line, "file.py:12"
                or 12.
            core, rank: only by this core of a rank, by this rank.

        Returns:
            Write objects in the order of the launch, with `.values`, `.location`, `.instruction`,
            `.core`, `.rank`, `.tensor` and `.step`.

        Raises:
            LaunchError: there is no such tensor, line, core or rank.
        """
        return writes_of(self.launched, where, core, rank)

    def at(self, location: str | int, core: int = 0, rank: int = 0, times: int = -1) -> Moment:
        """The tensors that were alive after a core had carried out a line, with their values.

        Args:
            location: "file.py:12" or 12.
            core, rank: whose.
            times: which time, of a line that a loop of any kind or a helper carries out several
                times: 0 is the first, -1 the last.

        Returns:
            A list of Alive objects (`.tensor`, `.memory`, `.address`, `.values`), also by name.
            Arguments and constants aren't among them.

        Raises:
            LaunchError: there is no such line, or the core didn't carry it out as often.
        """
        return moment_of(self.launched, location, core, rank, times)

    def origin(
        self,
        output: int | str = 0,
        index: int | Sequence[int] | None = None,
        rank: int = 0,
        limit: int | None = 300,
        expected: Any = None,
    ) -> Origin:
        """Where an element of an output came from, back to the arguments.

        Which operands an element depends on is found by carrying an instruction out again with
        changed operands, so it is what influenced this very value.

        Args:
            output: which of the returned tensors: its number, its place in what is returned
                (`"['k']"`, `".field"`) or its name.
            index: of the element; by default, where `expected` has an array for this output, of the
                one that is farthest off.
            rank: whose output.
            limit: steps after which the walk back ends; None for never.
            expected: what the element should be, a number; or better what the output should be, an
                array of its shape; in a world also a list with one of these, or None, for each
                rank. Then lines are changed until the results are as expected, and the line whose
                change makes them so comes first (`Origin.repairs`). Takes as long as hundreds of
                launches. Or a dict with what tensors inside the kernel should hold when they were
                written last, arrays of their shapes: by an output's number or place, by `name=`,
                by what the kernel calls it, or by line ("file.py:12", what the line writes); with
                a core, `(name, 1)`, where both cores have one; of what is made several times a
                list with one array, or None, for each. Then what departs first of what is expected
                says where to look (`Origin.expected`). Only tensors of `rank` are compared.

        Returns:
            An Origin: Steps across cores and ranks. The one to look at first is the first, its
            `why` says why; the others follow from the output back.

        Raises:
            LaunchError: there is no such output, element or rank, or `expected` isn't like it,
                names what the kernel hasn't, or more than one tensor.
        """
        launched = self.launched
        if index is None:
            index = self._farthest_off(output, rank, expected)
        key, places, what = output_place(launched, output, index, rank)
        walk = Walk(self._log, limit)
        walk.run(key, places)
        if isinstance(expected, Mapping):
            between = Between(self._log, expected, rank, key, places, limit)
            return self._origin(walk, what, rank, between)
        repairs: list[Repair] = []
        certain = ended = False
        if expected is not None:
            wanted = self._wanted(output, index, rank, expected)
            certain = not wanted.single
            # Too much makes one number finite.
            if certain or not any(s.made_non_finite for s in walk.steps):
                access = output_access(launched, output)
                search = Repairs(self._log, walk.steps, access, wanted)
                repairs, ended = search.run(), search.ended
        suspect, why = suspect_of(self._log, walk, key, places, repairs, certain)
        if ended and not repairs:
            why += "; the launch is too long for every change of a line to be tried"
        sources = walk.sources.all()
        return Origin(
            _value(walk),
            self._text(what, rank),
            walk.steps,
            sources,
            walk.complete,
            suspect,
            why,
            repairs,
        )

    def _origin(self, walk: Walk, what: str, rank: int, between: Between) -> Origin:
        """The same, where tensors inside the kernel say where to look."""
        return Origin(
            _value(walk),
            self._text(what, rank),
            beside(walk.steps, between),
            walk.sources.all(),
            walk.complete,
            between.suspect,
            between.why,
            between.repairs,
            between.expected,
        )

    def _text(self, what: str, rank: int) -> str:
        return f"{what} of rank {rank}" if self.launched.slots[0].ranks > 1 else what

    def _farthest_off(self, output: int | str, rank: int, expected: Any) -> tuple[int, ...]:
        """The index of the element that is least as expected; () where no array says what is."""
        check_core(self.launched, None, rank)
        a = output_access(self.launched, output)
        if isinstance(expected, Mapping):
            expected = expected.get(output)
        elif isinstance(expected, (list, tuple)):
            expected = expected[rank] if rank < len(expected) else None
        if not np.ndim(expected) or not np.size(expected):
            return ()
        wanted = self._wanted(output, (0,) * len(a.shape), rank, expected)
        got = Trial(self.launched, a).outputs
        at = int(np.argmax(wanted.errors(wanted.picked(got))))
        return tuple(int(n) for n in np.unravel_index(at, a.shape))

    def _wanted(
        self, output: int | str, index: int | Sequence[int], rank: int, expected: Any
    ) -> Wanted:
        a = output_access(self.launched, output)
        types = [s.dtype for s in self.launched.compiled.programs[0].storages]
        ranks = self.launched.slots[0].ranks
        return Wanted(a, expected, element(a, index), rank, ranks, types)

    def first_non_finite(self) -> NonFinite | None:
        """The first element, in the order of the launch, that finite numbers were made into and
        that is infinite or NaN.

        Doesn't count what was asked for (a `memset` to -inf, a mask's `on_false_value`), memory
        that nobody wrote, and what follows from these. If there is no such element, the first one
        that was read from an argument; None if there is none either.
        """
        return first_non_finite(self._log)

    def diff(self, other: Record) -> Difference | None:
        """The first instruction of this record that wrote other bits than the other record's.

        Cores are compared one by one, each in its own order. None if the two don't differ.

        Raises:
            LaunchError: the records are of different numbers of ranks or cores, or `other` is none.
        """
        if not isinstance(other, Record):
            raise LaunchError(
                f"a record is compared with another record, got {type(other).__name__}",
                code="record-question",
                hint="record.diff(nki.record(kernel)(...))",
            )
        return parting(self.launched, other.launched)

    def __str__(self) -> str:
        slots = self.launched.slots
        done = sum(r.done for r in self.reports)
        sizes = sum(a.nbytes for a in {id(a): a for i in self.launched.inputs for a in i}.values())
        return (
            f"record of {self.launched.compiled.kernel}: {plural(slots[0].ranks, 'rank')} of "
            f"{plural(slots[0].cores, 'core')}, {plural(done, 'instruction')}, "
            f"{plural(sizes, 'byte')} of arguments"
        )

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_text(str(self))


def _value(walk: Walk) -> Any:
    """The number that was asked for."""
    values = [s.values for s in walk.steps] + [s.values for s in walk.sources.all()]
    first = [v.reshape(-1) for v in values[:1]]
    return first[0][0] if first and first[0].size else None
