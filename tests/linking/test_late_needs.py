"""What instructions with run-time addresses need besides the tensors that they name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import arch
from nki_dist.linking.lanes import Planner
from nki_dist.linking.link import link
from nki_dist.linking.linked import Late, Linked, Segment
from nki_dist.linking.needs import dependences

X = np.arange(24, dtype=np.float32).reshape(4, 6)
PLACES = np.array([[2]], np.int32)


def started(x, places):
    tile, place = nl.load(x), nisa.register_alloc(nl.load(places))
    out = nl.ndarray((4, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    return tile, place, out


@nki.jit
def registers(x, places):
    """Loads a register from a place that another one has, and stores it."""
    _, place, _ = started(x, places)
    out = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.shared_hbm)
    numbers = nl.ndarray((1, 4), dtype=nl.int32, buffer=nl.sbuf)
    nisa.iota(numbers, [[1, 4]], offset=5)
    found, cell = nisa.register_alloc(), nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.register_load(found, numbers[:, nl.ds(place, 1)])  # late
    nisa.register_store(cell, found)
    nl.store(out, cell)
    return out


@nki.jit
def sums(x, places):
    """Adds up what lies at a place, and reads the sums."""
    tile, place, out = started(x, places)
    found, other = [nl.ndarray((4, 1), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2)]
    columns = tile[:, 0:1], tile[:, nl.ds(place, 1)], tile[:, 1:2]
    cmd = nisa.reduce_cmd
    for column, command in zip(columns, (cmd.reset_reduce, cmd.reduce, cmd.reduce), strict=True):
        nisa.activation(
            dst=other, op=nl.copy, data=column, reduce_op=nl.add, reduce_res=found,
            reduce_cmd=command,
        )  # fmt: skip
    nl.store(out, found)
    return out


@nki.jit
def randomness(x, places):
    """Draws at a place, and draws once more."""
    tile, place, out = started(x, places)
    wide = nl.ndarray((4, 8), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.memset(wide, 0)
    more = nl.ndarray((4, 1), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.rng(wide[:, nl.ds(place, 2)])  # late
    nisa.rng(more)
    nisa.tensor_copy(dst=tile[:, 0:1], src=more)
    nl.store(out, tile[:, 0:1])
    return out


def linked_of(kernel: Any) -> Linked:
    (program,) = kernel.compile(X, PLACES).programs
    return link(program, arch.get(program.platform))


def behind(linked: Linked) -> tuple[str, set[str]]:
    """The first late instruction, and those that wait until it's done."""
    (straight,) = [item for item in linked.body if isinstance(item, Segment)]
    planner = Planner(linked, 2)
    needs = dependences([planner.touched(run) for run in straight.steps])
    first = next(n for n, run in enumerate(straight.steps) if type(run) is Late)
    waiting = {first}
    for n, needed in enumerate(needs):
        if waiting & {*needed}:
            waiting.add(n)
    names = [i.opcode for i in straight.instructions]
    return names[first], {names[n] for n in waiting - {first}}


@pytest.mark.filterwarnings("ignore::nki_dist.errors.NkiWarning")
@pytest.mark.parametrize(
    "kernel, late, waits",
    [
        (registers, "register_load", "register_store"),
        (sums, "activation", "activation"),
        (randomness, "rng", "rng"),
    ],
)
def test_who_uses_what_a_late_one_leaves_waits_for_it(kernel, late, waits):
    name, waiting = behind(linked_of(kernel))
    assert name == late
    assert waits in waiting


@pytest.mark.filterwarnings("ignore::nki_dist.errors.NkiWarning")
def test_lanes_have_no_sums_of_their_own_where_a_late_one_adds():
    assert "accumulators" not in Planner(linked_of(sums), 2).per_lane
