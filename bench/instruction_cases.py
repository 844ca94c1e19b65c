"""What bench.instructions measures: each instruction at its largest tile, and the same in NumPy.

The NumPy side is what one would write for float32 arrays. Tiles are as large as the instruction
allows, or 128 x 4096 where only memory limits it. An instruction without a case is in WITHOUT.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import ml_dtypes
import numpy as np

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.dtypes.mx import pack_x4, unpack_x4

P: Final = 128
N: Final = 4096
SEQUENTIAL: Final = "each number is made from the one before it in its lane"
LOW: Final = np.float32(np.finfo(np.float32).min)
BF16: Final = ml_dtypes.bfloat16
CMD: Final = nisa.reduce_cmd

WITHOUT: Final = MappingProxyType(
    {
        **dict.fromkeys(
            ("register_load", "register_move", "register_store", "set_rng_seed", "device_print",
             "rand_get_state", "rand_set_state", "scalar_arithmetic", "scalar_load",
             "scalar_store"),
            "moves a few words",
        ),
        **dict.fromkeys(
            ("core_barrier", "sendrecv", "all_gather", "all_gather_v", "all_reduce", "all_to_all",
             "all_to_all_v", "collective_permute", "collective_permute_implicit",
             "collective_permute_implicit_reduce", "read_rank_id", "read_ring_rank_id",
             "reduce_scatter"),
            "waits for other cores",
        ),
    }
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One measurement.

    Attributes:
        instruction: its opcode.
        issue: called with input tiles and output tiles; returns the instruction's handle.
        plain: the same work on the input arrays.
        inputs: arrays; they are in SBUF (in HBM for DMA).
        outputs: (shape, dtype, memory).
        form: what tells it from other cases of the instruction.
        reason: why it may take more than 5 times as long.
    """

    instruction: str
    issue: Callable[..., Any]
    plain: Callable[..., Any]
    inputs: Sequence[np.ndarray]
    outputs: Sequence[tuple[tuple[int, ...], Any, Any]]
    form: str = ""
    platform: str = "trn2"
    hbm: bool = False
    reason: str = ""


