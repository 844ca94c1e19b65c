"""Every instruction's work, by hand: cycles of its engine, bytes and pieces of DMA, operations.

Figures are those of the documents that `nki_dist/arch` names: 64 cycles between two instructions of
an engine and for reading an accumulator, 150 to start one on GpSimd, 4 passes of a float32 matmul,
DMA that computes at half, transposes at 0.9 (from HBM) and 0.5 (from SBUF) of the rate of a copy.
Tiles have 30 partitions, and more elements per partition than 64 unless the row is about that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import arch
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.spec import Cost
from nki_dist.program.instruction import instructions
from tests.compiler.compiling import compiled

P = 30
F32, BF16, I32, U32, U16 = nl.float32, nl.bfloat16, nl.int32, nl.uint32, nl.uint16
CMD, ENGINE = nisa.reduce_cmd, nisa.engine


class Row(NamedTuple):
    """What is special about the case, the instruction, and its cost."""

    opcode: str
    case: str
    issue: Callable[[], Any]
    cost: Cost
    platform: str = "trn2"
    cores: int = 1


def sb(*free: int, dtype: Any = F32, rows: int = P, buffer: Any = nl.sbuf) -> Any:
    return nl.ndarray((rows, *free), dtype=dtype, buffer=buffer)


def ps(*free: int, dtype: Any = F32, rows: int = P) -> Any:
    return sb(*free, dtype=dtype, rows=rows, buffer=nl.psum)


def hbm(*shape: int, dtype: Any = F32) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=nl.private_hbm)


def cycles(count: float, flops: int = 0, known: bool = True) -> Cost:
    return Cost(cycles=count, flops=flops, known=known)


def moves(nbytes: int, pieces: int, **more: Any) -> Cost:
    return Cost(dma_bytes=nbytes, dma_elements=pieces, **more)


def copied(dst: Any, src: Any, engine: Any = ENGINE.vector) -> Callable[[], Any]:
    return lambda: nisa.tensor_copy(dst(), src(), engine=engine)


def narrow(*free: int, place: Any = sb) -> Callable[[], Any]:
    return lambda: place(*free, dtype=BF16)


def wide(*free: int, place: Any = sb) -> Callable[[], Any]:
    return lambda: place(*free)


def every_second(*free: int) -> Callable[[], Any]:
    return lambda: sb(*free, dtype=BF16)[:, 0 : free[0] : 2]


# One element per cycle; four in 16 bits in SBUF, two if one side is in PSUM or not contiguous.
COPIES = [
    Row("tensor_copy", "float32", copied(wide(401), wide(401)), cycles(401)),
    Row("tensor_copy", "at least the issue interval", copied(wide(63), wide(63)), cycles(64)),
    Row("tensor_copy", "16 bits", copied(narrow(402), narrow(402)), cycles(100.5)),
    Row("tensor_copy", "at least, in 16 bits", copied(narrow(255), narrow(255)), cycles(64)),
    Row("tensor_copy", "16 bits to 32", copied(wide(401), narrow(401)), cycles(401)),
    Row("tensor_copy", "32 bits to 16", copied(narrow(401), wide(401)), cycles(401)),
    Row("tensor_copy", "from PSUM", copied(narrow(401), narrow(401, place=ps)), cycles(200.5)),
    Row("tensor_copy", "to PSUM", copied(narrow(401, place=ps), narrow(401)), cycles(200.5)),
    Row(
        "tensor_copy",
        "both in PSUM",
        copied(narrow(401, place=ps), narrow(401, place=ps)),
        cycles(401),
    ),
    Row("tensor_copy", "not contiguous", copied(narrow(401), every_second(802)), cycles(200.5)),
    Row(
        "tensor_copy",
        "not contiguous, to PSUM",
        copied(narrow(401, place=ps), every_second(802)),
        cycles(401),
    ),
    Row(
        "tensor_copy",
        "one element per partition is contiguous",
        copied(narrow(1), lambda: sb(7, dtype=BF16)[:, 3:4]),
        cycles(64),
    ),
    Row("tensor_copy", "Scalar", copied(narrow(401), narrow(401), ENGINE.scalar), cycles(401)),
    Row("tensor_copy", "GpSimd", copied(narrow(401), narrow(401), ENGINE.gpsimd), cycles(401)),
    Row("tensor_copy", "trn1", copied(narrow(401), narrow(401)), cycles(401), "trn1"),
]


def scaled(dst: Any, data: Any, **more: Any) -> Callable[[], Any]:
    return lambda: nisa.tensor_scalar(dst(), data(), nl.multiply, 2.0, **more)


def summed(dst: Any, data1: Any, data2: Any, op: Any = nl.add, **more: Any) -> Callable[[], Any]:
    return lambda: nisa.tensor_tensor(dst(), data1(), data2(), op, **more)


SIZE = P * 401
ARITHMETIC = [
    Row("tensor_scalar", "one operator", scaled(wide(401), wide(401)), cycles(401, SIZE)),
    Row(
        "tensor_scalar",
        "two operators",
        scaled(wide(401), wide(401), op1=nl.add, operand1=1.0),
        cycles(401, 2 * SIZE),
    ),
    Row("tensor_scalar", "16 bits", scaled(narrow(401), narrow(401)), cycles(100.25, SIZE)),
    Row(
        "tensor_scalar",
        "GpSimd",
        lambda: nisa.tensor_scalar(sb(401), sb(401), nl.power, 2.0, engine=ENGINE.gpsimd),
        cycles(150 + 401, SIZE, known=False),
    ),
    Row("tensor_tensor", "float32", summed(wide(401), wide(401), wide(401)), cycles(802, SIZE)),
    Row(
        "tensor_tensor",
        "at least the issue interval",
        summed(wide(31), wide(31), wide(31)),
        cycles(64, P * 31),
    ),
    Row(
        "tensor_tensor",
        "one source in PSUM",
        summed(wide(401), wide(401), wide(401, place=ps)),
        cycles(401, SIZE),
    ),
    Row(
        "tensor_tensor",
        "16 bits",
        summed(narrow(401), narrow(401), narrow(401), nl.maximum),
        cycles(401, SIZE),
    ),
    Row(
        "tensor_tensor",
        "16 bits into PSUM",
        summed(narrow(401, place=ps), narrow(401), narrow(401)),
        cycles(802, SIZE),
    ),
    Row(
        "tensor_tensor",
        "16 bits on GpSimd",
        summed(narrow(401), narrow(401), narrow(401), nl.maximum, engine=ENGINE.gpsimd),
        cycles(802, SIZE),
    ),
    *(
        Row(
            "tensor_tensor",
            f"16 bits, {name} on trn1",
            summed(narrow(401), narrow(401), narrow(401), getattr(nl, name)),
            cycles(count, SIZE),
            "trn1",
        )
        for name, count in (("add", 401), ("multiply", 401), ("subtract", 401), ("maximum", 802))
    ),
    Row(
        "scalar_tensor_tensor",
        "float32",
        lambda: nisa.scalar_tensor_tensor(sb(401), sb(401), nl.subtract, 1.0, nl.multiply, sb(401)),
        cycles(802, 2 * SIZE),
    ),
    *(
        Row(
            "scalar_tensor_tensor",
            f"bfloat16, {first.__name__} and {second.__name__} of {n}",
            lambda n=n, first=first, second=second: nisa.scalar_tensor_tensor(
                sb(n), sb(n, dtype=BF16), first, 1.0, second, sb(n, dtype=BF16)
            ),
            cycles(count, 2 * P * n),
        )
        for first, second, n, count in (
            (nl.subtract, nl.multiply, 402, 402),
            (nl.subtract, nl.multiply, 401, 802),
            (nl.subtract, nl.add, 402, 804),
            (nl.add, nl.multiply, 402, 804),
        )
    ),
    Row(
        "scalar_tensor_tensor",
        "one side in bfloat16",
        lambda: nisa.scalar_tensor_tensor(
            sb(402), sb(402, dtype=BF16), nl.subtract, 1.0, nl.multiply, sb(402)
        ),
        cycles(804, 2 * P * 402),
    ),
    Row(
        "reciprocal", "8 per element", lambda: nisa.reciprocal(sb(401), sb(401)), cycles(3208, SIZE)
    ),
    Row("reciprocal", "at least", lambda: nisa.reciprocal(sb(7), sb(7)), cycles(64, 7 * P)),
    Row(
        "language_math",
        "assumed",
        lambda: nisa.language_math(sb(401), nl.floor, sb(401)),
        cycles(401, SIZE, known=False),
    ),
    Row("memset", "float32", lambda: nisa.memset(sb(401), 0), cycles(401)),
    Row("memset", "16 bits of zeros", lambda: nisa.memset(sb(401, dtype=BF16), 0), cycles(200.5)),
    Row("memset", "16 bits of ones", lambda: nisa.memset(sb(401, dtype=BF16), 1), cycles(401)),
    Row("dropout", "", lambda: nisa.dropout(sb(401), sb(401), 0.5), cycles(401)),
]


def active(n: int, **more: Any) -> Callable[[], Any]:
    if "reduce_op" in more:
        return lambda: nisa.activation(
            sb(n), nl.exp, sb(n), reduce_res=sb(1), reduce_cmd=CMD.reset_reduce, **more
        )
    return lambda: nisa.activation(sb(n), nl.exp, sb(n), **more)


# 64 more for an instruction that reads the accumulator.
ACTIVATIONS = [
    Row("activation", "", active(401), cycles(401, 3 * SIZE)),
    Row("activation", "with a sum", active(401, reduce_op=nl.add), cycles(465, 3 * SIZE)),
    Row("activation", "short", active(63, reduce_op=nl.add), cycles(128, 3 * P * 63)),
    Row(
        "activation_reduce",
        "",
        lambda: nisa.activation_reduce(sb(401), nl.exp, sb(401), nl.add, sb(1)),
        cycles(465, 4 * SIZE),
    ),
    Row(
        "activate2",
        "",
        lambda: nisa.activate2(sb(401), nl.exp, sb(401), 1.0, 2.0, nl.multiply, nl.add),
        cycles(401, 4 * SIZE, known=False),
        "trn3",
    ),
    Row(
        "activate2",
        "with a sum",
        lambda: nisa.activate2(
            sb(401),
            nl.exp,
            sb(401),
            1.0,
            2.0,
            nl.multiply,
            nl.add,
            reduce_op=nl.add,
            reduce_res=sb(1),
            reduce_cmd=CMD.reset_reduce,
        ),
        cycles(465, 4 * SIZE, known=False),
        "trn3",
    ),
    Row(
        "exponential",
        "four at a time",
        lambda: nisa.exponential(sb(402), sb(402)),
        cycles(100.5, 2 * P * 402),
        "trn3",
    ),
    Row(
        "tensor_scalar_reduce",
        "",
        lambda: nisa.tensor_scalar_reduce(sb(401), sb(401), nl.multiply, 2.0, nl.add, sb(1)),
        cycles(465, 2 * SIZE),
    ),
]


def reduced(op: Any, dst: Any, data: Any) -> Callable[[], Any]:
    return lambda: nisa.tensor_reduce(dst(), op, data(), axis=1)


REDUCTIONS = [
    Row("tensor_reduce", "float32", reduced(nl.add, wide(1), wide(401)), cycles(401, SIZE)),
    Row(
        "tensor_reduce",
        "sum of bfloat16",
        reduced(nl.add, narrow(1), narrow(401)),
        cycles(200.5, SIZE),
    ),
    Row(
        "tensor_reduce", "largest", reduced(nl.maximum, narrow(1), narrow(401)), cycles(200.5, SIZE)
    ),
    Row(
        "tensor_reduce", "smallest", reduced(nl.minimum, narrow(1), narrow(401)), cycles(401, SIZE)
    ),
    Row("tensor_reduce", "into float32", reduced(nl.add, wide(1), narrow(401)), cycles(401, SIZE)),
    Row("tensor_reduce", "from float32", reduced(nl.add, narrow(1), wide(401)), cycles(401, SIZE)),
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
        cycles(401, 2 * SIZE, known=False),
    ),
    Row(
        "tensor_tensor_scan",
        "two per element",
        lambda: nisa.tensor_tensor_scan(sb(401), sb(401), sb(401), 0.0, nl.multiply, nl.add),
        cycles(802, 2 * SIZE),
    ),
    Row("bn_stats", "", lambda: nisa.bn_stats(sb(6), sb(401)), cycles(401, 4 * SIZE)),
    Row("bn_aggr", "13 per triple", lambda: nisa.bn_aggr(sb(2), sb(21)), cycles(91, 4 * P * 21)),
    Row("bn_aggr", "at least", lambda: nisa.bn_aggr(sb(2), sb(12)), cycles(64, 4 * P * 12)),
    Row("max8", "", lambda: nisa.max8(sb(8), sb(401)), cycles(401)),
    Row(
        "nc_find_index8",
        "",
        lambda: nisa.nc_find_index8(sb(8, dtype=U32), sb(401), sb(8)),
        cycles(401),
    ),
    Row(
        "nc_match_replace8",
        "",
        lambda: nisa.nc_match_replace8(sb(401), sb(401), sb(8), 0.0),
        cycles(401),
    ),
    Row(
        "range_select",
        "",
        lambda: nisa.range_select(
            sb(401), sb(401), nl.greater_equal, nl.less, sb(1), sb(1), reduce_res=sb(1)
        ),
        cycles(401, 4 * SIZE),
    ),
    Row(
        "select_reduce",
        "",
        lambda: nisa.select_reduce(sb(401), sb(401, dtype=nl.uint8), sb(401), 1.0),
        cycles(401, 2 * SIZE, known=False),
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
        cycles(802),
    ),
    Row(
        "tensor_copy_predicated",
        "source in PSUM",
        chosen(wide(401, place=ps), lambda: sb(401, dtype=U32)),
        cycles(401),
    ),
    Row(
        "tensor_copy_predicated",
        "predicate in PSUM",
        chosen(wide(401), lambda: ps(401, dtype=U32)),
        cycles(401),
    ),
    Row(
        "tensor_copy_predicated",
        "a number",
        chosen(lambda: 1.0, lambda: sb(401, dtype=U32)),
        cycles(802),
    ),
    Row("iota", "", lambda: nisa.iota(sb(401, dtype=I32), [[1, 401]]), cycles(551)),
    Row(
        "affine_select",
        "",
        lambda: nisa.affine_select(sb(401), [[1, 401]], 1, sb(401), 0.0),
        cycles(551),
    ),
    Row("nc_stream_shuffle", "", shuffled, cycles(401)),
    # w neighbours of s bytes each: (28 + 4w) / 4w / min(4 / s, w) elements per cycle.
    Row("local_gather", "4 bytes, one by one", gathered(F32, 1, 40), cycles(150 + 40 / 8)),
    Row(
        "local_gather",
        "2 bytes, by eight",
        gathered(BF16, 8, 40),
        cycles(150 + 320 / (60 / 32 / 2)),
    ),
    Row(
        "local_gather", "1 byte, by two", gathered(nl.uint8, 2, 40), cycles(150 + 80 / (36 / 8 / 2))
    ),
    Row(
        "nc_n_gather",
        "starts once per 512",
        lambda: nisa.nc_n_gather(sb(1025), sb(401), sb(1025, dtype=U32)),
        cycles(3 * 150 + 1025, known=False),
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
            sb(8, dtype=BF16, rows=32), sb(8, dtype=U32, rows=32), sb(99, dtype=BF16, rows=32), 1000
        ),
        cycles(4008),
    ),
]


RANDOM = [
    Row("rng", "", lambda: nisa.rng(sb(401, dtype=U32)), cycles(401, known=False)),
    Row("rand2", "four at a time", lambda: nisa.rand2(sb(402), 0.0, 1.0), cycles(100.5), "trn3"),
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


def product(n: int, columns: int, dtype: Any = BF16, rows: int = P, **more: Any) -> Any:
    return lambda: nisa.nc_matmul(
        ps(n, rows=columns),
        sb(columns, dtype=dtype, rows=rows),
        sb(n, dtype=dtype, rows=rows),
        **more,
    )


def double(n: int, columns: int) -> Any:
    tiles = [lambda k=k: sb(2, k, dtype=nl.float8_e5m2) for k in (columns, n)]
    return lambda: nisa.nc_matmul(
        ps(n, rows=columns), *(t() for t in tiles), perf_mode=nisa.matmul_perf_mode.double_row
    )


def scaled_product() -> Any:
    packed = nl.float8_e4m3fn_x4
    scales = [sb(n, dtype=nl.uint8, rows=32) for n in (20, 300)]
    return nisa.nc_matmul_mx(
        ps(300, rows=20), sb(20, dtype=packed, rows=32), sb(300, dtype=packed, rows=32), *scales
    )


def turned(n: int, rows: int, engine: Any, place: Any = sb) -> Any:
    return lambda: nisa.nc_transpose(place(rows, rows=n), sb(n, rows=rows), engine=engine)


PASS = 2 * P * 50 * 301  # operations of the products below
PRODUCTS = [
    Row("nc_matmul", "a row per cycle", product(301, 50), cycles(301, PASS)),
    Row("nc_matmul", "few rows: its columns", product(9, 50), cycles(50, 2 * P * 50 * 9)),
    Row("nc_matmul", "few rows, many columns", product(9, 101), cycles(64, 2 * P * 101 * 9)),
    Row("nc_matmul", "float32", product(301, 50, F32), cycles(4 * 301, PASS)),
    Row(
        "nc_matmul",
        "float32 of ones and zeros",
        product(301, 50, F32, is_moving_onezero=True),
        cycles(2 * 301, PASS),
    ),
    Row(
        "nc_matmul",
        "float32 by ones and zeros",
        product(301, 50, F32, is_stationary_onezero=True),
        cycles(2 * 301, PASS),
    ),
    Row(
        "nc_matmul",
        "ones and zeros in bfloat16",
        product(301, 50, is_moving_onezero=True),
        cycles(301, PASS),
    ),
    Row("nc_matmul", "two rows at a time", double(301, 50), cycles(301, 2 * PASS)),
    Row("nc_matmul_mx", "", scaled_product, cycles(300, 8 * 32 * 20 * 300, known=False), "trn3"),
    Row("nc_transpose", "Tensor", turned(20, 101, ENGINE.tensor, ps), cycles(101)),
    Row("nc_transpose", "Tensor, few rows", turned(101, 20, ENGINE.tensor, ps), cycles(64)),
    Row("nc_transpose", "Vector", turned(32, 30, ENGINE.vector), cycles(64)),
    Row(
        "quantize_mx",
        "four at a time",
        lambda: nisa.quantize_mx(
            sb(101, dtype=nl.float8_e4m3fn_x4, rows=32),
            sb(404, dtype=BF16, rows=32),
            sb(101, dtype=nl.uint8, rows=32),
        ),
        cycles(101),
        "trn3",
    ),
]  # fmt: skip


def registers(which: str) -> Callable[[], Any]:
    def issue() -> Any:
        register, cell = nisa.register_alloc(), hbm(1, 1, dtype=I32)
        nisa.register_move(register, 3)
        nisa.register_store(cell, register)
        return nisa.register_load(register, cell)

    return issue


def ring_rank() -> Any:
    group = ncc.ReplicaGroup([[0]])
    return ncc.collective_permute_implicit_current_processing_rank_id(0, group)


def met() -> Any:
    return nisa.core_barrier(nl.ndarray((4, 4), F32, buffer=nl.shared_hbm), (0, 1))


def swapped() -> Any:
    other = 1 - nl.program_id(0)
    return nisa.sendrecv(sb(5), sb(5), send_to_rank=other, recv_from_rank=other, pipe_id=0)


# A piece is a run of bytes that one descriptor can name: on chip at most a partition's.
TRANSFERS = [
    Row("dma_copy", "HBM to SBUF", lambda: nisa.dma_copy(sb(7), hbm(P, 7)), moves(840, P)),
    Row("dma_copy", "within HBM", lambda: nisa.dma_copy(hbm(6, 7), hbm(6, 7)), moves(168, 1)),
    Row(
        "dma_copy",
        "widened: the larger side",
        lambda: nisa.dma_copy(hbm(6, 7), hbm(6, 7, dtype=BF16)),
        moves(168, 1),
    ),
    Row(
        "dma_copy",
        "narrowed: the larger side",
        lambda: nisa.dma_copy(hbm(6, 7, dtype=BF16), hbm(6, 7)),
        moves(168, 1),
    ),
    Row(
        "dma_copy",
        "rows of a larger tensor",
        lambda: nisa.dma_copy(hbm(6, 5), hbm(6, 7)[:, 1:6]),
        moves(120, 6),
    ),
    Row(
        "dma_copy",
        "single elements",
        lambda: nisa.dma_copy(hbm(6, 3), hbm(6, 7)[:, 0:5:2]),
        moves(72, 18),
    ),
    Row(
        "dma_copy",
        "whole rows, one after the other",
        lambda: nisa.dma_copy(hbm(2, 3, 7), hbm(2, 5, 7)[:, 1:4]),
        moves(168, 2),
    ),
    Row(
        "dma_compute",
        "twice the bytes of all sources, pieces of both sides",
        lambda: nisa.dma_compute(hbm(6, 5), [hbm(6, 5), hbm(6, 7)[:, 1:6]], nl.add),
        moves(2 * 240, 1 + 6 + 1, flops=30),
    ),
    Row(
        "dma_transpose",
        "from HBM",
        lambda: nisa.dma_transpose(sb(27, dtype=BF16, rows=10), hbm(27, 10, dtype=BF16)),
        moves(600, 10, figures=("dma_transpose_hbm_fraction",)),
    ),
    Row(
        "dma_transpose",
        "from SBUF",
        lambda: nisa.dma_transpose(sb(27, dtype=BF16, rows=10), sb(10, dtype=BF16, rows=27)),
        moves(1080, 27, figures=("dma_transpose_sbuf_fraction",)),
    ),
    Row("sendrecv", "a piece per partition", swapped, moves(600, P, known=False), cores=2),
    Row("core_barrier", "", met, cycles(64, known=False), cores=2),
    Row("device_print", "", lambda: nisa.device_print("x", hbm(2, 3)), cycles(64, known=False)),
    *(
        Row(f"register_{name}", "", registers(name), cycles(64, known=False))
        for name in ("move", "load", "store")
    ),
    Row("read_rank_id", "", ncc.rank_id, cycles(64, known=False)),
    Row("read_ring_rank_id", "", ring_rank, cycles(64, known=False)),
]

ROWS = [
    *COPIES, *ARITHMETIC, *ACTIVATIONS, *REDUCTIONS, *SELECTIONS, *RANDOM, *PRODUCTS, *TRANSFERS
]  # fmt: skip


def priced(opcode: str, issue: Callable[[], Any], platform: str = "trn2", cores: int = 1) -> Cost:
    """The cost of the last instruction of that kind that `issue` issues."""

    def kernel():
        issue()

    program = compiled(kernel, lnc=cores, platform=platform).programs[0]
    found = [i for i in instructions(program.body) if i.opcode == opcode]
    return INSTRUCTIONS[opcode].price(found[-1], arch.get(platform))


SHORT = 2 * 31  # elements: less than an issue interval
AT_LEAST = {
    "activation": lambda: nisa.activation(sb(SHORT), nl.exp, sb(SHORT)),
    "bn_stats": lambda: nisa.bn_stats(sb(6), sb(SHORT)),
    "dropout": lambda: nisa.dropout(sb(SHORT), sb(SHORT), 0.5),
    "language_math": lambda: nisa.language_math(sb(SHORT), nl.floor, sb(SHORT)),
    "max8": lambda: nisa.max8(sb(8), sb(SHORT)),
    "memset": lambda: nisa.memset(sb(SHORT), 0),
    "nc_find_index8": lambda: nisa.nc_find_index8(sb(8, dtype=U32), sb(SHORT), sb(8)),
    "nc_match_replace8": lambda: nisa.nc_match_replace8(sb(SHORT), sb(SHORT), sb(8), 0.0),
    "nc_stream_shuffle": lambda: nisa.nc_stream_shuffle(
        sb(SHORT, rows=32), sb(SHORT, rows=32), list(range(32))
    ),
    "range_select": lambda: nisa.range_select(
        sb(SHORT), sb(SHORT), nl.greater_equal, nl.less, sb(1), sb(1), reduce_res=sb(1)
    ),
    "rng": lambda: nisa.rng(sb(SHORT, dtype=U32)),
    "scalar_tensor_tensor": lambda: nisa.scalar_tensor_tensor(
        sb(31), sb(31), nl.subtract, 1.0, nl.multiply, sb(31)
    ),
    "select_reduce": lambda: nisa.select_reduce(
        sb(SHORT), sb(SHORT, dtype=nl.uint8), sb(SHORT), 1.0
    ),
    "tensor_copy_predicated": lambda: nisa.tensor_copy_predicated(
        sb(31), sb(31), sb(31, dtype=U32)
    ),
    "tensor_reduce": lambda: nisa.tensor_reduce(sb(1), nl.add, sb(SHORT), axis=1),
    "tensor_scalar": lambda: nisa.tensor_scalar(sb(SHORT), sb(SHORT), nl.multiply, 2.0),
    "tensor_scalar_cumulative": lambda: nisa.tensor_scalar_cumulative(
        sb(SHORT), sb(SHORT), nl.multiply, nl.add, 2.0
    ),
    "tensor_tensor_scan": lambda: nisa.tensor_tensor_scan(
        sb(31), sb(31), sb(31), 0.0, nl.multiply, nl.add
    ),
}


@pytest.mark.parametrize("opcode", AT_LEAST)
def test_an_instruction_keeps_its_engine_for_the_issue_interval(opcode):
    assert priced(opcode, AT_LEAST[opcode]).cycles == 64


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.opcode} {row.case}".strip())
def test_cost(row: Row):
    assert priced(row.opcode, row.issue, row.platform, row.cores) == row.cost


def test_every_instruction_is_here():
    """Collectives are priced by their stages: test_collectives."""
    assert {row.opcode for row in ROWS} == {
        name for name, spec in INSTRUCTIONS.items() if spec.engines != ("cc",)
    }
