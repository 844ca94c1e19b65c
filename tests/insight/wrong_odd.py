"""Kernels that authors get wrong, whose results are infinite or NaN; the guilty line is marked."""

import numpy as np

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.insight.lines import lines_of

LINES = lines_of(__file__)


def temperature_softmax(x, temperature):
    """softmax(x * temperature) of rows, without a maximum taken off."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    for r0 in range(0, rows, 128):
        height = min(128, rows - r0)
        tile = nl.load(x[r0 : r0 + height, :])
        hot = nl.load(temperature[r0 : r0 + height, :])
        scaled = nl.ndarray((height, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=scaled, data=tile, op0=nl.multiply, operand0=hot)
        exps = nl.ndarray((height, columns), dtype=nl.float32, buffer=nl.sbuf)
        # LINE temperature_softmax
        nisa.activation(dst=exps, op=nl.exp, data=scaled)
        total = nl.ndarray((height, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=exps, axis=1)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=tile, data=exps, op0=nl.multiply, operand0=total)
        nl.store(out[r0 : r0 + height, :], tile)
    return out


def temperature_softmax_inputs():
    x = np.random.default_rng(1).standard_normal((200, 37), dtype=np.float32)
    temperature = np.ones((200, 1), np.float32)
    x[130, 5], temperature[130] = 3.0, 40.0
    return x, temperature


def temperature_softmax_reference(x, temperature):
    z = x.astype(np.float64) * temperature
    e = np.exp(z - z.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def attention_weights(q, k):
    """softmax(q.T @ k / sqrt(d)); scores are kept in float16 to save SBUF."""
    d, queries = q.shape
    keys = k.shape[1]
    out = nl.ndarray((queries, keys), dtype=nl.float32, buffer=nl.shared_hbm)
    products = nl.ndarray((queries, keys), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=products, stationary=nl.load(q), moving=nl.load(k))
    scores = nl.ndarray((queries, keys), dtype=nl.float16, buffer=nl.sbuf)
    # LINE attention_weights
    nisa.tensor_copy(dst=scores, src=products)
    nisa.tensor_scalar(dst=scores, data=scores, op0=nl.multiply, operand0=d**-0.5)
    minus_max = nl.ndarray((queries, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=minus_max, op=nl.maximum, data=scores, axis=1, negate=True)
    exps = nl.ndarray((queries, keys), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((queries, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=exps, op=nl.exp, data=scores, bias=minus_max)
    nisa.tensor_reduce(dst=total, op=nl.add, data=exps, axis=1)
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=exps, data=exps, op0=nl.multiply, operand0=total)
    nl.store(out, exps)
    return out


def attention_weights_inputs():
    rng = np.random.default_rng(4)
    q, k = (rng.standard_normal((40, n)).astype(np.float32) for n in (30, 50))
    q[:, 11] *= 300
    k[:, 17] = q[:, 11]
    return q, k


def attention_weights_reference(q, k):
    s = q.T.astype(np.float64) @ k * q.shape[0] ** -0.5
    e = np.exp(s - s.max(1, keepdims=True))
    return e / e.sum(1, keepdims=True)


def load_balance(routed, gates, group):
    """Mean gate of each expert's tokens on a rank, summed over ranks.

    routed: (experts, tokens) of 0 and 1; gates: (experts, tokens).
    """
    experts, tokens = routed.shape
    mine = nl.ndarray((experts, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    summed = nl.ndarray((experts, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    out = nl.ndarray((experts, tokens), dtype=nl.float32, buffer=nl.shared_hbm)
    chosen, gate = nl.load(routed), nl.load(gates)
    count = nl.ndarray((experts, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=count, op=nl.add, data=chosen, axis=1)
    kept = nl.ndarray((experts, tokens), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=kept, data1=gate, data2=chosen, op=nl.multiply)
    mean = nl.ndarray((experts, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=mean, op=nl.add, data=kept, axis=1)
    # LINE load_balance
    nisa.reciprocal(dst=count, data=count)
    nisa.tensor_tensor(dst=mean, data1=mean, data2=count, op=nl.multiply)
    nisa.dma_copy(dst=mine, src=mean)
    ncc.all_reduce(srcs=[mine], dsts=[summed], replica_group=group, op=nl.add)
    nisa.tensor_scalar(dst=kept, data=gate, op0=nl.multiply, operand0=nl.load(summed))
    nl.store(out, kept)
    return out


def load_balance_inputs():
    rng = np.random.default_rng(5)
    routed = [(rng.random((5, 33)) < 0.4).astype(np.float32) for _ in range(4)]
    routed[2][1] = 0
    gates = [rng.random((5, 33), dtype=np.float32) for _ in range(4)]
    return nki.per_rank(routed), nki.per_rank(gates), ncc.ReplicaGroup([[0, 1, 2, 3]])
