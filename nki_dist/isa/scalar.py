"""nisa.NkiScalar, scalar_load, scalar_store: integers that are computed on the device.

A scalar is a register that is written once; every operator records an instruction that computes a
new one. What an operator does wraps at the scalar's width, as two's complement.

What the pages leave open is refused: operands of other types than ints and NkiScalars, ints that
don't fit the width, operators besides + - *, and 64-bit scalars where a register is taken.

Follows: nki.isa.NkiScalar, nki.isa.scalar_load and nki.isa.scalar_store of SDK 2.33, and the page
"NKI Scalar Values".
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import partial, partialmethod
from types import MappingProxyType
from typing import Any, Final, NoReturn

import numpy as np

from nki_dist.dtypes import DType, int32, int64
from nki_dist.errors import CompileError, invalid
from nki_dist.isa.checks import check_one_element
from nki_dist.isa.described import wrong_value
from nki_dist.isa.effects import NOTHING_ELSE
from nki_dist.isa.operands import HBM, SBUF, Custom, Integer, Number, Op, Register, read, write
from nki_dist.isa.registers import register_load, store_register
from nki_dist.isa.spec import DOCS, Arch, Kit, current_tracer, instruction, released
from nki_dist.isa.timing_rules import fixed
from nki_dist.ops.function import function
from nki_dist.ops.operation import Operation, RegisterNumber, op
from nki_dist.program import Instruction, VirtualRegister

_OPERATORS: Final[MappingProxyType[str, Callable[[int, int], int]]] = MappingProxyType(
    {"add": operator.add, "subtract": operator.sub, "multiply": operator.mul}
)


_OPERAND: Final = Integer(
    "a register or an int of 64 bits",
    int(int64.min),
    int(int64.max),
    refused=partial(wrong_value, code="scalar-operand"),
    narrow=False,
)


@instruction(
    engines="sync",
    effects=NOTHING_ELSE,
    documented=f"{DOCS}nki.isa.NkiScalar",
    cost=fixed("register_cycles"),
)
def scalar_arithmetic(
    dst=Register("w"),
    op=Op(_OPERATORS),
    data1=_OPERAND,
    data2=_OPERAND,
    bits=Number(integer=True),
):
    """Register `dst` becomes `data1 op data2`, wrapped to 32 or 64 bits; operators emit it."""
    return locals()


def wrapped(value: int, bits: int) -> int:
    """A number as two's complement of so many bits."""
    half = 1 << (bits - 1)
    return (value + half) % (half << 1) - half


@scalar_arithmetic.check
def _known_width(i: Instruction, arch: Arch) -> None:
    if i["bits"] not in (32, 64):
        raise invalid(f"bits={i['bits']}; allowed: 32, 64", code="scalar-width", got=i["bits"])


@scalar_arithmetic.meaning
def _arithmetic(i: Instruction, kit: Kit) -> list[Operation]:
    first, second = (
        RegisterNumber(x.number) if isinstance(x, VirtualRegister) else x
        for x in (i["data1"], i["data2"])
    )
    dst = RegisterNumber(i["dst"].number)
    return [op(_compute, kit.registers, i["op"], first, second, i["bits"], dst)]


@function(reads="first second", writes="dst", name="compute register")
def _compute(
    registers: list[int], operator: str, first: int, second: int, bits: int, dst: int
) -> None:
    """A register becomes what an operator makes of registers and numbers, wrapped."""
    a, b = (registers[x] if type(x) is RegisterNumber else x for x in (first, second))
    registers[dst] = wrapped(_OPERATORS[operator](a, b), bits)


_WIDTHS: Final = (int32, int64)


