"""What the tests of launches that are looked at share: kernels, and what was found in them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.launcher.checking import Checker
from nki_dist.launcher.session import session

X = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)


@contextmanager
def looking() -> Iterator[Checker]:
    """Launches are looked at in place of made."""
    session().checker = made = Checker()
    try:
        yield made
    finally:
        session().checker = None


def codes_of(checker: Checker) -> dict[str, list[str]]:
    return {k.name: [d.code for d in k.diagnostics] for k in checker.kernels()}


def one(number: int) -> np.ndarray:
    return np.array([[number]], np.int32)


@nki.jit
def doubled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    nl.store(out, tile)
    return out


@nki.jit
def picks(x, start):
    out = nl.ndarray((8, 32), dtype=x.dtype, buffer=nl.shared_hbm)
    n = nl.load(start)
    nisa.dma_copy(dst=out, src=x.ap([[32, 8], [1, 32]], scalar_offset=n, indirect_dim=0))
    return out


@nki.jit
def repeats(x, times):
    tile = nl.load(x)
    count, n = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf), nisa.register_alloc()
    nisa.dma_copy(dst=count, src=times)
    nisa.register_load(n, count)
    for _ in nl.dynamic_range(n):
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


@nki.jit
def starts(x):
    out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=3)
    nl.store(out, tile)
    return out


@nki.jit
def many(x):
    return nl.ndarray((200, 4), dtype=x.dtype, buffer=nl.sbuf)
