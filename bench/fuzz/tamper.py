"""Tampering with program files, by what they hold: most results have checksums that fit.

`tampered(seed, n)` is the n-th file of a seed; it depends on nothing else. A twentieth is damaged
bytes as they are, a tenth damaged bytes under right checksums. The others are taken apart to the
values of their programs, changed in one to four places, and sealed again. Fields are chosen before
places inside them, so that a loop's bound is met as often as one of a thousand operands.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from functools import cache
from typing import Any, Final

from bench.fuzz.corpus import Intact, corpus
from bench.fuzz.values import (
    DTYPES,
    FLOATS,
    HUGE,
    INTS,
    STEPS,
    anywhere,
    damaged,
    leaves,
    other_than,
    replace_all,
    words,
)
from nki_dist.compiler import wire
from nki_dist.compiler.decode_tables import REGIONS
from nki_dist.compiler.values import DTYPE, ENUM, ENUMS
from nki_dist.errors import ProgramFormatError
from nki_dist.isa import INSTRUCTIONS

Body = dict[str, Any]


def sealed(data: bytes) -> bytes:
    """The same bytes with a checksum that fits."""
    return data[:6] + struct.pack("<I", zlib.crc32(data[10:])) + data[10:]


def tampered(seed: int, n: int) -> tuple[Intact, bytes]:
    """The n-th tampered file of a seed, and what it was made of."""
    rng = random.Random(f"{seed}/{n}")
    files = corpus()
    one = files[n % len(files)]
    how = rng.random()
    if how < 0.05:
        return one, damaged(one.data, rng)
    if how < 0.15:
        return one, _damaged_inside(one.data, rng)
    inputs, programs = _apart(one)
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        # A change may not apply to what an earlier one left: it is done in part, or not at all.
        with suppress(AttributeError, LookupError, TypeError, ValueError):
            _change(inputs, programs, rng)
    try:
        return one, _together(inputs, programs)
    except (ProgramFormatError, ValueError, TypeError, OverflowError):
        return one, _damaged_inside(one.data, rng)  # msgpack can't hold what came out


@cache
def _parts(data: bytes) -> tuple[Any, list[Body]]:
    body = wire.unpack(wire.COMPILED, data)
    return body["inputs"], [wire.unpack(wire.PROGRAM, p) for p in body["programs"]]


def _apart(one: Intact) -> tuple[Any, list[Body]]:
    return deepcopy(_parts(one.data))


def _together(inputs: Any, programs: list[Body]) -> bytes:
    packed = [p if isinstance(p, bytes) else wire.pack(wire.PROGRAM, p) for p in programs]
    return wire.pack(wire.COMPILED, {"programs": packed, "inputs": inputs})


# ---- bytes ------------------------------------------------------------------------------------


def _damaged_inside(data: bytes, rng: random.Random) -> bytes:
    """Damage behind both headers: only what the values say can be wrong, or the msgpack."""
    body = wire.unpack(wire.COMPILED, data)
    which = rng.randrange(len(body["programs"]))
    program = body["programs"][which]
    start = 11 + program[10]
    body["programs"][which] = sealed(program[:start] + damaged(program[start:], rng))
    return wire.pack(wire.COMPILED, body)


# ---- values -----------------------------------------------------------------------------------


def _change(inputs: Any, programs: list[Any], rng: random.Random) -> None:
    if rng.random() < 0.06:
        return anywhere(inputs, rng, {"inputs": inputs})
    if rng.random() < 0.03:
        return _whole_programs(programs, rng)
    program = rng.choice(programs)
    if not isinstance(program, dict) or not program:
        return None
    rng.choice(_CHANGES)(program, inputs, programs, rng)
    return None


def _field(program: Body, inputs: Any, programs: list[Any], rng: random.Random) -> None:
    """Any place of one field."""
    field = rng.choice(list(program))
    if isinstance(program[field], (list, dict)) and program[field] and rng.random() < 0.95:
        anywhere(program[field], rng, program)
    else:
        program[field] = other_than(program[field], rng, program)


def _everywhere(program: Body, inputs: Any, programs: list[Any], rng: random.Random) -> None:
    """One number or name for another, wherever it stands: what was consistent may stay so."""
    fields = rng.choice((("kinds", "patterns"), ("patterns",), ("kinds", "patterns", "forms"),
                         ("forms",), ("patterns", "accesses")))  # fmt: skip
    found = [v for f in fields for v in leaves(program.get(f)) if type(v) in (int, str)]
    if not found:
        return
    old = rng.choice(found)
    new = rng.choice(DTYPES) if old in DTYPES else other_than(old, rng, program)
    for p in programs:
        if isinstance(p, dict):
            for f in fields:
                replace_all(p.get(f), old, new)
    replace_all(inputs, old, new)


def _operands(program: Body, inputs: Any, programs: list[Any], rng: random.Random) -> None:
    """Operands, forms and loops among each other: every number stays one that exists."""
    code = program.get("code")
    if not isinstance(code, list) or len(code) < 4:
        return
    for _ in range(rng.choice((1, 2, 4))):
        a, b = rng.randrange(len(code)), rng.randrange(len(code))
        kind = rng.randrange(4)
        if kind == 0:
            code[a], code[b] = code[b], code[a]
        elif kind == 1:
            code[a] = code[b]
        elif isinstance(code[a], int):
            code[a] += rng.choice((-2, -1, 1, 2))


def _attributes(program: Body, inputs: Any, programs: list[Any], rng: random.Random) -> None:
    """An argument of an instruction becomes that of another, of this file or of any."""
    forms = program.get("forms")
    donor = rng.choice((program, _parts(rng.choice(corpus()).data)[1][0]))
    others = donor.get("forms")
    if not isinstance(forms, list) or not forms or not isinstance(others, list) or not others:
        return
    mine, other = rng.choice(forms), rng.choice(others)
    if not isinstance(mine, list) or not isinstance(other, list) or not mine or not other:
        return
    kind = rng.randrange(4)
    if kind == 0:
        forms[forms.index(mine)] = deepcopy(other)
    elif kind == 1:
        mine[0] = other[0]
    else:
        mine[rng.randrange(len(mine))] = deepcopy(rng.choice(other))


def _argument(program: Body, inputs: Any, programs: list[Any], rng: random.Random) -> None:
    """Another value that an argument might well have: a member, a number, an engine, None."""
    row = rng.choice(program["forms"])
    spec = INSTRUCTIONS[row[0]]
    at = rng.randrange(1, len(row))
    old = row[at]
    if at == 1:
        row[at] = rng.choice(spec.engines)
    elif isinstance(old, list) and old[:1] == [ENUM]:
        row[at] = [ENUM, old[1], rng.choice(list(ENUMS[old[1]].__members__))]
    elif isinstance(old, list) and old[:1] == [DTYPE]:
        row[at] = [DTYPE, rng.choice(DTYPES)]
    elif type(old) is str:
        row[at] = rng.choice(words())
    elif isinstance(old, list) and len(old) > 1 and rng.random() < 0.8:
        anywhere(old, rng, program)
    else:
        row[at] = rng.choice(
            (None, True, False, *INTS, *FLOATS, 0, 1, 2, 0.5, 2.0, HUGE, [0, 0, 0])
        )


def _memories(program: Body, inputs: Any, programs: list[Any], rng: random.Random) -> None:
    """A tensor of another type or in another memory, its accesses with it."""
    kind = rng.choice(program["kinds"])
    if rng.random() < 0.3:
        kind[0] = rng.choice(sorted(REGIONS))
        return
    old, new = kind[2], rng.choice(DTYPES)
    for table, column in ((program["kinds"], 2), (program["patterns"], 0), (inputs, 2)):
        for row in table:
            if row[column] == old:
                row[column] = new


def _places(program: Body, inputs: Any, programs: list[Any], rng: random.Random) -> None:
    """Operands at other places of their tensors, or of others that have room for them."""
    columns = program["accesses"]
    column = rng.choice((0, 1, 1, 2))
    for _ in range(rng.choice((1, 1, 3))):
        at = rng.randrange(len(columns[column]))
        if column == 1:
            columns[1][at] = max(columns[1][at] + rng.choice(STEPS), 0)
        else:
            columns[column][at] = rng.choice(columns[column])


def _tables(program: Body, inputs: Any, programs: list[Any], rng: random.Random) -> None:
    """A table of another file of the corpus."""
    field = rng.choice(list(program))
    program[field] = deepcopy(_parts(rng.choice(corpus()).data)[1][0].get(field))


def _loops(program: Body, inputs: Any, programs: list[Any], rng: random.Random) -> None:
    """Rounds, steps and registers of a loop; or a loop around what had none."""
    loops, code = program.get("loops"), program.get("code")
    if not isinstance(loops, list) or not isinstance(code, list):
        return
    if not loops and type(program.get("registers")) is int:
        rounds = rng.choice((0, 1, 3, 10**3, 10**9, 1 << 62))
        row = ["for", -1, program["registers"], 0, rounds, 1, None, rng.choice((0, 10**3))]
        row[7] = min(row[7], len(program.get("storages") or ()) // 6)
        program["registers"] += 1
        loops.append(row)
        program["code"] = [-1, 0, *code, -2]
        return
    row = rng.choice(loops) if loops else None
    if isinstance(row, list) and row:
        row[rng.randrange(len(row))] = rng.choice(
            (
                0,
                1,
                2,
                3,
                10,
                1000,
                10**9,
                1 << 31,
                1 << 62,
                -1,
                None,
                "for",
                "while",
                [8, 0],
                [8, 1],
            )
        )


def _facts(program: Body, inputs: Any, programs: list[Any], rng: random.Random) -> None:
    """What the passes found out: storages, ordinals, files."""
    name = rng.choice(("poison", "watched", "runtime_psum", "precise_fp", "files", "unplaced",
                       "unwritten_outputs", "uninitialised_reads", "peak_hbm", "x"))  # fmt: skip
    count = len(program.get("storages") or ()) // 6 or 1
    some = [0, *(rng.randrange(-1, 2 * count) for _ in range(rng.randrange(6)))]
    value = rng.choice((some, some, some, 0, None, [0], [1, 0], [4, 0, 1], [0, [1, "f", 1.5, 2]]))
    facts = program.get("facts")
    if not isinstance(facts, list) or rng.random() < 0.1:
        program["facts"] = [2, name, value]
        return
    at = next((k for k, key in enumerate(facts) if key == name and k % 2), None)
    if at is None:
        facts += [name, value]
    elif rng.random() < 0.2:
        del facts[at : at + 2]
    else:
        facts[at + 1 : at + 2] = [value]


def _dynamics(program: Body, inputs: Any, programs: list[Any], rng: random.Random) -> None:
    """A run-time address for an access that had none, or another one."""
    rows, columns = program.get("dynamics"), program.get("accesses")
    if not isinstance(rows, list) or not isinstance(columns, list) or not columns:
        return
    count = len(columns[0]) if isinstance(columns[0], list) else 0
    if not count:
        return
    number = rng.randrange(count)
    source = rng.choice((-1, -2, rng.randrange(number + 1)))
    kind = rng.choice(("scalar", "vector", "tensor"))
    row = [number, kind, source, rng.choice((0, 1, 2, 5, 8, -1, 1 << 40)),
           rng.choice((0, 1, 3, 5, 9, 1 << 40)), rng.choice((0, 1, 3))]  # fmt: skip
    if rows and rng.random() < 0.7 and isinstance(rows[0], list):
        old = rng.choice(rows)
        if isinstance(old, list) and len(old) == 6:
            at = rng.randrange(6)
            old[at] = row[at]
    else:
        rows.append(row)
    if rng.random() < 0.3:
        program["registers"] = 3


def _shapes(program: Body, inputs: Any, programs: list[Any], rng: random.Random) -> None:
    """Dimensions and strides of a pattern or storage: other sizes, or more of them."""
    rows = program.get(rng.choice(("kinds", "patterns", "patterns")))
    row = rng.choice(rows) if isinstance(rows, list) and rows else None
    if not isinstance(row, list) or len(row) < 3:
        return
    shape, strides = row[1], row[2]
    if not isinstance(shape, list) or not shape:
        return
    kind = rng.randrange(6)
    if kind == 0:
        shape[rng.randrange(len(shape))] = rng.choice(INTS)
    elif kind == 1 and isinstance(strides, list) and strides:
        strides[rng.randrange(len(strides))] = rng.choice((0, 0, 1, 2, -1, *INTS))
    elif kind == 2:
        more = rng.choice((1, 1, 2, 3, 29, 40))
        shape[1:1] = [1] * more
        if isinstance(strides, list):
            strides[1:1] = [rng.choice((0, 1, 5))] * more
    elif kind == 3 and isinstance(strides, list):
        repeats = rng.choice((2, 100, 1 << 16, 1 << 24, 1 << 30))
        shape.insert(1, repeats)
        strides.insert(1, 0)
    elif kind == 4 and len(shape) > 1:
        at = rng.randrange(len(shape))
        for part in (shape, strides):
            if isinstance(part, list) and len(part) > at:
                part.pop(at)
    else:
        rng.shuffle(shape)


_CHANGES: Final[tuple[Callable[..., None], ...]] = (
    *[_field] * 5, *[_everywhere] * 3, *[_operands] * 3, *[_attributes] * 2, *[_argument] * 8,
    *[_memories] * 3, *[_places] * 4, _tables, *[_loops] * 2,
    *[_facts] * 2, *[_dynamics] * 2, *[_shapes] * 4,
)  # fmt: skip


def _whole_programs(programs: list[Any], rng: random.Random) -> None:
    kind = rng.randrange(4)
    if kind == 0:
        programs.append(deepcopy(rng.choice(programs)))
    elif kind == 1:
        programs[:] = deepcopy(_parts(rng.choice(corpus()).data)[1])
    elif kind == 2:
        del programs[rng.randrange(len(programs))]
    else:
        rng.shuffle(programs)
