"""Operands that repeat their elements, and numbers: what no engine is asked for."""

import re

import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError
from tests.compiler.compiling import compiled
from tests.language.run import run

SMALL = ((4, 8), np.float32)


def repeat(tile, n):
    """Every row of a tile n times in its partition."""
    rows, columns = tile.shape
    return tile.ap([[columns, rows], [0, n], [1, columns]])


def summed(x, n):
    tile, sums = nl.load(x), nl.zeros((4, 1), nl.float32)
    nisa.tensor_reduce(dst=sums, op=nl.add, data=repeat(tile, n), axis=(1, 2))
    out = nl.ndarray(sums.shape, dtype=sums.dtype, buffer=nl.shared_hbm)
    nl.store(out, sums)
    return out


def test_a_row_may_be_repeated():
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    got = run(lambda x: summed(x, 100), x)
    np.testing.assert_array_equal(got, 100 * x.sum(1, keepdims=True))


def test_rows_end():
    compiled(lambda x: summed(x, 1 << 15), SMALL)
    with pytest.raises(NkiValidationError, match=r"up to 262152 per partition; allowed: 262144"):
        compiled(lambda x: summed(x, (1 << 15) + 1), SMALL)


def spread(x, rows, n):
    """A row of HBM repeated into a larger tensor, or into itself."""
    out = nl.ndarray((rows, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    many = out.ap([[8, rows], [0, n // rows], [1, 8]])
    nisa.dma_copy(dst=many, src=x.ap([[0, n], [1, 8]]))
    return out


def test_a_tensor_may_be_filled_with_repeated_rows():
    x = np.arange(8, dtype=np.float32).reshape(1, 8)
    got = run(lambda x: spread(x, 1 << 12, 1 << 12), x)
    np.testing.assert_array_equal(got, np.broadcast_to(x, got.shape))
    compiled(lambda x: spread(x, 1 << 20, 1 << 20), ((1, 8), np.float32))  # 8 Mi elements


def test_nothing_is_repeated_beyond_the_largest_tensor():
    compiled(lambda x: spread(x, 4, 1 << 19), ((1, 8), np.float32))  # 4 Mi, always allowed
    message = "repeats the elements of .* up to 4194336; allowed: 4194304"
    with pytest.raises(NkiValidationError, match=message):
        compiled(lambda x: spread(x, 4, (1 << 19) + 4), ((1, 8), np.float32))


def returned(x, n):
    out = nl.ndarray((1, 8), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out.ap([[0, n], [1, 8]])


def test_neither_are_results():
    compiled(lambda x: returned(x, 1 << 19), ((1, 8), np.float32))
    with pytest.raises(NkiValidationError, match=r"a returned tensor has shape .*repeats"):
        compiled(lambda x: returned(x, (1 << 19) + 1), ((1, 8), np.float32))


def filled(value):
    nisa.memset(dst=nl.ndarray((4, 8), nl.float32, buffer=nl.sbuf), value=value)


@pytest.mark.parametrize("value", [(1 << 64) - 1, -(1 << 63), 2.0**100, True])
def test_numbers_have_64_bits(value):
    compiled(lambda x: filled(value), SMALL)


@pytest.mark.parametrize(("value", "bits"), [(1 << 64, 65), (-(1 << 63) - 1, 64), (10**400, 1329)])
def test_others_are_refused(value, bits):
    message = re.escape(f"is an int of {bits} bits; allowed: -2**63 to 2**64 - 1")
    with pytest.raises(NkiValidationError, match="value " + message):
        compiled(lambda x: filled(value), SMALL)

    def scaled(x):
        tile = nl.load(x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=value)

    with pytest.raises(NkiValidationError, match="operand0 " + message):
        compiled(scaled, SMALL)


def test_sources_of_dma_compute_are_tensors():
    def nested(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_compute(dst=out, srcs=[[x], [x]], reduce_op=nl.add)

    with pytest.raises(NkiValidationError, match="a list of tensors, not of lists"):
        compiled(nested, SMALL)
