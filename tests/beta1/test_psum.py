"""PSUM once a kernel has been traced: products accumulate, zeros go, blocks live one by one.

Values are compared bit by bit with those of the same kernel as it was traced (`as_written`), and
with products in float64.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from nki_dist import World
from nki_dist import isa as current
from nki_dist import jit as jit_today
from nki_dist import language as today
from nki_dist.compat.beta1 import compiler, jit
from nki_dist.compat.beta1 import isa as nisa
from nki_dist.compat.beta1 import language as nl
from nki_dist.compat.beta1.finish import Finish
from nki_dist.errors import NkiValidationError, OutOfMemoryError
from nki_dist.launcher.session import CompileCache, session
from nki_dist.program.instruction import instructions
from tests.beta1.helpers import close, normal, run

K, M, N = 3 * 40, 33, 70  # three products of 40 rows each
A, B = normal(K, M), normal(K, N, seed=1)
PRODUCT = A.astype(np.float64).T @ B


def program(kernel, *args, platform="trn2"):
    with World(ranks=1, platform=platform, host="inprocess") as world:
        return world.compile(jit(kernel), *args).programs[0]


def opcodes(kernel, *args, platform="trn2"):
    """How many of each instruction that isn't a transfer."""
    body = program(kernel, *args, platform=platform).body
    found = Counter(i.opcode for i in instructions(body))
    del found["dma_copy"]
    return found


@pytest.fixture
def as_written(monkeypatch):
    """Runs a kernel whose trace is left as it is."""

    def runs(kernel, *args):
        left = []
        with monkeypatch.context() as patch:
            patch.setattr(Finish, "__call__", lambda self: left.append(self))
            patch.setattr(session(), "cache", CompileCache())
            with World(ranks=1, platform="trn2", host="inprocess") as world:
                (result,) = world.run(jit(kernel), *args)
        assert left  # it was traced again
        return np.asarray(result)

    return runs


def operands(a, b, k):
    return nl.load(a[nl.ds(k * 40, 40), :]), nl.load(b[nl.ds(k * 40, 40), :])


def summing(body, shape=(M, N), buffer=nl.psum, blocks=(), zeros=True):
    """A kernel of three products, `body` says how each is added; the sum is read once."""

    def kernel(a, b):
        out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
        make = nl.zeros if zeros else nl.ndarray
        acc = make(shape, dtype=nl.float32, buffer=buffer)
        for k in nl.affine_range(3):
            body(acc, *operands(a, b, k))
        result = nl.copy(acc[blocks] if blocks else acc)
        nl.store(out, result if result.shape == (M, N) else result.reshape((M, N)))
        return out

    return kernel


def named(acc, x, y):
    r = nisa.nc_matmul(x, y)
    acc += r


def temporary(acc, x, y):
    acc += nisa.nc_matmul(x, y)


def sliced(acc, x, y):
    r = nl.matmul(x, y, transpose_x=True)
    acc[:, :] += r


def assigned(acc, x, y):
    acc[...] = acc + nisa.nc_matmul(x, y)


def reversed_sum(acc, x, y):
    r = nisa.nc_matmul(x, y)
    acc[:, :] = nl.add(r, acc)


def indexed(acc, x, y):
    i, j = nl.arange(M)[:, None], nl.arange(N)[None, :]
    r = nisa.nc_matmul(x, y)
    acc[i, j] = nl.add(acc[i, j], r)


def by_columns(acc, x, y):
    r, s = nisa.nc_matmul(x, y[:, 0:30]), nisa.nc_matmul(x, y[:, 30:N])
    acc[:, 30:N] += s
    acc[:, 0:30] += r


def by_middle(acc, x, y):
    for n in nl.affine_range(7):
        r = nisa.nc_matmul(x, y[:, nl.ds(10 * n, 10)])
        acc[:, n, :] += r


def whole_rows(acc, x, y):
    acc += nl.matmul(x, y.reshape((40, 7, 10)), transpose_x=True)


def block(acc, x, y):
    r = nisa.nc_matmul(x, y)
    acc[1, 2] += r


