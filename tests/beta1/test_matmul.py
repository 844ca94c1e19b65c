"""Matmuls that accumulate in PSUM, loop_reduce, transposes."""

import numpy as np
import pytest

from nki_dist import World
from nki_dist.compat.beta1 import isa as nisa
from nki_dist.compat.beta1 import jit
from nki_dist.compat.beta1 import language as nl
from nki_dist.dtypes import bfloat16
from nki_dist.errors import NkiValidationError
from nki_dist.isa.spec import current_tracer
from tests.beta1.helpers import close, normal, run
from tests.beta1.sums import opcodes

K, M, N = 3 * 40, 33, 70


def product(a, b):
    return a.astype(np.float64).T @ b.astype(np.float64)


@pytest.mark.parametrize("start", ["zeros", "undefined", "values", "result"])
def test_plus_equals_accumulates(start):
    def kernel(a, b):
        out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
        total = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.psum)
        if start == "zeros":
            total = nl.zeros((M, N), nl.float32, buffer=nl.psum)
        if start == "values":
            total[...] = 2.5
        if start == "result":
            total[...] = nl.multiply(nl.ones((M, N), dtype=nl.float32), 2.5)
        for k in nl.affine_range(3):
            i = k * 40 + nl.arange(40)[:, None]
            total += nisa.nc_matmul(
                nl.load(a[i, nl.arange(M)[None, :]]), nl.load(b[i, nl.arange(N)[None, :]])
            )
        nl.store(out, total)
        return out

    a, b = normal(K, M), normal(K, N, seed=1)
    close(run(kernel, a, b), product(a, b) + 2.5 * (start in ("values", "result")), 1e-5)