class NkiScalar(VirtualRegister):
    """One integer of 32 or 64 bits, computed on the device; made by `nisa.scalar_load`.

    `+`, `-` and `*` with ints and NkiScalars of the same dtype make new ones, and wrap at the
    width. One of 32 bits bounds `nl.fori_loop` and is taken wherever a register is. One of 64 bits
    is stored by `nisa.scalar_store` and is the `scalar_offset` of tensors in HBM.

    Args:
        state: the register that holds it.
        dtype: nl.int32 (by default) or nl.int64.
        is_comparison: it is what a comparison made, which nothing may use.

    Attributes:
        dtype: as given.
        register: as given to `state`.
    """

    __slots__ = ("dtype", "is_comparison", "register")

    def __init__(
        self, state: VirtualRegister, dtype: DType | None = None, is_comparison: bool = False
    ) -> None:
        super().__init__(state.number, state.tracer)
        self.induction = state.induction
        self.register = state
        self.dtype = int32 if dtype is None else dtype
        self.is_comparison = is_comparison

    def narrow(self, what: str) -> VirtualRegister:
        """Its register, where 32 bits are taken.

        Raises:
            NkiValidationError: it has 64.
            CompileError: it is the result of a comparison.
        """
        self._usable(what)
        if self.dtype is not int32:
            message = (
                f"an NkiScalar of {self.dtype} as {what}; allowed: int32. One of 64 bits is stored "
                "(nisa.scalar_store), computed with, and the scalar_offset of a tensor in HBM"
            )
            raise invalid(message, code="scalar-width", got=self.dtype, allowed=int32)
        return self.register

    def offset(self, on_chip: bool) -> VirtualRegister:
        """Its register, as the run-time part of an address."""
        if on_chip:
            return self.narrow("the offset of a tensor in SBUF or PSUM")
        self._usable("an offset")
        return self.register

    def _usable(self, what: str) -> None:
        if self.is_comparison:
            self._compared(f"the result of a comparison of NkiScalars as {what}")

    def _compared(self, what: str) -> NoReturn:
        raise CompileError(
            f"{what}: NKI traces comparisons of 32 bits, but nothing can use their results. "
            "Compute masks with tensors, or bound a nl.fori_loop",
            code="scalar-comparison",
        )

    def _compare(self, other: Any) -> Any:
        self._operand("a comparison", other)
        if self.dtype is int64:
            message = "a comparison of NkiScalars of int64; there is none of 64 bits"
            raise CompileError(message, code="scalar-comparison")
        return NkiScalar(self.register, self.dtype, True)

    def _operand(self, what: str, other: Any) -> int | VirtualRegister:
        """What an operator is given besides the scalar itself."""
        self._usable(f"an operand of {what}")
        if isinstance(other, NkiScalar):
            other._usable(f"an operand of {what}")
            if other.dtype is not self.dtype:
                message = (
                    f"{what} of NkiScalars of {self.dtype} and {other.dtype}; their dtypes must "
                    "match: load both from tiles of one dtype"
                )
                raise invalid(message, code="scalar-dtypes", got=[self.dtype, other.dtype])
            return other.register
        if isinstance(other, (int, np.integer)) and not isinstance(other, bool):
            if not self.dtype.min <= other <= self.dtype.max:
                raise invalid(
                    f"{what} of an NkiScalar of {self.dtype} and {other}, which doesn't fit; "
                    f"allowed: {self.dtype.min} to {self.dtype.max}",
                    code="scalar-operand",
                    got=int(other),
                    least=self.dtype.min,
                    most=self.dtype.max,
                )
            return int(other)
        message = (
            f"{what} of an NkiScalar and {other!r} of type {type(other).__name__}; allowed: ints "
            "and NkiScalars"
        )
        raise invalid(message, code="scalar-operand")

    def _computed(self, op: str, other: Any, reversed_: bool = False) -> NkiScalar:
        pair: list[Any] = [self.register, self._operand(f"{op}", other)]
        first, second = reversed(pair) if reversed_ else pair
        register = current_tracer().register()
        scalar_arithmetic(register, op, first, second, self.dtype.bits)
        return NkiScalar(register, self.dtype)

    __add__ = __radd__ = partialmethod(_computed, "add")
    __sub__ = partialmethod(_computed, "subtract")
    __rsub__ = partialmethod(_computed, "subtract", reversed_=True)
    __mul__ = __rmul__ = partialmethod(_computed, "multiply")
    __neg__ = partialmethod(_computed, "subtract", 0, True)
    __pos__ = partialmethod(_computed, "add", 0)

    def _no_arithmetic(self, *_: Any) -> Any:
        raise CompileError(
            "NkiScalars have the operators +, - and * only; compute others with tensors, and load "
            "the result",
            code="scalar-operator",
        )

    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __truediv__ = __rtruediv__ = _no_arithmetic
    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _no_arithmetic
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __pow__ = __rpow__ = _no_arithmetic

    __lt__ = __le__ = __gt__ = __ge__ = _compare

    def __eq__(self, other: Any) -> Any:
        if isinstance(other, (int, float, np.number, VirtualRegister)):
            return self._compare(other)
        return NotImplemented

    __ne__ = __eq__
    __hash__ = VirtualRegister.__hash__

    def __bool__(self) -> bool:
        if self.is_comparison:
            self._compared("Python can't branch on a comparison of NkiScalars")
        raise CompileError(
            "Python can't branch on an NkiScalar: its value is only known when the kernel runs. "
            "Bound a nl.fori_loop with it, or use nl.while_loop with a register",
            code="branch-on-register",
        )

    def __repr__(self) -> str:
        shown = super().__repr__()
        return f"<NkiScalar {self.dtype} {shown}{' comparison' if self.is_comparison else ''}>"