def block_by_index(acc, x, y):
    i, j = nl.mgrid[0:M, 0:N]
    acc[1, 2, i, j] = acc[1, 2, i, j] + nl.matmul(x, y, transpose_x=True)


def twice_over(acc, x, y):
    r, s = nisa.nc_matmul(x[0:32], y[0:32]), nisa.nc_matmul(x[32:40], y[32:40])
    acc += s
    acc += r


IN_BLOCKS = {"shape": (2, 3, nl.par_dim(M), N), "blocks": (1, 2)}
FOLDED = {
    "temporary": summing(temporary),
    "named": summing(named),
    "named, into nothing": summing(named, zeros=False),
    "sliced": summing(sliced),
    "assigned": summing(assigned),
    "reversed": summing(reversed_sum),
    "indexed": summing(indexed),
    "columns": summing(by_columns),
    "columns, into nothing": summing(by_columns, zeros=False),
    "middle dimension": summing(by_middle, shape=(nl.par_dim(M), 7, 10)),
    "two free dimensions": summing(whole_rows, shape=(nl.par_dim(M), 7, 10)),
    "block": summing(block, **IN_BLOCKS),
    "block by index": summing(block_by_index, **IN_BLOCKS),
    "other order": summing(twice_over),
}


@pytest.mark.parametrize("platform", ["trn1", "trn2"])
@pytest.mark.parametrize("name", FOLDED)
def test_products_accumulate_however_the_sum_is_written(name, platform):
    """Vector only copies the result; nothing is filled with zeros."""
    found = opcodes(FOLDED[name], A, B, platform=platform)
    assert found["tensor_copy"] == 1
    assert set(found) == {"nc_matmul", "tensor_copy"}


@pytest.mark.parametrize("name", FOLDED)
def test_folding_changes_no_bit(name, as_written):
    kernel = FOLDED[name]
    got = np.asarray(run(kernel, A, B))
    if "into nothing" not in name:  # what reads nothing is refused as it is written
        np.testing.assert_array_equal(got, as_written(kernel, A, B))
    close(got, PRODUCT, 1e-5)


# ---- where a product mustn't accumulate ---------------------------------------------------------


def read_between(acc, x, y):
    r = nisa.nc_matmul(x, y)
    seen = nl.copy(acc)
    acc += r
    acc += nl.multiply(seen, 0.5)


def two_readers(acc, x, y):
    r = nisa.nc_matmul(x, y)
    acc += r
    acc += nl.multiply(r, 0.5)


def overwritten_operand(acc, x, y):
    """Neither before the copy nor after the operand has changed."""
    r = nisa.nc_matmul(x, y)
    nl.copy(acc)
    x[...] = nl.multiply(x, 2.0)
    acc += r


def stale_copy(acc, x, y):
    """What is added to isn't what the accumulator holds by then."""
    old = nl.copy(acc)
    r = nisa.nc_matmul(x, y)
    acc[...] = nisa.nc_matmul(y[:, 0:M], y)
    acc[...] = nl.add(r, old)


def kept_in_order(acc, x, y):
    with compiler.no_reorder():
        r = nisa.nc_matmul(x, y)
    acc += r


def onto_values(acc, x, y):
    acc[...] = nl.add(acc, 1.5)
    acc[:, :] += nisa.nc_matmul(x, y)


def repeated(acc, x, y):
    r = nisa.nc_matmul(x, y[:, 0:1])
    acc += r.broadcast_to((M, N))


def turned(acc, x, y):
    """Columns of the product in another order."""
    r = nisa.nc_matmul(x, y)
    i, j, k = nl.mgrid[0:M, 0:7, 0:10]
    acc[i, 10 * j + k] = nl.add(acc[i, 10 * j + k], r[i, 7 * k + j])


def subtracted(acc, x, y):
    r = nisa.nc_matmul(x, y)
    acc -= r


KEPT = (
    read_between, two_readers, overwritten_operand, stale_copy, kept_in_order, onto_values,
    repeated, turned, subtracted,
)  # fmt: skip


@pytest.mark.parametrize("body", KEPT)
def test_other_sums_stay_sums(body, as_written):
    kernel = summing(body)
    np.testing.assert_array_equal(run(kernel, A, B), as_written(kernel, A, B))
    assert opcodes(kernel, A, B)["tensor_tensor"] >= 3


