"""Damaged and inconsistent programs: refused with a typed error, whatever is wrong with them."""

from __future__ import annotations

import random
import struct
import zlib
from typing import Any

import pytest

from bench.fuzz.values import damaged
from nki_dist import dtypes
from nki_dist.compiler import wire
from nki_dist.compiler.decode import decode
from nki_dist.compiler.encode import encode
from nki_dist.errors import NkiError, ProgramFormatError
from nki_dist.program import (
    MemoryRegion,
    Program,
    Storage,
    instructions,
)
from tests.compiler import programs
from tests.compiler.programs import encoded

# ---- damage ---------------------------------------------------------------------------------


def resealed(data: bytes) -> bytes:
    """The same bytes with a checksum that fits."""
    return data[:6] + struct.pack("<I", zlib.crc32(data[10:])) + data[10:]


def test_other_versions_are_named():
    data = encoded()[0]
    newer = resealed(data[:4] + struct.pack("<H", 7) + data[6:])
    with pytest.raises(ProgramFormatError, match=r"version 7, written by .* reads only version 2"):
        decode(newer)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "0 bytes; the header alone has 11"),
        (b"ELF" * 9, "starts with b'ELFE', a program starts with b'NKIP'"),
        ("text", "a program is bytes, got str"),
    ],
)
def test_other_data_is_refused(data, message):
    with pytest.raises(ProgramFormatError, match=message):
        decode(data)


def test_every_truncation_is_refused():
    data = encoded()[-1]
    for end in range(0, len(data), 7):
        with pytest.raises(ProgramFormatError):
            decode(data[:end])


def test_every_flipped_bit_is_found_by_the_checksum():
    data = encoded()[-1]
    for at in range(4, len(data), 11):
        flipped = bytearray(data)
        flipped[at] ^= 1 << at % 8
        with pytest.raises(ProgramFormatError, match=r"checksum|format version"):
            decode(bytes(flipped))


def edited(data: bytes, **changes: Any) -> bytes:
    """A program with parts of its body replaced, sealed again."""
    body = wire.unpack(wire.PROGRAM, data)
    for field, change in changes.items():
        body[field] = change(body[field]) if callable(change) else change
    return wire.pack(wire.PROGRAM, body)


def first_replaced(value: Any) -> Any:
    return lambda rows: [value, *rows[1:]]


def changed_fact(name: str, value: Any) -> Any:
    """The facts with one of them changed or added."""

    def change(facts: list[Any]) -> list[Any]:
        pairs = dict(zip(facts[1::2], facts[2::2], strict=True))
        return [2, *(part for pair in {**pairs, name: value}.items() for part in pair)]

    return change


