"""PSUM once a kernel has been traced: zeros go, blocks live one by one.

Values are compared bit by bit with those of the same kernel as it was traced (`as_written`), and
with products in float64.
"""

import numpy as np
import pytest

from nki_dist.compat.beta1 import isa as nisa
from nki_dist.compat.beta1 import language as nl
from nki_dist.errors import OutOfMemoryError
from nki_dist.program.instruction import instructions
from tests.beta1.helpers import close, normal, run
from tests.beta1.sums import PRODUCT, A, B, M, N, opcodes, operands, program, summing

# ---- zeros --------------------------------------------------------------------------------------


def test_zeros_in_a_loop_restart_the_sum(as_written):
    """One accumulator, zeroed in every round: the first matmul of each replaces."""

    def kernel(a, b):
        out = nl.ndarray((2, M, N), dtype=nl.float32, buffer=nl.shared_hbm)
        acc = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.psum)
        for n in nl.sequential_range(2):
            acc[...] = 0
            for k in nl.affine_range(3):
                acc += nisa.nc_matmul(*operands(a, b, k))
            nl.store(out[n], acc)
        return out

    got = np.asarray(run(kernel, A, B))
    np.testing.assert_array_equal(got, as_written(kernel, A, B))
    close(got, np.stack([PRODUCT] * 2), 1e-5)
    found = program(kernel, A, B)
    flags = [i["accumulate"] for i in instructions(found.body) if i.opcode == "nc_matmul"]
    assert flags == [False, None, None] * 2
    assert not any(i.opcode == "memset" for i in instructions(found.body))


def partly(acc, x, y):
    acc[:, 0:30] += nisa.nc_matmul(x, y[:, 0:30])


def under_a_larger_product(acc, x, y):
    acc[:, 0:30] = nisa.nc_matmul(x, y[:, 0:30])
    acc[:, 30:40] = 0
    acc[:, 20:N] += nisa.nc_matmul(x, y[:, 20:N])


def read_first(acc, x, y):
    seen = nl.copy(acc)
    acc += nisa.nc_matmul(x, y)
    acc += seen


@pytest.mark.parametrize("body", [partly, under_a_larger_product, read_first])
def test_zeros_that_are_read_stay(body, as_written):
    kernel = summing(body)
    np.testing.assert_array_equal(run(kernel, A, B), as_written(kernel, A, B))
    assert opcodes(kernel, A, B)["memset"] > 0


