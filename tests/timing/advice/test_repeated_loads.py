"""Loads that are repeated: parts of tiles, room, and what only looks like it."""

import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.timing.advice.foretelling import finding, foretold, rules, time_of

RULE = "repeated loads"


def sbuf(*shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)


def weighted(x, w, again):
    """Columns of x by w, whose halves are loaded into one tile in every round or once."""
    out, weights = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm), sbuf(128, 1024)
    for c in range(0, x.shape[1], 1024):
        for half in (0, 512) if again or c == 0 else ():
            nisa.dma_copy(dst=weights[:, half : half + 512], src=w[:, half : half + 512])
        tile = nl.load(x[:, c : c + 1024])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=weights, op=nl.multiply)
        nl.store(out[:, c : c + 1024], tile)
    return out


def test_parts_of_a_tile_that_stay_as_they_are():
    shapes = (128, 16384), (128, 1024)
    again, once = (time_of(weighted, *shapes, how) for how in (True, False))
    found = foretold(again, once, RULE, rel=0.1)
    assert "30 loads fetch 7,864,320 bytes again" in found.text and "keep the tile" in found.text
    assert "bytes of each partition" not in found.text  # none more than there are


def test_what_takes_too_much_room_is_not_kept():
    def each(x, w):
        """Weights of their own for each of 40 blocks, loaded again for the other rows."""
        out = nl.ndarray((512, 40), dtype=x.dtype, buffer=nl.shared_hbm)
        for r in range(0, 512, 128):
            sums = sbuf(128, 40)
            for c in range(40):
                columns, product = nl.ds(c * 1024, 1024), sbuf(128, 1024)
                weights, tile = nl.load(w[:, columns]), nl.load(x[nl.ds(r, 128), columns])
                nisa.tensor_tensor(dst=product, data1=tile, data2=weights, op=nl.multiply)
                total = sums[:, c : c + 1]
                nisa.activation_reduce(
                    dst=product, op=nl.copy, data=product, reduce_op=nl.add, reduce_res=total
                )
            nl.store(out[nl.ds(r, 128)], sums)
        return out

    found = finding(time_of(each, (512, 40960), (128, 40960)), RULE)
    assert "75 loads" in found.text and "102,400 bytes of each partition" in found.text


def changed(x):
    """What is loaded is overwritten in its tile."""
    out, tile = nl.ndarray((16, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm), sbuf(*x.shape)
    for n in range(16):
        nisa.dma_copy(dst=tile, src=x)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=float(n))
        nl.store(out[n], tile)
    return out


def by_a_register(x):
    """The same load in every round, of other rows."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)

    def body(r):
        tile = sbuf(128, 512)
        nisa.dma_copy(dst=tile, src=x[nl.ds(r, 128)])
        nisa.dma_copy(dst=out[nl.ds(r, 128)], src=tile)

    nl.fori_loop(0, x.shape[0], body, 128)
    return out


def other_rows(x):
    """Rows that follow each other."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for r in range(0, x.shape[0], 128):
        nl.store(out[r : r + 128], nl.load(x[r : r + 128]))
    return out


@pytest.mark.parametrize(
    "kernel, shape",
    [(changed, (128, 2048)), (by_a_register, (1024, 512)), (other_rows, (1024, 512))],
)
def test_what_only_looks_repeated(kernel, shape):
    assert RULE not in rules(time_of(kernel, shape))
