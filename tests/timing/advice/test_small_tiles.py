"""Tiles that are small beside an instruction's start: many instructions, and one for their work."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.timing.advice.foretelling import foretold, rules, time_of

RULE = "small tiles"


def sbuf(*shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)


def psum(*shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)


def scaled(x, width):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, result = nl.load(x), sbuf(*x.shape)
    for c in range(0, x.shape[1], width):
        columns = nl.ds(c, width)
        nisa.tensor_scalar(
            dst=result[:, columns],
            data=tile[:, columns],
            op0=nl.multiply,
            operand0=2.0,
            op1=nl.add,
            operand1=1.0,
        )
    nl.store(out, result)
    return out


def test_columns_one_by_one():
    small, large = (time_of(scaled, (128, 1024), width) for width in (4, 512))
    found = foretold(small, large, RULE, rel=0.1)
    assert "256 instructions on tiles of 4 elements per partition" in found.text
    assert "up to 128 that follow" in found.text


def grouped(x, at_once):
    """The largest of every 8 elements."""
    n = x.shape[1] // 8
    out = nl.ndarray((128, n), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, result = nl.load(x), sbuf(128, n)
    for c in range(0, n, at_once):
        data = tile[:, nl.ds(8 * c, 8 * at_once)].reshape((128, at_once, 8))
        nisa.tensor_reduce(dst=result[:, nl.ds(c, at_once)], data=data, op=nl.maximum, axis=2)
    nl.store(out, result)
    return out


def test_reductions_of_short_rows():
    small, large = (time_of(grouped, (128, 2048), n) for n in (1, 64))
    foretold(small, large, RULE, rel=0.1)


def test_both_forms_find_the_largest():
    x = np.random.default_rng(0).standard_normal((128, 512), np.float32)
    for at_once in (1, 64):
        result = nki.simulate(nki.jit(grouped))(x, at_once)
        assert (result == x.reshape(128, 64, 8).max(axis=2)).all()


def evacuated(w, x, at_once):
    """Products with 8 columns leave PSUM one by one, or as many as a bank holds."""
    n = x.shape[1] // 8
    out = nl.ndarray((128, 8 * n), dtype=nl.float32, buffer=nl.shared_hbm)
    left, right, result = nl.load(w), nl.load(x), sbuf(128, 8 * n)
    for k in range(0, n, at_once):
        total = psum(128, 8 * at_once)
        for j in range(at_once):
            columns = nl.ds((k + j) * 8, 8)
            nisa.nc_matmul(dst=total[:, nl.ds(j * 8, 8)], stationary=left, moving=right[:, columns])
        nisa.activation(dst=result[:, nl.ds(k * 8, 8 * at_once)], op=nl.relu, data=total)
    nl.store(out, result)
    return out


def test_results_that_leave_psum_one_by_one():
    shapes = [nki.TensorSpec(shape, "bfloat16") for shape in ((128, 128), (128, 4096))]
    one, bank = (time_of(evacuated, *shapes, n) for n in (1, 64))
    foretold(one, bank, RULE, rel=0.2)


def chained(x):
    """Every instruction needs the one before."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for _ in range(100):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=0.5)
    nl.store(out, tile)
    return out


def own_factors(x, w):
    """Each column has a factor for every row."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, factors, result = nl.load(x), nl.load(w), sbuf(*x.shape)
    for c in range(0, x.shape[1], 4):
        nisa.tensor_scalar(
            dst=result[:, nl.ds(c, 4)],
            data=tile[:, nl.ds(c, 4)],
            op0=nl.multiply,
            operand0=factors[:, c // 4 : c // 4 + 1],
        )
    nl.store(out, result)
    return out


def last_columns(x):
    """One element of each of many tiles, which can't be next to each other."""
    out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
    result = sbuf(128, 64)
    for n in range(64):
        tile = nl.load(x[:, nl.ds(n * 64, 64)])
        nisa.tensor_copy(dst=result[:, n : n + 1], src=tile[:, 63:64])
    nl.store(out, result)
    return out


def scattered(x):
    """Places that no pattern has."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, result = nl.load(x), sbuf(*x.shape)
    for n in range(256):
        here = n * n * 7 % 257 % 256
        nisa.tensor_copy(dst=result[:, n : n + 1], src=tile[:, here : here + 1])
    nl.store(out, result)
    return out


def quadrants(x):
    """Four partitions, each of which an instruction has to begin at."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, result = nl.load(x), sbuf(*x.shape)
    for _ in range(16):
        for p in range(0, 128, 32):
            nisa.tensor_scalar(
                dst=result[p : p + 32], data=tile[p : p + 32], op0=nl.add, operand0=1.0
            )
    nl.store(out, result)
    return out


@pytest.mark.parametrize(
    "kernel, shapes",
    [
        (chained, [(128, 4)]),
        (own_factors, [(128, 512), (128, 128)]),
        (last_columns, [(128, 4096)]),
        (scattered, [(128, 256)]),
        (quadrants, [(128, 8)]),
        (scaled, [(128, 4096), 128]),
    ],
)
def test_instructions_that_cannot_be_one(kernel, shapes):
    assert RULE not in rules(time_of(kernel, *shapes))
