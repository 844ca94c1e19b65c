"""Work that is repeated with equal operands: kernels that do it in a loop, and before it."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.timing.advice.values import repetitions
from tests.timing.advice.foretelling import finding, foretold, rules, time_of

RULE = "repeated work"


def sbuf(*shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)


def psum(*shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)


def ramp(n, slope):
    """exp(slope * i) + 1 for i < n, on every partition."""
    tile = sbuf(128, n)
    nisa.iota(dst=tile, pattern=[[1, n]], offset=0)
    powers, weights = sbuf(128, n), sbuf(128, n)
    nisa.activation(dst=powers, op=nl.exp, data=tile, scale=slope)
    nisa.tensor_scalar(dst=weights, data=powers, op0=nl.add, operand0=1.0)
    return weights


def weighted(x, again):
    """Sums of 64 columns each, by weights that are made for each of them or once."""
    n = x.shape[1] // 64
    out = nl.ndarray((128, n), dtype=x.dtype, buffer=nl.shared_hbm)
    whole, sums, kept = nl.load(x), sbuf(128, n), None if again else ramp(64, -0.01)
    for k in range(n):
        weights, product = ramp(64, -0.01) if again else kept, sbuf(128, 64)
        columns = whole[:, nl.ds(64 * k, 64)]
        nisa.tensor_tensor(dst=product, data1=columns, data2=weights, op=nl.multiply)
        nisa.tensor_reduce(dst=sums[:, k : k + 1], data=product, op=nl.add, axis=1)
    nl.store(out, sums)
    return out


def test_weights_that_are_made_in_every_round():
    again, once = (time_of(weighted, (128, 4096), how) for how in (True, False))
    found = foretold(again, once, RULE, rel=0.1)
    assert "189 instructions make again" in found.text
    for what in ("63 iota", "63 activation", "63 tensor_scalar"):
        assert what in found.text
    assert "the tiles (256 bytes of each partition)" in found.text  # but those in between


def test_both_forms_weigh_alike():
    x = np.random.default_rng(0).standard_normal((128, 192), np.float32)
    expected = x.reshape(128, 3, 64).astype(np.float64) @ (np.exp(-0.01 * np.arange(64)) + 1)
    for again in (True, False):
        result = nki.simulate(nki.jit(weighted))(x, again)
        np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def turned(w):
    """w.T in SBUF, loaded now."""
    rows, total, tile = nl.load(w), psum(128, 128), sbuf(128, 128)
    nisa.nc_transpose(dst=total, data=rows)
    nisa.tensor_copy(dst=tile, src=total)
    return tile


def rotated(w, x, again):
    """w @ x by blocks of columns."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    kept = None if again else turned(w)
    for c in range(0, x.shape[1], 128):
        left = turned(w) if again else kept
        total, tile = psum(128, 128), sbuf(128, 128)
        nisa.nc_matmul(dst=total, stationary=left, moving=nl.load(x[:, c : c + 128]))
        nisa.tensor_copy(dst=tile, src=total)
        nl.store(out[:, c : c + 128], tile)
    return out


def test_a_tile_that_is_loaded_and_turned_in_every_round():
    again, once = (time_of(rotated, (128, 128), (128, 8192), how) for how in (True, False))
    found = foretold(again, once, RULE, rel=0.2)
    # What it loads is for nothing else, so that isn't needed either, nor a place for it.
    for what in ("63 dma_copy", "63 nc_transpose", "63 tensor_copy", "(512 bytes"):
        assert what in found.text


