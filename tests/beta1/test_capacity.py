"""More bytes alive than SBUF has: AWS's compiler for Beta 1 places such tensors, and spills."""

import warnings

import numpy as np
import pytest

import nki_dist
from nki_dist.compat import beta1 as nki
from nki_dist.compat.beta1 import compiler as ncc
from nki_dist.compat.beta1 import language as nl
from nki_dist.errors import OutOfMemoryError, SpilledWarning

X = np.random.default_rng(5).standard_normal((100, 12007)).astype(np.float32)
TILES = 5
ALIVE, USABLE = TILES * 12007 * 4, 212984  # bytes per partition


def most_of_multiples(x, buffers=(nl.sbuf,) * TILES):
    """Every tile is filled before the first is read."""
    out = nl.ndarray((100, len(buffers)), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = [nl.ndarray(x.shape, dtype=x.dtype, buffer=buffer) for buffer in buffers]
    for n, tile in enumerate(tiles):
        tile[...] = nl.load(x) * (n + 1.0)
    for n, tile in enumerate(tiles):
        nl.store(out[:, n : n + 1], nl.max(tile, axis=1, keepdims=True))
    return out


def at_addresses(x):
    """Four tiles have addresses; what else the kernel needs doesn't fit beside them."""
    return most_of_multiples(x, [_placed(48032 * n) for n in range(TILES - 1)])


def _placed(byte):
    return ncc.sbuf.alloc(lambda block, partitions, size: (0, byte))


def launched(kernel, check="default"):
    with nki_dist.World(host="inprocess", check=check) as world:
        return world.run(nki.jit(kernel), X)[0]


def test_a_kernel_that_leaves_placing_to_the_compiler_runs_with_a_warning():
    with pytest.warns(SpilledWarning) as seen:
        got = launched(most_of_multiples)
    most = X.max(axis=1)
    np.testing.assert_array_equal(got, most[:, None] * np.arange(1, TILES + 1, dtype=np.float32))
    (warning,) = [w.message for w in seen if isinstance(w.message, SpilledWarning)]
    assert warning.code == "spilled" and str(warning).count("[spilled]") == 1
    need, most_bytes = warning.numbers["got"], warning.numbers["most"]
    assert need >= ALIVE and most_bytes == USABLE
    assert f"spills at least {need - USABLE} bytes per partition" in warning.message
    assert warning.location.startswith(__file__)


@pytest.mark.parametrize("policy", ["strict", "spill"])
def test_policies_decide(policy):
    if policy == "strict":
        with pytest.raises(OutOfMemoryError, match=r"SBUF has 212984 usable.*(?s:.*)\[space-full"):
            launched(most_of_multiples, policy)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("error", SpilledWarning)
            launched(most_of_multiples, policy)


def test_addresses_that_the_kernel_chose_are_taken_at_their_word():
    with pytest.raises(OutOfMemoryError, match=r"SBUF has 212984 usable.*(?s:.*)\[space-full"):
        launched(at_addresses)


def test_todays_kernels_are_refused():
    def kernel(x):
        out = nki_dist.language.ndarray(x.shape, x.dtype, nki_dist.language.shared_hbm)
        for tile in [nki_dist.language.load(x) for _ in range(TILES)]:
            nki_dist.language.store(out, tile)
        return out

    with (
        nki_dist.World(host="inprocess") as world,
        pytest.raises(OutOfMemoryError, match="SBUF has 212984 usable"),
    ):
        world.run(nki_dist.jit(kernel), X)
