"""Reads programs from bytes that may have been tampered with.

Purpose: give back exactly what `encode` wrote, and refuse everything else. A program may come from
a file or another machine, so nothing in it is believed: numbers must be in range, storages must fit
the platform, accesses must stay inside their storages, and every instruction must pass the checks
that the tracer applies to kernels.

Invariant: any input gives either a program that can be linked safely or a `ProgramFormatError`;
reading runs no code of the program's and allocates in proportion to its bytes.

Not checked: whether the program computes anything sensible, or ever ends.
"""

from __future__ import annotations

from typing import Any

from nki_dist import arch as architectures
from nki_dist.compiler.decode_body import BodyReader
from nki_dist.compiler.decode_facts import check_instructions, read_facts
from nki_dist.compiler.decode_tables import (
    INT64,
    Tables,
    integer,
    integers,
    numbered,
    sequence,
    text,
)
from nki_dist.compiler.encode import FIELDS
from nki_dist.compiler.values import Structure, read_value
from nki_dist.compiler.wire import PROGRAM, malformed, unpack
from nki_dist.errors import NkiError, ProgramFormatError
from nki_dist.isa.checks import check_size
from nki_dist.program import Access, Instruction, Program
from nki_dist.program.uncollected import uncollected


def decode(data: bytes, verify: bool = True) -> Program:
    """The program that `encode` turned into `data`.

    Args:
        verify: run the instructions' own constraint checks, too. Leave it on for anything that
            wasn't compiled and encoded by this very process.

    Raises:
        ProgramFormatError: damaged, of another version, or nothing a kernel could have become.
    """
    body = unpack(PROGRAM, data)
    try:
        with uncollected(acyclic=True):
            return _decoded(body, verify)
    except ProgramFormatError:
        raise
    except NkiError as error:
        malformed(error.message)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        # Constraint checks are written for what the tracer can produce and may stumble over less;
        # for the caller that is one more way to be malformed.
        malformed(f"a check stumbled over it ({type(error).__name__}: {error})")


def _decoded(body: Any, verify: bool) -> Program:
    if type(body) is not dict or tuple(body) != FIELDS:
        malformed(f"its parts aren't {', '.join(FIELDS)}")
    arch = architectures.get(text(body["platform"], "platform"))
    if arch.name != body["platform"]:
        malformed(f"platform {body['platform']!r} is a second name of {arch.name!r}")
    found = Tables(body, arch)
    program = found.program
    program.facts = read_facts(body["facts"], found)
    instructions = BodyReader(found, verify).read()
    check_instructions(program.facts, len(instructions))
    _order(body, instructions)
    access = numbered(found.accesses, "access")
    program.outputs = read_value(
        body["outputs"], access, lambda _: malformed("a register among the outputs")
    )
    _check_outputs(program.outputs)
    for s in program.storages:
        if s.last >= max(len(instructions), 1):
            malformed(f"{s.label} lives until instruction {s.last}; there are {len(instructions)}")
    return program


def _order(body: dict[str, Any], found: list[Instruction]) -> None:
    """Dependencies that the kernel asked for, and its no_reorder regions."""
    for row in sequence(body["after"], "the table of dependencies"):
        row = integers(row, "an entry of the table of dependencies")
        if len(row) < 2:
            malformed("an empty dependency")
        i = found[integer(row[0], 0, len(found), "a dependent instruction")]
        if i.after or not all(0 <= n < i.ordinal for n in row[1:]):
            malformed(f"instruction {i.ordinal} can't come after {row[1:]}")
        i.after = tuple(row[1:])
    groups = integers(body["groups"], "the table of no_reorder regions", 2)
    for ordinal, group in zip(groups[::2], groups[1::2], strict=True):
        i = found[integer(ordinal, 0, len(found), "an instruction of a no_reorder region")]
        if i.order_group:
            malformed(f"instruction {ordinal} is in two no_reorder regions")
        i.order_group = integer(group, 1, INT64, "a no_reorder region")


def _check_outputs(tree: Any) -> None:
    """Leaves are tensors that the launcher can read: arguments and shared allocations."""
    if isinstance(tree, Structure):
        tree = tree.fields
    if isinstance(tree, (list, tuple, dict)):
        for value in tree.values() if isinstance(tree, dict) else tree:
            _check_outputs(value)
    elif isinstance(tree, Access):
        if tree.storage.role == "local" or tree.dynamic is not None:
            malformed(f"the output {tree!r} isn't in shared_hbm")
        check_size("the output", tree, tree.storage.nbytes, "its tensor")
    elif tree is not None:
        malformed(f"the output {tree!r} of type {type(tree).__name__}; allowed: tensors and None")