def in_place(x, again):
    """The same iota is written into one tile in every round."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    index = sbuf(128, 1024)
    for c in range(0, x.shape[1], 1024):
        if again or c == 0:
            nisa.iota(dst=index[:, :512], pattern=[[2, 512]], offset=3)
            nisa.iota(dst=index[:, 512:], pattern=[[1, 512]], offset=0)
        tile = nl.load(x[:, c : c + 1024])
        nisa.tensor_tensor(dst=tile, data1=tile, data2=index, op=nl.multiply)
        nl.store(out[:, c : c + 1024], tile)
    return out


def test_parts_of_a_tile_that_stay_as_they_are():
    again, once = (time_of(in_place, (128, 32768), how) for how in (True, False))
    found = foretold(again, once, RULE, rel=0.2)
    assert "62 instructions make again" in found.text and "keep the tile" in found.text
    assert "bytes" not in found.text  # none more than there are


def marked(x, again):
    """An iota becomes a mask in its own tile, or in another one."""
    n = x.shape[1] // 256
    out = nl.ndarray((128, n), dtype=x.dtype, buffer=nl.shared_hbm)
    whole, sums, index, mask = nl.load(x), sbuf(128, n), sbuf(128, 256), sbuf(128, 256)
    for k in range(n):
        if again or k == 0:
            nisa.iota(dst=index, pattern=[[1, 256]], offset=0)
        target = index if again else mask
        nisa.tensor_scalar(dst=target, data=index, op0=nl.less, operand0=float(k))
        columns = whole[:, nl.ds(256 * k, 256)]
        nisa.tensor_tensor(dst=target, data1=target, data2=columns, op=nl.multiply)
        nisa.tensor_reduce(dst=sums[:, k : k + 1], data=target, op=nl.add, axis=1)
    nl.store(out, sums)
    return out


def test_a_tile_that_is_made_anew_because_it_was_changed():
    again, once = (time_of(marked, (128, 16384), how) for how in (True, False))
    found = foretold(again, once, RULE, rel=0.1)
    assert "63 instructions make again" in found.text and "63 iota" in found.text
    assert "the tiles (1,024 bytes of each partition)" in found.text  # of its own


def test_what_takes_too_much_room_is_not_kept():
    def each(x):
        """Weights of their own for each of 40 blocks, made again for the other half of the rows."""
        out = nl.ndarray((256, 40), dtype=x.dtype, buffer=nl.shared_hbm)
        for r in range(0, 256, 128):
            sums = sbuf(128, 40)
            for c in range(40):
                weights, product = ramp(1024, -0.001 * (c + 1)), sbuf(128, 1024)
                tile = nl.load(x[nl.ds(r, 128), nl.ds(c * 1024, 1024)])
                nisa.tensor_tensor(dst=product, data1=tile, data2=weights, op=nl.multiply)
                nisa.tensor_reduce(dst=sums[:, c : c + 1], data=product, op=nl.add, axis=1)
            nl.store(out[nl.ds(r, 128)], sums)
        return out

    found = finding(time_of(each, (256, 40960)), RULE)
    assert "25 activation" in found.text and "25 tensor_scalar" in found.text  # of 4 KiB each
    assert "102,400 bytes" in found.text


def counted(x):
    """A tile that is cleared in every round, and added to."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for c in range(0, x.shape[1], 512):
        total = sbuf(128, 512)
        nisa.memset(dst=total, value=0.0, engine=nisa.gpsimd_engine)
        for _ in range(3):
            tile = nl.load(x[:, c : c + 512])
            nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.add)
        nl.store(out[:, c : c + 512], total)
    return out


def other_constants(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for c in range(0, x.shape[1], 512):
        tile, index = nl.load(x[:, c : c + 512]), sbuf(128, 512)
        nisa.iota(dst=index, pattern=[[1, 512]], offset=c)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=index, op=nl.multiply)
        nl.store(out[:, c : c + 512], tile)
    return out


def random(x):
    """Equal instructions that give something else each time."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for c in range(0, x.shape[1], 512):
        tile, noise = nl.load(x[:, c : c + 512]), sbuf(128, 512)
        bits = nl.ndarray((128, 512), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.rng(dst=bits)
        nisa.tensor_copy(dst=noise, src=bits)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=noise, op=nl.multiply)
        nl.store(out[:, c : c + 512], tile)
    return out


def changed_in_between(x):
    """exp of a tile that was doubled since."""
    out = nl.ndarray((16, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    for n in range(16):
        power = sbuf(*x.shape)
        nisa.activation(dst=power, op=nl.exp, data=tile)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nl.store(out[n], power)
    return out


def by_a_register(x):
    """The same instructions in every round, at another place."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    whole = nl.load(x)

    def body(c):
        tile = sbuf(128, 512)
        nisa.activation(dst=tile, op=nl.exp, data=whole[:, nl.ds(c, 512)])
        nisa.dma_copy(dst=out[:, nl.ds(c, 512)], src=tile)

    nl.fori_loop(0, x.shape[1], body, 512)
    return out


def to_other_partitions(x):
    """The same on all four quadrants of a tile, which is read as a whole."""
    out = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    tile, rows = sbuf(128, x.shape[1]), nl.load(x)
    for p in range(0, 128, 32):
        nisa.activation(dst=tile[p : p + 32], op=nl.exp, data=rows)
    nl.store(out, tile)
    return out


@pytest.mark.parametrize(
    "kernel, shape",
    [
        (counted, (128, 8192)),
        (other_constants, (128, 8192)),
        (random, (128, 8192)),
        (changed_in_between, (128, 2048)),
        (by_a_register, (128, 8192)),
        (to_other_partitions, (32, 4096)),
    ],
)
def test_what_only_looks_repeated(kernel, shape):
    profile = time_of(kernel, shape)
    assert RULE not in rules(profile)
    (part, *_) = profile.timeline.launch.parts
    made = {part.graph.executed[at].opcode for at in repetitions(part.graph, part.fixed)[0]}
    assert made <= {"dma_copy"}