def test_fills_of_blocks_wait_for_their_turn():
    """40 banks of ones, filled at the top, of which one at a time is used."""

    def kernel(a):
        out = nl.ndarray((40, 3, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        blocks = nl.full((40, nl.par_dim(3), 512), 1.0, dtype=nl.float32, buffer=nl.psum)
        for n in nl.affine_range(40):
            blocks[n] += nl.load(a[n])
            nl.store(out[n], nl.copy(blocks[n]))
        return out

    a = normal(40, 3, 512)
    np.testing.assert_array_equal(run(kernel, a), a + 1)
    found = program(kernel, a)
    assert found.facts["peak_psum"] <= 2 * 2048
    assert all(s.region.value != "private_hbm" for s in found.storages)


# ---- more blocks than PSUM holds ----------------------------------------------------------------

BLOCKS = 20  # of a bank each; PSUM has 8
LEFT, RIGHT = normal(10, 4, 128), normal(BLOCKS, 10, 4, 512, seed=1)  # contracted over 10 and 4
EACH = np.einsum("ikm,bikn->bmn", LEFT.astype(np.float64), RIGHT)


def in_blocks(body, finish=lambda n, tile: tile):
    def kernel(a, b):
        out = nl.ndarray((BLOCKS, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        acc = nl.zeros((BLOCKS, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
        body(acc, nl.load(a), b)
        for n in nl.affine_range(BLOCKS):
            nl.store(out[n], nl.copy(finish(n, acc[n])))
        return out

    return kernel


def rounds_outside(acc, x, b):
    """All sums are open until the last round."""
    for k in nl.sequential_range(4):
        for n in nl.affine_range(BLOCKS):
            acc[n] += nisa.nc_matmul(x[:, k, :], nl.load(b[n, :, k, :]))


def rounds_outside_named(acc, x, b):
    for k in nl.sequential_range(4):
        for n in nl.affine_range(BLOCKS):
            r = nisa.nc_matmul(x[:, k, :], nl.load(b[n, :, k, :]))
            acc[n] += r


def halves(acc, x, b):
    """Columns of a block come one after the other."""
    for half in range(2):
        for n in nl.affine_range(BLOCKS):
            y = nl.load(b[n])
            for k in range(4):
                columns = nl.ds(256 * half, 256)
                acc[n, :, columns] += nisa.nc_matmul(x[:, k, :], y[:, k, columns])


def one_by_one(acc, x, b):
    """Each sum is over before the next begins, but all are read later."""
    for n in nl.affine_range(BLOCKS):
        y = nl.load(b[n])
        for k in nl.affine_range(4):
            acc[n] += nisa.nc_matmul(x[:, k, :], y[:, k, :])


@pytest.mark.parametrize("body", [rounds_outside, rounds_outside_named, halves, one_by_one])
def test_blocks_that_do_not_fit_move_to_sbuf(body):
    """Bit for bit what eight blocks at a time give, which fit."""

    def in_eights(a, b):
        out = nl.ndarray((BLOCKS, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        x = nl.load(a)
        for n in nl.affine_range(BLOCKS):
            acc = nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum)
            y = nl.load(b[n])
            for k in nl.affine_range(4):
                acc += nisa.nc_matmul(x[:, k, :], y[:, k, :])
            nl.store(out[n], acc)
        return out

    kernel = in_blocks(body)
    got = np.asarray(run(kernel, LEFT, RIGHT))
    close(got, EACH, 1e-5)
    found = program(kernel, LEFT, RIGHT)
    assert found.facts["peak_psum"] <= 8 * 2048
    assert all(s.region.value != "private_hbm" for s in found.storages)
    if body is not halves:  # other shapes are other products for BLAS
        np.testing.assert_array_equal(got, run(in_eights, LEFT, RIGHT))


def test_sums_that_are_over_cost_one_copy_each():
    """Six banks stay, two are passed through, the results of the other blocks are copied out."""
    found = opcodes(in_blocks(one_by_one), LEFT, RIGHT)
    assert found == {"nc_matmul": 4 * BLOCKS, "tensor_copy": BLOCKS + BLOCKS - 6}


def test_blocks_in_sbuf_take_part_in_everything():
    """Transposes, values, and reading one block by the instruction that writes another."""

    def mixed(acc, x, b):
        for n in nl.affine_range(BLOCKS):
            acc[n, 0:10, 0:10] = nisa.nc_transpose(nl.load(b[n, 0:10, 0, 0:10]))
            acc[n, 0:10, 10:512] = nl.multiply(nl.load(b[n, 0:10, 0, 10:512]), 2.0)
        for n in range(BLOCKS - 1):
            acc[n + 1, 0:10, 10:512] += acc[n, 0:10, 10:512]
        for n in range(BLOCKS):
            acc[n, :, 0:100] += nisa.nc_matmul(x[:, 0, :], nl.load(b[n, :, 0, 0:100]))

    wanted = np.zeros((BLOCKS, 128, 512))
    for n in range(BLOCKS):
        wanted[n, :10] = 2.0 * RIGHT[n, :, 0] + (wanted[n - 1, :10] if n else 0)
        wanted[n, :10, :10] = RIGHT[n, :, 0, :10].T
    for n in range(BLOCKS):
        wanted[n, :, :100] += LEFT[:, 0].astype(np.float64).T @ RIGHT[n, :, 0, :100]
    kernel = in_blocks(mixed, lambda n, tile: nl.add(tile, 1.0))
    close(run(kernel, LEFT, RIGHT), wanted + 1, 1e-5)
    assert program(kernel, LEFT, RIGHT).facts["peak_psum"] <= 8 * 2048


def beside(acc, x, b):
    """A product of all columns beside zeros and a product of half of them."""
    for n in nl.affine_range(BLOCKS):
        acc[n, :, 0:256] += nisa.nc_matmul(x[:, 0, :], nl.load(b[n, :, 0, 0:256]))
    for n in nl.affine_range(BLOCKS):
        acc[n] += nisa.nc_matmul(x[:, 1, :], nl.load(b[n, :, 1, :]))


def test_products_are_added_to_zeros_in_sbuf():
    parts = np.einsum("ikm,bikn->kbmn", LEFT.astype(np.float64), RIGHT)
    parts[0, :, :, 256:] = 0
    close(run(in_blocks(beside), LEFT, RIGHT), parts[0] + parts[1], 1e-5)
    assert program(in_blocks(beside), LEFT, RIGHT).facts["peak_psum"] <= 8 * 2048


def test_blocks_that_start_in_part_from_nothing_stay_in_psum():
    """Which elements a matmul adds to is decided one by one, which Vector can't."""

    def kernel(a, b):
        out = nl.ndarray((BLOCKS, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        acc = nl.ndarray((BLOCKS, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
        beside(acc, nl.load(a), b)
        for n in nl.affine_range(BLOCKS):
            nl.store(out[n], acc[n])
        return out

    with pytest.raises(OutOfMemoryError, match=r"PSUM has 16384"):
        run(kernel, LEFT, RIGHT)


def test_tiles_that_are_no_blocks_stay_where_they_are():
    def kernel(a):
        tiles = [nl.zeros((128, 512), dtype=nl.float32, buffer=nl.psum) for _ in range(9)]
        for tile in tiles:
            tile += nl.load(a)
        out = nl.ndarray((9, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        for n, tile in enumerate(tiles):
            nl.store(out[n], tile)
        return out

    with pytest.raises(OutOfMemoryError, match=r"PSUM has 16384"):
        run(kernel, normal(128, 512))
