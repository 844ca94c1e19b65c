"""What every algorithm declares, and that a declaration and its line in the registry are enough."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.language as nl
from nki_dist import arch, errors
from nki_dist.collectives import algorithms, choose, cost
from nki_dist.collectives.algorithm import Algorithm, TwoPasses
from nki_dist.collectives.algorithms import ALGORITHMS
from nki_dist.collectives.choose import VARIABLE
from nki_dist.collectives.members import Members, Stage
from nki_dist.collectives.operations import OPERATIONS, Kind
from nki_dist.collectives.party import Array, Party, Waiting
from nki_dist.collectives.question import Question, RankLayout
from nki_dist.collectives.reduction import Reduction
from nki_dist.collectives.timing import collective_rules
from nki_dist.topology.topology import Topology
from tests.collectives import kernels as K
from tests.collectives.network import Network
from tests.timing.build import events

ROOT = Path(__file__).parents[2]
NAMES = [a.name for a in ALGORITHMS]
BY_ALGORITHM = [name for name, o in OPERATIONS.items() if o.kind is Kind.ALGORITHM]
every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS, ids=NAMES)


def question(op: str, nbytes: int, group: Sequence[int], node: int = 64) -> Question:
    return Question(op, nbytes, tuple(group), RankLayout(4, node), arch.get("trn2"))


# ---- what there is ------------------------------------------------------------------------------


def test_every_file_is_one_algorithm_of_its_name() -> None:
    files = {f.stem for f in Path(algorithms.__file__).parent.glob("*.py")} - {"__init__"}
    assert sorted(NAMES) == sorted(files)
    for algorithm in ALGORITHMS:
        assert algorithm.__module__ == f"{algorithms.__name__}.{algorithm.name}"
        assert "Source:" in (import_module(algorithm.__module__).__doc__ or "")


@every_algorithm
@pytest.mark.parametrize("op", BY_ALGORITHM)
def test_every_operation_has_an_exchange_and_stages(algorithm: type[Algorithm], op: str) -> None:
    q = question(op, 1 << 20, range(8))
    chosen = choose.choose(q, algorithm.name)
    assert type(chosen) is algorithm
    assert not getattr(getattr(chosen, op), "__isabstractmethod__", False)
    found = cost.stages(Members(q, Topology(q.arch, 8, 2)), chosen)
    assert found and all(stage.total > 0 for stage in found)


def test_operations_of_algorithms_are_what_an_algorithm_has_to_define() -> None:
    conditions = {"preferred", "stages", "messages"}
    assert set(BY_ALGORITHM) == set(Algorithm.__abstractmethods__) - conditions


@every_algorithm
def test_an_algorithm_that_refuses_groups_says_what_it_needs(algorithm: type[Algorithm]) -> None:
    groups = [range(n) for n in range(1, 17)] + [(0, 1, 64), (0, 64, 65, 128)]
    refused = [g for g in groups if not algorithm.fits(question("all_gather", 4, g))]
    assert bool(refused) == bool(algorithm.needs)
    for group in refused:
        with pytest.raises(errors.LaunchError, match=f"{VARIABLE}={algorithm.name}: a group of "):
            choose.choose(question("all_gather", 4, group), algorithm.name)


def test_the_last_one_is_for_every_group() -> None:
    last = ALGORITHMS[-1]
    for group in ((5,), (0, 1, 64), range(7), range(128), (0, 64, 65, 128)):
        for op in BY_ALGORITHM:
            for nbytes in (1, 1 << 40):
                q = question(op, nbytes, group)
                assert last.fits(q) and last.preferred(q)


# ---- what the pages say -------------------------------------------------------------------------


def test_the_pages_list_them() -> None:
    page = (ROOT / "docs" / "collectives.md").read_text()
    rows = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| `")]
    assert rows == [f"`{name}`" for name in NAMES]
    variables = (ROOT / "docs" / "cli.md").read_text()
    (row,) = [r for r in variables.splitlines() if r.startswith(f"| `{VARIABLE}`")]
    assert ", ".join(f"`{name}`" for name in NAMES) in row
    costs = (ROOT / "docs" / "collectives_time.md").read_text().split("| Algorithm, ")[1]
    rows = [line.split("|")[1] for line in costs.split("\n\n")[0].splitlines()[2:]]
    assert [p.strip().lower().replace("-", "_").replace(" ", "_") for p in rows] == NAMES


# ---- an unknown name is refused -----------------------------------------------------------------


def test_an_unknown_name_is_refused_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    allowed = f"'rings'; allowed: {', '.join(NAMES)}"
    with pytest.raises(errors.LaunchError, match=allowed):
        choose.choose(question("all_gather", 4, range(2)), "rings")
    with pytest.raises(errors.LaunchError, match=allowed):
        collective_rules(Topology(arch.get("trn2"), 2, 2), "rings")
    monkeypatch.setenv(VARIABLE, "rings")
    x, group = np.zeros((2, 2), np.float32), ncc.ReplicaGroup([[0, 1]])
    world = nki.World(ranks=2, host="inprocess")
    for run in (world.run, world.dry_run):
        with pytest.raises(errors.LaunchError, match=allowed):
            run(K.all_gather, x, group, 2)


# ---- a new one ----------------------------------------------------------------------------------


class Star(TwoPasses):
    """All goes through the first member, which adds from the last member to the first."""

    name = "star"
    needs = "fewer than five"

    @classmethod
    def fits(cls, question: Question) -> bool:
        return question.size < 5

    @classmethod
    def preferred(cls, question: Question) -> bool:
        return question.size == 3

    def messages(self, opcode: str, size: int) -> list[int]:
        passes = 2 if opcode == "all_reduce" else 1
        return [passes * n for n in (size - 1, *[1] * (size - 1))]

    def sends(self, reduces: bool, size: int) -> int:
        raise AssertionError("members differ")

    def all_gather(self, x: Party, mine: Array) -> Waiting:
        found = yield from self._collected(x, [mine])
        if x.me:
            return (yield from x.receive_all(0))
        for member in range(1, x.size):
            x.send_all(member, [arrays[0] for arrays in found])
        return [arrays[0] for arrays in found]

    def reduce_scatter(self, x: Party, chunks: Sequence[Array], reduction: Reduction) -> Waiting:
        found = yield from self._collected(x, chunks)
        if x.me:
            return (yield from x.receive(0))
        sums = [reduction.fold(column[::-1]) for column in zip(*found)]
        for member in range(1, x.size):
            x.send(member, sums[member])
        return sums[0]

    def _collected(self, x: Party, arrays: Sequence[Array]) -> Waiting:
        if x.me:
            x.send_all(0, arrays)
            return []
        found = [arrays]
        for member in range(1, x.size):
            found.append((yield from x.receive_all(member)))
        return found

    def one_pass(self, m: Members, chunk: float, reduces: bool) -> list[Stage]:
        return [Stage(1000.0 * m.size, 0.0, chunk if reduces else 0.0)]


@pytest.fixture
def star(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choose, "ALGORITHMS", (Star, *ALGORITHMS))


def summed(ranks: int) -> nki.Run:
    """2**24 and ones: what is left of the ones says in which order they were added."""
    xs = [np.full((1, 4), 2.0**24 if r == 0 else 1.0, np.float32) for r in range(ranks)]
    with nki.World(ranks=ranks, host="inprocess", platform="trn2") as world:
        group = ncc.ReplicaGroup([list(range(ranks))])
        return world.run(K.all_reduce, nki.per_rank(xs), group, nl.add, profile=True)


def took(run: nki.Run) -> float:
    """Nanoseconds of the collective, from the last member's start."""
    found = [e for e in events(run.profile.timeline) if e.instruction.opcode == "all_reduce"]
    return found[0].end - max(e.start for e in found)


