"""Examples of several ranks: values, both LNC degrees, both hosts, repeated bits, scripts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import nki_dist as nki
from nki_dist import errors
from tests.examples.scripts import load, run_script

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning")

common: Any = load("_common")
worlds: Any = load("_worlds")

NAMES = (
    "data_parallel",
    "expert_parallel",
    "grid_matmul",
    "ring_attention",
    "tensor_parallel_mlp",
)
EXAMPLES = {name: load(name).EXAMPLE for name in NAMES}

each_example = pytest.mark.parametrize("name", NAMES)
each_lnc = pytest.mark.parametrize("lnc", [1, 2])


def small_case(name: str, ranks: int) -> Any:
    return EXAMPLES[name].case(np.random.default_rng(5), ranks, True)


def results(
    name: str, ranks: int, lnc: int, host: str = "inprocess", **options: Any
) -> list[np.ndarray]:
    """What all ranks return, from the second of two runs that gave the same bits."""
    example, case = EXAMPLES[name], small_case(name, ranks)
    settings = {"platform": example.platform, **options}
    with nki.World(ranks=ranks, lnc=lnc, host=host, **settings) as world:
        first, again = (world.run(example.kernel, **case.arguments) for _ in range(2))
    for rank in range(ranks):
        assert first[rank].tobytes() == again[rank].tobytes()
    return again


def check(outs: list[np.ndarray], expected: np.ndarray) -> None:
    """Rank by rank: an error of one must not hide behind the large values of another."""
    assert len(outs) == len(expected)
    for out, wanted in zip(outs, expected, strict=True):
        assert out.shape == wanted.shape
        assert common.error(out, wanted) <= common.allowed_error(out.dtype)


@each_lnc
@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
@each_example
def test_agrees_with_numpy_and_repeats(name: str, ranks: int, lnc: int) -> None:
    check(results(name, ranks, lnc), small_case(name, ranks).expected)


@each_example
def test_uses_nothing_that_strict_checks_report(name: str) -> None:
    """With the script's own number of ranks: all_to_all_v is documented for whole devices."""
    ranks = EXAMPLES[name].ranks
    check(results(name, ranks, 2, check="unwritten=strict"), small_case(name, ranks).expected)


def test_ray_gives_the_same_bits() -> None:
    """All examples in one world of two processes, so each follows another's tensors and programs.

    That world is a trn2, also for the example that is meant for trn3; bits don't depend on it.
    """
    with nki.World(ranks=3, lnc=2, host="ray", platform="trn2", cores_per_actor=4) as world:
        for name in NAMES:
            here = results(name, 3, 2)
            for _ in range(2):
                there = world.run(EXAMPLES[name].kernel, **small_case(name, 3).arguments)
                assert [a.tobytes() for a in here] == [a.tobytes() for a in there]


def test_all_replicas_learn_the_same_bits() -> None:
    outs = results("data_parallel", 4, 2)
    assert len({out.tobytes() for out in outs}) == 1


def test_experts_without_tokens_and_with_all_of_them() -> None:
    """Everybody chooses expert 1: its slots are full, the other expert gets nothing."""
    example, case = EXAMPLES["expert_parallel"], small_case("expert_parallel", 2)
    tokens = [case.arguments["tokens"].of(rank, 2) for rank in range(2)]
    send = np.array([[0, tokens[0].size], [0, 0]], np.uint32)
    with nki.World(ranks=2, lnc=2, host="inprocess", platform="trn3") as world:
        outs = world.run(example.kernel, **{**case.arguments, "send": send})
    w1, w2 = (case.arguments[name].of(1, 2) for name in ("w1", "w2"))
    reference = load("tensor_parallel_mlp").reference
    check(outs, np.stack([reference(x, w1, w2) for x in tokens]))


def test_an_expert_asked_for_more_than_there_is() -> None:
    example, case = EXAMPLES["expert_parallel"], small_case("expert_parallel", 2)
    size = case.arguments["tokens"].of(0, 2).size
    send = np.array([[0, size], [0, 150]], np.uint32)
    world = nki.World(ranks=2, host="inprocess", platform="trn3")
    with world, pytest.raises(errors.OutOfBoundsError, match=f"which has {size}"):
        world.run(example.kernel, **{**case.arguments, "send": send})


def test_a_grid_is_as_square_as_can_be() -> None:
    grid_of = load("grid_matmul").grid_of
    shapes = [grid_of(ranks).shape for ranks in (1, 2, 6, 7, 16, 256)]
    assert shapes == [(1, 1), (1, 2), (2, 3), (1, 7), (4, 4), (16, 16)]


def test_a_grid_of_the_wrong_world_is_refused() -> None:
    example, case = EXAMPLES["grid_matmul"], small_case("grid_matmul", 4)
    args: dict[str, Any] = dict(case.arguments)
    for name in ("lhsT", "rhs"):
        args[name] = nki.per_rank(args[name].values[:3])
    world = nki.World(ranks=3, host="inprocess")
    with world, pytest.raises(errors.NkiValidationError, match="names rank 3; the world has"):
        world.run(example.kernel, **args)


@pytest.mark.parametrize(
    ("ranks", "lnc", "per_ultraserver"), [(64, 2, 1), (65, 2, 4), (128, 1, 1), (129, 1, 4)]
)
def test_worlds_larger_than_an_instance_are_ultraservers(
    ranks: int, lnc: int, per_ultraserver: int
) -> None:
    world = worlds.make_world(EXAMPLES["grid_matmul"], ranks, lnc, "inprocess")
    assert (world.ranks, world.lnc) == (ranks, lnc)
    assert world.arch.instances_per_ultraserver == per_ultraserver


def test_script() -> None:
    done = run_script("grid_matmul.py", "--small", "--ranks", "6", "--host", "inprocess")
    assert done.returncode == 0, done.stderr
    for expected in ("on 2 by 3 ranks", "error against NumPy", "identical bits", "host time"):
        assert expected in done.stdout


@pytest.mark.parametrize(("option", "value"), [("lnc", 3), ("ranks", 0)])
def test_no_world_without_ranks_or_with_too_many_cores(option: str, value: int) -> None:
    settings = {"ranks": 2, "lnc": 2, "host": "inprocess", option: value}
    for example in EXAMPLES.values():
        with pytest.raises(errors.LaunchError, match=f"{option}={value}"):
            worlds.make_world(example, **settings)
