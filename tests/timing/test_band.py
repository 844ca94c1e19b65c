"""The band around a simulated time: which bound says how much, and what widens it."""

from dataclasses import replace
from math import exp, log

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import arch
from nki_dist.arch.facts import assumed
from nki_dist.compat import beta1
from nki_dist.compat.beta1 import language as beta1_language
from nki_dist.isa.spec import Cost
from nki_dist.timing import make_profile, profile_launch
from nki_dist.timing.band import (
    AROUND,
    ASSUMED,
    BOUND_BY,
    COLLECTIVES,
    FREEDOM,
    KERNEL,
    WAITS,
    WIDTHS,
    Shares,
    band,
    shares,
    width,
)
from nki_dist.timing.summary import _figures
from tests.timing.build import compiled, replay
from tests.timing.test_replay import load_activate_store
from tests.timing.test_table import NOTHING

WIDER = {"kernel": 0.1, "collectives": 0.5, "around": 0.0}


def test_shares_are_of_the_time_on_the_device():
    critical = {"tensor": 30.0, "dma data": 10.0, "dma engines busy": 5.0, "semaphores": 5.0}
    of = shares(critical, 50.0, 20.0, False)
    assert of.bounds == {"around": 0.5, "tensor": 0.3, "transfers": 0.15, "waits": 0.05}
    assert of.assumed == 0.2


def test_what_is_not_known_to_bound_a_kernel_is_a_wait():
    assert "activation tables" not in BOUND_BY
    assert shares({"activation tables": 3.0, "new": 1.0}, 0.0, 0.0, False).bounds == {WAITS: 1.0}


def test_of_nothing_nothing_is_known():
    assert shares({}, 0.0, 0.0, True) == Shares({WAITS: 1.0}, 1.0, 1.0)


def test_a_width_is_the_mean_of_what_the_time_is_spent_on():
    of = Shares({"tensor": 0.15, "waits": 0.1, "collectives": 0.5, "around": 0.25}, 0.0)
    assert width(of, WIDER, 0.3) == pytest.approx(0.25 * 0.1 + 0.5 * 0.5)
    assert width(of._replace(assumed=0.5), WIDER, 0.3) == pytest.approx(0.275 + 0.15)
    assert width(of._replace(free=1.0), WIDER, 0.3, 0.4) == pytest.approx(0.275 + 0.4)


def test_a_band_is_as_wide_upwards_as_downwards_in_ratio():
    of = Shares({"tensor": 1.0}, 0.0)
    low, high = band(100.0, of)
    assert (log(high / 100), log(100 / low)) == pytest.approx((WIDTHS[KERNEL],) * 2)
    assert band(100.0, of._replace(assumed=1.0))[1] == pytest.approx(high * exp(ASSUMED))


def test_what_is_around_a_kernel_has_the_wider_band():
    assert set(WIDTHS) == {KERNEL, COLLECTIVES, AROUND} and WIDTHS[AROUND] > WIDTHS[KERNEL]
    assert all(w > 0 for w in WIDTHS.values()) and ASSUMED > 0


def test_profiles_have_their_band():
    profile = replace(NOTHING, critical={"tensor": 2000.0}, overhead_us=0.0)
    assert profile.high_us == pytest.approx(2000 * exp(WIDTHS[KERNEL]))
    data = profile.to_dict()
    assert data["low_us"] == profile.low_us < data["device_us"] < data["high_us"]


# ---- what rests on figures nobody publishes -----------------------------------------------------


def profiled(machine):
    programs, machine = compiled(load_activate_store, [(128, 512)], platform=machine)
    return profile_launch(programs, [[]], machine, "kernel")


def published(machine):
    """The arch as if every figure were published."""
    facts = {key: replace(fact, kind="published") for key, fact in machine.facts.items()}
    return type(machine).from_facts(machine.name, machine.instance, facts)


def test_assumed_figures_count_with_the_time_they_set():
    machine = published(arch.get("trn2"))
    known = profiled(machine)
    assert known.assumed_us == 0.0
    for figure, kind in (
        ("act_table_load_ns", "activation tables"),
        ("dma_engine_gbps", "dma data"),
        ("dma_semaphore_ns", "dma latency"),
        ("semaphore_ns", "semaphores"),
        ("engine_clock_ghz", "scalar"),
        ("activate_latency_ns", "result latency"),
    ):
        same = machine.with_values("a guess", **{figure: getattr(machine, figure)})
        assert 0 < profiled(same).assumed_us == pytest.approx(known.critical[kind]), figure
    ends = machine.with_values("a guess", kernel_end_ns=7000.0)
    assert profiled(ends).assumed_us == 7.0


def test_latencies_are_those_of_their_engine():
    known = published(arch.get("trn2"))
    facts = {**known.facts, "dependent_latency.vector": assumed(100, "a guess")}
    machine = type(known).from_facts(known.name, known.instance, facts)
    for engine, doubtful in (("vector", True), ("gpsimd", False), ("scalar", False)):
        figures = _figures("result latency", engine, Cost())
        assert (not machine.assumptions().keys().isdisjoint(figures)) is doubtful


def test_costs_nobody_documents_count_with_their_time():
    programs, machine = compiled(load_activate_store, [(128, 512)], platform="trn2")
    machine = published(machine)
    timeline = replay(programs, [[]], machine)
    (core,) = timeline.cores
    at = next(n for n, i in enumerate(core.graph.executed) if i.engine == "scalar")
    ordinal = core.graph.executed[at].ordinal
    core.costs[ordinal] = replace(core.costs[ordinal], known=False)
    profile = make_profile(timeline, "kernel")
    assert 0 < profile.assumed_us == pytest.approx(profile.critical["scalar"])


def test_nothing_was_measured_on_later_generations():
    profile = profiled("trn3")
    assert profile.assumed_us == pytest.approx(profile.device_us)


@nki.jit
def copied(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out


@beta1.jit
def copied_by_beta1(x):
    out = beta1_language.ndarray(x.shape, dtype=x.dtype, buffer=beta1_language.shared_hbm)
    beta1_language.store(out, beta1_language.load(x))
    return out


def test_kernels_of_beta1_have_wider_bands():
    x = np.ones((128, 64), np.float32)
    with nki.World(host="inprocess", lnc=1) as world:
        today = world.dry_run(copied, x, profile=True).profile
        former = world.dry_run(copied_by_beta1, x, profile=True).profile
    assert (today.beta1, former.beta1) == (False, True)
    same = replace(former, beta1=False)
    assert log(former.high_us / same.high_us) == pytest.approx(FREEDOM)


def test_worlds_give_bands():
    run = nki.profile(copied, host="inprocess")(np.ones((128, 64), np.float32))
    assert 0 < run.profile.low_us < run.profile.device_us < run.profile.high_us
