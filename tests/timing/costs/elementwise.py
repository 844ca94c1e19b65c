"""Copies, arithmetic and activations: an element of `dst` is made of one of each source."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.timing.costs.rows import (
    BF16,
    CMD,
    ENGINE,
    SIZE,
    P,
    Row,
    cycles,
    narrow,
    ps,
    sb,
    started,
    wide,
)


def copied(dst: Any, src: Any, engine: Any = ENGINE.vector) -> Callable[[], Any]:
    return lambda: nisa.tensor_copy(dst(), src(), engine=engine)


def every_second(*free: int) -> Callable[[], Any]:
    return lambda: sb(*free, dtype=BF16)[:, 0 : free[0] : 2]


# One element per cycle once the operands are reached; four in 16 bits in SBUF, two if one side is
# in PSUM or not contiguous.
COPIES = [
    Row("tensor_copy", "float32", copied(wide(401), wide(401)), started(401)),
    Row("tensor_copy", "few", copied(wide(3), wide(3)), started(3)),
    Row("tensor_copy", "16 bits", copied(narrow(402), narrow(402)), started(100.5)),
    Row("tensor_copy", "few, in 16 bits", copied(narrow(15), narrow(15)), started(3.75)),
    Row("tensor_copy", "16 bits to 32", copied(wide(401), narrow(401)), started(401)),
    Row("tensor_copy", "32 bits to 16", copied(narrow(401), wide(401)), started(401)),
    Row("tensor_copy", "from PSUM", copied(narrow(401), narrow(401, place=ps)), started(200.5)),
    Row("tensor_copy", "to PSUM", copied(narrow(401, place=ps), narrow(401)), started(200.5)),
    Row(
        "tensor_copy",
        "both in PSUM",
        copied(narrow(401, place=ps), narrow(401, place=ps)),
        started(401),
    ),
    Row("tensor_copy", "not contiguous", copied(narrow(401), every_second(802)), started(200.5)),
    Row(
        "tensor_copy",
        "not contiguous, to PSUM",
        copied(narrow(401, place=ps), every_second(802)),
        started(401),
    ),
    Row(
        "tensor_copy",
        "a dimension of one has no stride",
        copied(narrow(402), lambda: sb(402, dtype=BF16).ap([[402, P], [1, 402], [7, 1]])),
        started(100.5),
    ),
    Row("tensor_copy", "Scalar", copied(narrow(401), narrow(401), ENGINE.scalar), started(401)),
    Row("tensor_copy", "GpSimd", copied(narrow(401), narrow(401), ENGINE.gpsimd), cycles(551)),
    Row("tensor_copy", "trn1", copied(narrow(401), narrow(401)), started(401), "trn1"),
]


def scaled(dst: Any, data: Any, **more: Any) -> Callable[[], Any]:
    return lambda: nisa.tensor_scalar(dst(), data(), nl.multiply, 2.0, **more)


def summed(dst: Any, data1: Any, data2: Any, op: Any = nl.add, **more: Any) -> Callable[[], Any]:
    return lambda: nisa.tensor_tensor(dst(), data1(), data2(), op, **more)


ARITHMETIC = [
    Row("tensor_scalar", "one operator", scaled(wide(401), wide(401)), started(401, SIZE)),
    Row(
        "tensor_scalar",
        "two operators",
        scaled(wide(401), wide(401), op1=nl.add, operand1=1.0),
        started(401, 2 * SIZE),
    ),
    Row("tensor_scalar", "16 bits", scaled(narrow(401), narrow(401)), started(100.25, SIZE)),
    Row(
        "tensor_scalar",
        "GpSimd",
        lambda: nisa.tensor_scalar(sb(401), sb(401), nl.power, 2.0, engine=ENGINE.gpsimd),
        cycles(150 + 401, SIZE, known=False),
    ),
    Row("tensor_tensor", "float32", summed(wide(401), wide(401), wide(401)), started(401, SIZE)),
    Row(
        "tensor_tensor",
        "float32 on trn1",
        summed(wide(401), wide(401), wide(401)),
        started(802, SIZE),
        "trn1",
    ),
    Row(
        "tensor_tensor",
        "few",
        summed(wide(3), wide(3), wide(3)),
        started(3, P * 3),
    ),
    Row(
        "tensor_tensor",
        "one source in PSUM",
        summed(wide(401), wide(401), wide(401, place=ps)),
        started(401, SIZE),
    ),
    Row(
        "tensor_tensor",
        "16 bits",
        summed(narrow(401), narrow(401), narrow(401), nl.maximum),
        started(200.5, SIZE),
    ),
    *(
        Row("tensor_tensor", f"{which} in 32 bits", summed(*tiles), started(401, SIZE))
        for which, tiles in (
            ("dst", (wide(401), narrow(401), narrow(401))),
            ("data1", (narrow(401), wide(401), narrow(401))),
            ("data2", (narrow(401), narrow(401), wide(401))),
        )
    ),
    Row(
        "tensor_tensor",
        "16 bits into PSUM",
        summed(narrow(401, place=ps), narrow(401), narrow(401)),
        started(200.5, SIZE),
    ),
    Row(
        "tensor_tensor",
        "16 bits on GpSimd",
        summed(narrow(401), narrow(401), narrow(401), nl.maximum, engine=ENGINE.gpsimd),
        cycles(150 + 802, SIZE, known=False),
    ),
    *(
        Row(
            "tensor_tensor",
            f"16 bits, {name} on trn1",
            summed(narrow(401), narrow(401), narrow(401), getattr(nl, name)),
            started(count, SIZE),
            "trn1",
        )
        for name, count in (("add", 401), ("multiply", 401), ("subtract", 401), ("maximum", 802))
    ),
    Row(
        "scalar_tensor_tensor",
        "float32",
        lambda: nisa.scalar_tensor_tensor(sb(401), sb(401), nl.subtract, 1.0, nl.multiply, sb(401)),
        started(401, 2 * SIZE),
    ),
    Row(
        "scalar_tensor_tensor",
        "one side in PSUM, trn1",
        lambda: nisa.scalar_tensor_tensor(sb(401), ps(401), nl.subtract, 1.0, nl.multiply, sb(401)),
        started(802, 2 * SIZE),
        "trn1",
    ),
    Row(
        "scalar_tensor_tensor",
        "bfloat16 has no mode",
        lambda: nisa.scalar_tensor_tensor(
            sb(402, dtype=BF16),
            sb(402, dtype=BF16),
            nl.subtract,
            1.0,
            nl.multiply,
            sb(402, dtype=BF16),
        ),
        started(402, 2 * P * 402),
    ),
    *(
        Row(
            "scalar_tensor_tensor",
            f"bfloat16, {first.__name__} and {second.__name__} of {n}, trn1",
            lambda n=n, first=first, second=second: nisa.scalar_tensor_tensor(
                sb(n), sb(n, dtype=BF16), first, 1.0, second, sb(n, dtype=BF16)
            ),
            started(count, 2 * P * n),
            "trn1",
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
        started(804, 2 * P * 402),
        "trn1",
    ),
    Row(
        "reciprocal", "2 per element", lambda: nisa.reciprocal(sb(401), sb(401)), started(802, SIZE)
    ),
    Row("reciprocal", "few", lambda: nisa.reciprocal(sb(1), sb(1)), started(2, P)),
    Row(
        "language_math",
        "assumed",
        lambda: nisa.language_math(sb(401), nl.floor, sb(401)),
        started(401, SIZE, known=False),
    ),
    Row("memset", "float32", lambda: nisa.memset(sb(401), 0), started(401)),
    Row("memset", "16 bits of zeros", lambda: nisa.memset(sb(401, dtype=BF16), 0), started(200.5)),
    Row("memset", "16 bits of ones", lambda: nisa.memset(sb(401, dtype=BF16), 1), started(401)),
    Row("dropout", "", lambda: nisa.dropout(sb(401), sb(401), 0.5), started(401)),
]


def active(n: int, **more: Any) -> Callable[[], Any]:
    if "reduce_op" in more:
        return lambda: nisa.activation(
            sb(n), nl.exp, sb(n), reduce_res=sb(1), reduce_cmd=CMD.reset_reduce, **more
        )
    return lambda: nisa.activation(sb(n), nl.exp, sb(n), **more)


# 64 more for an instruction that reads the accumulator.
ACTIVATIONS = [
    Row("activation", "", active(401), started(401, 3 * SIZE)),
    Row("activation", "with a sum", active(401, reduce_op=nl.add), started(465, 3 * SIZE)),
    Row("activation", "short", active(3, reduce_op=nl.add), started(3 + 64, 3 * P * 3)),
    Row(
        "activation_reduce",
        "",
        lambda: nisa.activation_reduce(sb(401), nl.exp, sb(401), nl.add, sb(1)),
        started(465, 4 * SIZE),
    ),
    Row(
        "activate2",
        "",
        lambda: nisa.activate2(sb(401), nl.exp, sb(401), 1.0, 2.0, nl.multiply, nl.add),
        started(401, 4 * SIZE, known=False),
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
        started(465, 4 * SIZE, known=False),
        "trn3",
    ),
    Row(
        "exponential",
        "four at a time",
        lambda: nisa.exponential(sb(402), sb(402)),
        started(100.5, 2 * P * 402),
        "trn3",
    ),
    Row(
        "tensor_scalar_reduce",
        "",
        lambda: nisa.tensor_scalar_reduce(sb(401), sb(401), nl.multiply, 2.0, nl.add, sb(1)),
        started(465, 2 * SIZE),
    ),
]