def repeated(patterns: list[Any]) -> list[Any]:
    """The first pattern with every row 2**19 times."""
    dtype, (rows, *columns), strides = patterns[0]
    return [[dtype, [rows, 1 << 19, *columns], [strides[0], 0, *strides[1:]]], *patterns[1:]]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"platform": "trn9"}, "unknown platform: got 'trn9'"),
        ({"platform": "gen3"}, "second name of 'trn2'"),
        ({"core": 1}, "the core is 1; allowed: 0 to 0"),
        ({"registers": 1 << 60}, "registers is 1152921504606846976; allowed: 0 to 1048576"),
        ({"registers": 0}, "a register is 0"),
        ({"kinds": first_replaced(["shared_hbm", [1 << 40], "float32", "input"])}, "than HBM"),
        ({"kinds": first_replaced(["sbuf", [129, 4], "float32", "local"])}, "doesn't fit trn2"),
        ({"kinds": first_replaced(["sbuf", [4, 4], "float64", "local"])}, "data type 'float64'"),
        ({"kinds": first_replaced(["dram", [4, 4], "float32", "local"])}, "in memory 'dram'"),
        ({"patterns": first_replaced(["float32", [16, 13], [12, 1]])}, "leaves tx"),
        ({"patterns": first_replaced(["float32", [16, 1], [12, 1 << 62]])}, "strides .*; allowed"),
        ({"patterns": first_replaced(["float32", [16] * 33, [1] * 33])}, "1 to 32 ints"),
        ({"patterns": first_replaced(["float32", [1 << 40, 12], [0, 1]])}, "larger than HBM"),
        ({"forms": lambda f: [["jump", "sync"], *f[1:]]}, "no instruction 'jump'"),
        ({"forms": lambda f: [[f[0][0], "tensor", *f[0][2:]], *f[1:]]}, "on engine 'tensor'"),
        ({"forms": lambda f: [[*f[0], None], *f[1:]]}, "dma_copy with 7 arguments"),
        ({"forms": lambda f: [[*f[0][:4], 1.5, *f[0][5:]], *f[1:]]}, "priority=1.5"),
        ({"forms": lambda f: [[*f[0][:4], 2, *f[0][5:]], *f[1:]]}, "priority needs NeuronCore-v4"),
        ({"code": lambda c: [*c[:1], 99, *c[2:]]}, "location 99 of an instruction"),
        ({"code": lambda c: c[:-1]}, "ends inside an instruction"),
        ({"code": lambda c: [77, *c]}, "77 where an instruction should begin"),
        ({"code": lambda c: [*c, -2]}, "-2 where an instruction should begin"),
        ({"loops": lambda rows: [*rows, rows[0]]}, "a loop without end, or one that isn't used"),
        ({"loops": lambda rows: [["for", *rows[0][1:5], 0, *rows[0][6:]]]}, "a loop's step is 0"),
        ({"after": [[0, 0]]}, "instruction 0 can't come after"),
        ({"groups": [0, 0]}, "a no_reorder region is 0"),
        ({"outputs": 3}, "the output 3 of type int"),
        ({"outputs": [7, 0]}, "isn't in shared_hbm"),
        ({"facts": [2, "runtime_psum", [0, 0]]}, "can't accumulate matmuls; only PSUM"),
        ({"facts": [2]}, "accumulated at run time but isn't listed"),
        ({"facts": [2, "files", [0, 1]]}, "the file 1; allowed"),
        ({"facts": [2, "files", None]}, "the fact files is of type NoneType; allowed: a list"),
        ({"facts": [2, "poison", [0, 99]]}, "a storage in the fact poison is 99; allowed: 0 to"),
        ({"facts": [2, "runtime_psum", None]}, "the fact runtime_psum is of type NoneType"),
        ({"facts": [2, "unrolled", [0, [0, 4]]]}, "in the fact unrolled"),
        ({"facts": changed_fact("watched", 0)}, "the fact watched is of type int; allowed: a list"),
        ({"facts": changed_fact("watched", [0, 99])}, "an instruction in the fact watched is 99"),
        ({"facts": changed_fact("peak_hbm", -1)}, "the fact peak_hbm is -1; allowed: 0 to"),
        ({"facts": changed_fact("zeroed", 1)}, "the fact zeroed is 1; allowed: True"),
        ({"facts": changed_fact("precise_fp", False)}, "the fact precise_fp is False; allowed: 0"),
        ({"facts": changed_fact("warnings", [0, [0, [0], "x"]])}, "the warning"),
        ({"facts": changed_fact("doubtful_outputs", [0, 0])}, "in0.* it isn't shared"),
        ({"facts": changed_fact("open_reads", [0, 0])}, "in0.* it isn't shared"),
        ({"patterns": first_replaced(["float32", [1 << 20], [1 << 40]])}, "reaches over 46"),
        ({"patterns": repeated}, "repeats the elements of tx"),
        ({"storages": lambda s: [*s[:3], 99, *s[4:]]}, "lives until instruction 99"),
        ({"storages": lambda s: [*s[:2], 1, 1, *s[4:]]}, "uses in0.*, which lives from 1 to 1"),
        ({"storages": lambda s: [*s[:20], -1, *s[21:]]}, "uses tx.*, which lives from -1 to 4"),
        ({"storages": lambda s: [*s[:17], 0, *s[18:]]}, "written, but not marked so"),
    ],
)
def test_inconsistent_programs_are_refused(changes, message):
    """The checksum fits, so it is the validation that refuses."""
    with pytest.raises(ProgramFormatError, match=message):
        decode(edited(encoded()[-1], **changes))


