"""Scalar registers of an engine sequencer.

A register's value exists only while a program runs, so Python can't branch on it when a kernel is
traced. The one Python construct that is understood is `while register:`; the tracer that is active
decides (see compiler.control_flow). In a debugged kernel, which runs as it is traced, registers
have values; arithmetic they have nowhere.
"""

from __future__ import annotations

from typing import Any, Final

from nki_dist.errors import CompileError

COUNTED: Final = (
    "let the loop count in steps, as nl.dynamic_range(0, n * 128, 128) does; to add a constant, "
    "take a part of the tensor first"
)


class VirtualRegister:
    """A 32-bit register, named by its number within one program.

    Made by `nisa.register_alloc`, by loops (the induction value) and by `ncc.rank_id`. It has no
    arithmetic: it can be moved, loaded, stored, used as a loop bound, in `nl.ds`, and as
    `scalar_offset` of an access pattern.

    Attributes:
        induction: it counts a dynamic loop, which alone writes it.
    """

    __slots__ = ("induction", "number", "tracer")

    def __init__(self, number: int = 0, tracer: Any = None) -> None:
        self.number = number
        self.tracer = tracer
        self.induction = False

    def narrow(self, what: str) -> VirtualRegister:
        """The register itself, where 32 bits are taken; `what` is for messages."""
        return self

    def offset(self, on_chip: bool) -> VirtualRegister:
        """The register itself, as the run-time part of an address."""
        return self

    def __bool__(self) -> bool:
        if self.tracer is None:
            message = "a register has no value in Python; use nl.while_loop"
            raise CompileError(message, code="branch-on-register")
        return bool(self.tracer.register_truth(self))

    def _value(self, what: str) -> int:
        """Its value in a debugged kernel; raises CompileError in others."""
        value: int | None = None if self.tracer is None else self.tracer.register_value(self)
        if value is None:
            raise self._refuse(what)
        return value

    def _refuse(self, what: str) -> CompileError:
        location = self.tracer.where() if self.tracer is not None else None
        return CompileError(
            f"{what} of a register: its value is only known when the kernel runs. Registers can be "
            "used as loop bounds (nl.fori_loop, nl.while_loop, nl.dynamic_range), in nl.ds, as "
            "scalar_offset, and moved, loaded or stored; compute with tensors instead. To look at "
            "values, run the kernel with nki.debug",
            location=location,
            code="register-as-value",
            hint=COUNTED if what == "arithmetic" else None,
        )

    def __int__(self) -> int:
        return self._value("int()")

    def __index__(self) -> int:
        return self._value("use as a Python index")

    def __float__(self) -> float:
        return float(self._value("float()"))

    def _no_arithmetic(self, *_: Any) -> Any:
        raise self._refuse("arithmetic")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _no_arithmetic
    __floordiv__ = __mod__ = __truediv__ = __neg__ = _no_arithmetic

    def __lt__(self, other: Any) -> bool:
        return bool(self._value("comparison") < other)

    def __le__(self, other: Any) -> bool:
        return bool(self._value("comparison") <= other)

    def __gt__(self, other: Any) -> bool:
        return bool(self._value("comparison") > other)

    def __ge__(self, other: Any) -> bool:
        return bool(self._value("comparison") >= other)

    def __eq__(self, other: Any) -> Any:
        if isinstance(other, (int, float)):  # False by identity would silently drop code
            return self._value("comparison") == other
        return NotImplemented

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        value = None if self.tracer is None else self.tracer.register_value(self)
        return f"r{self.number}" if value is None else f"r{self.number}={value}"
