"""Returned tensors of which only a run tells whether everything was stored.

Shared memory is filled before a launch with a pattern that stands for "nobody wrote this"
(`dtypes.poison`); what holds it afterwards wasn't stored. In floats of 16 bits and more no
arithmetic makes the pattern, and integers of 32 bits hardly ever hold it by chance. Smaller ones
may, and in floats of 8 bits it is the usual NaN: there only whole rows of at least 4 bytes count,
so that single elements that are left out can be missed, and rows of which every element overflowed
can be taken for unwritten ones.

Not done with `unwritten="zero"`: there is no pattern then.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from nki_dist.checks import Checks
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.missing import unwritten_output
from nki_dist.compiler.passes.elements import Elements
from nki_dist.dtypes import DType
from nki_dist.errors import NkiError, NkiWarning
from nki_dist.hbm.layout import Layout
from nki_dist.program import Access

LEAST: Final = 4  # bytes that are equal to the pattern by chance once in 2 ** 32


def unwritten_after(
    compiled: Compiled, layout: Layout, memories: Sequence[np.ndarray[Any, Any]], checks: Checks
) -> Iterator[NkiError | NkiWarning]:
    """What the ranks' memory says after a launch, once for each returned tensor.

    An empty tensor is no error here: that a rank has nothing to do may depend on data.

    Args:
        compiled: as it was run.
        memories: the stacks' bytes, per rank.
    """
    program = compiled.programs[0]
    if "zeroed" in program.facts:
        return
    for path, place in compiled.doubtful_outputs:
        left = [_left(compiled, layout, memory, place) for memory in memories]
        ranks = [rank for rank, missing in enumerate(left) if missing.any()]
        if ranks:
            where = _ranks(ranks) if len(memories) > 1 else ""
            missing = left[ranks[0]]
            yield unwritten_output(program, path, place.storage, missing, checks.strict, where)


def _left(compiled: Compiled, layout: Layout, memory: np.ndarray, place: Access) -> np.ndarray:
    """Which elements of a returned tensor hold the pattern."""
    program = compiled.programs[0]
    s = program.storages[place.storage.number]
    if (s.role, s.index) in compiled.wide:  # the tree still has the types that the caller gets
        place = Access(s, place.offset, place.shape, place.strides, s.dtype)
    holds = Elements(s)
    at = layout.offsets[s.role, s.index]
    bits = program.unwritten(s.dtype)
    raw = s.dtype.raw
    holds.mask = memory[at : at + s.nbytes].view(raw) == raw.type(bits)
    found = holds.any(place)
    return found if _certain(s.dtype) else _whole_rows(found, s.dtype)


def _certain(dtype: DType) -> bool:
    return dtype.itemsize > 1 if dtype.is_float else dtype.is_integer and dtype.itemsize >= LEAST


def _whole_rows(found: np.ndarray, dtype: DType) -> np.ndarray:
    row = found.shape[-1] if found.shape[-1] * dtype.itemsize >= LEAST else found.size
    if row * dtype.itemsize < LEAST:
        return np.zeros_like(found)
    whole = found.reshape(-1, row).all(axis=1, keepdims=True)
    return np.broadcast_to(whole, (whole.size, row)).reshape(found.shape)


def _ranks(ranks: Sequence[int]) -> str:
    first = f" on rank {ranks[0]}"
    return first + (f" (and similarly on {len(ranks) - 1} more ranks)" if len(ranks) > 1 else "")
