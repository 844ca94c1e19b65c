"""nisa.tensor_scalar: one or two operators between a tile and numbers or (P, 1) tiles."""

from __future__ import annotations

from nki_dist.dtypes import float32, int32, uint32
from nki_dist.errors import invalid
from nki_dist.isa import broadcast as b
from nki_dist.isa.alu import ALU
from nki_dist.isa.checks import not_in_psum, same_tile
from nki_dist.isa.effects import Effects, elementwise
from nki_dist.isa.enums import engine
from nki_dist.isa.indirection import is_indirect
from nki_dist.isa.operands import FLAG, Op, read, write
from nki_dist.isa.spec import Arch, Cost, instruction, may_reject, require_generation
from nki_dist.isa.timing_rules import copy_cycles
from nki_dist.program import Access, Instruction

_GPSIMD_ONLY = ("rsqrt", "power")
_SCALAR_GEN3 = (("multiply", "add"), ("multiply", None), ("add", None))


def _names(i: Instruction) -> list[str]:
    return [name for name in (i["op0"], i["op1"]) if name is not None]


def default_engine(i: Instruction, arch: Arch) -> str:
    """GpSimd for the operators only it has, Vector otherwise."""
    return "gpsimd" if any(name in _GPSIMD_ONLY for name in _names(i)) else "vector"


def _check_operators(i: Instruction, arch: Arch) -> None:
    if not _names(i):
        message = "op0 and op1 are both None; allowed: at least one operator"
        raise invalid(message, code="operand-missing")
    if len({ALU[name].is_bitvec for name in _names(i)}) > 1:
        message = f"op0={i['op0']} and op1={i['op1']}; both must be bitwise or both arithmetic"
        raise invalid(message, code="operator-pair")


def _check_engine(i: Instruction, arch: Arch) -> None:
    if i.engine == "scalar":
        require_generation(arch, 3, "tensor_scalar on the Scalar engine")
        if arch.generation == 3 and (i["op0"], i["op1"]) not in _SCALAR_GEN3:
            message = (
                f"op0={i['op0']}, op1={i['op1']} on the Scalar engine of {arch.name}; allowed: "
                "multiply and add, multiply alone, add alone"
            )
            raise invalid(message, code="operator-engine")
    if i.engine == "gpsimd" and not any(name in _GPSIMD_ONLY for name in _names(i)):
        raise invalid(
            f"op0={i['op0']}, op1={i['op1']} on the GpSimd engine; allowed there: rsqrt, power",
            code="operator-engine",
        )


@instruction(
    engines="vector scalar gpsimd",
    effects=Effects(elementwise("data operand0 operand1"), partial=False, bits=None, state=None),
    table="",
    default_engine=default_engine,
    checks=[
        same_tile("dst data"),
        _check_operators,
        b.operand("operand0", "op0", "data"),
        b.operand("operand1", "op1", "data"),
        b.operator_dtypes("dst data operand0 operand1", "op0 op1"),
        _check_engine,
        b.available("op0 op1"),
        not_in_psum("dst data operand0 operand1"),
    ],
)
def tensor_scalar(
    dst=write(indirect=16),
    data=read(indirect=16),
    op0=Op(b.ELEMENTWISE, optional=True),
    operand0=read(scalar=True, optional=True),
    reverse0=FLAG.default(False),
    op1=Op(b.ELEMENTWISE, optional=True).default(None),
    operand1=read(scalar=True, optional=True).default(None),
    reverse1=FLAG.default(False),
    engine=engine.unknown,
    name=None,
):
    """`dst = (data op0 operand0) op1 operand1`, operands broadcast along the free dimensions.

    Args:
        dst, data: tiles with the same partitions and elements per partition.
        op0, op1: both bitwise or both arithmetic; op1 may be left out. Published kernels also
            leave out op0, which passes data through.
        operand0, operand1: a number or a (P, 1) tile; None or 0 for a unary operator. The
            documentation asks for float32 tiles with arithmetic operators; others are converted.
        reverse0, reverse1: the operand is the left side.
        engine: vector, scalar (NeuronCore-v3: multiply-add, multiply or add only), or gpsimd (for
            rsqrt and power, which only it has).

    Arithmetic is float32 with one rounding at the end; bitwise operators work on bit patterns.

    Raises:
        NkiValidationError: shapes, dtypes, operators or engine don't fit.
    """
    return locals()


@tensor_scalar.check
def _widths(i: Instruction, arch: Arch) -> None:
    for n in "01":
        a = i["operand" + n]
        if isinstance(a, Access) and a.dtype is not float32 and not ALU[i["op" + n]].is_bitvec:
            may_reject(
                f"operand{n} has dtype {a.dtype}; with arithmetic operators the documentation asks "
                "for a float32 tile, and compilers are reported to insist (TensorScalarPtr: arith "
                "immediate dtype must be fp32)",
                code="scalar-operand-dtype",
            )


@tensor_scalar.check
def _addresses(i: Instruction, arch: Arch) -> None:
    if not (is_indirect(i["dst"]) or is_indirect(i["data"])):
        return
    whole = i["dst"].dtype in (int32, uint32) and i["data"].dtype in (int32, uint32)
    if whole and not any(ALU[name].is_bitvec for name in _names(i)):
        message = (
            f".indirect() views with {i['data'].dtype} data, {i['dst'].dtype} dst and arithmetic "
            "operators, which is address arithmetic; allowed: other dtypes or bitwise operators"
        )
        raise invalid(message, code="indirect-view")


tensor_scalar.meaning(b.through_operators)


@tensor_scalar.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    flops = i["dst"].size * max(1, len(_names(i)))
    cycles = copy_cycles(i.engine, i["dst"], i["data"], arch)
    return Cost(cycles=cycles, flops=flops, known=i.engine != "gpsimd")