def test_run_time_addresses_fit_64_bits():
    """Rows far apart, many of them, and a pattern that begins far before its tensor."""
    loops, gather = encoded()[2:4]
    (row,) = wire.unpack(wire.PROGRAM, gather)["dynamics"]
    far = [[*row[:3], 1 << 40, 1 << 20, *row[5:]]]
    with pytest.raises(ProgramFormatError, match="1048576 places, 1099511627776 elements apart"):
        decode(edited(gather, dynamics=far))
    rows = wire.unpack(wire.PROGRAM, loops)["dynamics"]
    free = [r[:6] for r in rows]  # without dimension, as of .ap: the address counts alone
    decode(edited(loops, dynamics=free))

    def before(columns):
        where, offsets, which = columns
        offsets = [-(1 << 60) if n == free[0][0] else o for n, o in enumerate(offsets)]
        return [where, offsets, which]

    with pytest.raises(ProgramFormatError, match=r"at offset -1152921504606846976 leaves"):
        decode(edited(loops, dynamics=free, accesses=before))


@pytest.mark.parametrize("decided", ["", "replace at times", ["add"], None, 1])
def test_matmuls_carry_what_the_pass_decided(decided):
    def undecided(forms):
        return [[*f[:-1], decided] if f[0] == "nc_matmul" else f for f in forms]

    with pytest.raises(ProgramFormatError, match="nc_matmul: accumulate is None, decided"):
        decode(edited(encoded()[-1], forms=undecided))


def test_what_is_decided_is_what_the_kernel_asked_for():
    program = decode(encoded()[-1])
    i = next(i for i in instructions(program.body) if i.opcode == "nc_matmul")
    i.args["accumulate"], i.accumulation = False, "add"
    with pytest.raises(ProgramFormatError, match="accumulate is False, decided 'add'"):
        decode(encode(program))


def test_nested_values_have_a_limit():
    deep: Any = 1
    for _ in range(40):
        deep = [0, deep]
    with pytest.raises(ProgramFormatError, match="at depth 24"):
        decode(edited(encoded()[-1], facts=[2, "deep", deep]))


def test_storages_alive_at_once_have_a_limit():
    """100 tensors of 1 GiB, all alive: nobody has that HBM."""
    program = Program("k", "trn2", 0, 1)
    for n in range(100):
        region = MemoryRegion.private_hbm
        program.storages.append(Storage(n, region, (1 << 28,), dtypes.float32))
    with pytest.raises(ProgramFormatError, match="local tensors are alive at once"):
        decode(encode(program))


def mutated(data: bytes, rng: random.Random) -> bytes:
    """One to three random edits; half of the results get a checksum that fits."""
    changed = damaged(data, rng, (1, 1, 2, 3))
    return resealed(changed) if rng.random() < 0.5 and len(changed) > 10 else changed


def rewritten(data: bytes, rng: random.Random) -> bytes:
    """One value somewhere in the body replaced by another, sealed: gets past msgpack."""
    body = wire.unpack(wire.PROGRAM, data)
    at: Any = body
    while True:
        keys = list(at) if isinstance(at, dict) else range(len(at))
        if not keys:
            return wire.pack(wire.PROGRAM, body)
        key = rng.choice(keys)
        if not isinstance(at[key], (list, dict)):
            break
        at = at[key]
    old = at[key]
    if isinstance(old, int) and rng.random() < 0.7:
        at[key] = old + rng.choice((-64, -4, -2, -1, 1, 2, 3, 4, 16, 128, 4096))
    else:
        at[key] = rng.choice(
            (None, True, -1, 0, 1, 2, 1 << 62, -(1 << 63), 1.5, "", "psum", [], {})
        )
    return wire.pack(wire.PROGRAM, body)


def survives(data: bytes) -> bool:
    """Whether it decodes; what does is linked, and neither may fail with another error."""
    try:
        program = decode(data)
    except ProgramFormatError:
        return False
    assert encode(decode(encode(program))) == encode(program)
    try:
        programs.link(program)
    except NkiError:
        return True
    return True


@pytest.mark.parametrize("change", [mutated, rewritten])
def test_mutations_never_crash(change):
    rng = random.Random(2026)
    refused = 0
    for n in range(1000):
        refused += not survives(change(encoded()[n % len(encoded())], rng))
    assert 0 < refused < 1000
