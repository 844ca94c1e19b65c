"""Documented constraints that no other test pairs: accepted up to the limit, refused past it.

Of the instructions with the longest pages. Compiled only: what accepted ones compute is checked by
the other tests of this folder. The rest of their constraints is in test_nc_matmul, test_mx,
test_activation, test_accumulators, test_transposes, test_tensor_scalar, test_tensor_reduce,
test_patterns, test_gathers, test_dma_compute, test_vector_offsets and test_indirection*.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import CompileError, NkiError, NkiValidationError
from tests.compiler.compiling import compiled

F32, BF16, I32, U32 = nl.float32, nl.bfloat16, nl.int32, nl.uint32
E4M3, E5M2, FN = nl.float8_e4m3, nl.float8_e5m2, nl.float8_e4m3fn
CMD, DGE, ENGINE = nisa.reduce_cmd, nisa.dge_mode, nisa.engine


def sb(*shape: int, dtype: Any = F32) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


def ps(*shape: int, dtype: Any = F32) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=nl.psum)


def hbm(*shape: int, dtype: Any = F32) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=nl.private_hbm)


class Rule(NamedTuple):
    """What is documented, an instruction that keeps to it, one that doesn't, and the message."""

    says: str
    kept: Callable[[], Any]
    broken: Callable[[], Any]
    message: str
    platform: str = "trn2"
    kept_on: str = ""  # another platform for `kept`


def matmul(k=32, m=16, n=20, dst=F32, left=BF16, right=BF16, places=(sb, sb, ps), **options):
    a, b = places[0](k, m, dtype=left), places[1](k, n, dtype=right)
    nisa.nc_matmul(places[2](m, n, dtype=dst), a, b, **options)


def double(left=E4M3, right=E5M2, **options):
    a, b = sb(64, 2, 16, dtype=left), sb(64, 2, 20, dtype=right)
    nisa.nc_matmul(ps(16, 20), a, b, perf_mode="double_row", **options)


def mx(dst=F32, place=ps, scales=sb, data=sb, rows=32, columns=16):
    kind = nl.float8_e4m3fn_x4
    a, b = data(rows, columns, dtype=kind), data(rows, 20, dtype=kind)
    used = (rows - 1) // 32 * 32 + 4  # 4 partitions of each quadrant
    sa, sc = (scales(used, n, dtype=nl.uint8) for n in (columns, 20))
    nisa.nc_matmul_mx(place(columns, 20, dtype=dst), a, b, sa, sc)


MATMUL = [
    Rule(
        "stationary is in SBUF",
        matmul,
        lambda: matmul(places=(ps, sb, ps)),
        "stationary is in psum",
    ),
    Rule("moving is in SBUF", matmul, lambda: matmul(places=(sb, ps, ps)), "moving is in psum"),
    Rule(
        "4096 moving elements with a float32 dst on v4",
        lambda: matmul(n=4096),
        lambda: nisa.nc_matmul(
            ps(16, 4096).expand_dim(1).broadcast(1, 2), sb(32, 16), sb(32, 8192)
        ),
        "moving has 8192 elements .* at most 4096",
        "trn3",
    ),
    Rule(
        "8192 moving elements with a bfloat16 dst on v4",
        lambda: matmul(n=8192, dst=BF16),
        lambda: nisa.nc_matmul(
            ps(16, 8192, dtype=BF16).expand_dim(1).broadcast(1, 2),
            sb(32, 16, dtype=BF16),
            sb(32, 16384, dtype=BF16),
        ),
        "moving has 16384 elements .* at most 8192",
        "trn3",
    ),
    Rule(
        "double_row takes float8_e4m3fn from v4 on",
        lambda: double(FN, E5M2),
        lambda: double(FN, E5M2),
        "float8_e4m3fn in nc_matmul needs NeuronCore-v4",
        kept_on="trn3",
    ),
    Rule(
        "double_row doesn't mix the two e4m3 formats",
        lambda: double(FN, FN),
        lambda: double(FN, E4M3),
        "e4m3 formats can't be mixed",
        "trn3",
    ),
    Rule(
        "start_column below 128",
        lambda: matmul(tile_size=(32, 32), tile_position=(0, 96)),
        lambda: matmul(tile_size=(32, 32), tile_position=(0, 128)),
        "tile_position column 128",
    ),
    Rule(
        "start_column is a multiple of column_size",
        lambda: matmul(tile_size=(32, 64), tile_position=(0, 64)),
        lambda: matmul(tile_size=(32, 64), tile_position=(0, 32)),
        "tile_position column 32; allowed: multiples",
    ),
    Rule("mx: dst is in PSUM", lambda: mx(BF16), lambda: mx(place=sb), "dst is in sbuf", "trn3"),
    Rule("mx: data is in SBUF", mx, lambda: mx(data=ps), "stationary is in psum", "trn3"),
    Rule("mx: scales are in SBUF", mx, lambda: mx(scales=ps), "scale is in psum", "trn3"),
    Rule(
        "mx: at most 128 stationary columns",
        lambda: mx(columns=128),
        lambda: mx(columns=130),
        "130 partitions in a psum tensor",
        "trn3",
    ),
    Rule(
        "mx: partitions are a multiple of 32",
        lambda: mx(rows=96),
        lambda: mx(rows=48),
        "48",
        "trn3",
    ),
]


