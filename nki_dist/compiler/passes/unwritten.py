"""Returned tensors with elements that nobody stores.

A store counts as sure where the program alone says that it happens and where: what a run-time loop,
index or predicate decides may have happened. So an element of a returned tensor is surely stored,
perhaps, or never. Those that never are get reported here; where some perhaps are, the storage is
noted, and what memory holds after a run tells (`launcher.unwritten`).

Doesn't follow values: elements stored from memory that nobody wrote are for `taint`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, TypeAlias

from nki_dist.checks import Checks
from nki_dist.compiler.missing import Mask, unwritten_output
from nki_dist.compiler.notes import note
from nki_dist.compiler.passes.elements import LARGEST, Elements, covers
from nki_dist.errors import NkiError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Program, Storage, instructions
from nki_dist.program.walk import returned

DOUBTFUL: Final = "doubtful_outputs"
UNSTORED: Final = "unstored_outputs"
REPLACED: Final = "replaced"
WRITTEN_INPUTS: Final = "written_inputs"

# By (role, index) of the storage: the access, and whether the store surely happens.
Stored: TypeAlias = "dict[tuple[str, int], list[tuple[Access, bool]]]"


def check_outputs(
    programs: Sequence[Program],
    stored: Sequence[Stored],
    complete: Collection[int],
    checks: Checks,
) -> set[int]:
    """Report what is never stored, and note what only a run can tell.

    Args:
        programs, stored: per core.
        complete: numbers of the first core's storages that are known to be stored in whole.

    Sets facts of the first core: `doubtful_outputs`, numbers of the returned storages to look at
    after a run, and `unstored_outputs`, of those that are an error then: cores that wait for each
    other may have a mistake that explains it, and that comes first.

    Returns:
        Numbers of the returned storages of the first core that all cores together store in whole.

    Raises:
        UninitializedReadError: nothing is ever stored in a returned tensor, or with
            `unwritten="strict"` not everything.
    """
    first = programs[0]
    doubtful: set[int] = set()
    unstored: set[int] = set()
    whole: set[int] = set()
    body = (i for p in programs for i in instructions(p.body))
    waits = any(INSTRUCTIONS[i.opcode].synchronises for i in body)
    for path, place in returned(first.outputs):
        s = place.storage
        if s.role != "shared":
            continue
        if s.number in complete:
            whole.add(s.number)
            continue
        stores = [pair for core in stored for pair in core.get(s.key, ())]
        if any(sure and covers(a) for a, sure in stores):
            whole.add(s.number)
            continue
        if s.nbytes // s.dtype.itemsize > LARGEST:
            doubtful.add(s.number)
            continue
        missing = ~_reached(s, [a for a, sure in stores if sure], place)
        if not missing.any():
            if covers(place):
                whole.add(s.number)
            continue
        if not all(sure for _, sure in stores):
            never = missing & ~_reached(s, [a for a, _ in stores], place)
            if (missing != never).any():
                doubtful.add(s.number)
                if not checks.strict or not never.any():
                    continue  # once is enough: the run tells the rest, too
            missing = never
        fatal = checks.strict or (bool(missing.all()) and not checks.defined)
        found = unwritten_output(first, path, s, missing, fatal)
        if not isinstance(found, NkiError):
            note(first, found)
        elif missing.all() and waits:
            unstored.add(s.number)
        else:
            raise found
    first.facts[DOUBTFUL] = sorted(doubtful)
    first.facts[UNSTORED] = sorted(unstored)
    return whole


def _reached(s: Storage, stores: Sequence[Access], place: Access) -> Mask:
    """Which elements of `place` some store may reach, in its shape."""
    everywhere = any(a.dynamic is not None or covers(a) for a in stores)
    reached = Elements(s, everywhere)
    if not everywhere:
        for a in stores:
            reached.units(a)[...] = True
    return reached.any(place)
