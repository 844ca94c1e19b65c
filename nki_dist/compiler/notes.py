"""Warnings that compiling a kernel brings; they travel as the fact `warnings` of its programs.

Each is a row: type, message, location, core, instruction, hint, None where there is none. A launch
of the kernel gives them again, and Python's filters decide what is shown; so does a program that
was saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nki_dist import errors
from nki_dist.errors import NkiWarning
from nki_dist.program import Program

FACT: Final = "warnings"
TYPES: Final = {
    kind.__name__: kind
    for kind in (
        errors.CompilerMayRejectWarning,
        errors.UnreturnedOutputWarning,
        errors.UnwrittenOutputWarning,
    )
}


def note(program: Program, warning: NkiWarning) -> None:
    """Keep a warning with a program; the same one a second time isn't kept."""
    row = [
        type(warning).__name__,
        warning.message,
        warning.location,
        warning.core,
        warning.instruction,
        warning.hint,
    ]
    rows = program.facts.setdefault(FACT, [])
    if row not in rows:
        rows.append(row)


def noted(programs: Sequence[Program]) -> tuple[NkiWarning, ...]:
    """The warnings of a launch's programs; what several cores say of one line is said once."""
    found: dict[Any, NkiWarning] = {}
    for program in programs:
        for kind, message, location, core, instruction, hint in program.facts.get(FACT, ()):
            made = TYPES[kind](
                message, location=location, core=core, instruction=instruction, hint=hint
            )
            found.setdefault((kind, message, location, instruction), made)
    return tuple(found.values())


def well_formed(row: Any) -> bool:
    """Whether a row of the fact, read from a file, is one that `note` writes."""
    if type(row) is not list or len(row) != 6 or row[0] not in TYPES or type(row[1]) is not str:
        return False
    location, core, *texts = row[2:]
    return type(core) in (int, str, type(None)) and all(
        text is None or type(text) is str for text in (location, *texts)
    )