def copy(dst=sb, src=sb, to=(8, 6), dtype=F32, **options):
    nisa.dma_copy(dst(*to), src(8, 6, dtype=dtype), **options)


def gathered(index, table=hbm, **options):
    rows, offsets = table(64, 6), index()
    nisa.memset(offsets, 3)
    nisa.dma_copy(
        sb(8, 6), rows.ap([[6, 8], [1, 6]], vector_offset=offsets, indirect_dim=0), **options
    )


DMA = [
    Rule("dma_copy: SBUF or HBM, dst", lambda: copy(hbm), lambda: copy(ps), "dst is in psum"),
    Rule(
        "dma_copy: SBUF or HBM, src", lambda: copy(sb, hbm), lambda: copy(sb, ps), "src is in psum"
    ),
    Rule(
        "dma_copy: as many elements",
        lambda: copy(to=(6, 8)),
        lambda: copy(to=(6, 9)),
        r"dst has 54 elements \(shape \(6, 9\)\), src 48",
    ),
    Rule(
        "dma_copy: any types",
        lambda: copy(dtype=I32),
        lambda: copy(dtype=nl.float8_e5m2_x4),
        "DMA doesn't convert packed",
    ),
    Rule(
        "dma_copy: priority 0 to 3",
        lambda: (copy(priority=0), copy(priority=3)),
        lambda: copy(priority=4),
        "priority=4; allowed: 0 to 3",
        "trn3",
    ),
    Rule(
        "dma_copy: priority from v4 on",
        lambda: copy(priority=1),
        lambda: copy(priority=1),
        "priority needs NeuronCore-v4",
        kept_on="trn3",
    ),
    Rule(
        "dma_copy: hwdge from v3 on",
        lambda: copy(dge_mode=DGE.hwdge),
        lambda: copy(dge_mode=DGE.hwdge),
        "dge_mode.hwdge needs NeuronCore-v3",
        "trn1",
        kept_on="trn2",
    ),
    Rule(
        "dma_copy: engine is for hwdge",
        lambda: copy(dge_mode=DGE.hwdge, engine=ENGINE.sync),
        lambda: copy(dge_mode=DGE.swdge, engine=ENGINE.sync),
        "engine=sync is only for dge_mode.hwdge",
    ),
    Rule(
        "dma_copy: engine sync or scalar",
        lambda: copy(dge_mode=DGE.hwdge, engine=ENGINE.scalar),
        lambda: copy(dge_mode=DGE.hwdge, engine=ENGINE.vector),
        "engine=vector; allowed",
    ),
    Rule(
        "dma_copy: the indexed tensor is in HBM",
        lambda: gathered(lambda: sb(8, 1, dtype=U32)),
        lambda: gathered(lambda: sb(8, 1, dtype=U32), table=sb),
        "HBM",
    ),
    Rule(
        "dma_copy: the indices are in SBUF",
        lambda: gathered(lambda: sb(8, 1, dtype=I32)),
        lambda: gathered(lambda: hbm(8, 1, dtype=I32)),
        "SBUF|sbuf",
    ),
    Rule(
        "dma_copy: one kind of offset at a time",
        lambda: hbm(64, 6).ap([[6, 8], [1, 6]], scalar_offset=sb(1, 1, dtype=I32)),
        lambda: hbm(64, 6).ap(
            [[6, 8], [1, 6]],
            scalar_offset=sb(1, 1, dtype=I32),
            vector_offset=sb(8, 1, dtype=I32),
        ),
        "scalar_offset|both",
    ),
    Rule(
        "dma_compute: SBUF or HBM",
        lambda: nisa.dma_compute(hbm(4, 6), [sb(4, 6), hbm(4, 6)], nl.add),
        lambda: nisa.dma_compute(sb(4, 6), [sb(4, 6), ps(4, 6)], nl.add),
        "psum",
    ),
    Rule(
        "dma_compute: 16 sources",
        lambda: nisa.dma_compute(sb(4, 6), [sb(4, 6) for _ in range(16)], nl.add),
        lambda: nisa.dma_compute(sb(4, 6), [sb(4, 6) for _ in range(17)], nl.add),
        "17 tensors",
    ),
]


