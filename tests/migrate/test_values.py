"""Migrated kernels of Beta 1 compute the same bits, checked against 0.7 with deprecations as
errors."""

import textwrap

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
from bench.migrate.apart import products_apart
from nki_dist.migrate import migrate
from tests.isa.helpers import numbers
from tests.migrate.running import HEADER, both, loaded

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")


def test_masks_and_pools(tmp_path):
    body = """
    def kernel(x, k):
        rows, columns = x.shape
        out = nl.ndarray((rows - k + 1, columns - k + 1), dtype=x.dtype, buffer=nl.shared_hbm)
        for tile in nl.affine_range(math.ceil(rows / 128)):
            i, a, j = nl.mgrid[0:128, 0:k, 0:columns]
            i = tile * 128 + i
            part = nl.load(x[i + a, j], mask=i < rows - k + 1)
            i, a, j, b = nl.mgrid[0:128, 0:k, 0:columns - k + 1, 0:k]
            best = nl.max(part[i, a, j + b], axis=[1, 3], mask=tile * 128 + i < rows - k + 1)
            i, j = nl.mgrid[0:128, 0:columns - k + 1]
            i = tile * 128 + i
            nl.store(out[i, j], value=best, mask=i < rows - k + 1)
        return out
    """
    x = numbers(1, (157, 31))
    got, _ = both(body, tmp_path, x, 3)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3))
    np.testing.assert_array_equal(got, windows.max((2, 3)))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_operators_and_their_dtypes(tmp_path, dtype):
    body = """
    def kernel(x, y):
        out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        a, b = nl.load(x), None
        b = nl.load(y)
        c = (a + b) * 0.3 - a / 7
        d = nisa.activation(op=np.exp, data=c * 3, scale=b[:, 0:1], bias=a[:, 1:2])
        d -= nisa.tensor_scalar(c, np.subtract, 2.0, op1=np.multiply, operand1=-1.5)
        nl.store(out, -d)
        return out
    """.replace("a, b = nl.load(x), None", "a = nl.load(x)")
    both(body, tmp_path, numbers(2, (13, 7)).astype(dtype), numbers(3, (13, 7)).astype(dtype))


def test_blocks_and_matmuls(tmp_path):
    body = """
    def kernel(a, b):
        k, m = a.shape
        n = b.shape[1]
        out = nl.ndarray((m, n), dtype=a.dtype, buffer=nl.shared_hbm)
        left = nl.ndarray((k // 128, nl.par_dim(128), m), dtype=a.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(k // 128):
            left[i] = nl.load(a[i * 128:(i + 1) * 128, :])
        total = nl.zeros((nl.par_dim(m), n), dtype=nl.float32, buffer=nl.psum)
        for i in nl.affine_range(k // 128):
            right = nl.load(b[nl.ds(i * 128, 128), :])
            total += nisa.nc_matmul(left[i, :, :], right)
        result = nisa.tensor_copy(total, dtype=a.dtype)
        turned = nisa.nc_transpose(result[:, 0:5])
        back = nisa.nc_transpose(nl.copy(turned))
        result[:, 0:5] = nl.copy(back)
        nl.store(out, result)
        return out
    """
    a, b = numbers(4, (256, 37)), numbers(5, (256, 19))
    with products_apart():
        got, text = both(body, tmp_path, a, b)
    np.testing.assert_allclose(got, a.T @ b, rtol=1e-4, atol=1e-4)
    assert "for _ in range(k // 128)" in text


def test_access_patterns(tmp_path):
    body = """
    def kernel(x):
        rows, columns = x.shape
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        turned = nl.ndarray(x.shape, dtype=x.dtype)
        i = nl.arange(rows)[:, None, None]
        j = nl.arange(3)[None, :, None]
        k = nl.arange(columns // 3)[None, None, :]
        turned[i, k * 3 + j] = nl.copy(tile[i, j * (columns // 3) + (-1 * k + columns // 3 - 1)])
        nl.store(out, turned)
        return out
    """
    x = numbers(6, (11, 15))
    got, _ = both(body, tmp_path, x)
    np.testing.assert_array_equal(
        got, x.reshape(11, 3, 5)[:, :, ::-1].swapaxes(1, 2).reshape(11, 15)
    )


