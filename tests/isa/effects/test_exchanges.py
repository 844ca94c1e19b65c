"""What instructions that wait for other cores declare is what they do when cores meet in them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from nki_dist import arch
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.collectives import COLLECTIVES
from nki_dist.isa.effects import CLEAN, EXCHANGED, OPTIMISTIC, Meets, State, elementwise, moves
from nki_dist.isa.spec import Spec
from tests.isa.effects.exchanging import (
    RENDEZVOUS,
    Met,
    Rendezvous,
    barrier,
    between_cores,
    exchange,
    met,
)
from tests.isa.effects.figures import of_collectives, within_rank
from tests.isa.effects.test_effects import declaring
from tests.isa.effects.verify import latencies

NAMES = sorted(RENDEZVOUS)


def test_every_instruction_that_waits_has_a_meeting() -> None:
    assert sorted(name for name, spec in INSTRUCTIONS.items() if spec.meets is not None) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_declared_is_what_it_does(name: str) -> None:
    assert not list(complaints(INSTRUCTIONS[name], met(name)))


@pytest.mark.parametrize("name", NAMES)
def test_every_other_declaration_is_noticed(name: str) -> None:
    missed = [
        fact
        for fact, spec in otherwise(INSTRUCTIONS[name])
        if next(complaints(spec, met(name)), None) is None
    ]
    assert not missed, f"nothing notices if {name} declares " + "; ".join(missed)


# ---- what is compared ---------------------------------------------------------------------------


def complaints(spec: Spec, seen: list[Met]) -> Iterator[str]:
    """Where a declaration differs from what the instruction does."""
    effects = spec.effects
    brings = any(one.depends for one in seen)
    if effects.unwritten is not (OPTIMISTIC if brings else CLEAN):
        yield f"data comes from other cores: {brings}; declared: {effects.unwritten}"
    if effects.partial != any(one.keeps for one in seen):
        yield f"partial={effects.partial}; elements stay: {not effects.partial}"
    bits = effects.bits
    if (bits is not None and bits.exchanged) is not brings or (bits is not None and bits.names):
        yield f"data comes from other cores: {brings}; declared: {bits}"
    for one in seen:
        data = {n for n, _ in one.machines[0].with_mode("r")} - {"metadata_tensor"}
        if brings and not data <= one.one_type:
            yield f"{data} of which only {one.one_type} need one type"
        for machine in one.machines:
            if {kind for kind, _ in effects.states(machine.i)} != one.state:
                yield f"touches {one.state}; declared: {effects.states(machine.i)}"
    if spec.accumulates:
        yield "it leaves nothing in PSUM; declared otherwise"
    if spec.meets is None:
        yield "it waits for other cores; declared otherwise"
        return
    yield from _meets(spec, spec.meets, seen)
    yield from latencies(spec)


def _meets(spec: Spec, meets: Meets, seen: list[Met]) -> Iterator[str]:
    alone = spec.name not in COLLECTIVES
    if (meets.time is not None) is not alone:
        yield "time of what goes on within a rank is its own, that of collectives the topology's"
        return
    wanted = within_rank(meets, seen) if alone else of_collectives()
    if {*meets.figures.split()} != wanted:
        yield f"its time rests on {sorted(wanted)}; declared: {meets.figures}"
    for one in seen:
        for core in (0, 1):
            i = one.machines[core].i
            sent = {target for source, target in one.met if source == core}
            # Collectives count always: those in SBUF don't meet the rank's other core.
            if meets.orders(i, core) is not (1 - core in sent or not alone):
                yield f"orders({core}): {meets.orders(i, core)}; messages: {one.met}"
            if meets.time is not None:
                what = meets.time(i, core, 2, arch.get("trn2"))
                if {*what.sends} != sent or {*what.receives} != sent:
                    yield f"core {core} meets {sent}; simulated: {what}"
    for machines, waits in between_cores(spec.name):
        for core in (0, 1):
            if meets.waits(machines[core].i, core) is not waits:
                yield f"waits({core}): {not waits}; all ranks' cores wait for each other: {waits}"
    yield from _channels(spec, meets, seen)


def _channels(spec: Spec, meets: Meets, seen: list[Met]) -> Iterator[str]:
    """What meets is on one channel, what can't meet isn't."""
    for one in seen:
        if len({meets.channel(machine.i) for machine in one.machines}) > 1:
            yield "cores that meet are on different channels"
    mine = meets.channel(seen[0].machines[0].i)
    for other, same in OTHERS.get(spec.name, ()):
        if (meets.channel(other.machines()[0].i) == mine) is not same:
            yield f"on the channel of others that it {'meets' if same else 'never meets'}"
    for name in set(NAMES) - {spec.name}:
        declared = INSTRUCTIONS[name].meets
        if declared is not None and declared.channel(met(name)[0].machines[0].i) == mine:
            yield f"on the channel of {name}"


OTHERS: dict[str, list[tuple[Rendezvous, bool]]] = {
    "sendrecv": [
        (exchange(lambda me: 1 - me, pipe=1), False),
        (exchange(lambda me: 1 - me, n=7), True),  # and are told so
    ],
    "core_barrier": [(barrier((0, 1), n=7), True)],
}


# ---- what else could be declared ----------------------------------------------------------------


def otherwise(spec: Spec) -> Iterator[tuple[str, Spec]]:
    """The instruction with each fact replaced by each other value, one at a time."""
    effects, meets = spec.effects, spec.meets
    assert meets is not None
    for rule in (CLEAN, OPTIMISTIC, elementwise("")):
        if rule is not effects.unwritten:
            yield f"unwritten={rule}", declaring(spec, effects=replace(effects, unwritten=rule))
    yield "partial", declaring(spec, effects=replace(effects, partial=not effects.partial))
    for bits in (None, EXCHANGED, moves("src dst")):
        if bits != effects.bits:
            yield f"bits={bits}", declaring(spec, effects=replace(effects, bits=bits))
    for state in State:
        if state is not State.SUMS:  # only with operands that these haven't
            yield f"state={state}", declaring(spec, effects=replace(effects, state=state))
    yield "no meets", declaring(spec, meets=None)
    for fact, value in _other_meets(spec, meets):
        yield f"meets.{fact}", declaring(spec, meets=replace(meets, **{fact: value}))
    for fact, value in (("table", spec.table), ("accumulates", spec.accumulates)):
        if value is not None:
            yield fact, declaring(spec, **{fact: not value})
    if spec.chains is not None:
        yield "chains", declaring(spec, chains=not spec.chains)


def _other_meets(spec: Spec, meets: Meets) -> Iterator[tuple[str, Any]]:
    for orders in (False, True) if meets.time is not None else (False,):
        yield "orders", lambda i, core, orders=orders: orders
    yield "orders", lambda i, core: core == 0
    yield "orders", lambda i, core: not meets.orders(i, core)
    for waits in (False, True):
        if {waits} != {found for _, found in between_cores(spec.name)}:
            yield "waits", lambda i, core, waits=waits: waits
    yield "waits", lambda i, core: core == 0
    yield "waits", lambda i, core: not meets.waits(i, core)
    yield "channel", id
    yield "channel", lambda i: "core_barrier" if i.opcode == "sendrecv" else "sendrecv pipe_id 0"
    named = meets.figures.split()
    for name in named:
        yield "figures", " ".join(n for n in named if n != name)
    yield "figures", f"{meets.figures} dma_element_ns"
    if meets.time is None:
        yield "time", lambda i, core, cores, a: None
        return
    yield "time", None
    time = meets.time
    yield "time", lambda *a: replace(time(*a), sends=())
    yield "time", lambda *a: replace(time(*a), receives=(0, 1))
    yield "time", lambda *a: replace(time(*a), latency_ns=1.0, busy_ns=1.0)
