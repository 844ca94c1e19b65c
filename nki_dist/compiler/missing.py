"""Messages about returned tensors that were stored in part or not at all.

Compile time knows of some elements that no store reaches; of others only memory after a run tells.
Both say it in the same words.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from nki_dist.errors import UninitializedReadError, UnwrittenOutputWarning
from nki_dist.program import Access, Program, Storage

SHOWN: Final = 4  # runs of rows in a message
HINT: Final = (
    "store every element (is a tail left over, such as the rows behind `N // 128` tiles?), or "
    "return less"
)
LIFTED: Final = "check='unwritten=nan' only warns of what is never stored"

Mask = np.ndarray[Any, np.dtype[np.bool_]]


def unwritten_output(
    program: Program,
    path: str,
    s: Storage,
    missing: Mask,
    fatal: bool,
    rank: str = "",
    after: bool = False,
) -> UninitializedReadError | UnwrittenOutputWarning:
    """What to raise or warn about a returned tensor.

    Args:
        program: of any core.
        path: the tensor's place in what the kernel returns, "" if that is all.
        s: where it lies.
        missing: which of its elements nobody stored, in its shape; at least one.
        fatal: whether it is an error.
        rank: of which ranks this is known, for messages.
        after: a run told it, so that what was stored may come from memory that nobody wrote.
    """
    count = int(np.count_nonzero(missing))
    which = f"{count:,} of {missing.size:,} elements of output{path}, {s.label}, were never stored"
    if after:
        which += ", or come from memory that nobody wrote"
    whole = count == missing.size
    how_many = which if whole else f"{which}: {where_missing(missing)}"
    kind = UninitializedReadError if fatal else UnwrittenOutputWarning
    where = program.where(s.location)
    return kind(
        f"{how_many}{rank}; allocated at {where or 'unknown line'}",
        code="unwritten-output" if whole else "unwritten-rows",
        location=where,
        hint=f"store the result to {s.title} (nl.store, nisa.dma_copy)" if whole else HINT,
        policy=LIFTED if fatal else None,
        numbers={"unwritten": count, "elements": missing.size},
    )


def never_stored(program: Program, path: str, a: Access) -> UninitializedReadError:
    """The error of a returned tensor of which nothing is stored."""
    error = unwritten_output(program, path, a.storage, np.ones(a.shape, bool), True)
    assert isinstance(error, UninitializedReadError)
    return error


def where_missing(missing: Mask) -> str:
    """In words: whole rows or columns where it is that, else a box and the first element."""
    if missing.ndim == 1:
        return f"elements {_runs(missing)}"
    rows = missing.reshape(len(missing), -1)
    some: Mask = np.logical_or.reduce(rows, axis=1)
    if (rows.all(axis=1) == some).all():
        return f"rows {_runs(some)}"
    if missing.ndim == 2 and (rows[some] == rows[some][0]).all():
        which = "every row" if some.all() else f"rows {_runs(some)}"
        return f"columns {_runs(rows[some][0])} of {which}"
    first = [int(n) for n in np.unravel_index(missing.argmax(), missing.shape)]
    return f"in rows {_runs(some)}, the first at {first}"


def _runs(flags: Mask) -> str:
    """`3, 7 to 9 and 12`: the places that are set."""
    found = list(_intervals(np.flatnonzero(flags)))
    texts = [str(a) if a == b else f"{a} to {b}" for a, b in found[:SHOWN]]
    if len(found) > SHOWN:
        return f"{', '.join(texts)} and {len(found) - SHOWN} more runs up to {found[-1][1]}"
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _intervals(places: np.ndarray[Any, Any]) -> Iterator[tuple[int, int]]:
    for run in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1):
        yield int(run[0]), int(run[-1])