def test_what_would_change_a_dtype_is_asserted(tmp_path):
    body = """
    def kernel(x, n):
        out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        t = nl.load(x)
        nl.store(out, t * n)
        return out
    """
    for number in (3, 0.1):  # float16 stays, or becomes float32
        both(body, tmp_path, numbers(7, (3, 5)).astype(np.float16), number)
    text = migrate(HEADER + textwrap.dedent(body)).text
    kernel = nki.jit(loaded(text, tmp_path, nki))
    with pytest.raises(AssertionError, match="a number, not an array"):
        nki.simulate(kernel)(numbers(7, (3, 5)).astype(np.float16), "3")
    with pytest.raises(AssertionError, match="an int may make it wider"):
        nki.simulate(kernel)(np.ones((3, 5), np.int8), 3)


def test_keys_beside_index_expressions_are_numbers(tmp_path):
    body = """
    def kernel(x, k):
        flat = x.reshape((6, 20))
        out = nl.ndarray((3, 4), dtype=np.float32, buffer=nl.shared_hbm)
        bias = nisa.memset((3, 1), value=0.5, dtype=np.float32, mask=None)
        i, j = nl.arange(3)[:, None], nl.arange(4)[None, :]
        one = [k][0]
        t = nl.load(x[i, one, j], mask=None, dtype=np.float32)
        u = nl.load(flat[i, j], mask=-1 * i + 2 >= 0)
        v = nl.load(flat[i, j], mask=(i < 3) & (2 - i >= 0))
        t[...] = nisa.activation(op=np.copy, data=t, bias=bias, engine=nisa.unknown_engine)
        nl.store(out, nl.add(t, nl.subtract(u, v), mask=None))
        return out
    """.replace("i, j = nl.ar", "i = nl.ar").replace(", nl.arange(4)", "\n        j = nl.arange(4)")
    x = numbers(8, (3, 5, 8))
    got, text = both(body, tmp_path, x, 4)
    np.testing.assert_array_equal(got, x[:, 4, :4] + 0.5)
    kernel = nki.jit(loaded(text, tmp_path, nki))
    with pytest.raises(AssertionError, match="a number, not a slice"):
        nki.simulate(kernel)(x, (4,))


UNDECIDED = {
    "u = t @ t": "operator",
    "u = nl.load(x)\n    u = t": "second name",
    "u = nisa.tensor_reduce(np.max, t, axis=2)": "along 2",
    "u = nisa.max8(src=t, mask=t)": "mask",
    "u = nl.load(x[nl.arange(3)[:, None], 0:4])": "slices",
    "u = nl.load(x[nl.arange(3)[:, None], nl.ds(0, 4)])": "index expressions and nl.ds(0, 4)",
    "i = nl.arange(3)[:, None]\n    u = nl.load(x[i * i, i])": "affine",
    "u = nl.sum(t, axis=axis)": "the rank",
    "i = nl.arange(3)[:, None]\n    u = nl.load(x[i, i], mask=i <= 2)": "comparison i <= 2",
    "u = nl.where(t, t, t)": "nl.where",
}


@pytest.mark.parametrize("line", UNDECIDED, ids=str)
def test_what_a_person_decides_leaves_the_kernel_alone(line):
    text = HEADER + f"def kernel(x, axis):\n    t = nl.load(x)\n    {line}\n    return nl.exp(u)\n"
    done = migrate(text)
    assert UNDECIDED[line] in done.decisions[0].message
    assert done.text.splitlines()[6:] == text.replace("np.max", "nl.maximum").splitlines()[6:]
