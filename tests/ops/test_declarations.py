"""What functions declare to read and write, to leave, raise and show, against what they do.

A wrong declaration is a silent race, as what may run at the same time follows from it. So every
function is tried as instructions call it, and by itself where it is one of a table. To see that the
trying would find it, everything that is declared is left out once.
"""

from __future__ import annotations

import pytest

import nki_dist.linking.link  # noqa: F401 - whose functions are declared with it
from nki_dist.isa.alu import ALU
from nki_dist.ops.function import Function, functions
from nki_dist.ops.operation import RegisterNumber
from nki_dist.ops.place import Place
from tests.ops.samples import samples
from tests.ops.trying import declared, faults, without

CONVERT = "convert "
NAMES = [f.name for f in functions() if not f.name.startswith(CONVERT)]

# Functions that aren't prepared for all values of an argument, and who has seen to it.
INSIDE = {"put columns": "look up columns", "mark columns": "look up columns"}

# Functions that do the same whatever they are given.
SAME = {"alu.no f32", "alu.not elementwise", f"{CONVERT}float8_e8m0fnu bool_"}

UNARY = {f.name for row in ALU.values() if row.arity == 1 for f in (row.f32, row.integer) if f}


def _found(name: str) -> set[str]:
    found = {fault for sample in samples()[name] for fault in faults(sample)}
    return {f for f in found if not (name in INSIDE and f.startswith("isn't prepared"))}


@pytest.mark.parametrize("name", NAMES)
def test_a_function_does_what_it_declares(name: str) -> None:
    assert samples().get(name), "no case: add one to tests/ops/cases.py"
    assert not _found(name)


@pytest.mark.parametrize("name", NAMES)
def test_what_a_function_declares_is_needed(name: str) -> None:
    """And, by that, a function that declares less would be found."""
    assert _unneeded(name) == []


def test_conversions_do_what_they_declare() -> None:
    names = [name for name in samples() if name.startswith(CONVERT)]
    assert len(names) > 200
    for name in names:
        assert (name, _found(name), _unneeded(name)) == (name, set(), [])


def _unneeded(name: str) -> list[tuple[str, int]]:
    """What is declared and may be left out without a fault in any sample."""
    of = samples()[name]
    f = of[0].operation.function
    return [
        (item, n)
        for item, n in declared(f)
        if not _nothing_to_see(f, item, n) and not _missed(name, f, item, n)
    ]


def _missed(name: str, f: Function, item: str, n: int) -> bool:
    less = without(f, item, n)
    return any(next(faults(sample, less), None) for sample in samples()[name])


def _nothing_to_see(f: Function, item: str, n: int) -> bool:
    """Whether an item makes no difference, as far as can be tried."""
    if item in ("raises", "ordered"):
        return False
    given = [sample.operation.arguments[n : n + 1] for sample in samples()[f.name]]
    constant = not any(a and isinstance(a[0], (Place, RegisterNumber)) for a in given)
    unread = item == "reads" and (f.name in SAME or (n == 1 and f.name in UNARY))
    never = item == "writes" and f.name in SAME and f.raises
    return constant or unread or never
