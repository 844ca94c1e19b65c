"""Documented constraints of Vector, Scalar and GpSimd instructions that no other test pairs.

The rest is in test_activation, test_accumulators, test_tensor_scalar, test_tensor_reduce,
test_patterns, test_gathers and test_indirection.
"""

from __future__ import annotations

import pytest
from documented import BF16, E5M2, F32, I32, U32, Rule, check, hbm, ps, sb

import nki_dist.isa as nisa
import nki_dist.language as nl

CMD, DGE, ENGINE = nisa.reduce_cmd, nisa.dge_mode, nisa.engine


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


@pytest.mark.parametrize("rule", [*ACTIVATIONS, *SELECTS], ids=lambda r: r.says)
def test_kept_and_broken(rule: Rule) -> None:
    check(rule)
