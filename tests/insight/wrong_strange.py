"""Kernels in other families, wrong and finite, that the repairs weren't made from; the guilty line
is marked. Written before the tool was run on any of them."""

from __future__ import annotations

import numpy as np

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.insight.lines import lines_of

LINES = lines_of(__file__)


def tile(*shape, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def random(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def layer_norm(x, weight, bias):
    """(x - mean) / sqrt(var + 1e-5) * weight + bias."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    weights, biases = tile(rows, columns), tile(rows, columns)
    nisa.dma_copy(dst=weights, src=weight.reshape((1, columns)).broadcast(0, rows))
    nisa.dma_copy(dst=biases, src=bias.reshape((1, columns)).broadcast(0, rows))
    data, centred, squares = nl.load(x), tile(rows, columns), tile(rows, columns)
    mean, variance = tile(rows, 1), tile(rows, 1)
    nisa.tensor_reduce(dst=mean, op=nl.add, data=data, axis=1)
    nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=1.0 / columns)
    nisa.tensor_scalar(dst=centred, data=data, op0=nl.subtract, operand0=mean)
    # LINE layer_norm
    nisa.activation_reduce(
        dst=squares, op=nl.square, data=data, reduce_op=nl.add, reduce_res=variance
    )
    nisa.activation(dst=variance, op=nl.rsqrt, data=variance, scale=1.0 / columns, bias=1e-5)
    nisa.tensor_scalar(dst=centred, data=centred, op0=nl.multiply, operand0=variance)
    nisa.tensor_tensor(dst=centred, data1=centred, data2=weights, op=nl.multiply)
    nisa.tensor_tensor(dst=centred, data1=centred, data2=biases, op=nl.add)
    nl.store(out, centred)
    return out


def layer_norm_inputs():
    return 0.7 + random(22, 19, 83), 1 + 0.1 * random(23, 83), random(24, 83)


def layer_norm_reference(x, weight, bias):
    z = x.astype(np.float64)
    centred = z - z.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * weight + bias


def rope(x, cos, sin):
    """Pairs (first half, second half) turned by angles; result scaled for the scores."""
    rows, columns = x.shape
    half = columns // 2
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    data, c, s = nl.load(x), nl.load(cos), nl.load(sin)
    turned, left, right = tile(rows, columns), tile(rows, half), tile(rows, half)
    nisa.tensor_tensor(dst=left, data1=data[:, 0:half], data2=c, op=nl.multiply)
    nisa.tensor_tensor(dst=right, data1=data[:, half:], data2=s, op=nl.multiply)
    # LINE rope
    nisa.tensor_tensor(dst=turned[:, 0:half], data1=left, data2=right, op=nl.add)
    nisa.tensor_tensor(dst=left, data1=data[:, half:], data2=c, op=nl.multiply)
    nisa.tensor_tensor(dst=right, data1=data[:, 0:half], data2=s, op=nl.multiply)
    nisa.tensor_tensor(dst=turned[:, half:], data1=left, data2=right, op=nl.add)
    nisa.tensor_scalar(dst=turned, data=turned, op0=nl.multiply, operand0=columns**-0.5)
    nl.store(out, turned)
    return out


def rope_inputs():
    angles = np.outer(np.arange(21), 100.0 ** -np.linspace(0, 1, 17))
    return random(25, 21, 34), np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rope_reference(x, cos, sin):
    a, b = x[:, :17].astype(np.float64), x[:, 17:].astype(np.float64)
    return np.hstack([a * cos - b * sin, b * cos + a * sin]) * 34**-0.5


def top_sixteen(x):
    """The 16 largest of each row, exponentiated."""
    rows, _ = x.shape
    out = nl.ndarray((rows, 16), dtype=nl.float32, buffer=nl.shared_hbm)
    data, found, rest = nl.load(x), tile(rows, 16), tile(*x.shape)
    nisa.max8(dst=found[:, 0:8], src=data)
    # LINE top_sixteen
    nisa.nc_match_replace8(dst=rest, data=data, vals=found[:, 0:8], imm=0.0)
    nisa.max8(dst=found[:, 8:16], src=rest)
    nisa.activation(dst=found, op=nl.exp, data=found)
    nl.store(out, found)
    return out


def top_sixteen_inputs():
    return (random(30, 33, 70) - 1.8,)


def top_sixteen_reference(x):
    return np.exp(-np.sort(-x.astype(np.float64), axis=1)[:, :16])


def cumulative_sum(x):
    """Running sums along columns, in blocks; then relative to the row's root mean square."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    ones, zero, carry = tile(rows, 50), tile(rows, 1), tile(rows, 1)
    nisa.memset(dst=ones, value=1.0)
    nisa.memset(dst=zero, value=0.0)
    nisa.memset(dst=carry, value=0.0)
    whole, squares, scale = nl.load(x), tile(rows, columns), tile(rows, 1)
    nisa.activation_reduce(
        dst=squares, op=nl.square, data=whole, reduce_op=nl.add, reduce_res=scale
    )
    nisa.activation(dst=scale, op=nl.rsqrt, data=scale, scale=1.0 / columns)
    for c0 in range(0, columns, 50):
        sums = tile(rows, 50)
        nisa.tensor_tensor_scan(
            dst=sums,
            data0=ones,
            data1=whole[:, c0 : c0 + 50],
            initial=zero,
            op0=nl.multiply,
            op1=nl.add,
        )
        carried = tile(rows, 50)
        nisa.tensor_scalar(dst=carried, data=sums, op0=nl.add, operand0=carry)
        # LINE cumulative_sum
        nisa.tensor_copy(dst=carry, src=sums[:, 49:50])
        nisa.tensor_scalar(dst=carried, data=carried, op0=nl.multiply, operand0=scale)
        nl.store(out[:, c0 : c0 + 50], carried)
    return out


def cumulative_sum_inputs():
    return (random(31, 26, 200),)


def cumulative_sum_reference(x):
    z = x.astype(np.float64)
    return z.cumsum(1) / np.sqrt((z**2).mean(1, keepdims=True))


def quantised(x):
    """x rounded to 8 bits by row, and back."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    data, sizes, largest, scale = nl.load(x), tile(rows, columns), tile(rows, 1), tile(rows, 1)
    nisa.activation(dst=sizes, op=nl.abs, data=data)
    # LINE quantised
    nisa.tensor_reduce(dst=largest, op=nl.maximum, data=data, axis=1)
    nisa.reciprocal(dst=scale, data=largest)
    small = tile(rows, columns, dtype=nl.int8)
    nisa.tensor_scalar(
        dst=small, data=data, op0=nl.multiply, operand0=scale, op1=nl.multiply, operand1=127.0
    )
    nisa.tensor_scalar(
        dst=data, data=small, op0=nl.multiply, operand0=largest, op1=nl.multiply, operand1=1 / 127
    )
    nl.store(out, data)
    return out


def quantised_inputs():
    return (random(32, 45, 60),)


def quantised_reference(x):
    largest = np.abs(x).max(1, keepdims=True).astype(np.float64)
    return np.rint(x / largest * 127) * largest / 127


def mean_of_blocks(x):
    """Mean over blocks of rows, kept in bfloat16 while it is summed; centred afterwards."""
    rows, columns = x.shape
    out = nl.ndarray((32, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    total, result = tile(32, columns, dtype=nl.bfloat16), tile(32, columns)
    nisa.memset(dst=total, value=0.0)
    for r0 in range(0, rows, 32):
        block = nl.load(x[r0 : r0 + 32, :])
        # LINE mean_of_blocks
        nisa.tensor_tensor(dst=total, data1=total, data2=block, op=nl.add)
    nisa.tensor_scalar(dst=result, data=total, op0=nl.multiply, operand0=32 / rows)
    nisa.tensor_scalar(dst=result, data=result, op0=nl.subtract, operand0=5.0)
    nl.store(out, result)
    return out


def mean_of_blocks_inputs():
    return (5 + random(33, 640, 20),)


def mean_of_blocks_reference(x):
    return x.astype(np.float64).reshape(20, 32, 20).mean(0) - 5


def grouped_scores(q, k):
    """Scores of 4 query heads that share 2 key heads in pairs; (heads, d, n) each."""
    heads, d, n = q.shape
    keys = k.shape[2]
    out = nl.ndarray((heads, n, keys), dtype=nl.float32, buffer=nl.shared_hbm)
    for h in range(heads):
        left = nl.load(q[h])
        # LINE grouped_scores
        right = nl.load(k[h % k.shape[0]])
        scores, kept = tile(n, keys, buffer=nl.psum), tile(n, keys)
        nisa.nc_matmul(dst=scores, stationary=left, moving=right)
        nisa.activation(dst=kept, op=nl.tanh, data=scores, scale=d**-0.5)
        nisa.tensor_scalar(dst=kept, data=kept, op0=nl.multiply, operand0=30.0)
        nl.store(out[h], kept)
    return out


def grouped_scores_inputs():
    return random(34, 4, 16, 11), random(35, 2, 16, 13)


def grouped_scores_reference(q, k):
    s = np.einsum("hdn,hdm->hnm", q.astype(np.float64), np.repeat(k, 2, axis=0))
    return 30 * np.tanh(s / 4)


# By kernel, an element that is wrong.
KERNELS = {
    layer_norm: (7, 31),
    rope: (9, 3),
    top_sixteen: (6, 14),
    cumulative_sum: (11, 160),
    quantised: None,
    mean_of_blocks: (5, 5),
    grouped_scores: (1, 4, 6),
}
