"""Operand forms that only the documentation's own examples use."""

import numpy as np
import pytest
from helpers import numbers, output, run

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError


@pytest.mark.parametrize("reverse", [False, True])
def test_predicates_of_booleans(reverse):
    x, before, chosen = numbers(1, (9, 7)), numbers(2, (9, 7)), numbers(3, (9, 7)) > 0

    def kernel(x, before, chosen):
        tile, mask, copied = nl.load(x), nl.load(chosen), nl.load(before)
        selected = nl.ndarray(x.shape, dtype=x.dtype)
        nisa.tensor_copy_predicated(copied, tile, mask, reverse_pred=reverse)
        nisa.select_reduce(selected, mask, tile, -2.0, reverse_pred=reverse)
        return output(copied), output(selected)

    copied, selected = run(kernel, x, before, chosen)
    assert np.array_equal(copied, np.where(chosen ^ reverse, x, before))
    assert np.array_equal(selected, np.where(chosen ^ reverse, x, np.float32(-2)))


def test_start_value_of_a_scan_that_continues_is_ignored():
    x = numbers(4, (5, 8))

    def kernel(x, cmd, imm1):
        first, second, tile = nl.load(x), nl.load(x), nl.load(x)
        load = nisa.reduce_cmd.load_reduce
        nisa.tensor_scalar_cumulative(first, tile, nl.add, nl.add, 0.0, 1.0, reduce_cmd=load)
        nisa.tensor_scalar_cumulative(second, tile, nl.add, nl.add, 0.0, imm1, reduce_cmd=cmd)
        return output(second)

    sums = np.cumsum(x.astype(np.float64), axis=1)
    got = run(kernel, x, nisa.reduce_cmd.reduce, 5.0)
    assert np.allclose(got, sums + sums[:, -1:] + 1, rtol=1e-5, atol=1e-5)
    assert np.allclose(run(kernel, x, nisa.reduce_cmd.load_reduce, 5.0), sums + 5, atol=1e-5)
    with pytest.raises(NkiValidationError, match="imm1 is None"):
        run(kernel, x, nisa.reduce_cmd.load_reduce, None)
