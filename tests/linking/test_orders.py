"""Programs in random orders that needs allow give the same bits; with a need missing they don't."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import nki_dist as nki
from nki_dist import kernels
from nki_dist.errors import NkiError
from nki_dist.linking import needs
from nki_dist.ops.operation import Operation
from tests.compiler import programs
from tests.examples.scripts import load
from tests.linking.orders import Tried, any_order, in_orders
from tests.linking.random_programs import data, random_kernel

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.NkiWarning"),
    pytest.mark.filterwarnings("ignore:.*:RuntimeWarning"),
]

RNG = np.random.default_rng(11)


def numbers(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def of_example(name: str) -> Callable[[], None]:
    def run() -> None:
        example = load(name).EXAMPLE
        case = example.case(np.random.default_rng(5), 2, True)
        with nki.World(2, 2, host="inprocess", platform=example.platform) as world:
            world.run(example.kernel, **case.arguments)

    return run


def once(kernel: Any, *arrays: np.ndarray, lnc: int = 1, **options: Any) -> Callable[[], None]:
    return lambda: nki.simulate(nki.jit(kernel) if not hasattr(kernel, "fn") else kernel)[lnc](
        *arrays, **options
    )


INT = np.int32
LAUNCHES = {
    "softmax": once(kernels.softmax, numbers(300, 70)),
    "rms_norm": once(kernels.rms_norm, numbers(300, 70), numbers(70), lnc=2),
    "matmul": once(kernels.matmul, numbers(300, 260), numbers(260, 600)),
    "mlp": once(kernels.mlp, numbers(140, 64), numbers(64, 96), numbers(96, 64), lnc=2),
    "flash_fwd": once(
        kernels.flash_fwd, numbers(1, 2, 40, 300), numbers(1, 1, 40, 300), numbers(1, 1, 300, 40)
    ),
    "loops": once(programs.loops, numbers(4, 3, 8), np.array([[3]], INT)),
    "gather": once(programs.gather, numbers(9, 7), np.array([[3], [8], [99], [0], [8]], INT)),
    "masks": once(programs.matmul, numbers(48, 20), numbers(48, 40)),
    "two cores": once(programs.two_cores, numbers(384, 24), numbers(384, 24), lnc=2),
    "ring_attention": of_example("ring_attention"),
    "tensor_parallel_mlp": of_example("tensor_parallel_mlp"),
}


@pytest.mark.parametrize("name", LAUNCHES)
def test_kernels(name: str) -> None:
    with in_orders(4) as tried:
        LAUNCHES[name]()
    assert tried.differences == []
    assert tried.orders == 4 * tried.launches > 0
    assert tried.free > 0


def run_random(seeds: range, orders: int, until: bool = False) -> tuple[Tried, int]:
    """What has been tried, and how many programs fail.

    Args:
        until: no more than it takes to see a difference.
    """
    failed = 0
    with in_orders(orders) as tried:
        for seed in seeds:
            if until and tried.differences:
                break
            try:
                nki.simulate(nki.jit(random_kernel(seed)))(*data())
            except NkiError:
                failed += 1
    return tried, failed


def test_random_programs() -> None:
    tried, failed = run_random(range(20), 4)
    assert tried.differences == []
    assert tried.launches == 20
    assert tried.free > 0.4 * tried.steps
    assert failed > 0, "errors are compared, too"


def _without(function: str, number: int) -> Callable[[Operation], list[needs.Touch]]:
    original = needs.touches

    def touches(o: Operation) -> list[needs.Touch]:
        found = original(o)
        if o.function.name == function:
            read = [t for t in found if not t.writes]
            found.remove(read[number])
        return found

    return touches


@pytest.mark.parametrize("function", ["copy", "activation.tanh", "matmul", "reduce", "gather rows"])
def test_a_read_that_is_left_out_is_noticed(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "touches", _without(function, 0))
    tried, _ = run_random(range(30), 4, until=True)
    assert tried.differences


@pytest.mark.parametrize("space", ["accumulators", "random", "registers", "order"])
def test_a_space_that_is_left_out_is_noticed(space: str, monkeypatch: pytest.MonkeyPatch) -> None:
    original = needs.touches
    monkeypatch.setattr(needs, "touches", lambda o: [t for t in original(o) if t.space[0] != space])
    tried, _ = run_random(range(30), 4, until=True)
    assert tried.differences


def test_orders_keep_needs_and_little_else() -> None:
    before = [[], [], [0], [1, 2], [], [4]]
    found = {tuple(any_order(before, random.Random(n))) for n in range(200)}
    assert all(o.index(n) < o.index(k) for o in found for k, ns in enumerate(before) for n in ns)
    assert len(found) > 20
