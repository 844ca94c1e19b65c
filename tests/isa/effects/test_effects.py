"""What instructions declare about themselves is what they do, and nothing else passes for it.

Each is run on small operands and compared with its declarations (`verify.py`); then every fact it
declares is replaced by each other value it could have, and the comparison has to notice.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any

import pytest

from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.effects import (
    CLEAN,
    EXCHANGED,
    OPTIMISTIC,
    Bits,
    Effects,
    State,
    Unwritten,
    copies,
    elementwise,
    moves,
    scan,
)
from nki_dist.isa.operands import FLAG, Register, Tensor, read
from nki_dist.isa.spec import Spec, instruction
from tests.isa.effects.cases import CASES
from tests.isa.effects.verify import complaints, observed

SAME = {("rand2", scan("").rule)}  # its operands have one element per partition: nothing to scan
NOTHING = Effects(CLEAN, partial=False, bits=None, state=None)
SOMETHING = Effects(elementwise("data"), partial=False, bits=None, state=None)
ALONE = sorted(name for name, spec in INSTRUCTIONS.items() if spec.meets is None)


def test_every_instruction_has_a_case() -> None:
    other = sorted(CASES.keys() ^ set(ALONE))
    assert not other, f"give {other} a case for each form in tests/isa/effects/cases.py"


@pytest.mark.parametrize("name", ALONE)
def test_declared_is_what_it_does(name: str) -> None:
    assert not list(complaints(INSTRUCTIONS[name], observed(name)))


@pytest.mark.parametrize("name", ALONE)
def test_every_other_declaration_is_noticed(name: str) -> None:
    missed = []
    for fact, spec in otherwise(INSTRUCTIONS[name]):
        if next(complaints(spec, observed(name)), None) is None:
            missed.append(fact)
    assert not missed, f"nothing notices if {name} declares " + "; ".join(missed)


def otherwise(spec: Spec) -> Iterator[tuple[str, Spec]]:
    """The instruction with each fact it declares replaced by each other value, one at a time."""
    effects = spec.effects
    for rule in rules(spec):
        yield f"unwritten={rule}", declaring(spec, effects=replace(effects, unwritten=rule))
    yield "partial", declaring(spec, effects=replace(effects, partial=not effects.partial))
    if effects.partial:
        yield "whole", declaring(spec, effects=replace(effects, whole=lambda i: True))
    for bits in bits_of(spec):
        yield f"bits={bits}", declaring(spec, effects=replace(effects, bits=bits))
    for state in (None, *State):
        if state is not effects.state:
            yield f"state={state}", declaring(spec, effects=replace(effects, state=state))
    if spec.table is not None:
        for table in {"", *spec.roles} - {spec.table}:
            yield f"table={table!r}", declaring(spec, table=table)
    for fact in ("accumulates", "chains"):
        if getattr(spec, fact) is not None:
            yield fact, declaring(spec, **{fact: not getattr(spec, fact)})
    yield from registers(spec)


def declaring(spec: Spec, **facts: Any) -> Spec:
    made = copy(spec)
    for fact, value in facts.items():
        setattr(made, fact, value)
    return made


def rules(spec: Spec) -> Iterator[Unwritten]:
    """The rules that instructions share, and its own with one source less or more."""
    own = spec.effects.unwritten
    tensors = [n for n, role in spec.roles.items() if isinstance(role, Tensor) and "r" in role.mode]
    sources = " ".join(own.sources or tensors)
    shared = (CLEAN, OPTIMISTIC, elementwise(sources), scan(sources))
    yield from (r for r in shared if r != own and (spec.name, r.rule) not in SAME)
    if own in (CLEAN, OPTIMISTIC):
        return
    for name in own.sources:
        yield own._replace(sources=tuple(n for n in own.sources if n != name))
    for name in tensors:
        if name not in own.sources:
            yield own._replace(sources=(*own.sources, name))


def bits_of(spec: Spec) -> Iterator[Bits | None]:
    own = spec.effects.bits
    tensors = [n for n, role in spec.roles.items() if isinstance(role, Tensor)]
    names = own.names if own is not None else tensors[:2]
    if own is not None:
        yield None
        yield replace(own, when=lambda i: False)
        yield replace(own, pads=lambda i: True)
        yield replace(own, converts=not own.converts)
        for name in names:
            yield replace(own, names=tuple(n for n in names if n != name))
        for name in tensors:
            if name not in names:
                yield replace(own, names=(*names, name))
    elif names:
        yield copies(" ".join(names))
        yield moves(" ".join(names))
    yield EXCHANGED


def registers(spec: Spec) -> Iterator[tuple[str, Spec]]:
    """Other parameters whose value a register could take."""
    for name, role in spec.roles.items():
        if isinstance(role, Register) and role.register_mode == "w":
            for other in {"", *spec.roles} - {name, role.copies}:
                roles = {**spec.roles, name: Register("w", other)}
                yield f"{name} copies {other!r}", declaring(spec, roles=roles)


def made_up(data):
    return locals()


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"engines": "vector"}, "'effects'"),
        ({"engines": "scalar", "effects": NOTHING}, "`table` is for the scalar engine"),
        ({"engines": "vector", "effects": NOTHING, "table": ""}, "`table` is for the scalar"),
        ({"engines": "tensor", "effects": NOTHING, "chains": True}, "`accumulates` is for the ten"),
        ({"engines": "tensor", "effects": NOTHING, "accumulates": True}, "`chains` is for the ten"),
        ({"engines": "vector", "effects": SOMETHING}, "parameters it doesn't have: {'data'}"),
        ({"engines": "vector", "effects": NOTHING, "other": read()}, "keyword argument 'other'"),
        ({"engines": "scalar", "effects": NOTHING, "table": "op"}, "have: {'op'}"),
    ],
)
def test_what_isnt_declared_cant_be_imported(declared: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        instruction(**declared)(made_up)


def test_what_must_be_given_comes_first() -> None:
    def made_up(flag=FLAG.default(False), data=read()):
        return locals()

    with pytest.raises(TypeError, match="made_up: data follows parameters with defaults"):
        instruction(engines="vector", effects=NOTHING)(made_up)


@pytest.mark.parametrize("fact", ["unwritten", "partial", "bits", "state"])
def test_effects_have_no_defaults(fact: str) -> None:
    facts = {"unwritten": CLEAN, "partial": False, "bits": None, "state": None}
    del facts[fact]
    with pytest.raises(TypeError, match=fact):
        Effects(**facts)  # type: ignore[arg-type]