def test_other_columns_do_not_matter(as_written):
    """Between a product and its sum another is added beside it, and an operand changes."""

    def body(acc, x, y):
        r = nisa.nc_matmul(x, y[:, 0:30])
        acc[:, 30:N] += nisa.nc_matmul(x, y[:, 30:N])
        x[...] = nl.multiply(x, 2.0)
        acc[:, 0:30] += r

    kernel = summing(body)
    np.testing.assert_array_equal(run(kernel, A, B), as_written(kernel, A, B))
    assert opcodes(kernel, A, B)["tensor_tensor"] == 0


def test_an_assigned_product_replaces_a_sum(as_written):
    def body(acc, x, y):
        r, s = nisa.nc_matmul(x, y), nisa.nc_matmul(x, y)
        acc += s
        acc[...] = r

    kernel = summing(body)
    got = np.asarray(run(kernel, A, B))
    np.testing.assert_array_equal(got, as_written(kernel, A, B))
    close(got, A[80:].astype(np.float64).T @ B[80:], 1e-5)
    assert opcodes(kernel, A, B) == {"nc_matmul": 6, "tensor_copy": 1}


def test_the_order_of_sums_is_kept(as_written):
    """1e8 - 1e8 + 1 isn't 1 + 1e8 - 1e8 in float32."""

    def kernel(a):
        out = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        acc = nl.zeros((1, 1), dtype=nl.float32, buffer=nl.psum)
        x = nl.load(a)
        one = nl.ones((1, 1), dtype=nl.float32)
        parts = [nisa.nc_matmul(x[:, n : n + 1], one) for n in range(3)]
        for n in (2, 0, 1):
            acc += parts[n]
        nl.store(out, acc)
        return out

    a = np.array([[1.0, 1e8, -1e8]], np.float32)
    wanted = (np.float32(-1e8) + np.float32(1)) + np.float32(1e8)
    assert np.asarray(run(kernel, a))[0, 0] == as_written(kernel, a)[0, 0] == wanted != 1
    assert opcodes(kernel, a)["tensor_tensor"] == 0


@pytest.mark.parametrize("platform", ["trn1", "trn2"])
def test_transposes_are_added_by_vector(platform):
    """The Tensor engine moves what it transposes; it doesn't add to it."""

    def kernel(a, eye):
        out = nl.ndarray((20, 30), dtype=nl.float32, buffer=nl.shared_hbm)
        acc = nl.zeros((20, 30), dtype=nl.float32, buffer=nl.psum)
        x, y = nl.load(a), nl.load(eye)
        acc += nisa.nc_matmul(x, y, is_moving_onezero=True, is_transpose=True)
        acc += nisa.nc_matmul(x, y, is_moving_onezero=True, is_transpose=True)
        nl.store(out, acc)
        return out

    a, eye = normal(30, 20), np.eye(30, dtype=np.float32)
    with World(ranks=1, platform=platform, host="inprocess") as world:
        (got,) = world.run(jit(kernel), a, eye)
    np.testing.assert_array_equal(got, 2 * a.T)


def test_a_named_product_is_written_where_it_is_assigned():
    def kernel(a, b):
        out = nl.ndarray((2, M, N), dtype=nl.float32, buffer=nl.shared_hbm)
        acc = nl.ndarray((2, nl.par_dim(M), N), dtype=nl.float32, buffer=nl.psum)
        results = [nisa.nc_matmul(*operands(a, b, n)) for n in range(2)]
        for n in range(2):
            acc[n] = results[n]
            nl.store(out[n], acc[n])
        return out

    wanted = [A[n : n + 40].astype(np.float64).T @ B[n : n + 40] for n in (0, 40)]
    close(run(kernel, A, B), np.stack(wanted), 1e-5)
    assert opcodes(kernel, A, B) == {"nc_matmul": 2, "tensor_copy": 2}


