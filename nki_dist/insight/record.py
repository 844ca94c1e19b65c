"""A launch that can be asked what happened inside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from os import PathLike
from typing import Any, Final

import numpy as np

from nki_dist.forks import cached_property
from nki_dist.insight.columns import Columns
from nki_dist.insight.executed import Executions
from nki_dist.insight.expected import Checked, compared, first_off, trusted
from nki_dist.insight.film import Film
from nki_dist.insight.finite import first_non_finite
from nki_dist.insight.log import Log
from nki_dist.insight.origin import Walk, first_to_look_at
from nki_dist.insight.page import MAX_SIZE, html
from nki_dist.insight.query import check_core, output_place, writes_of
from nki_dist.insight.replay import Launched
from nki_dist.insight.steps import (
    NonFinite,
    Origin,
    Printed,
    Writes,
    plural,
    unanswered,
)
from nki_dist.insight.wrong import Wrong, told
from nki_dist.program.uncollected import uncollected
from nki_dist.timing.report import Profile

_SHOWN: Final = 2000  # instructions of a record that notebooks show as a page
_NOTEBOOK: Final = 2 << 20  # bytes of that page


@dataclass(eq=False, repr=False)
class Record(Printed):
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
        timed: gives the launch's profile, or None.
    """

    outputs: Any
    launched: Launched
    reports: Sequence[Any]
    timed: Callable[[], Profile] | None = None

    @cached_property
    def _log(self) -> Log:
        return Log(self.launched)

    def steps(self) -> Executions:
        """Everything that the launch carried out, in order.

        Returns:
            A sequence of Executed objects with `.step`, `.location`, `.instruction`, `.core`,
            `.rank`, `.reads`, `.writes` (Operands by parameter), and `.before()` and `.after()`,
            which give arrays by parameter.
        """
        return Executions(self._log)

    def write_report(
        self, path: str | PathLike[str], expected: Any = None, max_size: int = MAX_SIZE
    ) -> None:
        """Write one HTML file that shows what every step read and wrote, as pictures.

        It fetches nothing when it is opened. The kernel's source is read from its files now.

        Args:
            path: of the file.
            expected: as of `origin`: how results differ is shown, too, and what the way of an
                element that is off goes through. In a world an array is for rank 0; a list has one
                for each rank.
            max_size: bytes of the file; pictures become samples where they don't fit. Files of less
                than 4 MiB have no charts.

        Raises:
            LaunchError: `expected` isn't like what the kernel makes, or `max_size` is too small.
        """
        text = self.report(expected, max_size)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    @uncollected()  # steps and pictures of a long launch are objects by the hundred thousand
    def report(
        self,
        expected: Any = None,
        max_size: int = MAX_SIZE,
        charts: bool = True,
        notes: Sequence[str] = (),
    ) -> str:
        """The text of that file.

        Args:
            charts: with the library that draws them, 1.9 MB.
            notes: what else is shown, as text.
        """
        film = Film(self.launched, max_size)
        wrong = self.wrong(film, expected)
        return html(film, Columns(film), self.timed, wrong, max_size, charts, notes)

    def wrong(self, log: Log, expected: Any) -> Wrong | None:
        """How the launch differs from what was expected, if anything was: on the first rank where
        it does."""
        if expected is None:
            return None
        ranks = range(len(expected)) if isinstance(expected, (list, tuple)) else range(1)
        each = [(self._compared(log, 0, rank, expected), rank) for rank in ranks]
        off = [one for one in each if first_off(one[0])]
        return told(log, *(off or each)[0])

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
        return writes_of(self._log, where, core, rank)

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
            expected: what the output should be, an array of its shape; in a world a list with one
                of these, or None, for each rank. Or better a dict with what tensors inside the
                kernel should hold when they were written last, arrays of their shapes: by an
                output's number or place, by `name=`, by what the kernel calls it, or by line
                ("file.py:12", what the line writes); with a core, `(name, 1)`, where both cores
                have one; of what is made several times a list with one array, or None, for each.
                What departs from it first says where to look: the way from there back to what is
                as expected comes first. Only tensors of `rank` are compared.

        Returns:
            An Origin: Steps across cores and ranks. The one to look at first is the first, its
            `why` says why; the others follow from the output back.

        Raises:
            LaunchError: there is no such output, element or rank, or `expected` isn't like it,
                names what the kernel hasn't, or more than one tensor.
        """
        log = self._log
        found = self._compared(log, output, rank, expected)
        if index is None:
            names = (output, f"output {output}")
            index = next((c.farthest_off() for c in found if c.name in names), ())
        key, places, what = output_place(self.launched, output, index, rank)
        walk = way = Walk(log, key, places, None, limit)
        lead = ""
        if found:
            first = first_off(found)
            lead, before = "everything that is expected is as expected", None
            if first is not None:
                r, at = first.region, first.worst()
                lead = f"{first.name} departs first: {first.got[at]:.6g} where "
                lead += f"{first.expected[at]:.6g} is expected"
                key, places, before = r.key, r.bytes_of(np.asarray([at])), first.departs + 1
            way = Walk(log, key, places, before, limit, trusted(found))
            if way.steps:
                lead += f", {plural(len(way.steps), 'step')} from what is right"
            else:
                way = walk
            lead += "; "
        suspect, why = first_to_look_at(way.steps)
        seen = {(s.step, s.tensor) for s in way.steps}
        steps = [*way.steps, *(s for s in walk.steps if (s.step, s.tensor) not in seen)]
        return Origin(
            walk.value(),
            f"{what} of rank {rank}" if self.launched.slots[0].ranks > 1 else what,
            lead + why,
            sorted(steps, key=lambda s: s is not suspect),
            walk.sources.all(),
            walk.complete,
            [c.told(log) for c in found],
        )

    def _compared(self, log: Log, output: int | str, rank: int, expected: Any) -> list[Checked]:
        """What is expected, by name or of the output, beside what the launch made."""
        check_core(self.launched, None, rank)
        if expected is None:
            return []
        if isinstance(expected, (list, tuple)):
            ranks = self.launched.slots[0].ranks
            if len(expected) != ranks:
                raise unanswered(
                    f"expected= is a list of {len(expected)}; there are {ranks} ranks",
                    "give an array of the output's shape, or a list with one, or None, for "
                    "each rank",
                    got=len(expected),
                    allowed=ranks,
                )
            expected = expected[rank]
        if not isinstance(expected, Mapping):
            expected = {output: expected}
        return compared(log, expected, rank)

    def first_non_finite(self) -> NonFinite | None:
        """The first element, in the order of the launch, that finite numbers were made into and
        that is infinite or NaN.

        Doesn't count what was asked for (a `memset` to -inf, a mask's `on_false_value`), memory
        that nobody wrote, and what follows from these. If there is no such element, the first one
        that was read from an argument; None if there is none either.
        """
        return first_non_finite(self._log)

    def _repr_html_(self) -> str:
        """In a notebook, which keeps what it shows: the page of a small record, without charts."""
        text = super()._repr_html_()
        if sum(r.done for r in self.reports) > _SHOWN:
            return text
        page = self.report(max_size=_NOTEBOOK, charts=False)
        style = "width: 100%; height: 900px; border: 0"
        return (
            f'{text}<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(page)}">'
            "</iframe>"
        )

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
