"""Outputs that only a run tells of: whether they hold what memory held that nobody wrote.

Run-time loops, indices and predicates decide what is stored, and what other cores and ranks send is
followed by no pass. Memory is filled with a pattern before a launch (`dtypes.poison`), so where an
output holds it afterwards, something is suspicious; but data may be equal to the pattern, too. A
suspicious launch is therefore made again in memory that holds zeros: programs are deterministic, so
what differs then came from memory that nobody wrote, and nothing else did.

Missed: values that come from such memory and no longer show the pattern, such as sums of integers,
where no other element of the outputs does. Not done with `unwritten="zero"`: there is no pattern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from nki_dist.checks import Checks
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.missing import unwritten_output
from nki_dist.compiler.passes.elements import Elements
from nki_dist.dtypes.poison import is_poison
from nki_dist.errors import NkiError, NkiWarning, UnwrittenOutputWarning
from nki_dist.hbm.layout import Layout
from nki_dist.program import Access, Storage
from nki_dist.program.walk import returned
from nki_dist.ranges import named
from nki_dist.runtime.hosts import Attempt, Launch, LaunchResult

Bytes = np.ndarray[Any, Any]


def unwritten_after(
    launch: Launch, result: LaunchResult, attempt: Attempt, checks: Checks
) -> Iterator[NkiError | NkiWarning]:
    """What outputs hold that nobody wrote, once for each returned tensor.

    An empty tensor is no error here: that a rank has nothing to do may depend on data.

    Args:
        result: of the launch; its memories are copied where the launch is made again.
    """
    as_run = launch.compiled.as_run
    shared = {a.storage.number: a.storage for _, a in returned(as_run.outputs)}
    stored = [as_run.programs[0].storages[n] for n, s in shared.items() if s.role == "shared"]
    if not any(_pattern(s, result.layout, m).any() for s in stored for m in result.memories):
        return
    result.memories = [memory.copy() for memory in result.memories]
    differs = _difference(launch, result, attempt)
    for path, place in returned(as_run.outputs):
        if place.storage.role != "shared":
            continue
        left = [differs(rank, place) for rank in range(len(result.memories))]
        ranks = [rank for rank, missing in enumerate(left) if missing.any()]
        if ranks and not _said(launch.compiled, as_run, place, left[ranks[0]]):
            more = f" (and similarly on {named(ranks[1:])})" if ranks[1:] else ""
            where = f" on rank {ranks[0]}{more}" if len(left) > 1 else ""
            program = as_run.programs[0]
            yield unwritten_output(
                program, path, place.storage, left[ranks[0]], checks.strict, where, after=True
            )


def _difference(
    launch: Launch, result: LaunchResult, attempt: Attempt
) -> Callable[[int, Access], np.ndarray]:
    """Which elements of a returned tensor of a rank are others where memory holds zeros."""
    zeroed = launch.compiled.zeroed
    again: Sequence[Bytes] | None
    try:
        again = attempt(
            replace(launch, key=f"{launch.key}-zeroed", compiled=zeroed, printer=_silent)
        ).memories
    except NkiError:  # in zeros it goes another way, or its process was lost: the pattern decides
        again = None
    as_run = launch.compiled.as_run

    def differs(rank: int, place: Access) -> np.ndarray:
        s = as_run.programs[0].storages[place.storage.number]
        if (s.role, s.index) in as_run.wide:  # the tree has the types that the caller gets
            place = Access(s, place.offset, place.shape, place.strides, s.dtype)
        found, first = Elements(s), result.memories[rank]
        if again is None:
            found.mask = _pattern(s, result.layout, first)
        else:
            found.mask = _raw(s, result.layout, first) != _raw(s, result.layout, again[rank])
        return found.any(place)

    return differs


def _said(compiled: Compiled, as_run: Compiled, place: Access, missing: np.ndarray) -> bool:
    """Whether compiling has warned of the same already."""
    location = as_run.programs[0].where(place.storage.location)
    count = int(np.count_nonzero(missing))
    return any(
        isinstance(w, UnwrittenOutputWarning)
        and (w.location, w.numbers.get("unwritten")) == (location, count)
        for w in compiled.warnings
    )


def _silent(core: int, prefix: str, array: Bytes) -> None:
    """Prints of the second launch have been seen."""


def _raw(s: Storage, layout: Layout, memory: Bytes) -> Bytes:
    at = layout.offsets[s.role, s.index]
    return memory[at : at + s.nbytes].view(s.dtype.raw)


def _pattern(s: Storage, layout: Layout, memory: Bytes) -> np.ndarray:
    return is_poison(_raw(s, layout, memory), s.dtype)
