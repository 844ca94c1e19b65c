"""Roles of parameters: what each turns into plain data, and what it refuses."""

from __future__ import annotations

from enum import Enum

import numpy as np
import pytest

import nki_dist.language as nl
from nki_dist import dtypes
from nki_dist.errors import CompileError, NkiValidationError, OutOfBoundsError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.operands import (
    ANYWHERE,
    FLAG,
    HBM,
    Choice,
    Number,
    Op,
    Register,
    read,
)
from nki_dist.program import Access, Dynamic, Storage, VirtualRegister
from nki_dist.program.memory import MemoryRegion

F32, BF16, I32 = dtypes.float32, dtypes.bfloat16, dtypes.int32
REGISTER = VirtualRegister(3)

END = r" \[[a-z-]+\](\n|$)"  # of a message: its code


def tensor(shape=(8, 6), region="sbuf", dtype=F32, strides=None, offset=0, whole=None):
    """A view of a tensor named "t" of shape `whole`, which is all of it by default."""
    storage = Storage(0, MemoryRegion(region), whole or shape, dtype, "t")
    return Access(storage, offset, shape, strides or storage.strides, dtype)


def refused(role, value, message, error=NkiValidationError):
    with pytest.raises(error, match=message):
        role.accept("x", value)


@pytest.mark.parametrize(
    ("options", "value", "kinds"),
    [
        ({"optional": True}, None, "a tensor or None"),
        ({"scalar": True}, 2.5, "a tensor or a number"),
        ({"scalar": True}, 7, "a tensor or a number"),
        ({"optional": True, "scalar": True}, None, "a tensor or a number or None"),
    ],
)
def test_what_stands_in_for_a_tensor(options, value, kinds):
    assert read(**options).accept("x", value) is value
    kind = "None" if value is None else f".* of type {type(value).__name__}"
    refused(read(), value, rf"x is {kind}; allowed: a tensor \[[a-z-]+\](\n|$)")
    refused(
        read(**options), "seven", rf"x is 'seven' of type str; allowed: {kinds} \[[a-z-]+\](\n|$)"
    )
    refused(read(**options), np.zeros((2, 3)), rf"NumPy array of shape \(2, 3\); allowed: {kinds}")


@pytest.mark.parametrize("value", [np.float32(2.5), np.int16(7), np.bool_(True)])
def test_numbers_of_numpy_become_those_of_python(value):
    for role in (read(scalar=True), Number()):
        got = role.accept("x", value)
        assert got == value.item() and type(got) is type(value.item())


def test_lists_of_tensors():
    pair = (tensor(), tensor())
    got = read(many=True).accept("x", pair)
    assert type(got) is list and got[0] is pair[0] and got[1] is pair[1]
    nested = read(many=True).accept("x", [[pair[0]], [pair[1]]])
    assert nested == [[pair[0]], [pair[1]]]
    refused(read(many=True), [pair[0], 3], r"x\[1\] is 3 of type int; allowed: a tensor")
    refused(read(), list(pair), r"x is a list of 2 tensors; allowed: a tensor\. Take one")


def test_tensors_have_elements():
    refused(read(), tensor((8, 0), whole=(8, 6), strides=(6, 1)), r"x is empty: shape \(8, 0\)")


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "low", "high"),
    [
        ((8, 6), (6, 1), 1, 4, 196),
        ((9, 6), (6, 1), 0, 0, 216),
        ((8, 6), (7, 1), 0, 0, 220),
        ((8, 2), (-6, 1), 41, -4, 172),
        ((2, 8), (24, -6), 41, -4, 264),
    ],
)
def test_patterns_end_within_their_tensor(shape, strides, offset, low, high):
    """(8, 6) float32 in HBM: 192 bytes."""
    a = tensor(shape, "shared_hbm", strides=strides, offset=offset, whole=(8, 6))
    pattern = r"\[\[{}, {}\], \[{}, {}\]\]".format(*(v for p in zip(strides, shape) for v in p))
    refused(
        read(HBM),
        a,
        rf"x: the access pattern {pattern} at offset {offset} covers bytes "
        rf"\[{low}, {high}\) of t .*which has 192 \[[a-z-]+\](\n|$)",
        OutOfBoundsError,
    )


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [
        ((8, 6), (6, 1), 0),
        ((7, 6), (6, 1), 6),
        ((8, 6), (-6, 1), 42),
        ((8, 6), (6, -1), 5),
        ((6, 8), (1, 6), 0),
        ((8, 6), (-6, -1), 47),
        ((9, 6), (0, 1), 42),
    ],
)
def test_patterns_may_turn_and_repeat(shape, strides, offset):
    a = tensor(shape, "shared_hbm", strides=strides, offset=offset, whole=(8, 6))
    assert read(HBM).accept("x", a) is a


