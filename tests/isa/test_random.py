"""The random instructions: XORWOW against its definition, ranges, reproducibility, refusals."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from helpers import numbers, on_tiles, run

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError

BF16 = ml_dtypes.bfloat16
E = nisa.engine
U32 = np.uint32
X = np.ones((8, 16), np.float32)
SEED = np.array([[12345]], np.int32)


def refuse(message, body, inputs, outputs, **where):
    with pytest.raises(NkiValidationError, match=message):
        on_tiles(body, inputs, outputs, **where)


def xorwow(words, count):
    """Marsaglia's generator on Python integers."""
    x, y, z, w, v, d = (int(n) for n in words)
    out = []
    for _ in range(count):
        t = x ^ (x >> 2)
        x, y, z, w = y, z, w, v
        v = (v ^ (v << 4)) ^ (t ^ (t << 1))
        v &= 0xFFFFFFFF
        d = (d + 362437) & 0xFFFFFFFF
        out.append((d + v) & 0xFFFFFFFF)
    return out, [x, y, z, w, v, d]


def test_gpsimd_generator_from_a_given_state():
    state = np.random.default_rng(1).integers(0, 2**32, (5, 6), np.uint64).astype(U32)

    def body(seeds, first, second, after):
        nisa.rand_set_state(seeds)
        nisa.rng(first, E.gpsimd)
        nisa.rng(second, E.gpsimd)
        nisa.rand_get_state(after)

    outputs = [((5, 7), U32), ((5, 3), np.uint8), ((5, 6), U32)]
    first, second, after = on_tiles(body, [state], outputs)
    for lane in range(5):
        bits, words = xorwow(state[lane], 10)
        np.testing.assert_array_equal(first[lane], bits[:7])
        np.testing.assert_array_equal(second[lane], np.array(bits[7:]) & 0xFF)
        np.testing.assert_array_equal(after[lane], words)


def test_vector_has_four_generators_a_lane():
    state = np.random.default_rng(2).integers(0, 2**32, (3, 24), np.uint64).astype(U32)

    def body(seeds, dst, after):
        nisa.rand_set_state(seeds, E.vector)
        nisa.rng(dst)
        nisa.rand_get_state(after, E.vector)

    outputs = [((3, 2, 5), U32), ((3, 24), U32)]
    got, after = on_tiles(body, [state], outputs, platform="trn3", psum=(1,))
    for lane in range(3):
        for n in range(4):
            bits, words = xorwow(state[lane, 6 * n : 6 * n + 6], 3)
            mine = got.reshape(3, 10)[lane, n::4]
            np.testing.assert_array_equal(mine, bits[: len(mine)])
            np.testing.assert_array_equal(after[lane, 6 * n : 6 * n + 6], words)


@pytest.mark.parametrize("engine", [E.vector, E.gpsimd])
def test_launches_and_cores_start_alike_and_seeds_that_differ_tell_cores_apart(engine):
    def kernel(seeds):
        out = nl.ndarray((2, 2, 4, 8), nl.uint32, buffer=nl.shared_hbm)
        core = nl.program_id(0)
        tile = nl.ndarray((4, 8), nl.uint32)
        nisa.rng(tile, engine)
        nisa.dma_copy(out[0, core], tile)
        if engine == E.gpsimd:
            nisa.rand_set_state(nl.load(seeds[core]))
        else:
            nisa.set_rng_seed(nl.load(seeds[core])[0:1, 0:1])
        nisa.rng(tile, engine)
        nisa.dma_copy(out[1, core], tile)
        return out

    seeds = np.random.default_rng(5).integers(1, 2**31, (2, 4, 6), np.uint64).astype(U32)
    first, second = (np.asarray(run(kernel, seeds, lnc=2)) for _ in range(2))
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(first[0, 0], first[0, 1])
    assert (first[1, 0] != first[1, 1]).any(1).all()
    assert len(np.unique(first[0, 0])) == 32


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int16])
def test_rand2_is_uniform_within_its_range(dtype):
    low = np.linspace(-20, -10, 16, dtype=np.float32).reshape(16, 1)

    def body(lowest, dst, scalar):
        nisa.rand2(dst, lowest, 30.0)
        nisa.rand2(scalar, -3, 5)

    got, scalar = on_tiles(body, [low], [((16, 500), dtype)] * 2, platform="trn3")
    got, scalar = got.astype(np.float64), scalar.astype(np.float64)
    assert (got >= low - 0.5).all()
    assert (got <= 30).all()
    np.testing.assert_allclose(got.mean(1), (low[:, 0] + 30) / 2, atol=3)
    assert scalar.min() >= -3
    assert scalar.max() <= 5
    np.testing.assert_allclose(scalar.mean(), 1, atol=0.2)


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32])
@pytest.mark.parametrize("column", [False, True])
def test_dropout(dtype, column):
    x = numbers(3, (10, 4, 200), dtype)
    x[x == 0] = 1
    if dtype == np.int32:
        x[0, 0] = 2**24 + 1
    prob = np.array([0, 1, 0.25, 0.25, 0.25, 0.75, 0.75, 0.75, 0.5, 0.5], np.float32)

    def body(data, chances, dst):
        nisa.dropout(dst, data, chances if column else 0.25)

    got = on_tiles(body, [x, prob.reshape(10, 1)], [((10, 800), dtype)])[0]
    flat = x.reshape(10, 800)
    dropped = got == 0
    np.testing.assert_array_equal(got[~dropped], flat[~dropped])
    share = dropped.mean(1)
    if column:
        assert (share[0], share[1]) == (0, 1)
    np.testing.assert_allclose(share, prob if column else 0.25, atol=0.08)


def test_refused():
    rows = [((8, 16), U32)]
    refuse("is in PSUM", lambda d: nisa.rng(d, E.gpsimd), [], rows, psum=(0,))
    refuse("needs NeuronCore-v3", lambda d: nisa.rng(d, E.gpsimd), [], rows, platform="trn1")

    six = np.ones((8, 6), U32)
    put, get = nisa.rand_set_state, nisa.rand_get_state
    refuse(r"\(partitions, 24\)", lambda a: put(a, E.vector), [six], [], platform="trn3")
    refuse("is in PSUM", lambda d: get(d), [], [((8, 6), U32)], psum=(0,))

    floats = [((8, 16), np.float32)]
    refuse("min below max", lambda d: nisa.rand2(d, 1.0, 1.0), [], floats, platform="trn3")
    columns = [X[:, :1].astype(BF16)]
    refuse("min has dtype", lambda c, d: nisa.rand2(d, c, 2.0), columns, floats, platform="trn3")

    refuse("allowed: 0 to 1", lambda a, d: nisa.dropout(d, a, 1.5), [X], floats)