# ---- instructions -------------------------------------------------------------------------------


def _load(dst=Register("w"), src=read(SBUF | HBM, dtypes=_WIDTHS, wide=True)):
    """Register `dst` becomes the integer of a tensor; `nisa.scalar_load` emits it."""
    return locals()


_load.__name__ = "scalar_load"
load = instruction(engines="sync", effects=NOTHING_ELSE, cost=fixed("register_cycles"))(_load)


load.meaning(register_load.lower)


def scalar_load(src):
    """The integer that a tensor holds, as an NkiScalar of its dtype.

    Args:
        src: a tensor of one element, (1, 1), in SBUF or HBM, of nl.int32 or nl.int64.

    Raises:
        NkiValidationError: another shape, memory or dtype.
        CompileError: the kernel is checked against NKI 0.6.
    """
    released("nisa.scalar_load")
    register = current_tracer().register()
    load(register, src)
    return NkiScalar(register, src.dtype)


def _value(name: str, value: Any) -> VirtualRegister:
    if isinstance(value, NkiScalar):
        value._usable(name)
        return value.register
    if type(value) is VirtualRegister and value.tracer is None:  # of a program that was saved
        return value
    message = (
        f"{name} is {value!r}; allowed: an NkiScalar. nisa.memset writes numbers, "
        "nisa.register_store registers"
    )
    raise invalid(message, code="scalar-operand")


def _store(
    dst=write(SBUF | HBM, dtypes=_WIDTHS, wide=True),
    value=Custom(_value),
    bits=Number(integer=True),
):
    """Store a register into a tensor of as many bits; `nisa.scalar_store` emits it."""
    return locals()


_store.__name__ = "scalar_store"
store = instruction(engines="sync", effects=NOTHING_ELSE, cost=fixed("register_cycles"))(_store)


@store.meaning
def _store_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    cell = kit.raw(i["dst"]).reshape(())
    return [op(store_register, kit.registers, RegisterNumber(i["value"].number), i["bits"], cell)]


def scalar_store(dst, value):
    """Store an NkiScalar into a tensor.

    Args:
        dst: a tensor of one element, (1, 1), in SBUF or HBM, of the dtype of `value`.
        value: an NkiScalar.

    Raises:
        NkiValidationError: another shape, memory or dtype; `value` is a number or a register.
        CompileError: the kernel is checked against NKI 0.6.
    """
    released("nisa.scalar_store")
    return store(dst, value, value.dtype.bits if isinstance(value, NkiScalar) else 0)


@load.check
@store.check
def _one_element(i: Instruction, arch: Arch) -> None:
    tensor = i["src"] if i.opcode == "scalar_load" else i["dst"]
    check_one_element(tensor, "a scalar is one element", code="scalar-tensor")


@store.check
def _same_width(i: Instruction, arch: Arch) -> None:
    if i["dst"].dtype.bits != i["bits"]:
        message = (
            f"dst has dtype {i['dst'].dtype}, the scalar {i['bits']} bits; they must be as wide. "
            "Store it at its own width, and convert in memory"
        )
        raise invalid(message, code="scalar-dtypes", got=i["dst"].dtype, allowed=f"int{i['bits']}")
