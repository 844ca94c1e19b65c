"""Instructions that do the same at the same places share a step, and nothing shows it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.decode import decode
from nki_dist.compiler.encode import encode
from nki_dist.errors import OutOfBoundsError
from nki_dist.isa.core import CoreState, Wires
from nki_dist.isa.kit import Kit
from nki_dist.program import Access, Instruction, Program, Storage, instructions
from nki_dist.runtime import group
from nki_dist.runtime.linked import Segment
from nki_dist.runtime.linker import Linker
from tests.compiler.compiling import compiled
from tests.isa.effects.cases import CASES

ROUNDS = 6


@nki.jit
def sums(x):
    """Rounds with tiles of their own, and one tile that all of them use."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray((rows, columns // ROUNDS), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(total, 0)
    for n in range(ROUNDS):
        part = nl.ds(n * (columns // ROUNDS), columns // ROUNDS)
        tile = nl.ndarray(total.shape, dtype=x.dtype, buffer=nl.sbuf)
        twice = nl.ndarray(total.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, part])
        nisa.tensor_scalar(dst=twice, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.tensor_tensor(dst=total, data1=total, data2=twice, op=nl.add)
        nisa.tensor_copy(dst=tile, src=total)
        nisa.dma_copy(dst=out[:, part], src=tile)
    return out


def numbers(rows: int = 7, columns: int = 5 * ROUNDS) -> np.ndarray:
    return np.random.default_rng(8).integers(-9, 9, (rows, columns)).astype(np.float32)


def linked_steps(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Instruction, Any]]:
    """What the next launches link: instructions with their steps."""
    found: list[tuple[Instruction, Any]] = []

    class Watched(Linker):
        def link(self) -> Any:
            linked = super().link()
            for segment in linked:
                assert isinstance(segment, Segment)
                found.extend(zip(segment.instructions, segment.steps, strict=True))
            return linked

    monkeypatch.setattr(group, "Linker", Watched)
    return found


def test_rounds_of_a_loop_share_their_steps(monkeypatch):
    found, x = linked_steps(monkeypatch), numbers()
    with nki.World(ranks=1, host="inprocess") as world:
        (out,) = world.run(sums, x)
    parts = np.cumsum(2 * x.reshape(len(x), ROUNDS, -1), axis=1)
    np.testing.assert_array_equal(out, parts.reshape(x.shape))
    steps: dict[str, set[int]] = {}
    for i, step in found:
        steps.setdefault(i.opcode, set()).add(id(step))
    # Copies from and to HBM are at other places in each round.
    assert {name: len(of) for name, of in steps.items()} == {
        "memset": 1,
        "dma_copy": 2 * ROUNDS,
        "tensor_scalar": 1,
        "tensor_tensor": 1,
        "tensor_copy": 1,
    }
    assert len(found) == 1 + 5 * ROUNDS


@nki.jit
def shifted(x, y):
    """The same copy within a tensor, between two, and between two again, elsewhere."""
    a, b = nl.load(x), nl.load(y)
    out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    for pair in ((b, 1), (a, 1), (a, 4)):
        into, start = pair
        nisa.tensor_copy(dst=into[:, start : start + 4], src=b[:, start - 1 : start + 3])
    nl.store(out[0], a)
    nl.store(out[1], b)
    return out


def test_steps_of_a_kind_are_moved_to_other_places(monkeypatch, tmp_path):
    linked: list[Instruction] = []
    for spec in (nisa.dma_copy, nisa.tensor_copy):
        meaning = spec._meaning
        monkeypatch.setattr(
            spec, "_meaning", lambda i, kit, meaning=meaning: linked.append(i) or meaning(i, kit)
        )
    x, y = numbers(3, 8), numbers(3, 8) + 50
    nki.simulate(sums)(numbers())
    assert len([i for i in linked if i.opcode == "dma_copy"]) == 2  # of 2 * ROUNDS places
    linked.clear()
    with nki.World(ranks=1, host="inprocess") as world:
        (traced,) = world.run(shifted, x, y)
        first = len([i for i in linked if i.opcode == "tensor_copy"])
        world.compile(shifted, x, y).save(tmp_path / "shifted")
        (read,) = world.run(Compiled.load(tmp_path / "shifted"), x, y)
    assert first == 2  # the copy within a tensor is one of its own, the third is the second, moved
    wanted = np.stack([x, y])
    for into, start in ((1, 1), (0, 1), (0, 4)):
        wanted[into, :, start : start + 4] = wanted[1, :, start - 1 : start + 3].copy()
    assert traced.tobytes() == read.tobytes() == wanted.tobytes()


def test_a_program_that_was_read_shares_as_many(monkeypatch):
    """Kinds aren't saved; who reads a program finds them again."""
    (program,) = compiled(sums.fn, ((7, 30), np.float32)).programs
    again = decode(encode(program))
    kinds = [[i.kind for i in instructions(p.body)] for p in (program, again)]
    assert None not in kinds[1]
    classes = [[[k is other for other in of] for k in of] for of in kinds]
    assert classes[0] == classes[1]


@nki.jit
def looked_up(x, good, bad):
    """The last of three gathers has an index that its table doesn't have."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for n, indices in enumerate((good, good, bad)):
        table = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, name=f"table{n}")
        nisa.dma_copy(dst=table, src=x)
        wanted = nl.load(indices)
        found = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.nc_n_gather(dst=found, data=table, indices=wanted)
        nl.store(out, found)
    return out


def test_an_error_names_the_tensor_and_line_of_its_own_instruction():
    x, good = numbers(4, 6), np.zeros((4, 6), np.uint32)
    bad = good.copy()
    bad[2, 3] = 6
    with pytest.raises(OutOfBoundsError, match="table2 ") as caught:
        nki.simulate(looked_up)(x, good, bad)
    (program,) = compiled(looked_up.fn, *[(a.shape, a.dtype) for a in (x, good, bad)]).programs
    gathers = [i for i in instructions(program.body) if i.opcode == "nc_n_gather"]
    assert gathers[-1]["data"].storage.number != gathers[0]["data"].storage.number
    assert caught.value.location == program.where(gathers[-1].location)


def reachable(value: Any, seen: set[int]) -> Iterator[Any]:
    """What a step can get hold of when it runs, the core's memories and state left out."""
    if id(value) in seen or isinstance(value, (Kit, CoreState, Wires, type)):
        return
    seen.add(id(value))
    yield value
    inside: list[Any] = []
    if isinstance(value, FunctionType):
        inside += [cell.cell_contents for cell in value.__closure__ or ()]
        inside += value.__defaults__ or ()
    elif isinstance(value, partial):
        inside += [value.func, *value.args, *value.keywords.values()]
    elif isinstance(value, MethodType):
        inside += [value.__self__, value.__func__]
    elif isinstance(value, dict):
        inside += value.values()
    elif isinstance(value, (tuple, list, set, frozenset)):
        inside += value
    elif type(value).__module__.startswith("nki_dist."):
        names = [name for cls in type(value).__mro__ for name in getattr(cls, "__slots__", ())]
        inside += [getattr(value, name) for name in (*names, *getattr(value, "__dict__", ()))]
    for part in inside:
        yield from reachable(part, seen)


@pytest.mark.parametrize("name", sorted(CASES))
def test_a_step_knows_no_instruction_unless_it_said_so(name):
    """Else it would name another one's operands, in messages or worse."""
    for n, case in enumerate(CASES[name]):
        machine = case.traced()
        if machine.i.kind is None:
            continue
        machine.link()
        held = [
            a
            for a in reachable(machine.step, set())
            if isinstance(a, (Access, Storage, Instruction))
        ]
        assert not held or machine.kit.named, f"case {n} of {name} holds {held}"


def assigned(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Attributes that are assigned to, with the names of their objects."""
    for node in ast.walk(tree):
        for target in node.targets if isinstance(node, ast.Assign) else ():
            for part in target.elts if isinstance(target, ast.Tuple) else (target,):
                if isinstance(part, ast.Attribute) and isinstance(part.value, ast.Name):
                    yield part.value.id, part.attr


def test_arguments_are_changed_with_the_kind():
    """Who gives an instruction other arguments must not leave its kind as it was."""
    alone = set()
    for path in Path(nki.__file__).parent.rglob("*.py"):
        found = set(assigned(ast.parse(path.read_text())))
        alone |= {(path.name, name) for name, attr in found if attr == "args" and name != "self"}
        alone -= {(path.name, name) for name, attr in found if attr == "kind"}
    assert not alone


def test_a_changed_instruction_has_no_kind():
    program: Program = compiled(sums.fn, ((7, 30), np.float32)).programs[0]
    i = next(i for i in instructions(program.body) if i.opcode == "tensor_copy")
    assert i.kind is not None
    assert i.with_args(dict(i.args)).kind is None
    i.change({**i.args})
    assert i.kind is None


@nki.jit
def signs(x):
    """Numbers that are computed anew, and equal each other but for the sign of zero."""
    out = nl.ndarray((4, *x.shape), dtype=nl.float32, buffer=nl.shared_hbm)
    for n in range(4):
        tile = nl.load(x)
        nisa.tensor_scalar(
            dst=tile, data=tile, op0=nl.multiply, operand0=(0.0, 0.0, -0.0, 1.5)[n] * float(n // 2)
        )
        nl.store(out[n], tile)
    return out


def test_computed_numbers_are_told_apart_by_value_and_sign():
    x = numbers(3, 5) + 20
    out = nki.simulate(signs)(x)
    wanted = np.stack([x * 0.0, x * 0.0, x * -0.0, x * 1.5])
    assert out.tobytes() == wanted.tobytes()
    (program,) = compiled(signs.fn, ((3, 5), np.float32)).programs
    kinds = [i.kind for i in instructions(program.body) if i.opcode == "tensor_scalar"]
    assert kinds[0] is kinds[1]
    assert len({*map(id, kinds)}) == 3
