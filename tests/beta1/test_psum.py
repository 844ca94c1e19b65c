"""PSUM once a kernel has been traced: which products accumulate.

Values are compared bit by bit with those of the same kernel as it was traced (`as_written`), and
with products in float64.
"""

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
from nki_dist.errors import NkiValidationError
from nki_dist.program.instruction import instructions
from tests.beta1.helpers import close, normal, run
from tests.beta1.sums import PRODUCT, A, B, M, N, opcodes, operands, program, summing

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning")


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

    with pytest.raises(NkiValidationError, match=r"only one operand has its size; .* \(30, 20\)"):
        run(kernel, normal(30, 20))


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
