"""Partitions that lie idle: kernels with few rows, and the same on more partitions."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.timing.advice.foretelling import finding, foretold, rules, time_of

RULE = "idle partitions"


def sbuf(*shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)


def psum(*shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)


def squashed(x, width):
    """Twice the hyperbolic tangent of each element."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for c in range(0, x.shape[1], width):
        tile = nl.load(x[:, c : c + width])
        nisa.activation(dst=tile, op=nl.tanh, data=tile)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nl.store(out[:, c : c + width], tile)
    return out


def test_pieces_of_rows():
    few = time_of(squashed, (4, 65536), 8192)
    packed = time_of(squashed, (128, 2048), 256)
    found = foretold(few, packed, RULE, rel=0.05)
    assert found == few.advice()[0]
    assert "tiles of 4 of 128 partitions" in found.text
    assert "(4, 8,192) as (128, 256)" in found.text


@nki.jit
def row_at(x, place):
    """A row plus its place, stored at a run-time address."""
    tile, whole, at = nl.load(x), nl.load(place), sbuf(1, 1)
    here = nisa.register_alloc(whole)
    nisa.tensor_copy(dst=at, src=whole)
    out = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for column in range(0, tile.shape[1], 2048):
        piece = tile[:, column : column + 2048]
        nisa.tensor_scalar(dst=piece, data=piece, op0=nl.add, operand0=at)
    nisa.dma_copy(dst=out[nl.ds(here, 1), :], src=tile)
    return out


def test_what_reads_a_register_writes_no_tile():
    x = nki.TensorSpec((1, 16384), np.float32)
    profile = nki.estimate(row_at)(x, np.array([[0]], np.int32))
    assert profile.advice() is not None and profile.total_us > 0


def softmax(x):
    """Rows are summed up."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, low, total = nl.load(x), sbuf(x.shape[0], 1), sbuf(x.shape[0], 1)
    nisa.tensor_reduce(dst=low, data=tile, op=nl.maximum, axis=1, negate=True)
    nisa.activation_reduce(
        dst=tile, op=nl.exp, data=tile, bias=low, reduce_op=nl.add, reduce_res=total
    )
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=total)
    nl.store(out, tile)
    return out


def test_rounds_of_a_dynamic_loop():
    def unknown(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)

        def body(r):
            tile = sbuf(8, 2048)
            nisa.dma_copy(dst=tile, src=x[nl.ds(r, 8)])
            nisa.activation(dst=tile, op=nl.exp, data=tile)
            nisa.dma_copy(dst=out[nl.ds(r, 8)], src=tile)

        nl.fori_loop(0, 128, body, 8)
        return out

    found = finding(time_of(unknown, (128, 2048)), RULE)
    assert "(8, 2,048) as (128, 128)" in found.text


def recurrence(w, x):
    """Each result of one row is what the next one is made of."""
    out = nl.ndarray((1, 128), dtype=x.dtype, buffer=nl.shared_hbm)
    weights, state = nl.load(w), nl.load(x)
    for _ in range(20):
        total, row, column = psum(1, 128), sbuf(1, 128), psum(128, 1)
        nisa.nc_matmul(dst=total, stationary=state, moving=weights)
        nisa.activation(dst=row, op=nl.tanh, data=total)
        nisa.nc_transpose(dst=column, data=row)
        state = sbuf(128, 1)
        nisa.tensor_copy(dst=state, src=column)
    nl.store(out, row)
    return out


def contracted(w, x):
    """Four rows are what a product adds up."""
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    for k in range(0, x.shape[1], 512):
        left, right, total = nl.load(w), nl.load(x[:, k : k + 512]), psum(128, 512)
        nisa.tensor_scalar(dst=right, data=right, op0=nl.multiply, operand0=2.0)
        nisa.nc_matmul(dst=total, stationary=left, moving=right)
        tile = sbuf(128, 512)
        nisa.tensor_copy(dst=tile, src=total)
        nl.store(out, tile)
    return out


def running(x):
    """Sums along a row from its beginning: a piece needs those before it."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, ones = nl.load(x), sbuf(*x.shape)
    nisa.memset(dst=ones, value=1.0)
    nisa.tensor_tensor_scan(
        dst=tile, data0=ones, data1=tile, initial=0.0, op0=nl.multiply, op1=nl.add
    )
    nl.store(out, tile)
    return out


def shuffled(x):
    """Rows change places."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, other = nl.load(x), sbuf(*x.shape)
    nisa.nc_stream_shuffle(dst=other, src=tile, shuffle_mask=[*range(31, -1, -1)])
    nisa.tensor_tensor(dst=other, data1=other, data2=tile, op=nl.add)
    nl.store(out, other)
    return out


def narrow(x):
    """Few rows, and short ones."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 4):
        tile = nl.load(x[r : r + 4])
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        nl.store(out[r : r + 4], tile)
    return out


@pytest.mark.parametrize(
    "kernel, shapes",
    [
        (recurrence, [(128, 128), (128, 1)]),
        (contracted, [(4, 128), (4, 8192)]),
        (running, [(4, 8192)]),
        (shuffled, [(32, 4096)]),
        (narrow, [(128, 16)]),
        (softmax, [(4, 16384)]),
        (squashed, [(128, 2048), 256]),
    ],
)
def test_rows_that_have_to_be_where_they_are(kernel, shapes):
    assert RULE not in rules(time_of(kernel, *shapes))
