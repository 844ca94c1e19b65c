"""Kernels that say where their tensors lie: allocation functions of Beta 1 give way to memories."""

from __future__ import annotations

import textwrap

import ml_dtypes
import numpy as np
import pytest

from bench.migrate.apart import products_apart
from nki_dist.migrate import migrate
from tests.isa.helpers import numbers
from tests.migrate.running import HEADER, both

PLACED = """
place = nki.compiler.sbuf.mod_alloc
banks = nki.compiler.psum.alloc

def bank_of(block, partitions, size):
    return block[0] % 2, 0, 0

def kernel(a, b):
    k, m = a.shape
    n = b.shape[1]
    out = nl.ndarray((m, n), dtype=a.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray((k // 128, nl.par_dim(128), m), dtype=a.dtype,
                      buffer=nki.compiler.sbuf.mod_alloc(base_addr=4096, num_free_tiles=(2,)))
    right = nl.ndarray((nl.par_dim(128), n), dtype=b.dtype, buffer=place(base_addr=0))
    part = nl.ndarray((k // 128, nl.par_dim(m), n), dtype=nl.float32, buffer=banks(bank_of))
    total = nl.ndarray((m, n), dtype=nl.float32, buffer=place(base_addr=2048))
    total[...] = 0.0
    for i in nl.sequential_range(k // 128, directives=nki.compiler.no_reorder()):
        left[i] = nl.load(a[i * 128:(i + 1) * 128, :])
        right[...] = nl.load(b[nl.ds(i * 128, 128), :])
        part[i] = nisa.nc_matmul(left[i], right)
        total[...] = nl.add(total, part[i])
    nl.store(out, total)
    return out
"""


def test_allocation_functions(tmp_path):
    a, b = numbers(1, (384, 37)), numbers(2, (384, 19))
    got, text = both(PLACED, tmp_path, a, b)
    np.testing.assert_allclose(got, a.T @ b, rtol=1e-4, atol=1e-4)
    assert "buffer=nl.sbuf) for _ in range(k // 128)" in text
    assert "mod_alloc" not in text and "no_reorder" not in text


def test_a_memory_that_the_text_doesnt_say():
    text = HEADER + textwrap.dedent("""
    def buffers(x):
        return nki.compiler.sbuf.auto_alloc() if x else nki.compiler.psum.auto_alloc()

    def kernel(x):
        t = nl.ndarray((128, 4), dtype=nl.float32, buffer=buffers(x))
        t[...] = nl.load(x)
        return t
    """)
    done = migrate(text)
    assert "memory buffers(x)" in done.decisions[0].message
    assert "return nl.sbuf if x else nl.psum" in done.text


def test_functions_of_the_module_that_return_an_allocation():
    one = "def memory():\n    return nki.compiler.sbuf.auto_alloc()\n"
    other = "class A:\n    def memory(self):\n        return nki.compiler.psum.auto_alloc()\n"
    body = "def kernel(x, a):\n    return nl.zeros((4, 4), dtype=nl.float32, buffer=a.memory())\n"
    done = migrate(HEADER + other + body)
    assert done.text.endswith("buffer=nl.psum)\n") and not done.decisions
    assert "memory a.memory()" in migrate(HEADER + one + other + body).decisions[0].message


def test_a_grid_of_0_is_none():
    kernel = "@nki.baremetal\ndef f(x):\n    return x\n"
    assert migrate(HEADER + kernel + "f[0](1)\n").text.endswith("\nf(1)\n")
    assert migrate(HEADER + kernel + "f[10](1)\n").text.endswith("\nf[10](1)\n")


def test_options_of_the_old_compiler():
    decorators = (
        "@nki.compiler.skip_middle_end_transformations\n"
        '@nki.baremetal(additional_compile_opt="--fast", save_neff_name="f.neff")\n'
    )
    done = migrate(HEADER + decorators + "def f(x):\n    return x\n")
    assert done.text.endswith("\n@nki.jit\ndef f(x):\n    return x\n")
    (found,) = done.decisions
    assert (found.rule, found.line) == ("measure", 8) and "save_neff_name" in found.message
    assert {f.rule for f in done.changes} >= {"hint", "jit-mode", "baremetal"}


def test_names_of_the_old_compiler_arent_imported():
    text = "from neuronxcc.nki.compiler import sbuf, psum\nimport neuronxcc.nki.language as nl\n"
    text += "def f(x):\n    return nl.zeros((4, 4), nl.float32, buffer=sbuf.auto_alloc())\n"
    text = text.replace("nl.float32,", "dtype=nl.float32,")
    done = migrate(text)
    assert done.text == (
        "import nki.language as nl\n"
        "def f(x):\n    return nl.zeros((4, 4), dtype=nl.float32, buffer=nl.sbuf)\n"
    )


@pytest.mark.parametrize("transposed", [False, True])
def test_products_of_the_language(tmp_path, transposed):
    body = f"""
    def kernel(x, y):
        rows = x.shape[{int(transposed)}]
        out = nl.ndarray((rows, y.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
        a = nl.load(x)
        b = nl.load(y)
        nl.store(out, nl.matmul(a, b, transpose_x={transposed}))
        return out
    """
    x, y = numbers(3, (37, 41)), numbers(4, (37 if transposed else 41, 19))
    got, _ = both(body, tmp_path, x, y)
    np.testing.assert_allclose(got, (x.T if transposed else x) @ y, rtol=1e-5, atol=1e-5)


def test_transposes_by_products(tmp_path):
    body = """
    def kernel(x):
        out = nl.ndarray(x.shape[::-1], dtype=x.dtype, buffer=nl.shared_hbm)
        one = nl.shared_constant(np.identity(37, dtype=np.int8), dtype=x.dtype)
        unit = nl.load(one)
        turned = nisa.nc_matmul(nl.load(x), unit, is_transpose=True, is_moving_onezero=True)
        nl.store(out, turned)
        return out
    """
    x = numbers(5, (37, 41))
    with products_apart():
        got, text = both(body, tmp_path, x)
        with pytest.raises(AssertionError, match="a transpose has the dtype of its data"):
            both(body, tmp_path, x.astype(ml_dtypes.bfloat16))
    np.testing.assert_array_equal(got, x.T)
    assert "is_moving_onezero=True, is_transpose=True" in text
