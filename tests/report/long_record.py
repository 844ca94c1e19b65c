"""A record of 30,003 instructions, for what large pages are like."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl


@nki.jit
def mixture(x):
    """Ten thousand terms, each of its own width."""
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    tile, total = nl.load(x), nl.ndarray(x.shape, nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=total, value=0.0)
    for n in range(10_000):
        part = nl.ndarray(x.shape, nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=part, data=tile, op0=nl.multiply, operand0=1 / (n + 3))
        nisa.activation(dst=part, op=nl.exp, data=part)
        nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
    nl.store(out, total)
    return out


def record() -> Any:
    """Of 128 rows of 120 values."""
    return nki.record(mixture)(np.random.default_rng(1).standard_normal((128, 120), np.float32))
