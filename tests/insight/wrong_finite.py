"""Kernels that authors get wrong, whose results are finite; the guilty line is marked."""

import numpy as np

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.insight.lines import lines_of

LINES = lines_of(__file__)


def causal_attention(q, k, v):
    """softmax(q.T @ k / sqrt(d)) @ v, query i seeing keys 0...i."""
    d, queries = q.shape
    keys = k.shape[1]
    out = nl.ndarray((queries, d), dtype=v.dtype, buffer=nl.shared_hbm)
    products = nl.ndarray((queries, keys), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=products, stationary=nl.load(q), moving=nl.load(k))
    scores = nl.ndarray((queries, keys), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=scores, data=products, op0=nl.multiply, operand0=d**-0.5)
    # LINE causal_attention
    nisa.affine_select(
        dst=scores,
        pattern=[[-1, keys]],
        offset=1,
        channel_multiplier=1,
        on_true_tile=scores,
        on_false_value=-1e30,
        cmp_op=nl.greater_equal,
    )
    minus_max = nl.ndarray((queries, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=minus_max, op=nl.maximum, data=scores, axis=1, negate=True)
    nisa.activation(dst=scores, op=nl.exp, data=scores, bias=minus_max)
    total = nl.ndarray((queries, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=total, op=nl.add, data=scores, axis=1)
    nisa.reciprocal(dst=total, data=total)
    turned = nl.ndarray((keys, queries), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_transpose(dst=turned, data=scores, engine=nisa.tensor_engine)
    weights = nl.ndarray((keys, queries), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=weights, src=turned)
    context = nl.ndarray((queries, d), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=context, stationary=weights, moving=nl.load(v))
    result = nl.ndarray((queries, d), dtype=v.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=result, data=context, op0=nl.multiply, operand0=total)
    nl.store(out, result)
    return out


def causal_attention_inputs():
    rng = np.random.default_rng(7)
    q, k = (rng.standard_normal((8, 19), dtype=np.float32) for _ in range(2))
    return q, k, rng.standard_normal((19, 8), dtype=np.float32)


def causal_attention_reference(q, k, v):
    s = q.T.astype(np.float64) @ k * q.shape[0] ** -0.5
    s = np.where(np.tri(len(s), dtype=bool), s, -np.inf)
    e = np.exp(s - s.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True) @ v


def rms_norm(x, weight):
    """x / sqrt(mean(x^2) + 1e-6) * weight, columns in chunks of 512."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    chunks = [(c, min(512, columns - c)) for c in range(0, columns, 512)]
    weights = nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=weights, src=weight.reshape((1, columns)).broadcast(0, 128))
    for r0 in range(0, rows, 128):
        height = min(128, rows - r0)
        tile = nl.load(x[r0 : r0 + height, :])
        parts = nl.ndarray((height, len(chunks)), dtype=nl.float32, buffer=nl.sbuf)
        squares = nl.ndarray((height, 512), dtype=nl.float32, buffer=nl.sbuf)
        for i in range(len(chunks)):
            c0, width = chunks[i]
            part, here = tile[:, c0 : c0 + width], squares[:, 0:width]
            nisa.tensor_tensor(dst=here, data1=part, data2=part, op=nl.multiply)
            nisa.tensor_reduce(dst=parts[:, i : i + 1], op=nl.add, data=here, axis=1)
        r = nl.ndarray((height, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=r, op=nl.add, data=parts, axis=1)
        # LINE rms_norm
        nisa.activation(dst=r, op=nl.rsqrt, data=r, scale=1.0 / width, bias=1e-6)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=r)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=weights[0:height, :], op=nl.multiply)
        nl.store(out[r0 : r0 + height, :], tile)
    return out


def rms_norm_inputs():
    rng = np.random.default_rng(8)
    return rng.standard_normal((150, 700), np.float32), 1 + rng.random(700, dtype=np.float32)


def rms_norm_reference(x, weight):
    z = x.astype(np.float64)
    return z / np.sqrt((z**2).mean(1, keepdims=True) + 1e-6) * weight


def scaled_double_buffered(x, scale):
    """silu(x * scale), the next tile is loaded while the present one is worked on."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    factors = nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=factors, src=scale.reshape((1, columns)).broadcast(0, 128))
    buffers = [nl.ndarray((128, columns), dtype=x.dtype, buffer=nl.sbuf) for _ in range(2)]
    count = rows // 128
    nisa.dma_copy(dst=buffers[0], src=x[0:128, :])
    nisa.dma_copy(dst=buffers[1], src=x[128:256, :])
    for i in range(count):
        here = buffers[i % 2]
        work = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=work, data1=here, data2=factors, op=nl.multiply)
        gate = nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=gate, op=nl.sigmoid, data=work)
        nisa.tensor_tensor(dst=work, data1=work, data2=gate, op=nl.multiply)
        nl.store(out[i * 128 : (i + 1) * 128, :], work)
        if i + 2 < count:
            ahead = (i + 1) * 128
            # LINE scaled_double_buffered
            nisa.dma_copy(dst=buffers[i % 2], src=x[ahead : ahead + 128, :])
    return out


def scaled_double_buffered_inputs():
    rng = np.random.default_rng(10)
    return rng.standard_normal((512, 23), np.float32), 1 + rng.random(23, dtype=np.float32)


def scaled_double_buffered_reference(x, scale):
    z = x.astype(np.float64) * scale
    return z / (1 + np.exp(-z))


def three_point_mean(x, ranks):
    """(x[i-1] + x[i] + x[i+1]) / 3 along columns that are cut over ranks; zero outside."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    edge = [nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2)]
    halo = [nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(2)]
    nothing = nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.sbuf)
    nisa.memset(dst=nothing, value=0.0)
    tile = nl.ndarray((rows, columns + 2), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile[:, 1 : columns + 1], src=x)
    for pair in enumerate((columns, 1)):
        i, at = pair
        nisa.dma_copy(dst=edge[i], src=tile[:, at : at + 1])
        nisa.dma_copy(dst=halo[i], src=nothing)
    right = [(r, (r + 1) % ranks) for r in range(ranks)]
    left = [(r + 1, r) for r in range(ranks - 1)]
    # LINE three_point_mean
    ncc.collective_permute(srcs=[edge[0]], dsts=[halo[0]], source_target_pairs=right)
    ncc.collective_permute(srcs=[edge[1]], dsts=[halo[1]], source_target_pairs=left)
    nisa.dma_copy(dst=tile[:, 0:1], src=halo[0])
    nisa.dma_copy(dst=tile[:, columns + 1 : columns + 2], src=halo[1])
    mean = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=mean, data1=tile[:, 0:columns], data2=tile[:, 2:], op=nl.add)
    nisa.tensor_tensor(dst=mean, data1=mean, data2=tile[:, 1 : columns + 1], op=nl.add)
    nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=1.0 / 3)
    nl.store(out, mean)
    return out


def three_point_mean_inputs():
    rng = np.random.default_rng(12)
    return nki.per_rank([rng.standard_normal((9, 15), np.float32) for _ in range(4)]), 4


def three_point_mean_reference(shards):
    whole = np.pad(np.concatenate(shards, 1).astype(np.float64), ((0, 0), (1, 1)))
    return np.split((whole[:, :-2] + whole[:, 1:-1] + whole[:, 2:]) / 3, 4, axis=1)
