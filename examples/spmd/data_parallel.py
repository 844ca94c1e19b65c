"""Data-parallel training: every rank its own batch, one all_reduce for all gradients of a step.

A linear layer learns by gradient descent. The gradients of weights and bias are added up over the
ranks by one collective of two tensors, so all ranks take the same step and end with the same bits.
Within a rank, the cores share out the columns of the weights, which need nothing of each other.

    python examples/spmd/data_parallel.py [--ranks 8] [--lnc 1] [--host inprocess] [--small]
"""

from __future__ import annotations

import numpy as np
from _tiles import my_share, tiles
from _worlds import Case, WorldExample, everybody, run
from tensor_parallel_mlp import load_rows

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl


@nki.jit
def data_parallel(x, x_turned, y, weights, bias, group, steps, rate):
    """Weights and bias after some steps on the mean squared error of all ranks' batches.

    Args:
        x, x_turned: this rank's batch (B, D), and transposed (D, B).
        y: (B, N), N at most 512 per core.
        weights, bias: (D, N) and (1, N), the same on all ranks.
        group: all ranks.
        steps: how many.
        rate: what a step takes off, times the gradient of the sum over all ranks' batches.

    Returns:
        (D + 1, N): the weights, and the bias as the last row.
    """
    d, n = weights.shape
    out = nl.ndarray((d + 1, n), dtype=nl.float32, buffer=nl.shared_hbm)
    shapes = ((d, n), (1, n))
    found = [nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm) for shape in shapes]
    sums = [nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm) for shape in shapes]
    start, stop = my_share(n)
    columns = slice(start, stop)
    batch, turned, wanted = load_rows(x), load_rows(x_turned), load_rows(y[:, columns])
    model = [*load_rows(weights[:, columns]), *load_rows(bias[:, columns])]
    for _ in range(steps):
        gradients(batch, turned, wanted, model, found, columns)
        ncc.all_reduce(srcs=found, dsts=sums, replica_group=group, op=nl.add)
        totals = [*load_rows(sums[0][:, columns]), *load_rows(sums[1][:, columns])]
        for k in range(len(model)):
            part, total = model[k], totals[k]
            nisa.scalar_tensor_tensor(
                dst=part, data=total, op0=nl.multiply, operand0=-rate, op1=nl.add, operand1=part
            )
    for pair in zip(model, [*tiles(0, d, nl.tile_size.pmax), (d, 1)]):
        part, (r0, height) = pair
        nisa.dma_copy(dst=out[r0 : r0 + height, columns], src=part)
    return out


def gradients(batch, turned, wanted, model, found, columns):
    """Store x.T @ (x @ w + b - y) and its sum over the batch for some columns.

    Args:
        batch, turned, wanted: x (B, D), x.T (D, B) and y (B, columns) as tiles of 128 rows.
        model: tiles of the weights, and as the last one the bias.
        found: the whole gradients of weights and bias, in HBM.
    """
    pmax, n = nl.tile_size.pmax, model[-1].shape[1]
    errors = [deviation(turned, y, model, i * pmax) for i, y in enumerate(wanted)]
    d = batch[0].shape[1]
    for tile in tiles(0, d, pmax):
        r0, height = tile
        acc = nl.ndarray((height, n), dtype=nl.float32, buffer=nl.psum)
        for k in range(len(batch)):
            x, e = batch[k], errors[k]
            nisa.nc_matmul(dst=acc, stationary=x[:, r0 : r0 + height], moving=e)
        store(found[0][r0 : r0 + height, columns], acc)
    acc = nl.ndarray((1, n), dtype=nl.float32, buffer=nl.psum)
    for e in errors:
        nisa.nc_matmul(dst=acc, stationary=ones((e.shape[0], 1)), moving=e)
    store(found[1][:, columns], acc)


def deviation(turned, y, model, first):
    """x @ w + b - y for the samples of one tile, the first of which is sample `first`."""
    count, n = y.shape
    acc = nl.ndarray((count, n), dtype=nl.float32, buffer=nl.psum)
    for k in range(len(turned)):
        x, w = turned[k], model[k]
        nisa.nc_matmul(dst=acc, stationary=x[:, first : first + count], moving=w)
    # The bias goes to every row as a product with ones, summed up where the products are.
    nisa.nc_matmul(dst=acc, stationary=ones((1, count)), moving=model[-1])
    error = nl.ndarray((count, n), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=error, data1=acc, data2=y, op=nl.subtract)
    return error


def ones(shape):
    tile = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=tile, value=1.0)
    return tile


def store(dst, acc):
    """From PSUM to HBM."""
    tile = nl.ndarray(acc.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=tile, src=acc)
    nisa.dma_copy(dst=dst, src=tile)


def reference(
    x: np.ndarray, y: np.ndarray, model: np.ndarray, steps: int, rate: float
) -> np.ndarray:
    """The same on one rank with all samples, in float64; the bias is the model's last row."""
    x = np.hstack([x.astype(np.float64), np.ones((len(x), 1))])
    learned = model.astype(np.float64)
    for _ in range(steps):
        learned = learned - rate * x.T @ (x @ learned - y)
    return learned


def case(rng: np.random.Generator, ranks: int, small: bool = False) -> Case:
    """Samples of a linear function with noise, and a model that knows nothing yet."""
    b, d, n, steps = (50, 140, 33, 2) if small else (256, 512, 512, 4)
    x = rng.standard_normal((ranks * b, d), dtype=np.float32)
    true = rng.standard_normal((d, n), dtype=np.float32)
    noise = rng.standard_normal((ranks * b, n), dtype=np.float32)
    y = x @ true + np.float32(0.1) * noise
    model = rng.standard_normal((d + 1, n), dtype=np.float32)
    rate = 0.5 / (ranks * b)
    batches = np.split(x, ranks)
    arguments = {
        "x": nki.per_rank(batches),
        "x_turned": nki.per_rank([np.ascontiguousarray(batch.T) for batch in batches]),
        "y": nki.per_rank(np.split(y, ranks)),
        "weights": model[:-1],
        "bias": model[-1:],
        "group": everybody(ranks),
        "steps": steps,
        "rate": rate,
    }
    learned = reference(x, y, model, steps, rate)
    what = f"{steps} steps of {ranks} batches of {b}, a layer of {d} by {n}"
    return Case(what, arguments, np.broadcast_to(learned, (ranks, *learned.shape)))


EXAMPLE = WorldExample("data-parallel training", data_parallel, case)

if __name__ == "__main__":
    run(EXAMPLE)
