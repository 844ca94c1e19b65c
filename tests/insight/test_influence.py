"""What a result depends on, checked against trying all elements one by one, for every
instruction."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.insight.capture import Found
from nki_dist.insight.probe import Probe
from nki_dist.insight.regions import region
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import CoreState
from tests.isa.effects.cases import CASES
from tests.isa.effects.running import Machine, dependences, plain

EXAMPLES = [
    pytest.param(case, id=f"{name}-{n}")
    for name, cases in CASES.items()
    for n, case in enumerate(cases)
]
# Results that are found by comparing: which of the losers count depends on what they are changed
# to. Of a transpose by the Tensor engine, the ones and zeros of `moving` count only as long as the
# instruction accepts them.
COMPARING = {
    "local_gather",
    "max8",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_matmul_mx",
    "nonzero_with_count",
    "sequence_bounds",
    "topk",
}


def probe_of(machine: Machine) -> Probe:
    """The probe of a case, on what it is given."""
    i, spec = machine.i, machine.spec
    machine.restore()
    accesses = [*spec.reads(i), *spec.writes(i)]
    sources = [a.dynamic.source for a in accesses if a.dynamic is not None]
    program: Any = SimpleNamespace(
        platform=machine.platform.instance, registers=64, where=lambda location: None
    )

    def regions(found):
        return [region(machine.slot, a, machine.kit) for a in found]

    reads = regions(a for a in spec.reads(i) if all(a is not s for s in sources))
    found = Found(0, i, machine.slot, program, reads, regions(spec.writes(i)), regions(sources))
    for r in (*found.reads, *found.writes, *found.fixed):
        found.bits[id(r)] = r.get(machine.kit)
    found.state = CoreState(64)
    return Probe([found])


def claimed(probe: Probe, output: int, element: int) -> set[tuple[Any, int]]:
    """(memory, byte) of what one element is said to depend on."""
    masks = probe.influence([(output, np.array([element]))], None)
    return {
        (r.key, int(r.places[n]))
        for operand, mask in zip(probe.inputs, masks, strict=True)
        for (_, r, _), part in zip(operand.members, mask, strict=True)
        for n in np.flatnonzero(part)
    }


def measured(machine: Machine) -> dict[tuple[str, int], set[tuple[Any, int]]]:
    """By (parameter, element) of a result, what it depends on."""
    found: dict[tuple[str, int], set[tuple[Any, int]]] = {}
    for (source, result), items in dependences(machine).items():
        name = source.removeprefix("before ")
        mode = "w" if source.startswith("before ") else "r"
        accesses = [a for n, a in machine.with_mode(mode) if n == name]
        for a, one in zip(accesses, items, strict=True):
            r = region(machine.slot, plain(a))
            for element in range(one.depends.shape[1]):
                places = r.places[np.flatnonzero(one.depends[:, element])]
                found.setdefault((result, element), set()).update((r.key, int(p)) for p in places)
    return found


@pytest.mark.parametrize("case", EXAMPLES)
def test_influence_is_what_changing_elements_one_by_one_shows(case):
    machine = replace(case, also={}).traced()
    want = measured(machine)
    probe = probe_of(machine)
    written = machine.with_mode("w")
    moved = machine.i.args.get("is_transpose")
    compared = 0
    for output, (name, a) in enumerate(written):
        if a.dynamic is not None:
            continue
        several = sum(n == name for n, _ in written) > 1
        for element in range(a.size):
            true = want.get((name, element), set())
            got = claimed(probe, output, element)
            compared += 1
            if machine.i.opcode in COMPARING or moved or several:
                # What a search doesn't find would take the very value to show.
                searched = machine.i.opcode == "nc_match_replace8" and name == "dst_idx"
                assert got or not true or searched, f"nothing for {name} element {element}"
                assert moved or several or searched or got & true or not true
            else:
                assert got == true, f"{name} element {element}"
    assert compared or not any(a.dynamic is None for _, a in written)


def test_every_instruction_that_waits_for_nobody_is_tried():
    waits_for_nobody = {n for n, spec in INSTRUCTIONS.items() if not spec.synchronises}
    assert waits_for_nobody <= CASES.keys()


def test_an_origin_leads_through_what_follows_random_numbers():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        drawn = nl.ndarray(x.shape, dtype=nl.uint8, buffer=nl.sbuf)
        nisa.rng(dst=drawn)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=drawn, op=nl.add)
        nisa.activation(dst=tile, data=tile, op=nl.square)
        nl.store(out, tile)
        return out

    record = nki.record(nki.jit(kernel))(np.ones((8, 4), np.float32))
    origin = record.origin(index=(1, 2))
    names = {step.instruction for step in origin}
    assert {"nisa.activation", "nisa.tensor_tensor", "nisa.rng"} <= names
    assert origin.value == record.outputs[1, 2]
