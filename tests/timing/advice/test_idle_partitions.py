"""Partitions that lie idle: kernels with few rows, and the same on more partitions."""

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


def together(tile, rows, pieces, op):
    """What `op` gives for each `pieces` neighbours of a column, on one partition."""
    turned = psum(1, rows)
    nisa.nc_transpose(dst=turned, data=tile)
    total = sbuf(1, rows // pieces)
    nisa.tensor_reduce(dst=total, data=turned.reshape((1, rows // pieces, pieces)), op=op, axis=2)
    return total


def back(row, rows, pieces):
    """A row's elements, each `pieces` times, as a column."""
    wide = sbuf(1, rows)
    spread = row.reshape((1, rows // pieces, 1)).broadcast(2, pieces)
    nisa.tensor_copy(dst=wide.reshape((1, rows // pieces, pieces)), src=spread)
    turned, column = psum(rows, 1), sbuf(rows, 1)
    nisa.nc_transpose(dst=turned, data=wide)
    nisa.tensor_copy(dst=column, src=turned)
    return column


def picked(x, label, width, pieces):
    """Of each row the element that its label names; an iota in every round tells which it is.

    `pieces` partitions have a row of x, and n of its elements each.
    """
    rows, n = x.shape
    out = nl.ndarray((1, rows // pieces), dtype=x.dtype, buffer=nl.shared_hbm)
    want, total = nl.load(label), sbuf(rows, 1)
    nisa.memset(dst=total, value=0.0)
    for c in range(0, n, width):
        tile = nl.load(x[:, c : c + width])
        index, here, part = sbuf(rows, width), sbuf(rows, 1), sbuf(rows, 1)
        nisa.iota(dst=index, pattern=[[1, width]], offset=0)
        nisa.tensor_scalar(dst=here, data=want, op0=nl.subtract, operand0=float(c))
        nisa.tensor_scalar(dst=index, data=index, op0=nl.equal, operand0=here)
        nisa.tensor_tensor(dst=index, data1=index, data2=tile, op=nl.multiply)
        nisa.tensor_reduce(dst=part, data=index, op=nl.add, axis=1)
        nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
    nl.store(out, together(total, rows, pieces, nl.add))
    return out


def test_pieces_of_rows_that_are_summed_up():
    few = time_of(picked, (4, 32768), (4, 1), 4096, 1)
    packed = time_of(picked, (128, 1024), (128, 1), 128, 32)
    found = foretold(few, packed, RULE, rel=0.05)
    assert found == few.advice()[0]
    assert "tiles of 4 of 128 partitions" in found.text
    assert few.total_us > 8 * packed.total_us


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


def test_both_forms_pick_the_same():
    rng = np.random.default_rng(0)
    x, label = rng.standard_normal((3, 4200), np.float32), np.array([7, 4199, 1400])
    few = nki.simulate(nki.jit(picked))(x, label.astype(np.float32)[:, None], 700, 1)
    # A piece knows where its row begins.
    local = label[:, None] - 100 * np.arange(42)
    pieces = x.reshape(3 * 42, 100), local.reshape(-1, 1).astype(np.float32)
    packed = nki.simulate(nki.jit(picked))(*pieces, 50, 42)
    assert few.tolist() == packed.tolist() == [x[np.arange(3), label].tolist()]


def softmax(x, pieces):
    rows, n = x.shape
    out = nl.ndarray((rows, n), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, low, powers, total = nl.load(x), sbuf(rows, 1), sbuf(rows, n), sbuf(rows, 1)
    nisa.tensor_reduce(dst=low, data=tile, op=nl.maximum, axis=1, negate=True)
    if pieces > 1:
        low = back(together(low, rows, pieces, nl.minimum), rows, pieces)
    nisa.activation_reduce(
        dst=powers, op=nl.exp, data=tile, bias=low, reduce_op=nl.add, reduce_res=total
    )
    if pieces > 1:
        total = back(together(total, rows, pieces, nl.add), rows, pieces)
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=powers, data=powers, op0=nl.multiply, operand0=total)
    nl.store(out, powers)
    return out


def test_pieces_of_rows_whose_sums_are_needed_at_once():
    few, packed = time_of(softmax, (4, 16384), 1), time_of(softmax, (128, 512), 32)
    found = foretold(few, packed, RULE, rel=0.05)
    assert "(4, 16,384) as (128, 512)" in found.text


def test_both_forms_are_a_softmax():
    x = np.random.default_rng(1).standard_normal((3, 420), np.float32)
    powers = np.exp(x.astype(np.float64))
    for pieces in (1, 42):
        result = nki.simulate(nki.jit(softmax))(x.reshape(3 * pieces, -1), pieces)
        expected = powers / powers.sum(axis=1, keepdims=True)
        np.testing.assert_allclose(result.reshape(x.shape), expected, rtol=1e-5)


def by_rows(x, step):
    """A softmax by blocks of rows."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], step):
        tile, low, total = nl.load(x[r : r + step]), sbuf(step, 1), sbuf(step, 1)
        nisa.tensor_reduce(dst=low, data=tile, op=nl.maximum, axis=1, negate=True)
        nisa.activation_reduce(
            dst=tile, op=nl.exp, data=tile, bias=low, reduce_op=nl.add, reduce_res=total
        )
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=total)
        nl.store(out[r : r + step], tile)
    return out


def test_tiles_of_several_rounds():
    few, full = (time_of(by_rows, (256, 1536), n) for n in (32, 128))
    found = foretold(few, full, RULE, rel=0.2)  # fewer rounds overlap less
    assert "(32, 1,536) as (128, 384)" in found.text


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
        (by_rows, [(128, 2048), 128]),
    ],
)
def test_rows_that_have_to_be_where_they_are(kernel, shapes):
    assert RULE not in rules(time_of(kernel, *shapes))
