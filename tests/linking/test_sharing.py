"""Instructions that do the same have one kind, and at the same places one step."""

from __future__ import annotations

import pickle
from collections import defaultdict
from collections.abc import Iterator

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import arch
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.decode import decode
from nki_dist.compiler.encode import encode
from nki_dist.errors import OutOfBoundsError
from nki_dist.linking.indirect import lowered
from nki_dist.linking.kinds import Kinds
from nki_dist.linking.linked import Segment
from nki_dist.linking.lowering import Lowering
from nki_dist.linking.placing import Placed
from nki_dist.ops.arrays import fill
from nki_dist.ops.operation import op
from nki_dist.ops.place import Place
from nki_dist.program import Access, Instruction, Program, Storage, instructions
from nki_dist.runtime.group import placed_program
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


def steps(placed: Placed) -> Iterator[tuple[Instruction, int]]:
    for segment in placed.body:
        assert isinstance(segment, Segment)
        yield from zip(segment.instructions, segment.steps, strict=True)


def test_rounds_of_a_loop_share_their_steps():
    x = numbers()
    parts = np.cumsum(2 * x.reshape(len(x), ROUNDS, -1), axis=1)
    np.testing.assert_array_equal(nki.simulate(sums)(x), parts.reshape(x.shape))
    (program,) = sums.compile(x).programs
    placed, found = placed_program(program), defaultdict(set)
    for i, step in steps(placed):
        found[i.opcode].add(step)
    # Copies from and to HBM are at other places in each round.
    assert {name: len(of) for name, of in found.items()} == {
        "memset": 1,
        "dma_copy": 2 * ROUNDS,
        "tensor_scalar": 1,
        "tensor_tensor": 1,
        "tensor_copy": 1,
    }
    assert len(list(steps(placed))) == 1 + 5 * ROUNDS
    assert len(placed.linked.kinds) == 6  # of copies two: rows are apart in one of both tensors


@nki.jit
def again(x, rounds):
    """The same tiles in every round, and new ones that take their memory."""
    total = nl.load(x)
    for _ in range(rounds):
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_scalar(dst=tile, data=total, op0=nl.multiply, operand0=0.5)
        nisa.tensor_tensor(dst=total, data1=total, data2=tile, op=nl.subtract)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, total)
    return out


def test_more_rounds_are_no_more_arrays_and_calls():
    x, bound = numbers(3, 4), []
    for rounds in (2, 40):
        assert nki.simulate(again)(x, rounds).tobytes() == (x * 0.5**rounds).tobytes()
        (program,) = again.compile(x, rounds).programs
        placed = placed_program(program)
        bound.append((len(placed.arguments), len(placed.steps), len(placed.linked.kinds)))
    assert bound[0] == bound[1]
    views = [a for a in placed.arguments if isinstance(a, Place)]
    assert len(views) < 10 < len(list(instructions(program.body)))


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


@nki.jit
def stacked(x):
    """The same copy in other partitions."""
    tile, into = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    for start in range(0, len(x), 32):
        nisa.tensor_copy(dst=into[start : start + 32], src=tile[start : start + 32])
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, into)
    return out


@pytest.fixture
def copies(monkeypatch):
    """Copies that are lowered."""
    linked: list[Instruction] = []
    for spec in (nisa.dma_copy, nisa.tensor_copy):
        meaning = spec.lower
        monkeypatch.setattr(
            spec, "lower", lambda i, kit, meaning=meaning: linked.append(i) or meaning(i, kit)
        )
    return linked


def test_partitions_make_no_kinds_where_no_state_follows_them(copies, tmp_path):
    """Of a program that was read; while one is traced, checks ask for them."""
    x = numbers(128, 8)
    with nki.World(ranks=1, host="inprocess") as world:
        world.compile(stacked, x).save(tmp_path / "stacked")
        copies.clear()
        (read,) = world.run(Compiled.load(tmp_path / "stacked"), x)
    assert read.tobytes() == x.tobytes()
    assert len([i for i in copies if i.opcode == "tensor_copy"]) == 1


def test_one_of_a_kind_is_lowered_for_all_places(copies, tmp_path):
    linked = copies
    x, y = numbers(3, 8), numbers(3, 8) + 50
    with nki.World(ranks=1, host="inprocess") as world:
        world.run(sums, numbers())
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


@pytest.mark.parametrize("name", sorted(CASES))
def test_operations_are_data_that_knows_no_instruction(name):
    """Else they would name another one's operands, and be of one process."""
    for n, case in enumerate(CASES[name]):
        machine = case.traced()
        operations = lowered(machine.i, Lowering(machine.platform))
        held = [a for o in operations for a in o.arguments]
        strangers = [a for a in held if isinstance(a, (Access, Storage, Instruction, Lowering))]
        assert not strangers, f"case {n} of {name}"
        sent = pickle.loads(pickle.dumps(operations))
        assert [o.function for o in sent] == [o.function for o in operations]


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


@pytest.mark.parametrize(
    "one, other", [((0.0, 1), (-0.0, 1)), ((1,), (True,)), (2, 2.0), (0, False)]
)
def test_operations_with_other_constants_are_of_other_kinds(one, other):
    kinds = Kinds(Lowering(arch.get("trn2")))
    place = Place(("storage", 1), 0, (4,), (4,), np.float32)
    runs = [kinds.run_of([op(fill, place, value)], 0).kind for value in (one, other, one)]
    assert runs == [0, 1, 0]