def activate2(imm0=1.0, imm1=2.0, dst=(8, 6), place=sb, **options):
    given = {"op0": nl.multiply, "op1": nl.add, **options}
    immediates = [i() if callable(i) else i for i in (imm0, imm1)]
    for name in ("relu_param", "reduce_res"):
        if callable(given.get(name)):
            given[name] = given[name]()
    nisa.activate2(place(*dst), nl.exp, sb(8, 6), *immediates, **given)


def column(rows=8, dtype=F32):
    return lambda: sb(rows, 1, dtype=dtype)


def exponential(dst=F32, src=F32, shape=(8, 6), **options):
    given = {n: v() if callable(v) else v for n, v in options.items()}
    nisa.exponential(sb(*shape, dtype=dst), sb(*shape, dtype=src), **given)


ACTIVATIONS = [
    Rule(
        "activate2: immediates of one type",
        lambda: activate2(column(dtype=BF16), column(dtype=BF16)),
        lambda: activate2(column(dtype=BF16), column()),
        "imm0 has dtype bfloat16, imm1 float32; they must be equal",
        "trn3",
    ),
    Rule(
        "activate2: immediates of one type, if both are tiles",
        lambda: activate2(column(dtype=BF16), 1.0),
        lambda: activate2(column(7), 1.0),
        r"imm0 has shape \(7, 1\)",
        "trn3",
    ),
    Rule(
        "activate2: partitions agree",
        lambda: activate2(dst=(8, 2, 3)),
        lambda: activate2(dst=(7, 6)),
        "same number of partitions",
        "trn3",
    ),
    Rule(
        "activate2: elements agree",
        lambda: activate2(place=ps),
        lambda: activate2(dst=(8, 5)),
        "same number of elements",
        "trn3",
    ),
    Rule(
        "activate2: reverse0 needs op0",
        lambda: activate2(op0=nl.subtract, op1=nl.bypass, reverse0=True),
        lambda: activate2(op0=nl.bypass, op1=nl.bypass, reverse0=True),
        "reverse0=True with op0=bypass",
        "trn3",
    ),
    Rule(
        "activate2: op1 needs op0",
        lambda: activate2(op0=nl.add, op1=nl.bypass),
        lambda: activate2(op0=nl.bypass, op1=nl.add),
        "op0=bypass, op1=add; allowed pairs",
        "trn3",
    ),
    Rule(
        "activate2: relu_param is a number or a column",
        lambda: activate2(relu_param=column()),
        lambda: activate2(relu_param=lambda: sb(8, 2)),
        r"relu_param has shape \(8, 2\)",
        "trn3",
    ),
    Rule(
        "activate2: reduce_res is a column",
        lambda: activate2(reduce_res=column(), reduce_op=nl.abs_max, reduce_cmd=CMD.reduce),
        lambda: activate2(reduce_res=lambda: sb(8, 2), reduce_op=nl.add, reduce_cmd=CMD.reduce),
        r"reduce_res has shape \(8, 2\)",
        "trn3",
    ),
    Rule(
        "activate2: commands",
        lambda: activate2(reduce_cmd=CMD.reset),
        lambda: activate2(reduce_cmd=CMD.load_reduce, reduce_op=nl.add),
        "reduce_cmd=load_reduce; allowed",
        "trn3",
    ),
    Rule(
        "exponential: types of dst",
        lambda: exponential(dst=nl.tfloat32),
        lambda: exponential(dst=U32),
        "dst has dtype uint32; allowed",
        "trn3",
    ),
    Rule(
        "exponential: types of src",
        lambda: exponential(src=U32),
        lambda: exponential(src=nl.tfloat32),
        "src has dtype tfloat32; allowed",
        "trn3",
    ),
    Rule(
        "exponential: 4 dimensions",
        lambda: exponential(shape=(8, 2, 3, 4)),
        lambda: exponential(shape=(8, 1, 2, 3, 4)),
        "dst has 5 dimensions; allowed: up to 4",
        "trn3",
    ),
    Rule(
        "exponential: max_value is float32",
        lambda: exponential(max_value=column()),
        lambda: exponential(max_value=column(dtype=BF16)),
        "max_value has dtype bfloat16; allowed: float32",
        "trn3",
    ),
    Rule(
        "exponential: reduce_init is float32",
        lambda: exponential(reduce_cmd=CMD.load_reduce, reduce_init=column()),
        lambda: exponential(reduce_cmd=CMD.load_reduce, reduce_init=column(dtype=BF16)),
        "reduce_init has dtype bfloat16; allowed: float32",
        "trn3",
    ),
    Rule(
        "exponential: types of reduce_res",
        lambda: exponential(reduce_res=column(dtype=E5M2)),
        lambda: exponential(reduce_res=column(dtype=I32)),
        "reduce_res has dtype int32; allowed",
        "trn3",
    ),
    Rule(
        "exponential: one sum per partition",
        lambda: exponential(reduce_res=column()),
        lambda: exponential(reduce_res=column(7)),
        r"reduce_res has shape \(7, 1\)",
        "trn3",
    ),
    Rule(
        "activation: not from HBM",
        lambda: nisa.activation(ps(8, 6), nl.exp, ps(8, 6)),
        lambda: nisa.activation(sb(8, 6), nl.exp, hbm(8, 6)),
        "data is in private_hbm",
    ),
    Rule(
        "activation: partitions agree",
        lambda: nisa.activation(sb(8, 6), nl.exp, sb(8, 2, 3)),
        lambda: nisa.activation(sb(7, 6), nl.exp, sb(8, 6)),
        "same number of partitions",
    ),
    Rule(
        "activation_reduce: adds on v2",
        lambda: nisa.activation_reduce(sb(8, 6), nl.exp, sb(8, 6), nl.add, sb(8, 1), sb(8, 1)),
        lambda: nisa.activation_reduce(sb(8, 6), nl.exp, sb(8, 6), nl.maximum, sb(8, 1), sb(8, 1)),
        "reduce_op=nl.maximum; allowed",
        "trn1",
    ),
    Rule(
        "activation_reduce: one result per partition",
        lambda: nisa.activation_reduce(sb(8, 6), nl.exp, sb(8, 6), nl.add, ps(8, 1)),
        lambda: nisa.activation_reduce(sb(8, 6), nl.exp, sb(8, 6), nl.add, sb(8, 2)),
        r"reduce_res has shape \(8, 2\)",
    ),
]


