"""The edges of `kernel.with_schedule`: instructions that wait for others, both given by name.

An edge becomes what `depends_on` makes, so it costs a semaphore's time where the engines differ and
results can't change. Names belong to one call of the scheduled kernel: each program instance has
its own. A core may lack an instruction (`if nl.program_id(0) == 0:`); its edges are left out there,
but a name that no core has is refused. Programs keep the order of the kernel's lines, so an edge
against that order is refused, too; AWS's compiler, which chooses the order, may accept it.

Follows: nki/guides/how-to-scheduling-apis.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from nki_dist.errors import NkiValidationError, invalid
from nki_dist.isa.handle import NkiInstruction
from nki_dist.isa.spec import current_tracer
from nki_dist.program import Program

Edges: TypeAlias = "tuple[tuple[str, tuple[str, ...]], ...]"

_FACT: Final = "scheduled"  # name -> whether this core has it; taken out by check_schedule


def edges_of(schedule: Any) -> Edges:
    """Pairs (name, name or list of names) in one form.

    Raises:
        NkiValidationError: that isn't what `schedule` is.
    """
    if isinstance(schedule, Mapping) or not isinstance(schedule, Iterable):
        raise _wrong_form(schedule)
    return tuple(_edge(pair) for pair in schedule)


def _edge(pair: Any) -> tuple[str, tuple[str, ...]]:
    if isinstance(pair, (tuple, list)) and len(pair) == 2:
        later, earlier = pair
        names = [earlier] if isinstance(earlier, str) else earlier
        if isinstance(names, (tuple, list)) and all(isinstance(n, str) for n in (later, *names)):
            return later, tuple(names)
    raise _wrong_form(pair)


def _wrong_form(got: Any) -> NkiValidationError:
    return NkiValidationError(
        f"with_schedule got {got!r}; it takes a list of pairs (name, name or list of names): the "
        "first instruction runs after the others",
        code="schedule",
    )


def with_edges(function: Callable[..., Any], edges: Edges) -> Callable[..., Any]:
    """The function of a kernel, adding the edges whenever it is traced."""

    @functools.wraps(function)
    def scheduled(*args: Any, **kwargs: Any) -> Any:
        with current_tracer().schedule(edges):
            return function(*args, **kwargs)

    return scheduled


def add_edges(
    edges: Edges,
    named: Mapping[str, list[NkiInstruction]],
    program: Program,
    where: Callable[[int], str | None],
) -> None:
    """Make the named instructions of one call of a kernel wait for each other.

    Args:
        named: the instructions of each name.
        program: the one that is being traced.
        where: `file:line` of a location number.

    Raises:
        NkiValidationError: a name stands for several instructions, or an edge can't be kept.
    """
    seen = program.facts.setdefault(_FACT, {})
    for later, earlier in edges:
        for name in (later, *earlier):
            seen[name] = seen.get(name, False) or name in named
        for name in earlier:
            if later in named and name in named:
                for several in (later, name):
                    _refuse_several(several, named[several], where)
                _add(later, named[later][0], name, named[name][0], where)


def _add(
    later: str,
    after: NkiInstruction,
    earlier: str,
    before: NkiInstruction,
    where: Callable[[int], str | None],
) -> None:
    i = after.instruction
    rule = f"the schedule wants {later!r} after {earlier!r}"
    if before.instruction.ordinal >= i.ordinal:
        message = (
            f"{rule}, but the kernel issues it before, and programs run in the order of the "
            "kernel's lines here; issue them in the other order"
        )
        raise NkiValidationError(message, location=where(i.location), code="schedule")
    try:
        after.depends_on(before)
    except NkiValidationError as error:
        message = f"{rule}: {error.message}"
        raise NkiValidationError(message, location=where(i.location), code="schedule") from None


def _refuse_several(
    name: str, found: list[NkiInstruction], where: Callable[[int], str | None]
) -> None:
    if len(found) > 1:
        raise NkiValidationError(
            f"the schedule names {name!r}, and {len(found)} instructions are called so; give each "
            'a name of its own, such as name=f"act{i}"',
            location=where(found[1].instruction.location),
            code="schedule",
            numbers={"got": len(found), "allowed": 1},
        )


def check_schedule(programs: Sequence[Program]) -> None:
    """Refuse names that no core knows.

    Raises:
        NkiValidationError: with the names.
    """
    seen = [program.facts.pop(_FACT, {}) for program in programs]
    names_asked = dict.fromkeys(name for names in seen for name in names)
    unknown = [name for name in names_asked if not any(names.get(name) for names in seen)]
    if unknown:
        message = (
            f"the schedule of {programs[0].kernel} names {', '.join(map(repr, unknown))}, but no "
            "instruction is called so; names are given by name= in the instruction's call"
        )
        raise invalid(message, code="schedule")