@pytest.mark.parametrize("turned_over", [False, True], ids=["moving", "stationary"])
def test_a_mask_bounds_the_free_axis_that_has_its_size(turned_over):
    """The sum has the columns that the mask leaves; the others stay zero."""
    rows, columns = (N, M) if turned_over else (M, N)

    def kernel(a, b):
        out = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.shared_hbm)
        acc = nl.zeros((rows, columns), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(3):
            x, y = operands(a, b, k)
            left, right = (y, x) if turned_over else (x, y)
            acc += nisa.nc_matmul(left, right, mask=nl.arange(N)[None, :] < 50)
        nl.store(out, acc)
        return out

    wanted = (PRODUCT.T if turned_over else PRODUCT).copy()
    wanted[(slice(50, None),) if turned_over else (slice(None), slice(50, None))] = 0
    close(run(kernel, A, B), wanted, 1e-5)
    assert opcodes(kernel, A, B) == {"memset": 1, "nc_matmul": 3, "tensor_copy": 1}


def test_a_mask_that_both_operands_could_mean_is_refused():
    def kernel(a):
        x = nl.load(a)
        nisa.nc_matmul(x, x, mask=nl.arange(20)[None, :] < 5)

    with pytest.raises(NkiValidationError, match=r"only one operand has its size .* \(30, 20\)"):
        run(kernel, normal(30, 20))


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
        nl.store(out, acc)
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


# ---- around a kernel ----------------------------------------------------------------------------


@pytest.mark.parametrize("rounds", [0, 3])
def test_a_kernel_within_a_loop_of_todays(rounds):
    """What is settled is the inner kernel's; its instructions stay in the loop's body."""
    inner = jit(summing(named)).fn

    @jit_today
    def kernel(a, b):
        out = today.ndarray((M, N), dtype=today.float32, buffer=today.shared_hbm)
        total = today.zeros((M, N), dtype=today.float32, buffer=today.sbuf)
        part = today.ndarray((M, N), dtype=today.float32, buffer=today.sbuf)
        for _ in today.dynamic_range(rounds):
            current.dma_copy(part, inner(a, b))
            current.tensor_tensor(total, total, part, today.add)
        current.dma_copy(out, total)
        return out

    with World(ranks=1, platform="trn2", host="inprocess") as world:
        (got,) = world.run(kernel, A, B)
        found = world.compile(kernel, A, B).programs[0]
    close(got, rounds * PRODUCT, 1e-5)
    assert [i.ordinal for i in instructions(found.body)] == list(range(len(found)))
    assert Counter(i.opcode for i in instructions(found.body))["tensor_tensor"] == 1


def test_a_kernel_with_a_loop_of_todays_stays_as_it_is_written():
    def kernel(a, b):
        out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
        acc = nl.zeros((M, N), dtype=nl.float32, buffer=nl.psum)
        x, y = operands(a, b, 0)
        doubled = nl.copy(x)
        for _ in today.dynamic_range(2):
            current.tensor_tensor(doubled.access, doubled.access, doubled.access, today.add)
        r = nisa.nc_matmul(doubled, y)
        acc += r
        nl.store(out, acc)
        return out

    close(run(kernel, A, B), 4 * (A[:40].astype(np.float64).T @ B[:40]), 1e-5)


def test_each_program_instance_is_settled():
    def kernel(a, b):
        out = nl.ndarray((2, M, N), dtype=nl.float32, buffer=nl.shared_hbm)
        me = nl.program_id(0)
        acc = nl.zeros((M, N), dtype=nl.float32, buffer=nl.psum)
        for k in nl.affine_range(3):
            r = nisa.nc_matmul(*operands(a, b, k))
            acc += r
        nl.store(out[me], nl.multiply(acc, me + 1.0))
        return out

    close(run(kernel, A, B, grid=2), np.stack([PRODUCT, 2 * PRODUCT]), 1e-5)


def test_ordinals_and_lifetimes_are_those_of_the_settled_program():
    found = program(FOLDED["named"], A, B)
    assert [i.ordinal for i in instructions(found.body)] == list(range(len(found)))
    lives = [(s.first, s.last) for s in found.storages if s.region.value == "psum"]
    products = [i.ordinal for i in instructions(found.body) if i.opcode == "nc_matmul"]
    assert lives.count((-1, -1)) == 3
    assert (products[0], products[-1] + 1) in lives
