"""Linked programs as data: compared, sent to other processes, run from what arrived there."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.fuzz.corpus import corpus
from nki_dist import arch
from nki_dist.compiler.compiled import Compiled
from nki_dist.dtypes import bfloat16
from nki_dist.linking.link import link
from nki_dist.linking.linked import Linked, LinkedLoop, Segment
from nki_dist.linking.printing import listing
from nki_dist.ops.operation import Operation
from nki_dist.ops.place import Place
from nki_dist.program import Instruction, Program, instructions
from nki_dist.runtime import group
from tests.compiler import programs
from tests.linking.random_programs import data, random_kernel

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.NkiWarning")


def linked(program: Program, *without: str) -> Linked:
    return link(program, arch.get(program.platform), without)


def text(of: Linked) -> str:
    return "\n".join(listing(of))


def sent(of: Linked) -> Linked:
    found: Linked = pickle.loads(pickle.dumps(of))
    return found


def _instructions(block: list[Any]) -> Iterator[Instruction]:
    for item in block:
        if isinstance(item, LinkedLoop):
            yield from _instructions(item.body)
        else:
            yield from getattr(item, "instructions", [getattr(item, "instruction", None)])


def test_what_is_sent_is_equal_and_printed_alike(tmp_path) -> None:
    """Of every instruction."""
    path = tmp_path / "kernel.nki-dist"
    for intact in corpus():
        path.write_bytes(intact.data)
        for program in Compiled.load(path).as_run.programs:
            one, other = linked(program), linked(program)
            there = sent(one)
            assert one == other == there, intact.name
            assert text(one) == text(other) == text(there)
            assert " object at " not in text(one)
            its = set(map(id, instructions(there.program.body)))
            assert {id(i) for i in _instructions(there.body)} <= its


def twice(x: Any, w: Any) -> Any:
    """Two products of the same operands, which have to be widened: kept by the pass `panels`."""
    out = nl.ndarray((2, 12, 20), dtype=nl.float32, buffer=nl.shared_hbm)
    tiles = [nl.load(x), nl.load(w)]
    for n in range(2):
        total = nl.ndarray((12, 20), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=total, stationary=tiles[0], moving=tiles[1])
        nl.store(out[n], nl.copy(total))
    return out


BF16 = [((16, 12), bfloat16), ((16, 20), bfloat16)]


def test_linked_programs_that_do_other_things_differ() -> None:
    program = programs.compiled(twice, *BF16).programs[0]
    assert linked(program) != linked(program, "panels")
    one = linked(programs.compiled(programs.matmul, (16, 12), (16, 20)).programs[0])
    assert one != linked(programs.compiled(programs.matmul, (16, 12), (16, 24)).programs[0])
    assert one != "something else"
    for change in (_kind, _base, _order, _birth):
        other = sent(one)
        change(other)
        assert one != other, change.__name__


def _kind(of: Linked) -> None:
    o = of.kinds[0].operations[0]
    (out, inp) = o.arguments
    assert isinstance(out, Place)
    changed = Operation(o.function, (out.over(out.shape, (*out.strides[:-1], 8), out.dtype), inp))
    of.kinds[0] = of.kinds[0]._replace(operations=(changed,))


def _base(of: Linked) -> None:
    (first, (space, at)) = of.runs[0].bases
    of.runs[0] = of.runs[0]._replace(bases=(first, (space, at + 4)))


def _order(of: Linked) -> None:
    assert isinstance(of.body[0], Segment)
    of.body[0].steps.reverse()


def _birth(of: Linked) -> None:
    for item in of.body:
        if isinstance(item, Segment):
            item.births.clear()


@pytest.mark.parametrize("name", ["masks", "loops", "random"])
def test_what_is_sent_runs_with_the_same_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, arguments = {
        "masks": (programs.matmul, [np.ones((48, 20), np.float32), np.ones((48, 40), np.float32)]),
        "loops": (programs.loops, [np.ones((4, 3, 8), np.float32), np.array([[3]], np.int32)]),
        "random": (random_kernel(3), data()),
    }[name]

    def run() -> list[bytes]:
        with nki.World(1, host="inprocess") as world:
            return _bytes(world.run(kernel, *arguments))

    want, arrived = run(), []

    def received(*arguments: Any) -> Linked:
        arrived.append(sent(link(*arguments)))
        return arrived[-1]

    monkeypatch.setattr(group, "link", received)
    assert run() == want
    assert arrived


def _bytes(tree: Any) -> list[bytes]:
    if isinstance(tree, dict):
        tree = list(tree.values())
    if isinstance(tree, (list, tuple)):
        return [b for inner in tree for b in _bytes(inner)]
    return [] if tree is None else [np.asarray(tree).tobytes()]
