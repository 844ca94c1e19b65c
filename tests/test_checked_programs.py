"""Launches that are looked at in place of made: what a program gets."""

from __future__ import annotations

import pickle
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.launcher.checking import Checker
from nki_dist.launcher.hollow import Hollow
from tests.looked_at import X, codes_of, doubled, looking, many, one, picks, repeats, starts


@pytest.fixture
def checker() -> Iterator[Checker]:
    with looking() as made:
        yield made


def test_results_have_shapes_and_dtypes_and_zeros(checker):
    for x in (X, X.astype(ml_dtypes.bfloat16), X.astype(np.float16)):
        y = doubled(x)
        assert (y.shape, y.dtype, type(y)) == (x.shape, x.dtype, Hollow)
        assert not y.any()
    assert codes_of(checker) == {"doubled": []}
    assert checker.kernels()[0].launches == 3


def test_an_input_that_is_returned_unchanged_keeps_its_contents(checker):
    @nki.jit
    def through(x):
        return x, nl.shared_constant(np.float32([[1, 2], [3, 4]]))

    same, constant = through(X)
    np.testing.assert_array_equal(same, X)
    np.testing.assert_array_equal(constant, [[1, 2], [3, 4]])
    assert not isinstance(same, Hollow)
    assert not isinstance(through(doubled(X))[0], type(None))
    assert isinstance(through(doubled(X))[0], Hollow)


@pytest.mark.parametrize(
    "of",
    [
        lambda y: y,
        lambda y: y[:1],
        lambda y: np.asarray(y),
        lambda y: y - 1,
        lambda y: np.concatenate([y, y])[1:],
        lambda y: np.where(y > 0, y, -5),
        lambda y: np.pad(y, 0).astype(np.int32),
    ],
)
def test_what_comes_from_a_result_is_not_taken_for_data(checker, of):
    index = of(starts(X))
    picks(X, index)
    repeats(X, index)
    # It has nl.dynamic_range.
    assert codes_of(checker) == {"starts": [], "picks": [], "repeats": ["release-removed"]}
    whys = [why for k in checker.kernels() for _, why in k.unchecked]
    assert len(whys) == 2 and "run-time address" in whys[0] and "loop" in whys[1]


def test_real_data_is_looked_at(checker):
    picks(X, one(56))
    assert codes_of(checker) == {"picks": []}
    picks(X, one(57))
    assert codes_of(checker) == {"picks": ["data-index-range"]}
    (found,) = checker.kernels()[0].diagnostics
    assert (found.numbers["got"], found.numbers["most"]) == (57, 56)


def test_what_a_kernel_writes_to_is_doubted_afterwards(checker):
    @nki.jit
    def sets(start):
        tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=1000)
        nl.store(start, tile)

    table = np.full((4, 1), 1000, np.int32)
    picks(X, table[1:2].copy())
    assert codes_of(checker)["picks"] == ["data-index-range"]
    sets(table[1:2])
    assert table[1, 0] == 1000  # not zeroed
    picks(X, table[1:2])
    assert len(checker.kernels()[0].unchecked) == 1


def test_results_travel_as_plain_arrays(checker):
    y = pickle.loads(pickle.dumps(doubled(X)))
    assert type(y) is np.ndarray and y.shape == X.shape


def test_torch(checker):
    torch = pytest.importorskip("torch")
    x = torch.ones(64, 32)
    picks(x, torch.tensor([[57]], dtype=torch.int32))
    assert codes_of(checker) == {"picks": ["data-index-range"]}
    y = doubled(x)
    assert isinstance(y, torch.Tensor) and y.shape == x.shape and not y.any()
    picks(x, starts(x) + 500)
    assert len(codes_of(checker)["picks"]) == 1 and checker.kernels()[0].unchecked


def test_jax(checker):
    jax = pytest.importorskip("jax")
    assert doubled(jax.numpy.ones((64, 32))).shape == (64, 32)
    assert jax.jit(doubled)(jax.numpy.ones((64, 32))).shape == (64, 32)
    with pytest.raises(errors.NkiValidationError):
        jax.jit(many)(jax.numpy.ones((64, 32)))
    assert codes_of(checker) == {"doubled": [], "many": ["partition-limit"]}