@pytest.mark.parametrize(
    ("shape", "strides", "offset", "low", "high"),
    [
        ((8, 6), (6, 1), 1, 4, 28),
        ((3, 2), (6, 3), 9, 12, 28),
        ((3, 2), (6, -3), 8, -4, 12),
        ((2, 2, 3), (6, 6, 1), 0, 0, 36),
    ],
)
def test_patterns_on_chip_end_within_a_partition(shape, strides, offset, low, high):
    a = tensor(shape, strides=strides, offset=offset, whole=(8, 6))
    refused(
        read(),
        a,
        rf"covers bytes \[{low}, {high}\) of a partition of t .*which has 24 there; only",
        OutOfBoundsError,
    )


def test_where_a_run_time_index_leads_is_seen_at_run_time():
    a = tensor((8, 6), strides=(6, 1), offset=3, whole=(8, 12))
    a.dynamic = Dynamic("scalar", REGISTER, 12, 8)
    assert read().accept("x", a) is a
    a.dynamic = Dynamic("vector", tensor((8, 1), dtype=I32), 12, 8)
    refused(read(), a, "x has a vector offset; only DMA")
    assert read(ANYWHERE).accept("x", a) is a
    a.offset = 7  # but what comes before it is known
    refused(read(ANYWHERE), a, r"covers bytes \[28, 52\) of a partition", OutOfBoundsError)
    a.dynamic, a.offset = Dynamic("tensor", tensor((16, 1), dtype=I32), 1, 12), 0
    refused(read(), a, "x is an .indirect")


class Colour(Enum):
    red = 0
    blue = "b"


def test_choices_are_members_names_or_values():
    role = Choice(Colour)
    for value in (Colour.red, "red", "Colour.red", 0):
        assert role.accept("x", value) is Colour.red
    assert role.accept("x", "b") is Colour.blue
    for value in (False, 0.0, 1, "green", None):
        refused(role, value, f"x={value!r}; allowed: blue, red".replace("'", "."))
    refused(Choice(Colour, [Colour.blue]), "red", "x=red; allowed: blue")


def test_members_of_another_enum_are_taken_by_name():
    """Kernels mix those of `nki` and of older packages."""
    other = Enum("Colour", {"blue": 1, "red": "b"})
    assert Choice(Colour).accept("x", other.red) is Colour.red


def test_operators_are_stored_by_name():
    role = Op({"add", "maximum"})
    assert [role.accept("x", op) for op in (nl.add, np.add, "add")] == ["add"] * 3
    assert role.accept("x", nl.maximum) == "maximum"
    assert role.accept("x", nl.sum) == "add"  # that of the reduction
    refused(role, nl.multiply, r"x=nl.multiply; allowed: add, maximum")
    refused(role, 3, r"x=3; allowed: add, maximum")
    refused(role, None, r"x=None; allowed: add, maximum")
    assert Op({"add"}, optional=True).accept("x", None) is None


def test_numbers():
    assert [Number().accept("x", v) for v in (2, 2.5, True)] == [2, 2.5, True]
    assert Number(integer=True).accept("x", np.int64(3)) == 3
    refused(Number(), "2", r"x='2'; allowed: a number \[[a-z-]+\](\n|$)")
    refused(Number(), None, r"x=None; allowed: a number \[[a-z-]+\](\n|$)")
    refused(Number(integer=True), 2.0, r"x=2.0; allowed: an int \[[a-z-]+\](\n|$)")
    refused(
        Number(integer=True, optional=True),
        2.5,
        rf"x=2.5; allowed: an int or None{END}",
    )
    assert Number(optional=True).accept("x", None) is None


def test_flags():
    given = (True, False, 1, 0, np.bool_(True))
    assert [FLAG.accept("x", v) for v in given] == [True, False, True, False, True]
    assert all(type(FLAG.accept("x", v)) is bool for v in given)
    for value in (2, 1.0, None, "True"):
        refused(FLAG, value, "allowed: True or False")


def test_registers():
    assert Register("r").accept("x", REGISTER) is REGISTER
    refused(Register("r"), 3, "x is 3; allowed: a register made by nisa.register_alloc")
    index = VirtualRegister(4)
    index.induction = True
    assert Register("r").accept("x", index) is index
    for mode in ("w", "rw"):
        refused(Register(mode), index, "only the loop writes", CompileError)


def test_registers_hold_32_bits():
    role = INSTRUCTIONS["register_move"].roles["src"]
    assert role.accept("x", REGISTER) is REGISTER
    for value in (-(2**31), -1, 0, 2**32 - 1, np.int16(5)):
        assert role.accept("x", value) == value
    for value in (-(2**31) - 1, 2**32, 1.0, None):
        refused(role, value, rf"x={value!r}; allowed: a register or a 32-bit int")