def selected(data=F32, bounds=(8, 8), dtype=F32, res=(8, 1), value=..., **options):
    nisa.range_select(
        sb(8, 6),
        sb(8, 6, dtype=data),
        nl.less,
        nl.greater_equal,
        sb(bounds[0], 1, dtype=dtype),
        sb(bounds[1], 1),
        reduce_res=sb(*res),
        on_false_value=value,
        **options,
    )


def masked(pattern=((1, 6),), dst=(8, 6), src=(8, 6), place=sb, **options):
    nisa.affine_select(
        place(*dst), [list(p) for p in pattern], 1, sb(*src, dtype=BF16), -1.0, nl.less, **options
    )


def nonzero(dst=(128, 7), src=(128, 6), place=sb, dtype=I32, **options):
    nisa.nonzero_with_count(sb(*dst, dtype=I32), place(*src, dtype=dtype), **options)


def scalar_reduce(op0=nl.multiply, operand0=2.0, reduce_op=nl.add, res=(8, 1), **options):
    nisa.tensor_scalar_reduce(
        sb(8, 6), sb(8, 6), op0, operand0, reduce_op, sb(*res) if res else None, **options
    )


SELECTS = [
    Rule(
        "range_select: floats",
        lambda: selected(data=E5M2),
        lambda: selected(data=I32),
        "on_true_tile has dtype int32; allowed",
    ),
    Rule(
        "range_select: float32 bounds",
        selected,
        lambda: selected(dtype=BF16),
        "bound0 has dtype bfloat16",
    ),
    Rule(
        "range_select: a bound per partition",
        selected,
        lambda: selected(bounds=(8, 7)),
        r"bound1 has shape \(7, 1\)",
    ),
    Rule(
        "range_select: numbers up to 2**24",
        lambda: selected(range_start=2**24 - 5),
        lambda: selected(range_start=2**24 - 4),
        "columns are numbered 16777212 to 16777217",
    ),
    Rule(
        "range_select: fills with float32's lowest",
        lambda: selected(value=-3.4028235e38),
        lambda: selected(value=-3.0e38),
        "on_false_value=-3e",
    ),
    Rule(
        "range_select: one result per partition",
        selected,
        lambda: selected(res=(8, 2)),
        r"\(8, 2\)",
    ),
    Rule("affine_select: SBUF", masked, lambda: masked(place=ps), "dst is in psum"),
    Rule("affine_select: partitions", masked, lambda: masked(dst=(7, 6)), "dst 7, on_true_tile 8"),
    Rule(
        "affine_select: 4 dimensions",
        lambda: masked([(1, 1), (2, 2), (1, 3), (1, 1)]),
        lambda: masked([(1, 1), (2, 2), (1, 3), (1, 1), (1, 1)]),
        "pattern",
    ),
    Rule(
        "affine_select: as many elements as the pattern",
        lambda: masked([(1, 2), (1, 3)]),
        lambda: masked([(1, 7)]),
        "has 7 values, dst has 6",
    ),
    Rule(
        "affine_select: an int32 offset",
        lambda: masked(offset=2**31 - 10),
        lambda: masked(offset=1.5),
        "offset=1.5",
    ),
    Rule("nonzero: SBUF", nonzero, lambda: nonzero(place=ps), "src is in psum"),
    Rule(
        "nonzero: partitions",
        lambda: nonzero((16, 7), (16, 6)),
        lambda: nonzero((112, 7)),
        "same number of partitions",
    ),
    Rule(
        "nonzero: float32 or int32",
        lambda: nonzero(dtype=F32),
        lambda: nonzero(dtype=U32),
        "uint32",
    ),
    Rule(
        "nonzero: an int32 index_offset",
        lambda: nonzero(index_offset=-3),
        lambda: nonzero(index_offset=2.5),
        "index_offset=2.5",
    ),
    Rule(
        "tensor_scalar_reduce: add, multiply, max, min",
        lambda: [scalar_reduce(reduce_op=o) for o in (nl.add, nl.multiply, nl.maximum, nl.minimum)],
        lambda: scalar_reduce(reduce_op=nl.abs_max),
        "reduce_op=nl.abs_max; allowed",
    ),
    Rule(
        "tensor_scalar_reduce: one result per partition, or none",
        lambda: scalar_reduce(res=None),
        lambda: scalar_reduce(res=(8, 6)),
        r"reduce_res has shape \(8, 6\)",
    ),
    Rule(
        "tensor_scalar_reduce: a unary operator takes None or 0",
        lambda: (scalar_reduce(nl.abs, None), scalar_reduce(nl.abs, 0)),
        lambda: scalar_reduce(nl.abs, 1),
        "operand0=1 for the unary nl.abs; allowed: None or 0",
    ),
    Rule(
        "tensor_scalar: bitwise operators on the Vector engine",
        lambda: nisa.tensor_scalar(
            sb(8, 6, dtype=I32), sb(8, 6, dtype=I32), nl.bitwise_or, 1, engine=ENGINE.vector
        ),
        lambda: nisa.tensor_scalar(
            sb(8, 6, dtype=I32), sb(8, 6, dtype=I32), nl.bitwise_or, 1, engine=ENGINE.scalar
        ),
        "on the Scalar engine",
    ),
    Rule(
        "tensor_reduce: not the partitions",
        lambda: nisa.tensor_reduce(ps(8, 1), nl.add, ps(8, 2, 3), axis=(1, 2)),
        lambda: nisa.tensor_reduce(sb(8, 1), nl.add, sb(8, 6), axis=0),
        "allowed: the last one or several",
    ),
    Rule(
        "tensor_reduce: not from HBM",
        lambda: nisa.tensor_reduce(sb(8, 1), nl.add, sb(8, 6), axis=1),
        lambda: nisa.tensor_reduce(sb(8, 1), nl.add, hbm(8, 6), axis=1),
        "data is in private_hbm",
    ),
]

RULES = [*MATMUL, *DMA, *ACTIVATIONS, *SELECTS]


@pytest.mark.parametrize("rule", RULES, ids=lambda r: r.says)
def test_kept_and_broken(rule: Rule) -> None:
    def kept():
        rule.kept()

    def broken():
        rule.broken()

    compiled(kept, platform=rule.kept_on or rule.platform)
    with pytest.raises(NkiError, match=rule.message) as caught:
        compiled(broken, platform=rule.platform)
    assert isinstance(caught.value, (NkiValidationError, CompileError))
    assert caught.value.location
