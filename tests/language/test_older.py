"""Names of Beta 1 that today's nl lacks, and copies of unequal shapes, say what to write."""

import numpy as np
import pytest

import nki_dist
import nki_dist.language as nl
from nki_dist.errors import NkiError, NoSuchAttribute
from nki_dist.language.older import INSTEAD

X = np.ones((4, 5), np.float32)


def test_a_loop_over_arange_names_range():
    def kernel(x):
        for _ in nl.arange(4):
            pass

    with pytest.raises(NoSuchAttribute, match=r"for i in range\(n\).*(?s:.*)test_older.py:\d+"):
        nki_dist.simulate(kernel)(X)


def test_names_that_never_were_stay_plain():
    assert not any(hasattr(nl, name) for name in [*INSTEAD, "no_such_name"])
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'") as caught:
        nl.no_such_name  # noqa: B018
    assert not isinstance(caught.value, NkiError)


@pytest.mark.parametrize(
    "shape, advice",
    [
        ((4, 6), r"write dst\[0:4, 0:5\](\s|$)"),
        ((3, 5), r"write src\[0:3, 0:5\](\s|$)"),
        ((3, 6), r"write dst\[0:3, 0:5\] and src\[0:3, 0:5\](\s|$)"),
        ((2, 3, 5), r"needs as many in both(\s|$)"),
    ],
)
def test_a_store_of_another_shape_names_the_part(shape, advice):
    def kernel(x):
        out = nl.ndarray(shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x))
        return out

    with pytest.raises(NkiError, match=advice):
        nki_dist.simulate(kernel)(X)
