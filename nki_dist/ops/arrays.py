"""Functions on arrays that NumPy has as methods, with keywords or in several steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_dist.ops.function import function


@function(writes="out")
def fill(out: Any, value: Any) -> None:
    """The same value everywhere."""
    out.fill(value)


@function(reads="inp", writes="out")
def cast(out: Any, inp: Any) -> None:
    """A copy as NumPy converts, values that don't fit included."""
    np.copyto(out, inp, casting="unsafe")


@function(reads="out inp mask", writes="out")
def copy_where(out: Any, inp: Any, mask: Any) -> None:
    """A copy where the mask says so."""
    np.copyto(out, inp, where=mask)


@function(reads="a b mask out", writes="out")
def add_where(a: Any, b: Any, mask: Any, out: Any) -> None:
    """A sum where the mask says so."""
    np.add(a, b, out, where=mask)


@function(reads="inp", writes="out")
def take(inp: Any, numbers: Any, out: Any) -> None:
    """Of dimension 0 those with these numbers, which are all inside."""
    np.take(inp, numbers, 0, out, "clip")


@function(reads="out inp", writes="out")
def put(out: Any, numbers: Any, inp: Any) -> None:
    """Writes those of dimension 0 with these numbers."""
    out[numbers] = inp
