"""Random numbers of nl, and Python's operators on tiles."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiError
from nki_dist.isa.activations import ACTIVATIONS, MATH
from nki_dist.isa.alu import ALU
from nki_dist.isa.enums import nc_version
from tests.language.run import on_tiles, run
from tests.language.test_math import A

# ---- random numbers -----------------------------------------------------------------------------


def test_rand_repeats_with_the_seed_and_is_uniform():
    def two(x):
        seed = nl.full((1, 1), 42, nl.int32)
        out = nl.ndarray((2, 100, 50), nl.float32, buffer=nl.shared_hbm)
        for n in (0, 1):
            nl.random_seed(seed)
            nl.store(out[n], nl.rand((100, 50), nl.float32))
        return out

    first, second = run(two, A)
    np.testing.assert_array_equal(first, second)
    assert first.min() >= 0 and first.max() < 1
    assert abs(first.mean() - 0.5) < 0.02 and abs(first.var() - 1 / 12) < 0.005


def test_rand_in_every_memory():
    def kernel(x):
        far = nl.rand((4, 6), nl.bfloat16, buffer=nl.hbm)
        near = nl.rand((4, 6), nl.float32, buffer=nl.psum)
        return nl.add(nl.load(far), near)

    got = on_tiles(lambda x: kernel(x), A)
    assert ((got >= 0) & (got <= 2)).all() and len(np.unique(got)) > 20


def test_dropout_zeroes_about_the_rate_and_scales_nothing():
    x = np.ones((64, 64), np.float32)
    got = on_tiles(lambda t: nl.dropout(t, 0.25), x)
    assert set(np.unique(got)) == {0.0, 1.0}
    assert abs((got == 0).mean() - 0.25) < 0.03
    np.testing.assert_array_equal(on_tiles(lambda t: nl.dropout(t, 0.0), A), A)
    assert not on_tiles(lambda t: nl.dropout(t, 1.0), A).any()


# ---- operators ----------------------------------------------------------------------------------


def test_every_operator_of_the_tables_has_a_token():
    for name, op in {**ALU, **ACTIVATIONS, **MATH}.items():
        assert getattr(nl, name).nki_op in (name, op.name)


def test_tokens_work_as_operators():
    def kernel(x):
        tile = nl.load(x)
        out = nl.ndarray(tile.shape, tile.dtype)
        nisa.tensor_tensor(out, tile, tile, op=nl.add)
        nisa.activation(out, nl.exp, out)
        nisa.tensor_scalar(out, out, op0=nl.max, operand0=2.0, op1=np.add, operand1=1.0)
        result = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
        nl.store(result, out)
        return result

    x = A.astype(np.float64)
    np.testing.assert_allclose(run(kernel, A), np.maximum(np.exp(2 * x), 2) + 1, rtol=1e-6)


def test_a_token_an_instruction_doesnt_take_is_named_in_the_message():
    def kernel(x):
        tile = nl.load(x)
        nisa.tensor_tensor(tile, tile, tile, op=nl.cos)

    with pytest.raises(NkiError, match=r"op=nl\.cos; allowed: "):
        run(kernel, A)


def test_names_published_kernels_use():
    assert nl.bool is nl.bool_
    assert list(nl.range(3)) == [0, 1, 2]
    assert repr(nl.bypass) == "nl.bypass"
    assert nc_version.gen3 == 3


def test_star_import_brings_no_modules():
    names: dict = {}
    exec("from nki_dist.language import *", names)
    assert "exp" in names and "ndarray" in names
    assert not [n for n, v in names.items() if type(v).__name__ == "module"]
