"""Programs on lanes, in random orders that the lanes and their signals allow, give the same bits.

Threads hardly ever meet at the wrong moment. Here they take turns, in an order that follows from
nothing but the lanes and their signals, and with more signals that force it; so a wait that is
missing, or a buffer that is given away too early, is found.
"""

from __future__ import annotations

import io
import random
from contextlib import redirect_stdout
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import nki_dist as nki
from nki_dist import arch, kernels
from nki_dist.errors import NkiError
from nki_dist.isa import kit
from nki_dist.linking import lanes, placing
from nki_dist.linking.lanes import Schedule
from nki_dist.linking.link import link
from nki_dist.linking.lives import Laned
from nki_dist.linking.placing import LanedSegment, Placed
from nki_dist.program import Program
from nki_dist.runtime import group, memory
from tests.linking.orders import any_order, unlike
from tests.linking.random_programs import data, random_kernel

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.NkiWarning"),
    pytest.mark.filterwarnings("ignore:.*:RuntimeWarning"),
]

THREADS = 3
SEEDS, ORDERS = 12, 3


def force(schedule: Schedule, rng: random.Random) -> None:
    """Add signals that leave one order."""
    before: list[list[int]] = [[] for _ in schedule.lane_of]
    gives = {n: k for lane in schedule.lanes for k, of in lane.signals.items() for n in of}
    for lane in schedule.lanes:
        for first, second in pairwise(lane.nodes):
            before[second].append(first)
        for k, of in lane.waits.items():
            before[k] += [gives[n] for n in of]
    order = any_order(before, rng)
    for first, second in pairwise(order):
        one, other = (schedule.lanes[schedule.lane_of[k]] for k in (first, second))
        if one is not other:
            one.signals.setdefault(first, []).append(schedule.signals)
            other.waits.setdefault(second, []).append(schedule.signals)
            schedule.signals += 1


class _Forced(Placed):
    rng: random.Random
    laned = 0

    def _laned(self, laned: Laned) -> LanedSegment:
        found = super()._laned(laned)
        force(found.schedule, self.rng)
        _Forced.laned += 1
        return found


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "LEAST", 1e-9)
    monkeypatch.setattr(lanes, "GAIN", 10.0)
    for module in (kit, memory):
        monkeypatch.setattr(module, "aligned", unlike)


def bits(result: Any) -> Any:
    return result.tobytes() if isinstance(result, np.ndarray) else list(map(bits, result))


def outcome(kernel: Any, arguments: list[Any], order: int | None) -> tuple[Any, str, str]:
    """Bits of the outputs, what was printed, and the error; on one thread if there is no order."""
    found, failed, printed = [], "", io.StringIO()

    def placed(program: Program, known: Any, threads: int, without: Any, cores: int) -> Placed:
        class _Of(_Forced):
            rng = random.Random(f"{order} {program.core}")

        platform = arch.get(program.platform)
        linked = link(program, platform, without)
        kind = Placed if order is None else _Of
        return kind(linked, platform, known, without, threads, cores)

    with pytest.MonkeyPatch.context() as patch, redirect_stdout(printed):
        patch.setattr(group, "placed_program", placed)
        threads = 1 if order is None else THREADS
        with nki.World(host="inprocess", threads=threads, lnc=1) as world:
            try:
                found = bits(world.run(kernel, *arguments))
            except NkiError as error:
                failed = str(error)
    return found, printed.getvalue(), failed


def differences(kernel: Any, arguments: list[Any]) -> list[int]:
    want = outcome(kernel, arguments, None)
    return [n for n in range(ORDERS) if outcome(kernel, arguments, n) != want]


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


KERNELS = {
    "flash_fwd": (
        kernels.flash_fwd,
        [numbers(1, 2, 40, 700), numbers(1, 1, 40, 700), numbers(1, 1, 700, 40)],
    ),
    "softmax": (kernels.softmax, [numbers(700, 70)]),
    "matmul": (kernels.matmul, [numbers(900, 300), numbers(300, 1100)]),
    "mlp": (kernels.mlp, [numbers(400, 256), numbers(256, 384), numbers(384, 256)]),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name: str) -> None:
    before = _Forced.laned
    assert differences(*KERNELS[name]) == []
    assert _Forced.laned > before


def test_storages_and_panels_share_memory_on_lanes() -> None:
    kernel, arguments = KERNELS["flash_fwd"]
    (program,) = kernel.compile(*arguments).programs
    placed = group.placed_program(program, threads=THREADS)
    assert len(placed.panels) < 0.7 * len(placed.linked.panels)
    assert len(placed.places.sizes) < 0.5 * len(placed.places.numbers)


def random_differences() -> list[Any]:
    found: list[Any] = []
    for seed in range(SEEDS):
        found += differences(nki.jit(random_kernel(seed)), data())
    return found


def test_random_programs() -> None:
    assert random_differences() == []


@pytest.mark.parametrize("missing", ["needs", "buffers", "lives"])
def test_what_is_missing_is_noticed(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if missing == "needs":
        monkeypatch.setattr(lanes, "dependences", lambda nodes: [[] for _ in nodes])
    elif missing == "buffers":
        monkeypatch.setattr(placing, "buffer_needs", lambda laned, of: laned.needs)
    else:
        original = placing.lives

        def brief(*asked: Any) -> Any:
            return {
                space: life._replace(last=life.first) for space, life in original(*asked).items()
            }

        monkeypatch.setattr(placing, "lives", brief)
    assert random_differences() or differences(*KERNELS["flash_fwd"])
