"""Flash attention forward in this process, beside the same in NumPy."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from functools import partial

import ml_dtypes
import numpy as np

import nki_dist as nki
from bench.harness import RUNS, seconds
from nki_dist import kernels

HEADS, TOKENS, SIZE, BLOCK = 2, 4096, 128, 512


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> list[np.ndarray]:
    """Causal attention in float32 by blocks of rows."""
    outs, columns = [], np.arange(TOKENS)
    for h in range(HEADS):
        for r in range(0, TOKENS, BLOCK):
            scores = q[0, h, :, r : r + BLOCK].T @ k[0, h] * np.float32(SIZE**-0.5)
            seen = columns <= columns[r : r + BLOCK, None]
            scores = np.where(seen, scores, np.float32(-np.inf))
            e = np.exp(scores - scores.max(axis=1, keepdims=True))
            outs.append(e / e.sum(axis=1, keepdims=True) @ v[0, h])
    return outs


def flash_rows() -> Iterator[tuple[str, str, str]]:
    rng = np.random.default_rng(3)
    q, k = (rng.standard_normal((1, HEADS, SIZE, TOKENS), np.float32) for _ in range(2))
    v = rng.standard_normal((1, HEADS, TOKENS, SIZE), np.float32)
    narrow = [x.astype(ml_dtypes.bfloat16) for x in (q, k, v)]
    kernel = nki.simulate(kernels.flash_fwd)
    times = []
    for n in range(RUNS + 1):
        scale = SIZE**-0.5 * (1 + n * 1e-6)  # of a new scale a new program is made
        launch = partial(kernel, *narrow, softmax_scale=scale)
        times.append([seconds(launch), seconds(launch), seconds(partial(attention, q, k, v))])
    first, later, plain = (statistics.median(column) for column in zip(*times[1:]))
    for name, value, goal in (("first launch", first, "<= 1x"), ("later ones", later, "<= 0.6x")):
        yield (
            f"flash attention forward, {HEADS} heads of {TOKENS}x{SIZE}, bfloat16, in process, "
            f"{name}, time against NumPy in float32",
            f"{value / plain:.2f}x ({1e3 * value:.0f} ms against {1e3 * plain:.0f} ms)",
            goal,
        )
