"""Operand and attribute roles: what an instruction's parameter may be.

A role turns what the kernel passed into what the program stores (tensors stay access patterns,
operator tokens become names, enums stay enums) or refuses it, saying what is allowed. Shape rules
that involve several operands are the instruction's own `check`.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from math import inf
from typing import Any, Final, NamedTuple, NoReturn

import numpy as np

from nki_dist.dtypes import DType
from nki_dist.errors import CompileError, NkiValidationError, invalid
from nki_dist.isa.described import advice, described, wrong_value
from nki_dist.isa.indirection import narrowed
from nki_dist.isa.reach import check_dimensions, check_inside
from nki_dist.isa.tracing import may_reject
from nki_dist.program import Access, VirtualRegister

SBUF = frozenset({"sbuf"})
PSUM = frozenset({"psum"})
ONCHIP = SBUF | PSUM
HBM = frozenset({"private_hbm", "shared_hbm"})
ANYWHERE = ONCHIP | HBM


_CONVERTED: Final = "allocate it with an allowed dtype; nisa.tensor_copy converts the result"


def _moved(mode: str, got: str, allowed: frozenset[str]) -> str:
    """How an operand gets into a memory that it may be in."""
    buffer = next(m for m in ("sbuf", "psum", "shared_hbm") if m in allowed)
    copy = "nisa.dma_copy" if got in HBM or buffer in HBM else "nisa.tensor_copy"
    if mode == "w":
        return f"write to a tile with buffer=nl.{buffer}, then copy that here with {copy}"
    return f"copy it into a tensor with buffer=nl.{buffer} first ({copy}), and pass that"


def listed(things: Iterable[Any]) -> str:
    """What is allowed, for messages."""
    return ", ".join(sorted(str(t) for t in things))


class Role(ABC):
    """How one parameter is read. `mode` tells tensors' footprints: "", "r", "w" or "rw"."""

    mode = ""

    @abstractmethod
    def accept(self, name: str, value: Any) -> Any:
        """What a call gave for the parameter, as instructions hold it."""

    def default(self, value: Any) -> Default:
        """The role of a parameter that calls may leave out, and what it is then."""
        return Default(self, value)


class Default(NamedTuple):
    """A role, and the value of the parameter where a call doesn't give one."""

    role: Role
    value: Any


def roles_of(function: Any) -> dict[str, Role]:
    """The roles that stand in a signature in place of defaults; calls get the defaults they name.

    Raises:
        TypeError: a parameter that must be given comes after one that needn't.
    """
    roles: dict[str, Role] = {}
    defaults: list[Any] = []
    for name, parameter in inspect.signature(function).parameters.items():
        given = parameter.default
        if isinstance(given, Role):
            if defaults:
                raise TypeError(f"{function.__name__}: {name} follows parameters with defaults")
            roles[name] = given
        elif isinstance(given, Default):
            roles[name] = given.role
            defaults.append(given.value)
        elif given is not parameter.empty:
            defaults.append(given)
    function.__defaults__ = tuple(defaults)
    return roles