def total(run: nki.Run) -> float:
    return float(np.asarray(run.outputs[-1]).reshape(-1)[0]) - 2.0**24


@pytest.mark.usefixtures("star")
def test_a_new_algorithm_is_chosen_executed_and_priced() -> None:
    run = summed(3)
    assert total(run) == 2
    assert took(run) == pytest.approx(3700 + 2 * 3000 + 16 / 3, abs=1e-6)
    assert total(summed(4)) == 0  # four members add in order: Mesh, or in a single step


@pytest.mark.usefixtures("star")
def test_a_new_algorithm_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "star")
    run = summed(4)
    assert total(run) == 4  # 3 ones and 2**24, to the nearest even
    assert took(run) == pytest.approx(3700 + 2 * 4000 + 16 / 4, abs=1e-6)
    with pytest.raises(errors.LaunchError, match="needs fewer than five of members"):
        summed(5)
    monkeypatch.setenv(VARIABLE, "rings")
    with pytest.raises(errors.LaunchError, match="allowed: star, single_step_mesh"):
        summed(2)


@pytest.mark.usefixtures("star")
def test_a_new_algorithm_can_be_a_part_of_a_hierarchical_one() -> None:
    q = question("all_gather", 48, (0, 1, 2, 64, 65, 66), 64)
    chosen = choose.choose(q)
    assert str(chosen) == "hierarchical(star, mesh)"
    outs = Network(6).run(lambda x: chosen.all_gather(x, np.full(2, x.me)))
    for out in outs:
        np.testing.assert_array_equal(np.concatenate(out), np.repeat(np.arange(6), 2))
    inner = cost.stages(Members(q, Topology(q.arch, 128, 2)), chosen)[-1]
    assert inner == Stage(3000.0, 0.0, 0.0)


def test_an_incomplete_algorithm_cannot_be_made() -> None:
    class Half(TwoPasses):
        name = "half"

    with pytest.raises(TypeError, match=r"all_gather.*one_pass.*preferred.*reduce_scatter"):
        Half()  # type: ignore[abstract]
