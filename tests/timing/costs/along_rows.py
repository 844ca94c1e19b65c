"""Reductions, statistics and scans; selections, gathers and random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.timing.costs.rows import (
    BF16,
    F32,
    I32,
    SIZE,
    U16,
    U32,
    P,
    Row,
    cycles,
    narrow,
    ps,
    sb,
    started,
    wide,
)


def reduced(op: Any, dst: Any, data: Any) -> Callable[[], Any]:
    return lambda: nisa.tensor_reduce(dst(), op, data(), axis=1)


REDUCTIONS = [
    Row("tensor_reduce", "float32", reduced(nl.add, wide(1), wide(401)), started(401, SIZE)),
    Row(
        "tensor_reduce",
        "sum of bfloat16",
        reduced(nl.add, narrow(1), narrow(401)),
        started(200.5, SIZE),
    ),
    Row(
        "tensor_reduce",
        "largest",
        reduced(nl.maximum, narrow(1), narrow(401)),
        started(200.5, SIZE),
    ),
    Row(
        "tensor_reduce", "smallest", reduced(nl.minimum, narrow(1), narrow(401)), started(401, SIZE)
    ),
    Row("tensor_reduce", "into float32", reduced(nl.add, wide(1), narrow(401)), started(401, SIZE)),
    Row("tensor_reduce", "from float32", reduced(nl.add, narrow(1), wide(401)), started(401, SIZE)),
    Row(
        "tensor_partition_reduce",
        "GpSimd",
        lambda: nisa.tensor_partition_reduce(sb(401, rows=1), nl.add, sb(401)),
        cycles(551, SIZE, known=False),
    ),
    Row(
        "tensor_scalar_cumulative",
        "",
        lambda: nisa.tensor_scalar_cumulative(sb(401), sb(401), nl.multiply, nl.add, 2.0),
        started(401, 2 * SIZE, known=False),
    ),
    Row(
        "tensor_tensor_scan",
        "two per element",
        lambda: nisa.tensor_tensor_scan(sb(401), sb(401), sb(401), 0.0, nl.multiply, nl.add),
        started(802, 2 * SIZE),
    ),
    Row("bn_stats", "", lambda: nisa.bn_stats(sb(6), sb(401)), started(401, 4 * SIZE)),
    Row("bn_aggr", "13 per triple", lambda: nisa.bn_aggr(sb(2), sb(21)), started(91, 4 * P * 21)),
    Row("max8", "", lambda: nisa.max8(sb(8), sb(401)), started(401)),
    Row(
        "nc_find_index8",
        "",
        lambda: nisa.nc_find_index8(sb(8, dtype=U32), sb(401), sb(8)),
        started(401),
    ),
    Row(
        "nc_match_replace8",
        "",
        lambda: nisa.nc_match_replace8(sb(401), sb(401), sb(8), 0.0),
        started(401),
    ),
    Row(
        "range_select",
        "",
        lambda: nisa.range_select(
            sb(401), sb(401), nl.greater_equal, nl.less, sb(1), sb(1), reduce_res=sb(1)
        ),
        started(1.8 * 401, 4 * SIZE),
    ),
    Row(
        "select_reduce",
        "",
        lambda: nisa.select_reduce(sb(401), sb(401, dtype=nl.uint8), sb(401), 1.0),
        started(401, 2 * SIZE, known=False),
    ),
]


def chosen(src: Any, predicate: Any) -> Callable[[], Any]:
    return lambda: nisa.tensor_copy_predicated(sb(401), src(), predicate())


def shuffled() -> Any:
    return nisa.nc_stream_shuffle(sb(401, rows=32), sb(401, rows=32), [*range(1, 32), 0])


def gathered(dtype: Any, width: int, count: int) -> Callable[[], Any]:
    """`count` runs of `width` elements per group of 16 partitions."""
    return lambda: nisa.local_gather(
        sb(count * width, dtype=dtype, rows=32),
        sb(99, dtype=dtype, rows=32),
        sb(-(-count // 16), dtype=U16, rows=32),
        width,
        count,
    )


# On GpSimd 150 cycles more.
SELECTIONS = [
    Row(
        "tensor_copy_predicated",
        "in SBUF",
        chosen(wide(401), lambda: sb(401, dtype=U32)),
        started(401),
    ),
    Row(
        "tensor_copy_predicated",
        "in SBUF on trn1",
        chosen(wide(401), lambda: sb(401, dtype=U32)),
        started(802),
        "trn1",
    ),
    Row(
        "tensor_copy_predicated",
        "source in PSUM",
        chosen(wide(401, place=ps), lambda: sb(401, dtype=U32)),
        started(401),
    ),
    Row(
        "tensor_copy_predicated",
        "predicate in PSUM",
        chosen(wide(401), lambda: ps(401, dtype=U32)),
        started(401),
    ),
    Row(
        "tensor_copy_predicated",
        "a number",
        chosen(lambda: 1.0, lambda: sb(401, dtype=U32)),
        started(802),
        "trn1",
    ),
    Row("iota", "", lambda: nisa.iota(sb(401, dtype=I32), [[1, 401]]), cycles(551)),
    Row(
        "affine_select",
        "",
        lambda: nisa.affine_select(sb(401), [[1, 401]], 1, sb(401), 0.0),
        cycles(551),
    ),
    Row("nc_stream_shuffle", "", shuffled, started(401)),
    # w neighbours of s bytes each: (28 + 4w) / 4w / min(4 / s, w) elements per cycle.
    Row("local_gather", "4 bytes, one by one", gathered(F32, 1, 40), cycles(150 + 40 / 8)),
    Row(
        "local_gather",
        "2 bytes, by eight",
        gathered(BF16, 8, 40),
        cycles(150 + 320 / (60 / 32 / 2)),
    ),
    Row(
        "local_gather",
        "1 byte, by two",
        gathered(nl.uint8, 2, 40),
        cycles(150 + 80 / (36 / 8 / 2)),
    ),
    Row(
        "nc_n_gather",
        "starts once per 512",
        lambda: nisa.nc_n_gather(sb(1025), sb(401), sb(1025, dtype=U32)),
        cycles(3 * 150 + 1025, known=False),
    ),
    Row(
        "nc_n_gather",
        "and not before",
        lambda: nisa.nc_n_gather(sb(1024), sb(401), sb(1024, dtype=U32)),
        cycles(2 * 150 + 1024, known=False),
    ),
    Row(
        "nonzero_with_count",
        "",
        lambda: nisa.nonzero_with_count(sb(402, dtype=I32), sb(401)),
        cycles(551, known=False),
    ),
    Row(
        "sequence_bounds",
        "two per id",
        lambda: nisa.sequence_bounds(sb(2, 401, rows=1), sb(401, rows=1)),
        cycles(150 + 802, known=False),
    ),
    Row(
        "topk",
        "four per number, and the results",
        lambda: nisa.topk(
            sb(8, dtype=BF16, rows=32), sb(8, dtype=U32, rows=32), sb(99, dtype=BF16, rows=32), 1002
        ),
        cycles(4016),
    ),
]


RANDOM = [
    Row("rng", "", lambda: nisa.rng(sb(401, dtype=U32)), started(401, known=False)),
    Row("rand2", "four at a time", lambda: nisa.rand2(sb(402), 0.0, 1.0), started(100.5), "trn3"),
    Row(
        "set_rng_seed",
        "",
        lambda: nisa.set_rng_seed(sb(1, dtype=U32, rows=1)),
        cycles(64, known=False),
    ),
    Row(
        "rand_set_state",
        "",
        lambda: nisa.rand_set_state(sb(6, dtype=U32, rows=128)),
        cycles(64, known=False),
    ),
    Row(
        "rand_get_state",
        "",
        lambda: nisa.rand_get_state(sb(6, dtype=U32, rows=128)),
        cycles(64, known=False),
    ),
]
