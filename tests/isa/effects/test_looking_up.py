"""Why values that one instruction takes out and another finds again need one type.

`max8` and its companions convert, so neither by itself needs it (`reasons.LOOKED_UP`); but what has
been rounded on its way isn't found any more.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.isa.helpers import numbers, output, run

NOWHERE = 0xFFFFFFFF


def _tiles(a, kept):
    """Data in float32, and its 8 largest values per partition in a tile of type `kept`."""
    data = nl.ndarray(a.shape, dtype=nl.float32, buffer=nl.sbuf)
    best = nl.ndarray((a.shape[0], 8), dtype=kept, buffer=nl.sbuf)
    nisa.dma_copy(dst=data, src=a)
    nisa.max8(dst=best, src=data)
    return data, best


@pytest.mark.parametrize(("kept", "found"), [(nl.float32, True), (nl.bfloat16, False)])
def test_only_values_of_the_same_type_are_found_again(kept, found: bool) -> None:
    def kernel(a):
        data, best = _tiles(a, kept)
        places = nl.ndarray((a.shape[0], 8), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.nc_find_index8(dst=places, data=data, vals=best)
        return output(places)

    a = numbers(3, (5, 21))
    assert (a != a.astype(ml_dtypes.bfloat16).astype(np.float32)).all()
    assert ((run(kernel, a) != NOWHERE) == found).all()


@pytest.mark.parametrize("narrow", ["none", "vals", "dst"])
def test_what_is_replaced_and_what_is_left_are_values_of_the_same_type(narrow: str) -> None:
    """`dst` is what the next round searches: rounded, its values aren't those of `data`."""

    def kernel(a):
        data, best = _tiles(a, nl.bfloat16 if narrow == "vals" else nl.float32)
        left = nl.ndarray(a.shape, nl.bfloat16 if narrow == "dst" else nl.float32, buffer=nl.sbuf)
        nisa.nc_match_replace8(dst=left, data=data, vals=best, imm=-100.0)
        places = nl.ndarray((a.shape[0], 8), dtype=nl.uint32, buffer=nl.sbuf)
        second = nl.ndarray((a.shape[0], 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.max8(dst=second, src=left)
        nisa.nc_find_index8(dst=places, data=data, vals=second)
        return output(places)

    a = numbers(3, (5, 21))
    order = np.argsort(-a, axis=1, kind="stable")
    got = run(kernel, a)
    assert (got == order[:, 8:16]).all() == (narrow == "none")