@dataclass(eq=False)
class Tensor(Role):
    """A tensor operand.

    Args:
        mode: "r", "w" or "rw".
        memories: names of the memories it may live in.
        dtypes: allowed element types, None for all.
        optional: None is allowed.
        many: a list of tensors.
        scalar: a Python number is allowed instead (else a (P, 1) tile).
        wide: 64-bit integers are allowed.
        any_start: the operand may start at any partition, whatever the engine.
        indirect: partitions per group of offsets (16 or 32) if `.indirect()` views are allowed.
    """

    mode: str
    memories: frozenset[str] = ONCHIP
    dtypes: Iterable[DType] | None = None
    optional: bool = False
    many: bool = False
    scalar: bool = False
    wide: bool = False
    any_start: bool = False
    indirect: int = 0

    def __post_init__(self) -> None:
        self.dtypes = None if self.dtypes is None else frozenset(self.dtypes)

    def accept(self, name: str, value: Any) -> Any:
        if isinstance(value, Access):
            if value.storage.region.value not in self.memories:
                raise invalid(
                    f"{name} is in {value.storage.region.value}: {value.storage.label}; "
                    f"allowed memories: {listed(self.memories)}",
                    code="memory-kind",
                    hint=_moved(self.mode, value.storage.region.value, self.memories),
                    got=value.storage.region.value,
                    allowed=self.memories,
                )
            if self.dtypes is not None and value.dtype not in self.dtypes:
                raise invalid(
                    f"{name} has dtype {value.dtype}; allowed: {listed(self.dtypes)}",
                    code="dtype-operand",
                    hint=_CONVERTED if self.mode == "w" else None,
                    got=value.dtype,
                    allowed=self.dtypes,
                )
            if value.dtype.bits == 64 and not self.wide:
                refuse_wide(name, value)
            if value.dynamic is not None and not self.memories & HBM:
                value = self._addressed(name, value)
            if 0 in value.shape:
                message = f"{name} is empty: shape {value.shape} of {value.storage.label}"
                raise invalid(message, code="shape-empty", got=value.shape)
            check_inside(name, value)
            if len(value.shape) > 5 and not self.memories & HBM:
                check_dimensions(name, value)
            return value
        if value is None and self.optional:
            return None
        if self.scalar and isinstance(value, (int, float, np.number, np.bool_)):
            return _number(name, value)
        if self.many and isinstance(value, (list, tuple)):
            return [self.accept(f"{name}[{i}]", v) for i, v in enumerate(value)]
        kinds = ["a tensor"]
        kinds += ["a number"] if self.scalar else []
        kinds += ["None"] if self.optional else []
        array = isinstance(value, np.ndarray)
        got = f"a NumPy array of shape {value.shape}" if array else described(value)
        message = f"{name} is {got}; allowed: {' or '.join(kinds)}{advice(value)}"
        if array:
            raise invalid(message, code="array-as-operand", shape=value.shape)
        raise invalid(message, code="operand-kind", got=value)

    def _addressed(self, name: str, a: Access) -> Access:
        """On-chip operands move their whole pattern by one run-time value, or are indirect."""
        assert a.dynamic is not None
        kind = a.dynamic.kind
        if kind == "vector":
            message = f"{name} has a vector offset; only DMA instructions take those"
            raise invalid(message, code="vector-offset")
        if kind == "tensor" and not self.indirect:
            message = f"{name} is an .indirect() view, which this instruction doesn't take there"
            raise invalid(message, code="indirect-view")
        return narrowed(name, a, self.indirect) if kind == "tensor" else a


def refuse_wide(name: str, value: Access) -> NoReturn:
    """Raise the error for 64-bit integers, which most instructions don't take."""
    message = (
        f"{name} has dtype {value.dtype}: {value.storage.label}; 64-bit integers are moved by DMA "
        "(nisa.dma_copy, nl.load, nl.store) and read and written by nisa.scalar_load and "
        "nisa.scalar_store, no other instruction takes them. Pass 32-bit integers, or look at the "
        "words with .view(nl.int32)"
    )
    raise invalid(message, code="dtype-wide", got=value.dtype)


def _number(name: str, value: Any) -> Any:
    """A Python number that engines can be given: ints beyond 64 bits convert to none of theirs."""
    if isinstance(value, (np.number, np.bool_)):
        value = value.item()
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
        message = f"{name} is an int of {value.bit_length()} bits; allowed: -2**63 to 2**64 - 1"
        raise invalid(message, code="argument-range")
    return value


def read(memories: frozenset[str] = ONCHIP, **options: Any) -> Tensor:
    return Tensor("r", memories, **options)


def write(memories: frozenset[str] = ONCHIP, **options: Any) -> Tensor:
    return Tensor("w", memories, **options)


def update(memories: frozenset[str] = ONCHIP, **options: Any) -> Tensor:
    return Tensor("rw", memories, **options)


@dataclass(eq=False)
class Counts(Tensor):
    """A tensor that says how many elements go where: some of its rows are read, others written.

    Args:
        read, written: those parts of it, for an instruction.
    """

    read: Callable[[Any], list[Access]] = lambda i: []
    written: Callable[[Any], list[Access]] = lambda i: []


@dataclass(eq=False)
class Choice(Role):
    """A member of an enum, also by name or value (kernels pass "double_row")."""

    enum: type[Enum]
    allowed: Sequence[Enum] = ()

    def __post_init__(self) -> None:
        self.allowed = tuple(self.allowed or self.enum)

    def accept(self, name: str, value: Any) -> Any:
        if type(value) is not self.enum:
            value = self._member(name, value)
        if value not in self.allowed:
            message = f"{name}={value.name}; allowed: {listed(v.name for v in self.allowed)}"
            raise invalid(message, code="argument-choice", got=value.name)
        return value

    def _member(self, name: str, value: Any) -> Enum:
        members = self.enum.__members__
        label = getattr(value, "name", value)
        if isinstance(label, str) and label.rpartition(".")[2] in members:
            return members[label.rpartition(".")[2]]
        for member in members.values():
            if type(value) is type(member.value) and value == member.value:
                may_reject(
                    f"{name}={value!r} means {self.enum.__name__}.{member.name}; NKI 0.3 and later "
                    "take members only, though published kernels pass numbers",
                    code="enum-number",
                    hint=f"write nisa.{self.enum.__name__}.{member.name}",
                )
                return member
        raise wrong_value(name, value, f"{listed(members)}", code="argument-choice")


