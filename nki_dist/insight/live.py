"""A record's page whose pictures have all elements: what it asks for is looked up again.

Every answer carries the launch out once more, one at a time.
"""

from __future__ import annotations

from threading import Lock
from typing import Any, Final

import numpy as np

from nki_dist.insight.columns import Columns
from nki_dist.insight.executed import Executions
from nki_dist.insight.film import Film, Picture
from nki_dist.insight.origin import Walk
from nki_dist.insight.page import MAX_SIZE, chain, html
from nki_dist.insight.record import Record
from nki_dist.insight.steps import index_in, unanswered
from nki_dist.report.page import bundle

_STEPS: Final = 300  # of an origin


class Live:
    """A record that answers its page.

    Args:
        expected: as of `Record.write_report`.
    """

    def __init__(self, record: Record, expected: Any = None) -> None:
        self._film = Film(record.launched, MAX_SIZE)
        self._columns = Columns(self._film)
        self._steps = Executions(self._film)
        self._lock = Lock()
        wrong = record.wrong(self._film, expected)
        self.page = html(self._film, self._columns, record.timed, wrong, 4 * MAX_SIZE, live=True)
        self._film.pictures.clear()  # they are in the page

    def values(self, step: int) -> bytes:
        """All elements of the operands of a step, "PARAMETER 0" before it and "PARAMETER 1" after.

        Raises:
            LaunchError: there is no such step.
        """
        with self._lock:
            both = self._steps.values(step)
        named = {f"{name} {n}": a for n, found in enumerate(both) for name, a in found.items()}
        return bundle({}, {n: Picture(a, True, a.size).values.ravel() for n, a in named.items()})

    def origin(self, step: int, tensor: int, element: int) -> str:
        """Where an element of a tensor came from, as it was after a step: HTML.

        Args:
            tensor: its number in the page; element: its number in the tensor.

        Raises:
            LaunchError: there is no such step, tensor or element.
        """
        log, found = self._film, self._columns.tensor(tensor)
        if found is None or not 0 <= element < found[1].nbytes // found[1].dtype.itemsize:
            raise unanswered(f"no element {element} of tensor {tensor}")
        if not 0 <= step < len(log.instructions):
            raise unanswered(f"no step {step}")
        key, s = found
        places = element * s.dtype.itemsize + np.arange(s.dtype.itemsize)
        with self._lock:
            walk = Walk(log, key, places, log.ended.get(step, step) + 1, _STEPS)
        what = f"{s.title}{list(index_in(s, int(places[0])))} = {walk.value()}"
        return chain(walk.steps, self._columns.steps, what, walk.complete) or (
            f"<p class=note>{len(walk.sources.all())} sources, and no instruction that wrote it</p>"
        )
