"""Warnings that compiling a kernel brings; they travel as the fact `warnings` of its programs.

What AWS's compiler may refuse is kept as the policy asks (`Checks.refusals`): not where a device
ran a published kernel that does it, and not of functions of this package or of Python's library.

Each is a row: type, code, message, location, core, instruction, hint, numbers, None where there is
none. A launch of the kernel gives them again, and Python's filters decide what is shown; so does a
program that was saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from nki_dist import errors
from nki_dist.checks import Checks
from nki_dist.codes import EVIDENCE
from nki_dist.compiler.locations import is_users
from nki_dist.errors import CompilerMayRejectWarning, NkiWarning, plain, split_location
from nki_dist.program import Program

FACT: Final = "warnings"
TYPES: Final = {
    kind.__name__: kind
    for kind in (
        errors.CompilerMayRejectWarning,
        errors.NestedConfigWarning,
        errors.ReleaseWarning,
        errors.SpilledWarning,
        errors.UnreturnedOutputWarning,
        errors.UnwrittenOutputWarning,
    )
}


def is_due(warning: NkiWarning, checks: Checks) -> bool:
    """Whether a policy wants a warning; one that a device contradicts is given both sources."""
    if not isinstance(warning, CompilerMayRejectWarning):
        return True
    if checks.refusals == "off" or not is_users(split_location(warning.location)[0] or ""):
        return False
    evidence = EVIDENCE.get(warning.code)
    if evidence is not None:
        warning.message += f" ({evidence})"
    return evidence is None or checks.refusals == "all"


def note(program: Program, warning: NkiWarning) -> None:
    """Keep a warning with a program; the same one a second time isn't kept."""
    w = warning
    row = [type(w).__name__, w.code, w.message, w.location, plain(w.core), w.instruction]
    row += [w.own_hint, dict(w.numbers)]
    rows = program.facts.setdefault(FACT, [])
    if len(program.noted) != len(rows):  # rows that were read from a file
        program.noted = set(map(repr, rows))
    if (key := repr(row)) not in program.noted:
        program.noted.add(key)
        rows.append(row)


def noted(programs: Sequence[Program]) -> tuple[NkiWarning, ...]:
    """The warnings of a launch's programs; what several cores say of one line is said once."""
    found: dict[Any, NkiWarning] = {}
    for program in programs:
        for kind, code, message, *rest in program.facts.get(FACT, ()):
            given = dict(zip(("location", "core", "instruction", "hint", "numbers"), rest))
            key = kind, code, message, given["location"], given["instruction"]
            found.setdefault(key, TYPES[kind](message, code=code, **given))
    return tuple(found.values())


def well_formed(row: Any) -> bool:
    """Whether a row of the fact, read from a file, is one that `note` writes."""
    if type(row) is not list or len(row) != 8 or type(row[0]) is not str or row[0] not in TYPES:
        return False
    _, code, message, location, core, instruction, hint, numbers = row
    return (
        type(code) is str
        and type(message) is str
        and type(core) in (int, str, type(None))
        and all(text is None or type(text) is str for text in (location, instruction, hint))
        and type(numbers) is dict
    )
