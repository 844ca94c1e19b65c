"""Selective scan, the recurrence of Mamba's state space layer.

For each channel c and state n:  h[t] = exp(delta[t] * A[n]) * h[t-1] + delta[t] * u[t] * B[n, t],
and the output is the sum over n of C[n, t] * h[t]. `tensor_tensor_scan` runs the recurrence of 128
channels at once.

    python examples/spmd/selective_scan.py [--lnc 2] [--host inprocess] [--small]
"""

from __future__ import annotations

import numpy as np
from _common import Example, run
from _tiles import my_share, tiles

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl

# Time steps per tile; the state is carried from one tile to the next.
STEPS = 512


@nki.jit
def selective_scan(u, delta, A, B, C):
    """y (channels, steps); u and delta (channels, steps), A (channels, n), B and C (n, steps)."""
    channels, length = u.shape
    n = A.shape[1]
    out = nl.ndarray((channels, length), dtype=u.dtype, buffer=nl.shared_hbm)
    for block in tiles(*my_share(channels), nl.tile_size.pmax):
        c0, count = block
        # float32 whatever A is, because the Scalar engine takes scales in float32 only; the DMA
        # engine converts on the way in, and on the way out.
        rates = nl.ndarray((count, n), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=rates, src=A[c0 : c0 + count, :])
        state = nl.ndarray((count, n), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=state, value=0.0)
        for tile in tiles(0, length, STEPS):
            t0, steps = tile
            y = scan_tile(u, delta, B, C, rates, state, (c0, count), (t0, steps))
            nisa.dma_copy(dst=out[c0 : c0 + count, t0 : t0 + steps], src=y)
    return out


def scan_tile(u, delta, B, C, rates, state, channels, times):
    """Outputs of some channels for some time steps; leaves the last state in `state`."""
    (c0, count), (t0, steps) = channels, times
    step = nl.ndarray((count, steps), dtype=delta.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=step, src=delta[c0 : c0 + count, t0 : t0 + steps])
    drive = nl.ndarray((count, steps), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=drive, src=u[c0 : c0 + count, t0 : t0 + steps])
    nisa.tensor_tensor(dst=drive, data1=drive, data2=step, op=nl.multiply)

    y = nl.ndarray((count, steps), dtype=nl.float32, buffer=nl.sbuf)
    for n in range(rates.shape[1]):
        # Per-channel rate: the activation's scale is a column, one number per partition.
        decay = nl.ndarray((count, steps), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=decay, op=nl.exp, data=step, scale=rates[:, n : n + 1])
        # B and C are the same for all channels: DMA repeats their row on every partition.
        entry = nl.ndarray((count, steps), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=entry, src=B[n : n + 1, t0 : t0 + steps].broadcast(0, count))
        nisa.tensor_tensor(dst=entry, data1=entry, data2=drive, op=nl.multiply)

        h = nl.ndarray((count, steps), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor_scan(
            dst=h,
            data0=decay,
            data1=entry,
            initial=state[:, n : n + 1],
            op0=nl.multiply,
            op1=nl.add,
        )
        nisa.tensor_copy(dst=state[:, n : n + 1], src=h[:, steps - 1 : steps])

        weight = nl.ndarray((count, steps), dtype=C.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=weight, src=C[n : n + 1, t0 : t0 + steps].broadcast(0, count))
        if n == 0:
            nisa.tensor_tensor(dst=y, data1=h, data2=weight, op=nl.multiply)
        else:
            nisa.tensor_tensor(dst=h, data1=h, data2=weight, op=nl.multiply)
            nisa.tensor_tensor(dst=y, data1=y, data2=h, op=nl.add)
    return y


def inputs(rng: np.random.Generator, small: bool = False) -> tuple[np.ndarray, ...]:
    """u, delta, A, B, C with decaying states."""
    channels, length, n = (41, 700, 3) if small else (256, 2048, 16)
    u = rng.standard_normal((channels, length), dtype=np.float32)
    delta = 0.1 * rng.random((channels, length), dtype=np.float32)
    A = -0.5 - rng.random((channels, n), dtype=np.float32)
    B, C = (rng.standard_normal((n, length), dtype=np.float32) for _ in range(2))
    return u, delta, A, B, C


def reference(
    u: np.ndarray, delta: np.ndarray, A: np.ndarray, B: np.ndarray, C: np.ndarray
) -> np.ndarray:
    u, delta, A, B, C = (a.astype(np.float64) for a in (u, delta, A, B, C))
    h = np.zeros_like(A)
    y = np.empty_like(u)
    for t in range(u.shape[1]):
        h = np.exp(delta[:, t, None] * A) * h + (delta[:, t] * u[:, t])[:, None] * B[:, t]
        y[:, t] = h @ C[:, t]
    return y


EXAMPLE = Example("selective scan", (selective_scan,), inputs, reference)

if __name__ == "__main__":
    run(EXAMPLE)
