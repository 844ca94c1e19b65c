"""Subscripts that need no questions give what the way with all questions gives."""

import random

import numpy as np

import nki_dist as nki
import nki_dist.language as nl
from nki_dist.errors import NkiError
from nki_dist.language.indexing import Indexing

SHAPES = (
    ((8, 4, 6), nl.sbuf),
    ((8, 12), nl.psum),
    ((5,), nl.private_hbm),
    ((3, 4, 5), nl.private_hbm),
)


def part(rng):
    """One of what may stand between the brackets; some ask for what isn't there."""
    chance = rng.random()
    if chance < 0.4:
        ends = [rng.choice([None, *range(-2, 8)]) for _ in "12"]
        return slice(*ends, rng.choice([None, None, None, 1, 2]))
    if chance < 0.6:
        return rng.randint(-2, 7)
    if chance < 0.8:
        return nl.ds(rng.randint(-1, 4), rng.randint(0, 4))
    return rng.choice([Ellipsis, slice(None)])


def found(tensor, key):
    try:
        view = tensor[key]
    except NkiError as error:
        return error.message
    return view.offset, view.shape, view.strides


def test_both_ways_agree(monkeypatch):
    rng = random.Random(5)
    plain = []

    def kernel(x):
        tensors = [x, *[nl.ndarray(s, dtype=nl.float32, buffer=b) for s, b in SHAPES]]
        for _ in range(4000):
            tensor = rng.choice(tensors)
            key = tuple([part(rng) for _ in range(rng.randint(0, len(tensor.shape) + 1))])
            here = found(tensor, key)
            plain.append(tensor._plain(key) is not None)
            with monkeypatch.context() as patch:
                patch.setattr(Indexing, "_plain", lambda tensor, key: None)
                assert found(tensor, key) == here, key
        nl.store(x, nl.load(x))

    nki.simulate(nki.jit(kernel)).compile(np.zeros((6, 7), np.float32))
    assert plain.count(True) > 500 < plain.count(False)