@dataclass(eq=False)
class Op(Role):
    """An operator token (`nl.add`, `np.add`), stored by name.

    Args:
        allowed: names of the operators the instruction takes.
        optional: None is allowed.
    """

    allowed: Collection[str]
    optional: bool = False

    def __post_init__(self) -> None:
        self.allowed = frozenset(self.allowed)

    def accept(self, name: str, value: Any) -> Any:
        if value is None and self.optional:
            return None
        token = getattr(value, "nki_op", None) or getattr(value, "__name__", value)
        if isinstance(token, str) and token in self.allowed:
            return token
        shown = f"nl.{token}" if isinstance(token, str) else repr(value)
        message = f"{name}={shown}; allowed: {listed(self.allowed)}"
        raise invalid(message, code="argument-choice", got=value, allowed=self.allowed)


@dataclass(eq=False)
class Number(Role):
    """A compile-time number."""

    integer: bool = False
    optional: bool = False

    def accept(self, name: str, value: Any) -> Any:
        if isinstance(value, (np.number, np.bool_)):
            value = value.item()
        kinds = (int,) if self.integer else (int, float)
        if isinstance(value, kinds) or (value is None and self.optional):
            return _number(name, value)
        short = isinstance(value, (str, float))
        message = (
            f"{name}={repr(value) if short else described(value)}; allowed: "
            f"{'an int' if self.integer else 'a number'}" + (" or None" if self.optional else "")
        )
        raise invalid(message, code="argument-kind", got=value)


@dataclass(eq=False)
class Register(Role):
    """A register operand.

    Args:
        register_mode: "r" or "w".
        copies: the parameter whose value a written one takes as it is, if there is one.
        rank: a written one gets the number of a rank, which depends on the rank that asks.
    """

    register_mode: str
    copies: str = ""
    rank: bool = False

    def accept(self, name: str, value: Any) -> Any:
        if isinstance(value, VirtualRegister):
            if value.induction and "w" in self.register_mode:
                raise CompileError(
                    f"{name} is {value!r}, the induction register of a dynamic loop, which only "
                    "the loop writes; write to a copy (nisa.register_alloc, nisa.register_move), "
                    "and end loops early with nl.while_loop",
                    code="loop-register",
                )
            if "w" in self.register_mode and type(value) is not VirtualRegister:
                raise CompileError(
                    f"{name} is {value!r}; an NkiScalar is never written again: operators make new "
                    "ones",
                    code="scalar-written",
                )
            return value.narrow(name)
        message = f"{name} is {value!r}; allowed: a register made by nisa.register_alloc"
        raise invalid(message, code="register-kind")


_WRONG_KIND: Final = partial(wrong_value, code="argument-kind")


@dataclass(eq=False)
class Integer(Role):
    """A compile-time int of a range, or a register.

    Attributes:
        allowed: what messages say it may be.
        refused: the error of another value.
        narrow: registers hold 32 bits.
    """

    allowed: str
    least: int
    most: float = inf
    refused: Callable[..., NkiValidationError] = _WRONG_KIND
    narrow: bool = True

    def accept(self, name: str, value: Any) -> Any:
        if isinstance(value, VirtualRegister):
            return value.narrow(name) if self.narrow else value
        if isinstance(value, (int, np.integer)) and self.least <= value <= self.most:
            return int(value)
        raise self.refused(name, value, self.allowed)


@dataclass(eq=False)
class Custom(Role):
    """Anything a function accepts and turns into plain data (numbers, strings, lists)."""

    convert: Callable[[str, Any], Any]

    def accept(self, name: str, value: Any) -> Any:
        return self.convert(name, value)


def flag(name: str, value: Any) -> bool:
    if isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in (0, 1)):
        return bool(value)
    raise wrong_value(name, value, "True or False", code="argument-kind")


FLAG = Custom(flag)
