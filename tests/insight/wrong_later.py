"""Eight more wrong kernels, written when all repairs were there and before the tool was run on any
of them; the guilty line is marked."""

from __future__ import annotations

import numpy as np

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.insight.lines import lines_of

LINES = lines_of(__file__)


def tile(*shape, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def random(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, dtype=np.float32)


def split_norm(x):
    """x / its row's root mean square, columns cut over two cores."""
    me, rows, columns = nl.program_id(0), x.shape[0], x.shape[1] // 2
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    data = nl.load(x[:, me * columns : (me + 1) * columns])
    squares, mine, theirs = tile(rows, columns), tile(rows, 1), tile(rows, 1)
    nisa.activation_reduce(dst=squares, op=nl.square, data=data, reduce_op=nl.add, reduce_res=mine)
    nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    # LINE split_norm
    nisa.tensor_tensor(dst=mine, data1=theirs, data2=theirs, op=nl.add)
    nisa.activation(dst=mine, op=nl.rsqrt, data=mine, scale=0.5 / columns)
    nisa.tensor_scalar(dst=data, data=data, op0=nl.multiply, operand0=mine)
    nl.store(out[:, me * columns : (me + 1) * columns], data)
    return out


def split_norm_inputs():
    return (random(51, 28, 46),)


def split_norm_reference(x):
    z = x.astype(np.float64)
    return z / np.sqrt((z**2).mean(1, keepdims=True))


def alibi(scores):
    """softmax of scores + 0.25 * (key - query)."""
    rows, columns = scores.shape
    out = nl.ndarray(scores.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    data, distance = nl.load(scores), tile(rows, columns)
    # LINE alibi
    nisa.iota(dst=distance, pattern=[[1, columns]], channel_multiplier=1)
    nisa.tensor_scalar(dst=distance, data=distance, op0=nl.minimum, operand0=0.0)
    nisa.tensor_scalar(dst=distance, data=distance, op0=nl.multiply, operand0=0.25)
    nisa.tensor_tensor(dst=data, data1=data, data2=distance, op=nl.add)
    total = tile(rows, 1)
    nisa.activation_reduce(dst=data, op=nl.exp, data=data, reduce_op=nl.add, reduce_res=total)
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=data, data=data, op0=nl.multiply, operand0=total)
    nl.store(out, data)
    return out


def alibi_inputs():
    return (random(52, 27, 31),)


def alibi_reference(scores):
    far = np.minimum(np.arange(31)[None, :] - np.arange(27)[:, None], 0)
    e = np.exp(scores + 0.25 * far)
    return e / e.sum(1, keepdims=True)


def group_norm(x):
    """Columns in groups of 20: each less its mean, over its standard deviation."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    data = nl.load(x)
    for g0 in range(0, columns, 20):
        group, squares = data[:, g0 : g0 + 20], tile(rows, 20)
        mean, deviation = tile(rows, 1), tile(rows, 1)
        nisa.tensor_reduce(dst=mean, op=nl.add, data=group, axis=1)
        # LINE group_norm
        nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=1.0 / columns)
        nisa.tensor_scalar(dst=group, data=group, op0=nl.subtract, operand0=mean)
        nisa.activation_reduce(
            dst=squares, op=nl.square, data=group, reduce_op=nl.add, reduce_res=deviation
        )
        nisa.activation(dst=deviation, op=nl.rsqrt, data=deviation, scale=1.0 / 20, bias=1e-5)
        nisa.tensor_scalar(dst=group, data=group, op0=nl.multiply, operand0=deviation)
    nl.store(out, data)
    return out


def group_norm_inputs():
    return (1 + random(53, 33, 60),)


def group_norm_reference(x):
    z = x.astype(np.float64).reshape(33, 3, 20)
    z = z - z.mean(2, keepdims=True)
    return (z / np.sqrt((z**2).mean(2, keepdims=True) + 1e-5)).reshape(33, 60)


def pooled(x):
    """Maximum of pairs of columns, squashed."""
    rows, columns = x.shape
    out = nl.ndarray((rows, columns // 2), dtype=x.dtype, buffer=nl.shared_hbm)
    data, best = nl.load(x), tile(rows, columns // 2)
    # LINE pooled
    nisa.tensor_tensor(dst=best, data1=data[:, 1::2], data2=data[:, 1::2], op=nl.maximum)
    nisa.activation(dst=best, op=nl.tanh, data=best)
    nl.store(out, best)
    return out


def pooled_inputs():
    return (random(54, 41, 38),)


def pooled_reference(x):
    return np.tanh(x.astype(np.float64).reshape(41, 19, 2).max(2))


def masked_softmax(x, mask):
    """exp(x) * mask over its sum."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    data, kept, total = nl.load(x), nl.load(mask), tile(x.shape[0], 1)
    nisa.activation(dst=data, op=nl.exp, data=data)
    # LINE masked_softmax
    nisa.tensor_reduce(dst=total, op=nl.add, data=data, axis=1)
    nisa.tensor_tensor(dst=data, data1=data, data2=kept, op=nl.multiply)
    nisa.reciprocal(dst=total, data=total)
    nisa.tensor_scalar(dst=data, data=data, op0=nl.multiply, operand0=total)
    nl.store(out, data)
    return out


def masked_softmax_inputs():
    return random(55, 22, 35), (random(56, 22, 35) > -0.5).astype(np.float32)


def masked_softmax_reference(x, mask):
    e = np.exp(x.astype(np.float64)) * mask
    return e / e.sum(1, keepdims=True)


def cross_entropy(logits, labels):
    """log(sum(exp)) - the label's logit."""
    rows, classes = logits.shape
    out = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    data, label = nl.load(logits), nl.load(labels)
    numbers, hot, exps = [tile(rows, classes) for _ in range(3)]
    total, chosen = tile(rows, 1), tile(rows, 1)
    # LINE cross_entropy
    nisa.iota(dst=numbers, pattern=[[1, classes]], offset=1)
    nisa.tensor_scalar(dst=hot, data=numbers, op0=nl.equal, operand0=label)
    nisa.tensor_tensor(dst=hot, data1=hot, data2=data, op=nl.multiply)
    nisa.tensor_reduce(dst=chosen, op=nl.add, data=hot, axis=1)
    nisa.activation_reduce(dst=exps, op=nl.exp, data=data, reduce_op=nl.add, reduce_res=total)
    nisa.activation(dst=total, op=nl.log, data=total)
    nisa.tensor_tensor(dst=total, data1=total, data2=chosen, op=nl.subtract)
    nl.store(out, total)
    return out


def cross_entropy_inputs():
    labels = np.random.default_rng(57).integers(0, 23, (30, 1)).astype(np.float32)
    return random(58, 30, 23), labels


def cross_entropy_reference(logits, labels):
    z = logits.astype(np.float64)
    label = np.take_along_axis(z, labels.astype(int), 1)
    return np.log(np.exp(z).sum(1, keepdims=True)) - label


def adam_step(w, grad, first, second):
    """One step of Adam at t = 3, with rates 0.9 and 0.99."""
    out = nl.ndarray(w.shape, dtype=w.dtype, buffer=nl.shared_hbm)
    weight, g, m, v = nl.load(w), nl.load(grad), nl.load(first), nl.load(second)
    part, root = tile(*w.shape), tile(*w.shape)
    nisa.tensor_scalar(dst=m, data=m, op0=nl.multiply, operand0=0.9)
    nisa.tensor_scalar(dst=part, data=g, op0=nl.multiply, operand0=1 - 0.9)
    nisa.tensor_tensor(dst=m, data1=m, data2=part, op=nl.add)
    nisa.tensor_tensor(dst=part, data1=g, data2=g, op=nl.multiply)
    nisa.tensor_scalar(dst=part, data=part, op0=nl.multiply, operand0=1 - 0.99)
    nisa.tensor_scalar(dst=v, data=v, op0=nl.multiply, operand0=0.99)
    nisa.tensor_tensor(dst=v, data1=v, data2=part, op=nl.add)
    # LINE adam_step
    nisa.tensor_scalar(dst=v, data=v, op0=nl.multiply, operand0=1 / (1 - 0.99**2))
    nisa.activation(dst=root, op=nl.sqrt, data=v)
    nisa.tensor_scalar(dst=root, data=root, op0=nl.add, operand0=1e-2)
    nisa.reciprocal(dst=root, data=root)
    nisa.tensor_tensor(dst=m, data1=m, data2=root, op=nl.multiply)
    nisa.tensor_scalar(dst=m, data=m, op0=nl.multiply, operand0=0.1 / (1 - 0.9**3))
    nisa.tensor_tensor(dst=weight, data1=weight, data2=m, op=nl.subtract)
    nl.store(out, weight)
    return out


def adam_step_inputs():
    parts = [random(60 + n, 25, 43) for n in range(4)]
    return parts[0], parts[1], 0.3 * parts[2], 0.02 * parts[3] ** 2


def adam_step_reference(w, g, m, v):
    w, g, m, v = (a.astype(np.float64) for a in (w, g, m, v))
    m, v = 0.9 * m + 0.1 * g, 0.99 * v + 0.01 * g * g
    return w - 0.1 * m / (1 - 0.9**3) / (np.sqrt(v / (1 - 0.99**3)) + 1e-2)


def centred_over_ranks(x, group, ranks):
    """x less the mean over all ranks."""
    local = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=local, src=x)
    # LINE centred_over_ranks
    ncc.all_reduce(srcs=[local], dsts=[total], replica_group=group, op=nl.add)
    data, mean = nl.load(x), nl.load(total)
    nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=1 / ranks)
    nisa.tensor_tensor(dst=data, data1=data, data2=mean, op=nl.subtract)
    nisa.activation(dst=data, op=nl.silu, data=data)
    nl.store(out, data)
    return out


def centred_over_ranks_inputs():
    group = ncc.ReplicaGroup([[0, 1], [2, 3]])
    return nki.per_rank([random(70 + r, 13, 8) for r in range(4)]), group, 4


def centred_over_ranks_reference():
    x = np.stack([random(70 + r, 13, 8).astype(np.float64) for r in range(4)])
    z = x - x.mean(0)
    return list(z / (1 + np.exp(-z)))


# By kernel, an element that is wrong; None for the first.
KERNELS = dict.fromkeys(
    (
        split_norm,
        alibi,
        group_norm,
        pooled,
        masked_softmax,
        cross_entropy,
        adam_step,
        centred_over_ranks,
    )
)
RANKS = {centred_over_ranks}
CORES = {split_norm}
