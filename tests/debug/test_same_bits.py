"""Debugged kernels give the bits of other hosts: shipped kernels, examples, Beta 1, settings."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import kernels
from nki_dist.compat.beta1 import isa as beta1_isa
from nki_dist.compat.beta1 import language as beta1
from nki_dist.compat.beta1.launch import jit as beta1_jit

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

ROOT = Path(__file__).resolve().parents[2]


def numbers(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def tree_bytes(out):
    return [a.tobytes() for a in (out if isinstance(out, (tuple, list)) else [out])]


def same(kernel, *args, **kwargs):
    """Launch on both hosts with fresh inputs; the results, which are alike, and written inputs."""
    found = []
    for host in (nki.simulate, nki.debug):
        copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
        out = host(kernel)(*copies, **kwargs)
        found.append((out, [a.tobytes() for a in copies if isinstance(a, np.ndarray)]))
    (here, inputs), (stepped, written) = found
    assert tree_bytes(here) == tree_bytes(stepped) and inputs == written
    return stepped


BF16 = ml_dtypes.bfloat16
SHIPPED = {
    "softmax": lambda: (kernels.softmax, numbers(130, 70)),
    "matmul": lambda: (kernels.matmul, numbers(70, 140, dtype=BF16), numbers(140, 530, dtype=BF16)),
    "rms_norm": lambda: (kernels.rms_norm, numbers(130, 96), numbers(96, seed=1)),
}


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("lnc", [1, 2])
def test_shipped_kernels(name, lnc):
    kernel, *args = SHIPPED[name]()
    same(kernel[lnc], *args)


@pytest.mark.parametrize(
    "example",
    ["flash_attention", "selective_scan", "attention_block", "shared_reduction", "matmul"],
)
def test_examples_check_themselves(example, monkeypatch, capsys):
    """With two cores; the examples compare their results with NumPy, and raise if they differ."""
    debugged = []

    def in_place_of_simulate(kernel):
        debugged.append(kernel)
        return nki.debug(kernel)

    folder = ROOT / "examples" / "spmd"
    monkeypatch.setattr(nki, "simulate", in_place_of_simulate)
    monkeypatch.setattr(
        sys, "argv", [f"{example}.py", "--small", "--lnc", "2", "--host", "inprocess"]
    )
    monkeypatch.syspath_prepend(str(folder))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(folder / f"{example}.py"), run_name="__main__")
    assert debugged and not ended.value.code
    assert "identical bits" in capsys.readouterr().out


def test_low_precision_as_float32(monkeypatch):
    """Values in the kernel are of the declared type, results those of the setting."""
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    x = numbers(9, 33, dtype=BF16)

    def kernel(x):
        out, tile = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm), nl.load(x)
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        nisa.activation(dst=tile, op=nl.square, data=tile)
        nl.store(out, nl.copy(tile, dtype=nl.float32))
        return out

    wide = same(kernel, x)
    monkeypatch.setenv("NKI_PRECISE_FP", "1")
    assert (same(kernel, x) != wide).any()


def test_a_private_tensor_that_is_returned():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
        nl.store(out, nl.load(x))
        return out

    for lnc in (1, 2):
        np.testing.assert_array_equal(same(nki.jit(kernel)[lnc], numbers(3, 5)), numbers(3, 5))


def test_random_numbers_of_the_engines():
    def kernel(x):
        tile = nl.load(x)
        nisa.set_rng_seed(nl.full((1, 1), 7, dtype=nl.uint32, buffer=nl.sbuf))
        nisa.rng(dst=tile.view(nl.uint32))
        nisa.rng(dst=tile[:, :3].view(nl.uint32))
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    same(kernel, numbers(4, 6))


seen: list[np.ndarray] = []


def test_a_kernel_of_beta_1_shows_values():
    @beta1_jit
    def kernel(x, w):
        out = beta1.ndarray((6, 5), dtype=x.dtype, buffer=beta1.shared_hbm)
        left, right = beta1.load(x), beta1.load(w)
        total = beta1.zeros((6, 5), dtype=beta1.float32, buffer=beta1.psum)
        for _ in beta1.affine_range(3):
            total += beta1_isa.nc_matmul(left, right)
            if "=" in repr(total):
                pass
            if debugged:
                seen.append(total.numpy())
        result = beta1.copy(total, dtype=x.dtype)
        if debugged:
            seen.append(result.numpy())
            assert "<tile (6, 5)" in repr(result) and "[" in repr(result)
        beta1.store(out, result)
        return out

    x, w = numbers(4, 6), numbers(4, 5, seed=1)
    debugged = False
    here, unseen = nki.simulate(kernel)(x, w), nki.debug(kernel)(x, w)
    debugged = True
    seen.clear()
    stepped = nki.debug(kernel)(x, w)
    assert here.tobytes() == stepped.tobytes() == unseen.tobytes()
    product = x.astype(np.float64).T @ w
    for n, values in enumerate(seen[:3], 1):
        np.testing.assert_allclose(values, n * product, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(seen[3], stepped)


def test_a_result_of_beta_1_that_was_looked_at_before_it_was_assigned():
    @beta1_jit
    def kernel(x):
        out = beta1.ndarray(x.shape, dtype=x.dtype, buffer=beta1.shared_hbm)
        tile = beta1.ndarray(x.shape, dtype=x.dtype, buffer=beta1.sbuf)
        made = beta1.multiply(beta1.load(x), 3.0)
        seen.append(made.numpy())
        tile[...] = made  # the instruction now writes the tile itself
        seen.append(tile.numpy())
        tile[...] = beta1.add(tile, 1.0)
        seen.append(tile[1:3, 2:4].numpy())
        beta1.store(out, tile)
        return out

    seen.clear()
    x = numbers(4, 6)
    out = nki.debug(kernel)(x)
    np.testing.assert_array_equal(seen[0], 3 * x)
    np.testing.assert_array_equal(seen[1], 3 * x)
    np.testing.assert_array_equal(seen[2], out[1:3, 2:4])
    np.testing.assert_array_equal(out, 3 * x + 1)


@nki.jit
def added_to_a_sum(x, y):
    """Several matmuls that add to a sum that somebody has looked at."""
    total = nl.ndarray((x.shape[2], y.shape[2]), dtype=nl.float32, buffer=nl.psum)
    out = nl.ndarray((2, *total.shape), dtype=nl.float32, buffer=nl.shared_hbm)
    kept = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
    for n in range(len(x)):
        stationary, moving = nl.load(x[n]), nl.load(y[n])
        nisa.nc_matmul(dst=total, stationary=stationary, moving=moving, accumulate=n > 0)
        if n in (0, len(x) - 1):
            nisa.tensor_copy(dst=kept, src=total)
            nl.store(out[min(n, 1)], kept)
    return out


def test_matmuls_add_to_what_is_there():
    x, y = numbers(4, 48, 20), numbers(4, 48, 30, seed=1)
    products = [a.T.astype(np.float64) @ b for a, b in zip(x, y, strict=True)]
    out = same(added_to_a_sum, x, y)
    np.testing.assert_allclose(out, [products[0], sum(products)], rtol=1e-4, atol=1e-4)
    record = nki.record(added_to_a_sum)(x, y)
    assert record.writes("total")[-1].values.tobytes() == record.outputs[1].tobytes()
