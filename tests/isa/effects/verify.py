"""Holding declarations against what was observed: `complaints` says where they differ.

What can't be seen in one instruction by itself is checked against `reasons.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from nki_dist.isa.effects import CLEAN, OPTIMISTIC, Effects
from nki_dist.isa.operands import Register
from nki_dist.isa.spec import Spec
from nki_dist.program import Access, VirtualRegister
from tests.isa.effects.bits import (
    keeping_bits,
    low_operands,
    lowered,
    needing_one_type,
    padded,
)
from tests.isa.effects.cases import CASES
from tests.isa.effects.reasons import CHAINS, CHOOSES, LOOKED_UP, ROUNDS, TABLES, UNFOLLOWED
from tests.isa.effects.running import (
    Dependence,
    Machine,
    dependences,
    kept,
    plain,
    sources_of,
    touched_state,
)


@dataclass
class Seen:
    """One case, observed.

    Attributes:
        keeps: elements of a destination stay as they were.
        state: hidden state that is touched.
        low: operands that can be of low precision.
        one_type: those of them that need one type.
        exact: those among which bits are kept where types are equal.
        pads: 8-bit elements move to 16-bit places.
        adds: results depend on being told to add.
    """

    machine: Machine
    depends: dict[tuple[str, str], list[Dependence]]
    keeps: bool
    state: set[tuple[str, str]]
    low: set[str]
    one_type: set[str]
    exact: set[str]
    pads: bool
    adds: bool


@cache
def observed(opcode: str) -> list[Seen]:
    """All cases of an instruction; nothing of this depends on what it declares."""
    assert opcode in CASES, f"{opcode} has no case in tests/isa/effects/cases.py"
    return [_seen(case.traced()) for case in CASES[opcode]]


def _seen(machine: Machine) -> Seen:
    low = lowered(machine)
    return Seen(
        machine,
        dependences(machine),
        kept(machine),
        touched_state(machine),
        set(low_operands(low)),
        needing_one_type(low),
        keeping_bits(low),
        padded(machine),
        adds(machine),
    )


def complaints(spec: Spec, seen: list[Seen]) -> Iterator[str]:
    """Where a declaration differs from what the instruction does."""
    yield from _unwritten(spec, seen)
    if spec.effects.partial != any(s.keeps for s in seen):
        yield f"partial={spec.effects.partial}; elements stay: {not spec.effects.partial}"
    for s in seen:
        if s.keeps and not spec.effects.keeps(s.machine.i):
            yield f"{s.machine.i.args} leaves elements; declared otherwise"
        states = set(spec.effects.states(s.machine.i))
        if states != s.state:
            yield f"{s.machine.i.args} touches {s.state}; declared: {states}"
        yield from _bits(spec, s)
        yield from _registers(spec, s.machine)
    if spec.name in ROUNDS and not any(s.exact for s in seen):
        yield "row of ROUNDS that isn't needed"
    named = set(spec.effects.bits.names) if spec.effects.bits is not None else set()
    if named - set().union(*(s.low for s in seen)):
        yield f"bits move among {named}, not all of which can be of low precision"
    if "tensor" in spec.engines and spec.accumulates != any(s.adds for s in seen):
        yield f"accumulates={spec.accumulates}; it adds: {not spec.accumulates}"
    yield from latencies(spec)


# ---- unwritten elements -------------------------------------------------------------------------


def _unwritten(spec: Spec, seen: list[Seen]) -> Iterator[str]:
    rule = spec.effects.unwritten
    some = any(d.depends.any() for s in seen for found in s.depends.values() for d in found)
    if (rule is CLEAN) is some:
        yield f"results depend on operands: {some}; declared otherwise"
    if (rule is OPTIMISTIC) is not (spec.name in CHOOSES):
        yield f"isn't followed: {rule is OPTIMISTIC}; {CHOOSES.get(spec.name, 'nothing is chosen')}"
    if rule is CLEAN or rule is OPTIMISTIC:
        return
    unneeded = set(UNFOLLOWED.get(spec.name, ()))
    for s in seen:
        try:
            marks = declared_marks(spec.effects, s.machine)
        except (KeyError, ValueError, AttributeError, TypeError, IndexError) as error:
            yield f"the rule doesn't fit the operands: {error!r}"
            return
        for pair, found in s.depends.items():
            for d, declared in zip(found, marks[pair], strict=True):
                wrong = declared & ~d.depends & d.tried[:, None]
                missed = d.depends & ~declared
                if wrong.any():
                    yield f"{pair}: {wrong.sum()} marks where nothing depends"
                if missed.any() and (pair not in UNFOLLOWED.get(spec.name, ()) or declared.any()):
                    yield f"{pair}: {missed.sum()} dependences aren't marked"
                elif missed.any():
                    unneeded.discard(pair)
    if unneeded:
        yield f"rows of UNFOLLOWED that aren't needed: {unneeded}"


def declared_marks(effects: Effects, machine: Machine) -> dict[tuple[str, str], list[np.ndarray]]:
    """What the declared rule marks for each single unwritten element, as `dependences` has it."""
    written = machine.with_mode("w")
    found: dict[tuple[str, str], list[np.ndarray]] = {}
    for name, source in sources_of(machine):
        a = plain(source)
        marked = [np.zeros((a.size, plain(b).size), bool) for _, b in written]
        for n, index in enumerate(np.ndindex(a.shape)):
            storage = np.zeros(a.storage.nbytes // a.dtype.itemsize, bool)
            _view(storage, a)[index] = True

            def mask_of(b: Access, storage: Any = storage, a: Access = a) -> np.ndarray | None:
                marks = _view(storage, b) if b.storage is a.storage else None
                return marks if marks is not None and marks.any() else None

            results = effects.unwritten.results(machine.i, mask_of)
            for (result, b), rows in zip(written, marked, strict=True):
                marks = results.get(result)
                if marks is not None and marks.size == b.size:
                    rows[n] = marks.reshape(-1)
        for (result, _), rows in zip(written, marked, strict=True):
            found.setdefault((name, result), []).append(rows)
    return found


def _view(storage: np.ndarray, a: Access) -> np.ndarray:
    return np.ndarray(a.shape, bool, storage, a.offset, a.strides)


# ---- bits ---------------------------------------------------------------------------------------


def _bits(spec: Spec, s: Seen) -> Iterator[str]:
    i, bits = s.machine.i, spec.effects.bits
    if bits is not None and bits.exchanged:
        yield "nothing is exchanged with other cores"
        return
    if bits is not None and not bits.when(i):
        bits = None
    if (bits is not None and bits.pads(i)) != s.pads:
        yield f"pads: {s.pads}; declared otherwise"
    names = set() if bits is None else set(bits.names)
    if spec.name in LOOKED_UP:
        if names != LOOKED_UP[spec.name] or (bits is not None and bits.converts):
            yield f"values of {LOOKED_UP[spec.name]} are looked up; declared: {bits}"
        return
    exact = s.exact if spec.name not in ROUNDS else set()
    if names != exact and s.low:
        yield f"bits move among {exact}; declared: {names}"
    if bits is not None and exact and bits.converts is not (not s.one_type & exact):
        yield f"{s.one_type} need one type; declared as a copy: {bits.converts}"


# ---- registers, PSUM, latencies -----------------------------------------------------------------


def _registers(spec: Spec, machine: Machine) -> Iterator[str]:
    for name, role in spec.roles.items():
        if isinstance(role, Register) and role.register_mode == "w":
            copied = [p for p in spec.roles if p != name and takes_value(machine, name, p)]
            if copied != ([role.copies] if role.copies else []):
                yield f"register {name} takes the value of {copied}; declared: {role.copies!r}"


def takes_value(machine: Machine, name: str, source: str) -> bool:
    """Whether a register always has the value of another afterwards."""
    register = machine.i.args[source]
    if not isinstance(register, VirtualRegister):
        return False
    registers = machine.state.registers
    machine.link()
    found = []
    for value in (3, 11):
        machine.run(lambda value=value: registers.__setitem__(register.number, value))
        found.append(registers[machine.i.args[name].number])
    return found == [3, 11]


def adds(machine: Machine) -> bool:
    """Whether what an instruction leaves depends on being told to add."""
    results = []
    for mode in ("replace", "add"):
        i = machine.i.with_args(machine.i.args)
        i.accumulation = mode
        machine.link(i)
        results.append(b"".join(r.tobytes() for r in machine.run()))
    return results[0] != results[1]


def latencies(spec: Spec) -> Iterator[str]:
    """Where facts differ that only simulated time has to do with."""
    table, reason = TABLES.get(spec.name, (None, "it isn't of the Scalar engine"))
    if spec.table != table:
        yield f"table={spec.table!r}; {reason}"
    chains, reason = CHAINS.get(spec.name, (None, "it isn't of the Tensor engine"))
    if spec.chains != chains:
        yield f"chains={spec.chains}; {reason}"