def test_loop_reduce_over_outer_loops():
    def kernel(a, b):
        out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
        result = nl.zeros((2, nl.par_dim(M), N // 2), dtype=nl.float32)
        for k in nl.affine_range(3):
            for half in nl.affine_range(2):
                x = nl.load(a[nl.ds(k * 40, 40), :])
                y = nl.load(b[nl.ds(k * 40, 40), nl.ds(half * (N // 2), N // 2)])
                result[half] = nl.loop_reduce(
                    nisa.nc_matmul(x, y), op=np.add, loop_indices=[k], dtype=nl.float32
                )
        for half in nl.affine_range(2):
            nl.store(out[:, nl.ds(half * (N // 2), N // 2)], result[half])
        return out

    a, b = normal(K, M), normal(K, N, seed=1)
    close(run(kernel, a, b), product(a, b), 1e-5)


@pytest.mark.parametrize("inner_first", [False, True])
def test_loop_reduce_over_two_loops_in_either_order(inner_first):
    def kernel(a):
        out = nl.ndarray((2, 5, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        total = nl.ndarray((2, nl.par_dim(5), 1), dtype=nl.float32)
        for n in nl.affine_range(2):
            for i in nl.affine_range(3):
                for j in nl.affine_range(4):
                    part = nl.sum(nl.load(a[n, i, j]), axis=[1])
                    over = [j, i] if inner_first else [i, j]
                    total[n] = nl.loop_reduce(part, op=np.add, loop_indices=over)
            nl.store(out[n], total[n])
        return out

    a = normal(2, 3, 4, 5, 7)
    close(run(kernel, a)[..., 0], a.astype(np.float64).sum((1, 2, 4)), 1e-5)


def test_loop_reduce_wants_loop_variables():
    def kernel(a):
        nl.loop_reduce(nl.load(a), op=np.add, loop_indices=[0])

    with pytest.raises(NkiValidationError, match=r"variables of nl\.affine_range"):
        run(kernel, normal(4, 5))


@pytest.mark.parametrize("engine", ["tensor", "vector"])
def test_transposes(engine):
    def kernel(a):
        out = nl.ndarray((17, 23), dtype=a.dtype, buffer=nl.shared_hbm)
        turned = nisa.nc_transpose(nl.load(a), engine=getattr(nisa, f"{engine}_engine"))
        nl.store(out, nl.copy(turned))
        return out

    a = normal(23, 17)
    np.testing.assert_array_equal(run(kernel, a), a.T)


def test_is_transpose_is_a_hint_on_neuroncore_v2():
    """It multiplies there, into float32; `moving` needn't be an identity."""

    def kernel(a, b):
        out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
        acc = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.psum)
        acc[...] = nisa.nc_matmul(nl.load(a), nl.load(b), is_transpose=True)
        nl.store(out, acc)
        return out

    a, b = (normal(40, n, dtype=bfloat16.dtype, seed=n) for n in (M, N))
    with World(ranks=1, platform="trn1", host="inprocess") as world:
        (got,) = world.run(jit(kernel), a, b)
    close(got, product(a, b), 1e-5)


def transposed_first(**options):
    def kernel(a, b):
        out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
        turned = nisa.nc_transpose(nl.load(a), dtype=a.dtype, **options)
        nl.store(out, nisa.nc_matmul(turned, nl.load(b)))
        return out

    return kernel


def test_a_matmul_takes_what_the_compiler_may_place():
    a, b = normal(M, 40), normal(40, N, seed=1)
    close(run(transposed_first(), a, b), product(a.T, b), 1e-5)


def test_a_matmul_refuses_what_the_kernel_has_put_in_psum():
    with pytest.raises(NkiValidationError, match=r"stationary is in psum"):
        run(transposed_first(engine=nisa.tensor_engine), normal(M, 40), normal(40, N, seed=1))


@pytest.mark.parametrize("rows, columns", [(128, 128), (70, 33), (32, 100)])
def test_vector_transposes_large_tiles_in_blocks(rows, columns):
    opcodes = []

    def kernel(a):
        out = nl.ndarray((columns, rows), dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nisa.nc_transpose(nl.load(a), engine=nisa.vector_engine))
        opcodes.extend((i.opcode, i.engine) for i in current_tracer().block)
        return out

    a = normal(rows, columns)
    np.testing.assert_array_equal(run(kernel, a), a.T)
    blocks = -(-rows // 32) * -(-columns // 32)
    assert opcodes.count(("nc_transpose", "vector")) == blocks
    assert len(opcodes) == blocks + 2


def test_vector_makes_no_tile_of_more_than_all_partitions():
    def kernel(a):
        nisa.nc_transpose(nl.load(a), engine=nisa.vector_engine)

    with pytest.raises(NkiValidationError, match=r"129 partitions"):
        run(kernel, normal(32, 129))


def test_transposes_into_a_tile_of_another_dtype():
    def kernel(a):
        out = nl.ndarray((17, 23), dtype=nl.float16, buffer=nl.shared_hbm)
        tile = nl.ndarray((17, 23), dtype=nl.float16)
        tile[...] = nisa.nc_transpose(nl.load(a))
        nl.store(out, tile)
        return out

    a = normal(23, 17)
    np.testing.assert_array_equal(run(kernel, a), a.T.astype(np.float16))


def test_a_tensor_larger_than_psum_is_kept_in_hbm():
    """40 blocks of a bank each; PSUM has 8 banks."""

    def kernel(a, b):
        out = nl.ndarray((40, 3, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        blocks = nl.zeros((40, nl.par_dim(3), 512), dtype=nl.float32, buffer=nl.psum)
        assert blocks.buffer == nl.psum
        x = nl.load(a)
        i, j = nl.mgrid[0:3, 0:512]
        for n in nl.affine_range(40):
            y = nl.load(b[n])
            blocks[n, i, j] = nisa.nc_matmul(x, y)
            blocks[n] += nisa.nc_matmul(x, y)
        blocks[7, :, 0:100] = 1.0
        for n in nl.affine_range(40):
            nl.store(out[n], nl.multiply(blocks[n, i, j], 2.0))
        return out

    a, b = normal(5, 3), normal(40, 5, 512, seed=1)
    wanted = 4 * np.einsum("km,bkn->bmn", a.astype(np.float64), b)
    wanted[7, :, :100] = 2
    close(run(kernel, a, b), wanted, 1e-5)


def test_operands_of_two_dtypes():
    def kernel(a, b):
        out = nl.ndarray((2, 6, 7), dtype=nl.float32, buffer=nl.shared_hbm)
        x, y = nl.load(a), nl.load(b)
        nl.store(out[0], nl.matmul(x, y))
        nl.store(out[1], nl.matmul(nl.transpose(x), y, transpose_x=True))
        return out

    a, b = normal(6, 5), normal(5, 7, seed=1, dtype=np.float16)
    close(run(kernel, a, b), np.stack([a @ b.astype(np.float32)] * 2), 1e-5)


def test_matmuls_without_a_name_add_in_psum_themselves():
    def kernel(a, b):
        out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
        x, y = nl.load(a[0:40, :]), nl.load(b[0:40, :])
        total = nl.zeros((M, N), nl.float32, buffer=nl.psum)
        total += nisa.nc_matmul(x, y)
        total[:, :] += nisa.nc_matmul(x, y)
        nl.store(out, total)
        return out

    a, b = normal(K, M), normal(K, N, seed=1)
    close(run(kernel, a, b), 2 * product(a[:40], b[:40]), 1e-5)
    assert opcodes(kernel, a, b) == {"nc_matmul": 2, "tensor_copy": 1}, "a copy to store it"