def normal(seed: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


A, B, COL = normal(1, P, N), normal(2, P, N), normal(3, P, 1)
MASK = (A > 0).astype(np.uint8)
TILE = ((P, N), nl.float32, nl.sbuf)
ONE = ((P, 1), nl.float32, nl.sbuf)


def moves() -> list[Case]:
    """Copies, transposes, gathers."""
    half, square = A[:, :512].astype(BF16), A[:, :128]
    index = np.random.default_rng(4).integers(0, N, (P, 256)).astype(np.uint16)
    wide = np.random.default_rng(5).integers(0, N, (P, N)).astype(np.uint32)
    order = [(i * 5 + 3) % 32 for i in range(32)]
    rows = np.concatenate([np.array(order) + q for q in range(0, P, 32)])
    groups = np.repeat(
        np.stack([index[g : g + 16].T.reshape(-1) for g in range(0, P, 16)]), 16, axis=0
    ).astype(np.intp)
    return [
        Case("dma_copy", lambda a, o: nisa.dma_copy(o, a), np.copy, [A], [TILE], hbm=True),
        Case("tensor_copy", lambda a, o: nisa.tensor_copy(o, a), np.copy, [A], [TILE]),
        Case("tensor_copy", lambda a, o: nisa.tensor_copy(o, a), np.copy, [A],
             [((P, N), nl.bfloat16, nl.sbuf)], "to bfloat16",
             reason="rounds, which a float32 copy doesn't"),
        Case("memset", lambda o: nisa.memset(o, 0.2), lambda: np.full((P, N), 0.2, np.float32),
             [], [TILE]),
        Case("tensor_copy_predicated", lambda a, m, o: nisa.tensor_copy_predicated(o, a, m),
             lambda a, m: np.where(m, a, np.float32(7)), [A, MASK], [TILE]),
        Case("dma_transpose", lambda a, o: nisa.dma_transpose(o, a),
             lambda a: np.ascontiguousarray(a.astype(np.float32).T), [np.ascontiguousarray(half.T)],
             [((P, 512), nl.bfloat16, nl.sbuf)], "bfloat16", hbm=True),
        Case("nc_transpose", lambda a, o: nisa.nc_transpose(o, a),
             lambda a: np.ascontiguousarray(a.T), [square], [((P, P), nl.float32, nl.psum)]),
        Case("nc_transpose", lambda a, o: nisa.nc_transpose(o, a, engine=nisa.engine.vector),
             lambda a: np.ascontiguousarray(a.T), [square[:32, :32]],
             [((32, 32), nl.float32, nl.sbuf)], "on the Vector engine"),
        Case("nc_stream_shuffle", lambda a, o: nisa.nc_stream_shuffle(o, a, order),
             lambda a: a[rows], [A], [TILE]),
        Case("local_gather", lambda a, i, o: nisa.local_gather(o, a, i),
             lambda a, i: np.take_along_axis(a, groups, 1), [A, index], [TILE]),
        Case("nc_n_gather", lambda a, i, o: nisa.nc_n_gather(o, a, i),
             lambda a, i: np.take_along_axis(a, i, 1), [A, wide], [TILE]),
    ]  # fmt: skip


def arithmetic() -> list[Case]:
    """Element by element."""
    two = [A, B]
    return [
        Case("tensor_tensor", lambda a, b, o: nisa.tensor_tensor(o, a, b, nl.add), np.add, two,
             [TILE]),
        Case("tensor_tensor", lambda a, b, o: nisa.tensor_tensor(o, a, b, nl.add),
             lambda a, b: np.add(a, b, dtype=np.float32), [A.astype(BF16), B.astype(BF16)],
             [((P, N), nl.bfloat16, nl.sbuf)], "bfloat16"),
        Case("tensor_scalar",
             lambda a, c, o: nisa.tensor_scalar(o, a, nl.multiply, c, op1=nl.add, operand1=2.5),
             lambda a, c: a * c + np.float32(2.5), [A, COL], [TILE]),
        Case("scalar_tensor_tensor",
             lambda a, b, c, o: nisa.scalar_tensor_tensor(o, a, nl.multiply, c, nl.add, b),
             lambda a, b, c: a * c + b, [*two, COL], [TILE]),
        Case("reciprocal", lambda a, o: nisa.reciprocal(o, a), np.reciprocal, [A], [TILE]),
        Case("activation", lambda a, c, o: nisa.activation(o, nl.exp, a, bias=c, scale=0.5),
             lambda a, c: np.exp(a * np.float32(0.5) + c), [A, COL], [TILE]),
        Case("activate2",
             lambda a, c, o: nisa.activate2(o, nl.exp, a, c, c, nl.multiply, nl.add),
             lambda a, c: np.exp(a * c + c), [A, COL], [TILE], platform="trn3"),
        Case("exponential", lambda a, c, o: nisa.exponential(o, a, c),
             lambda a, c: np.exp(a - c), [A, COL], [TILE], platform="trn3"),
        Case("language_math", lambda a, o: nisa.language_math(o, nl.floor, a), np.floor, [A],
             [TILE]),
        Case("dma_compute", lambda a, b, o: nisa.dma_compute(o, [a, b], nl.add), np.add, two,
             [TILE], hbm=True),
        Case("iota", lambda o: nisa.iota(o, [[1, N]], channel_multiplier=3),
             lambda: np.arange(N, dtype=np.int32) + 3 * np.arange(P, dtype=np.int32)[:, None], [],
             [((P, N), nl.int32, nl.sbuf)]),
        Case("affine_select",
             lambda a, o: nisa.affine_select(o, [[-1, N]], 32, a, -1e9, nl.greater),
             lambda a: np.where(32 * np.arange(P)[:, None] > np.arange(N), a, np.float32(-1e9)),
             [A], [TILE]),
        Case("select_reduce", lambda a, m, o: nisa.select_reduce(o, m, a, -1.0),
             lambda a, m: np.where(m, a, np.float32(-1)), [A, MASK], [TILE]),
    ]  # fmt: skip


def reductions() -> list[Case]:
    """Sums, scans, selections with a maximum."""
    bounds = np.tile(np.float32([100, 3000]), (P, 1))
    add = {"reduce_op": nl.add, "reduce_cmd": CMD.reset_reduce}
    return [
        Case("tensor_reduce", lambda a, o: nisa.tensor_reduce(o, nl.add, a, axis=1),
             lambda a: a.sum(1), [A], [ONE]),
        Case("tensor_partition_reduce", lambda a, o: nisa.tensor_partition_reduce(o, nl.add, a),
             lambda a: a.sum(0), [A], [((1, N), nl.float32, nl.sbuf)]),
        Case("activation_reduce",
             lambda a, o, r: nisa.activation_reduce(o, nl.exp, a, nl.add, r), _exp_sum, [A],
             [TILE, ONE]),
        Case("tensor_scalar_reduce",
             lambda a, o, r: nisa.tensor_scalar_reduce(o, a, nl.multiply, 2.0, nl.add, r),
             _twice_sum, [A], [TILE, ONE]),
        Case("tensor_scalar_cumulative",
             lambda a, o: nisa.tensor_scalar_cumulative(o, a, nl.multiply, nl.add, 2.0),
             lambda a: np.cumsum(a * np.float32(2), axis=1), [A], [TILE]),
        Case("tensor_tensor_scan",
             lambda a, b, o: nisa.tensor_tensor_scan(o, a, b, 0.0, nl.multiply, nl.add), _scan,
             [np.clip(A, -0.9, 0.9), B], [TILE]),
        Case("range_select",
             lambda a, b, o, r: nisa.range_select(
                 o, a, nl.greater_equal, nl.less, b[:, 0:1], b[:, 1:2], reduce_res=r),
             _range_select, [A, bounds], [TILE, ONE]),
        Case("select_reduce",
             lambda a, m, o, r: nisa.select_reduce(o, m, a, -1.0, r, CMD.reset_reduce),
             _select_max, [A, MASK], [TILE, ONE], "with maximum"),
        Case("bn_stats", lambda a, o: nisa.bn_stats(o, a), _even_odd, [A[:, :512]],
             [((P, 6), nl.float32, nl.sbuf)]),
        Case("bn_aggr", lambda a, o: nisa.bn_aggr(o, a), _aggregate, [_statistics()],
             [((P, 2), nl.float32, nl.sbuf)]),
        Case("activation", lambda a, o, r: nisa.activation(o, nl.copy, a, reduce_res=r, **add),
             lambda a: (a.copy(), a.sum(1)), [A], [TILE, ONE], "copy with sum"),
    ]  # fmt: skip


def _exp_sum(a):
    e = np.exp(a)
    return e, e.sum(1)


def _twice_sum(a):
    e = a * np.float32(2)
    return e, e.sum(1)


def _scan(a, b):
    out = np.empty_like(a)
    r = np.zeros(len(a), np.float32)
    for n in range(a.shape[1]):
        r = a[:, n] * r + b[:, n]
        out[:, n] = r
    return out


def _range_select(a, b):
    columns = np.arange(a.shape[1], dtype=np.float32)
    out = np.where((columns >= b[:, :1]) & (columns < b[:, 1:]), a, LOW)
    return out, out.max(1)


def _select_max(a, m):
    out = np.where(m, a, np.float32(-1))
    return out, out.max(1)


def _even_odd(a):
    return [f(a[:, n::2], 1) for n in (0, 1) for f in (np.mean, np.var)]


def _statistics():
    blocks = A.reshape(P, -1, 2)
    triples = np.stack([np.full(blocks.shape[:2], 2), blocks.mean(2), 2 * blocks.var(2)], axis=2)
    return triples.reshape(P, -1).astype(np.float32)


def _aggregate(a):
    count, mean, squares = a[:, ::3], a[:, 1::3], a[:, 2::3]
    total = count.sum(1)
    middle = (count * mean).sum(1) / total
    return middle, (squares + count * (mean - middle[:, None]) ** 2).sum(1) / total


def products() -> list[Case]:
    """The Tensor engine and what prepares for it."""
    x, w = normal(6, P, 512), normal(7, P, P)
    dst = ((P, 512), nl.float32, nl.psum)
    x4, w4 = normal(8, P, 4 * 512), normal(9, P, 4 * P)
    kind = nl.float8_e4m3fn_x4
    packed, packed_w = pack_x4(x4, kind), pack_x4(w4, kind)
    scale = np.full((P, 512), 127, np.uint8)

    def mx(a, b, s, o):
        tiles = (b.view(kind), a.view(kind))
        return nisa.nc_matmul_mx(o, *tiles, s[:, 0:P], s)

    def double(a, b, o):
        return nisa.nc_matmul(o, b, a, perf_mode=nisa.matmul_perf_mode.double_row)

    fp8 = ml_dtypes.float8_e5m2
    rows = (x4[:, :1024].reshape(P, 2, 512).astype(fp8), w4[:, :256].reshape(P, 2, P).astype(fp8))
    wide = [unpack_x4(p, kind).reshape(P, -1, 4) for p in (packed_w, packed)]
    flat = [np.ascontiguousarray(v.transpose(0, 2, 1)).reshape(4 * P, -1) for v in wide]
    return [
        Case("nc_matmul", lambda a, b, o: nisa.nc_matmul(o, b, a), lambda a, b: b.T @ a, [x, w],
             [dst]),
        Case("nc_matmul", lambda a, b, o: nisa.nc_matmul(o, b, a), lambda a, b: w.T @ x,
             [x.astype(BF16), w.astype(BF16)], [dst], "bfloat16"),
        Case("nc_matmul", double, _double_row, rows, [dst], "fp8, double_row"),
        Case("nc_matmul_mx", mx, lambda *_: flat[0].T @ flat[1], [packed, packed_w, scale], [dst],
             platform="trn3"),
        Case("quantize_mx", lambda a, o, s: nisa.quantize_mx(o, a, s), _quantize,
             [A[:, :2048].astype(np.float16)], [((P, 512), kind, nl.sbuf),
             ((P, 512), nl.uint8, nl.sbuf)], platform="trn3"),
    ]  # fmt: skip


def _double_row(a, b):
    return b.astype(np.float32).reshape(2 * P, P).T @ a.astype(np.float32).reshape(2 * P, 512)


def _quantize(a):
    groups = a.astype(np.float32).reshape(P // 8, 8, -1, 4)
    peak = np.abs(groups).max(axis=(1, 3), keepdims=True)
    scale = np.exp2(np.floor(np.log2(peak)) - 7)
    return scale, np.rint(groups / scale)


def searches() -> list[Case]:
    """GpSimd's and Vector's searches, and random numbers."""
    long = normal(10, P, 16384)
    eight = -np.sort(-long, axis=1)[:, :8]
    ids = np.sort(np.random.default_rng(11).integers(0, 300, (1, N))).astype(np.float32)
    sparse = (A * (A > 1)).astype(np.float32)
    index = ((P, 8), nl.uint32, nl.sbuf)
    rng = np.random.default_rng(12)
    return [
        Case("max8", lambda a, o: nisa.max8(o, a),
             lambda a: -np.sort(np.partition(-a, 8, axis=1)[:, :8], axis=1), [long],
             [((P, 8), nl.float32, nl.sbuf)]),
        Case("nc_find_index8", lambda a, v, o: nisa.nc_find_index8(o, a, v), _find, [long, eight],
             [index]),
        Case("nc_match_replace8",
             lambda a, v, o, i: nisa.nc_match_replace8(o, a, v, 0.0, i), _replace, [long, eight],
             [((P, 16384), nl.float32, nl.sbuf), index]),
        Case("sequence_bounds", lambda a, o: nisa.sequence_bounds(o, a), _bounds, [ids],
             [((1, 2, N), nl.float32, nl.sbuf)]),
        Case("nonzero_with_count", lambda a, o: nisa.nonzero_with_count(o, a),
             lambda a: [np.flatnonzero(r) for r in a[::16]], [sparse],
             [((P, N + 1), nl.int32, nl.sbuf)]),
        Case("topk", lambda a, v, i: nisa.topk(v, i, a, 32768),
             lambda a: np.argsort(a.astype(np.float32).reshape(8, -1), axis=1)[:, -256:],
             [A[:, :2048].astype(BF16)],
             [((P, 256), nl.bfloat16, nl.sbuf), ((P, 256), nl.uint32, nl.sbuf)]),
        Case("rng", lambda o: nisa.rng(o),
             lambda: rng.integers(0, 2**32, (P, N), np.uint32), [],
             [((P, N), nl.uint32, nl.sbuf)], reason=SEQUENTIAL),
        Case("rand2", lambda o: nisa.rand2(o, 0.0, 1.0), lambda: rng.random((P, N), np.float32),
             [], [TILE], platform="trn3", reason=SEQUENTIAL),
        Case("dropout", lambda a, o: nisa.dropout(o, a, 0.25),
             lambda a: np.where(rng.random((P, N), np.float32) < 0.25, np.float32(0), a), [A],
             [TILE]),
    ]  # fmt: skip


def _find(a, v):
    return np.stack([(a == v[:, k : k + 1]).argmax(1) for k in range(8)], axis=1)


def _replace(a, v):
    where, out = _find(a, v), a.copy()
    np.put_along_axis(out, where, 0, 1)
    return out, where


def _bounds(ids):
    row, places = ids[0], np.arange(ids.shape[1])
    first = np.concatenate([[True], row[1:] != row[:-1]])
    start = np.maximum.accumulate(np.where(first, places, 0))
    last = np.concatenate([first[1:], [True]])
    end = np.minimum.accumulate(np.where(last, places + 1, len(row))[::-1])[::-1]
    return np.where(row == 0, len(row), start), np.where(row == 0, -1, end)


def cases() -> list[Case]:
    return [*moves(), *arithmetic(), *reductions(), *products(), *searches()]
