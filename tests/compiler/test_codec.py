"""Encoded programs: exact round trips for everything a program holds, refusal of anything else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki_dist import arch, dtypes
from nki_dist.compiler import decode_body, wire
from nki_dist.compiler import encode as encode_module
from nki_dist.compiler.decode import decode
from nki_dist.compiler.encode import encode, parameters
from nki_dist.compiler.values import read_value, write_value
from nki_dist.errors import NkiError, ProgramFormatError
from nki_dist.isa import INSTRUCTIONS, enums
from nki_dist.isa.effects import OPTIMISTIC, Effects
from nki_dist.isa.operands import Choice, Custom, Number, Op, Register, Tensor
from nki_dist.isa.spec import instruction
from nki_dist.program import (
    Access,
    Dynamic,
    Instruction,
    MemoryRegion,
    Program,
    Storage,
    VirtualRegister,
    instructions,
)
from tests.compiler import programs
from tests.compiler.programs import encoded, plain, plain_program, real

TRN2 = arch.get("trn2")


@pytest.mark.parametrize("number", range(5))
def test_real_programs_come_back_exactly(number):
    program = [p for c in real() for p in c.programs][number]
    data = encode(program)
    back = decode(data)
    assert plain_program(back) == plain_program(program)
    assert encode(back) == data
    assert programs.link(back)


def test_equal_programs_give_equal_bytes():
    again = programs.compiled(programs.matmul, (16, 12), (16, 20))
    assert encode(again.programs[0]) in encoded()


def test_decoding_shares_what_repeats():
    """Thousands of instructions on one tile need one access object."""
    program = decode(encoded()[0])
    i = next(i for i in instructions(program.body) if i.opcode == "tensor_tensor")
    assert i["dst"] is i["data1"]


# ---- every instruction, arguments made from its roles ------------------------------------------

NUMBERS = st.one_of(
    st.integers(-(2**31), 2**32), st.floats(), st.booleans(), st.sampled_from([0.0, -0.0, 2**70])
)
PLAIN = st.recursive(
    st.one_of(st.none(), NUMBERS, st.text(max_size=5), st.binary(max_size=5))
    | st.sampled_from([*dtypes.ALL, enums.oob_mode.skip, MemoryRegion.psum]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=3)
        | st.sets(st.integers() | st.text(max_size=3), max_size=3)
        | st.frozensets(st.integers(), max_size=3)
    ),
    max_leaves=8,
)
REGISTERS = [VirtualRegister(n) for n in range(3)]


def storage_of(region: MemoryRegion, number: int, name: str) -> Storage:
    role = "input" if region is MemoryRegion.shared_hbm else "local"
    s = Storage(number, region, (16, 6, 4), dtypes.float32, name, role)
    s.index = number if role == "input" else -1
    s.first, s.last, s.written, s.location = 0, 0, True, 0
    return s


@st.composite
def accesses(draw: Any, storages: list[Storage], memories: frozenset, kinds: Any) -> Access:
    s = draw(st.sampled_from([s for s in storages if s.region.value in memories]))
    allowed = [d for d in (kinds or dtypes.ALL) if d.itemsize == 4] or [dtypes.bfloat16]
    dtype = draw(st.sampled_from(sorted(allowed, key=lambda d: d.name)))
    shape, strides = draw(
        st.sampled_from([((16, 24), (24, 1)), ((3, 2, 4), (24, 4, 1)), ((5, 2, 6), (24, 1, 0))])
    )
    dynamic = None
    if draw(st.integers(0, 4)) == 0:
        dynamic = Dynamic("scalar", draw(st.sampled_from(REGISTERS)), 4, 6, 1)
    offset = 0 if shape[0] == 16 else draw(st.integers(0, 18))
    return Access(s, offset, shape, strides, dtype, dynamic)


def argument(role: Any, storages: list[Storage]) -> Any:
    """A strategy for values that a role may have stored."""
    if isinstance(role, Tensor):
        one = accesses(storages, role.memories, role.dtypes)
        options = [one]
        options += [NUMBERS] if role.scalar else []
        options += [st.none()] if role.optional else []
        options += [st.lists(one, max_size=3)] if role.many else []
        return st.one_of(options)
    if isinstance(role, Choice):
        return st.sampled_from(role.allowed)
    if isinstance(role, Op):
        return st.sampled_from([*sorted(role.allowed), *([None] if role.optional else [])])
    if isinstance(role, Number):
        return st.integers(-(2**31), 2**31) if role.integer else NUMBERS
    if isinstance(role, Register):
        return st.sampled_from(REGISTERS)
    return PLAIN


@st.composite
def single(draw: Any, opcode: str) -> Program:
    """A program of one instruction, each argument whatever its role might have let through."""
    spec = INSTRUCTIONS[opcode]
    regions = enumerate(MemoryRegion)
    storages = [storage_of(region, n, draw(st.text(max_size=3))) for n, region in regions]
    args = {n: draw(argument(spec.roles.get(n), storages)) for n in parameters(opcode)}
    i = Instruction(opcode, args, draw(st.sampled_from(spec.engines)), 0, 0)
    program = Program(draw(st.text(max_size=4)), "trn2", 0, 1, storages, [i], len(REGISTERS))
    program.locations = [("kernel.py", 7, "f")]
    return program


def stored(program: Program) -> Any:
    """The arguments as roles store them, or None if a role refuses one."""
    (i,) = program.body
    assert isinstance(i, Instruction)
    spec = INSTRUCTIONS[i.opcode]
    try:
        i.args = {
            n: spec.roles[n].accept(n, v) if n in spec.roles else v for n, v in i.args.items()
        }
    except (NkiError, TypeError, ValueError, AttributeError):
        return None  # a Custom role meets values no kernel would pass; it may stumble
    if spec.accumulates:
        i.accumulation = "add" if i.args["accumulate"] else "replace"
    return i


@pytest.mark.parametrize("opcode", sorted(INSTRUCTIONS))
@settings(max_examples=25, derandomize=True, deadline=None)
@given(data=st.data())
def test_every_instruction_comes_back(opcode, data):
    program = data.draw(single(opcode))
    i = stored(program)
    if i is None:  # replace what Custom roles refused by the declared defaults
        spec = INSTRUCTIONS[opcode]
        parameter = spec.signature.parameters
        (raw,) = program.body
        for n, role in spec.roles.items():
            if type(role).__name__ == "Custom" and parameter[n].default is not parameter[n].empty:
                raw.args[n] = parameter[n].default
        i = stored(program)
        if i is None:
            return
    packed = encode(program)
    back = decode(packed, verify=False)
    assert plain_program(back) == plain_program(program)
    assert encode(back) == packed
    try:
        INSTRUCTIONS[opcode].verify(i, TRN2)
    except Exception:  # not an instruction that a kernel could have made: nor one to decode
        with pytest.raises(ProgramFormatError):
            decode(packed)
    else:
        assert encode(decode(packed)) == packed


TENSORS = Tensor("r", many=True, scalar=True, optional=True)


def mixed(
    srcs=TENSORS,
    dst=Tensor("w"),
    others=TENSORS,
    scale=Number(),
    position=Custom(lambda name, value: tuple(value)).default(()),
    name=None,
):
    """An instruction with operands inside lists, between and before plain ones."""
    return locals()


def test_new_instructions_need_no_codec_code(monkeypatch):
    """Two lists of operands around a plain one, declared here and nowhere else."""
    effects = Effects(OPTIMISTIC, partial=False, bits=None, state=None)
    spec = instruction(engines="dma", effects=effects)(mixed)
    table = {**INSTRUCTIONS, "mixed": spec}
    for module in (encode_module, decode_body):
        monkeypatch.setattr(module, "INSTRUCTIONS", table)
    regions = (MemoryRegion.sbuf, MemoryRegion.psum)
    storages = [storage_of(region, n, "") for n, region in enumerate(regions)]
    a, b, c = (Access(storages[n % 2], 4 * n, (5, 4), (24, 1), dtypes.float32) for n in range(3))
    args = {"srcs": [a, 2.5, b], "dst": c, "others": [None, 1, 1.0, True, a]}
    i = Instruction("mixed", {**args, "scale": -0.0, "position": (1, 2)}, "dma", -1, 0)
    program = Program("k", "trn2", 0, 1, storages, [i], 2, [("kernel.py", 7, "f")])
    back = decode(encode(program))
    assert plain_program(back) == plain_program(program)
    assert encode(back) == encode(program)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(value=PLAIN)
def test_values_come_back_with_their_types(value):
    packed = msgpack.unpackb(msgpack.packb(write_value(value, id, int)))
    assert plain(read_value(packed, wire.malformed, wire.malformed)) == plain(value)


def test_user_classes_become_structures():
    class Pair:
        __nki_object__ = True

        def __init__(self) -> None:
            self.left, self.right = (1,), None

    back = read_value(write_value(Pair(), id, int), wire.malformed, wire.malformed)
    assert (back.class_name, back.fields) == ("Pair", {"left": (1,), "right": None})


# ---- what can't be written down -----------------------------------------------------------------


def small() -> Program:
    return decode(encoded()[-1])


def test_unknown_types_are_refused():
    program = small()
    program.facts["what"] = SimpleNamespace()
    with pytest.raises(ProgramFormatError, match="SimpleNamespace can't be written down"):
        encode(program)


def test_foreign_storages_are_refused():
    program, other = small(), small()
    next(instructions(program.body)).args["src"] = next(instructions(other.body)).args["src"]
    with pytest.raises(ProgramFormatError, match="isn't among the storages"):
        encode(program)


def test_ordinals_must_be_the_program_order():
    program = small()
    next(instructions(program.body)).ordinal = 5
    with pytest.raises(ProgramFormatError, match="ordinals must count from 0"):
        encode(program)


def test_missing_arguments_are_refused():
    program = small()
    del next(instructions(program.body)).args["priority"]
    with pytest.raises(
        ProgramFormatError, match=r"has arguments dst, src, .*; allowed: dst, src, p"
    ):
        encode(program)
