"""Fitting figures without a family: which figures, on which rows, and what comes out."""

from dataclasses import replace
from math import log

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from bench.accuracy import leave_out
from bench.accuracy.leave_out import Effects, Figure, changed, loss, refitted, sample
from nki_dist import arch
from nki_dist.arch.facts import derived, fitted
from tests.accuracy.fixtures import result, row

RATE = Figure("dma_engine_gbps", 27.2, "", ("trn2",))
START = Figure("kernel_start_ns", arch.get("trn2").kernel_start_ns, "", ("trn1", "trn2"))
LATENCY = Figure("dependent_latency.vector", 100, "", ("trn1", "trn2"))


def test_figures_are_those_of_that_kind_and_shared_ones_count_once(monkeypatch):
    def with_fits(name):
        machine = real(name)
        facts = {key: replace(f, kind="published", source="A2") for key, f in machine.facts.items()}
        facts = {**facts, "kernel_end_ns": fitted(5000.0, "small rows")}
        facts["dependent_latency"] = fitted({"tensor": 64, "vector": 100 + (name == "trn1")}, "x")
        facts["semaphore_ns"] = derived(30, "ROWS: mamba; A2")
        facts["dma_trigger_ns"] = derived(8.0, "PROFILE; ROWS have 7 to 9")
        return arch.Arch.from_facts(machine.name, machine.instance, facts)

    real = arch.get
    monkeypatch.setattr(leave_out.arch, "get", with_fits)
    found = {(f.name, f.value): f.platforms for f in leave_out.figures()}
    assert found == {
        ("kernel_end_ns", 5000.0): ("trn1", "trn2"),
        ("semaphore_ns", 30): ("trn1", "trn2"),
        ("dependent_latency.tensor", 64): ("trn1", "trn2"),
        ("dependent_latency.vector", 101): ("trn1",),
        ("dependent_latency.vector", 100): ("trn2",),
    }


def test_figures_are_changed_on_their_platforms():
    trn1, trn2 = arch.get("trn1"), arch.get("trn2")
    factors = {RATE: 2.0, LATENCY: 1.5, START: 1.0}
    machine = changed(trn2, factors)
    assert machine.dma_engine_gbps == 2 * RATE.value
    assert machine.dependent_latency["vector"] == 1.5 * trn2.dependent_latency["vector"]
    assert machine.dependent_latency["tensor"] == trn2.dependent_latency["tensor"]
    assert machine.kernel_start_ns == trn2.kernel_start_ns
    assert changed(trn1, {RATE: 2.0}) is trn1


def effects(errors, changes):
    """Of two figures, whose changes are linear in the logarithm of the factor."""
    rows = [row(name) for name in errors]
    return Effects(
        rows,
        np.array(list(errors.values())),
        {
            (figure, factor): np.array([slope * log(factor) for slope in slopes])
            for figure, slopes in changes.items()
            for factor in leave_out.FACTORS
        },
    )


def test_a_fit_finds_the_factors_that_explain_the_errors():
    slopes = {RATE: [-1.0, 0.0, -0.5, -1.0], START: [0.0, 1.0, 0.5, 0.2]}
    hidden = {RATE: 1.6, START: 0.8}
    wrong = [-sum(slopes[f][n] * log(hidden[f]) for f in hidden) for n in range(4)]
    of = effects(dict(zip(("a-1", "a-2", "b-1", "b-2"), wrong)), slopes)
    assert refitted(of, [RATE, START]) == hidden


def test_a_figure_is_looked_at_again_once_others_have_moved():
    slopes = {RATE: [2.0, 1.0, 0.0], START: [-1.0, -1.0, -2.0]}
    wrong = [-(a + b) * log(0.6) for a, b in zip(*slopes.values())]
    of = effects(dict(zip(("a-1", "b-1", "c-1"), wrong)), slopes)
    assert refitted(of, [RATE, START]) == {RATE: 0.6, START: 0.6}


def test_what_explains_nothing_stays():
    of = effects({"a-1": 0.5, "b-1": -0.5}, {RATE: [0.0, 0.0], START: [1.0, 1.0]})
    assert refitted(of, [RATE, START]) == {RATE: 1.0, START: 1.0}


def test_a_family_left_out_takes_no_part():
    of = effects({"a-1": 0.4, "b-1": -log(1.6), "b-2": -log(1.6)}, {RATE: [1.0, 1.0, 1.0]})
    assert refitted(of.without("a"), [RATE]) == {RATE: 1.6}
    assert refitted(of.without("b"), [RATE])[RATE] < 1


def test_losses_weigh_families_equally_and_leave_the_scale_of_two_cores_open():
    rows = [row("a-1"), row("a-2"), row("a-3"), row("b-1")]
    assert loss(rows, np.array([0.1, 0.1, 0.1, 0.5])) == pytest.approx(0.3)
    two = [row("kda/p/1", flags="x"), row("kda/p/2", flags="x"), row("a-1")]
    assert loss(two, np.array([0.9, 0.9, 0.2])) == pytest.approx(0.1)


def test_a_sample_takes_what_simulates_quickest_of_each_family():
    rows = [row(f"{family}-{n}") for family in "ab" for n in range(4)]
    results = {r.id: replace(result(r.id, 10.0), instructions=100 - n) for n, r in enumerate(rows)}
    results["b-3"] = replace(results["b-3"], device_us=0.0)
    assert [r.id for r in sample(rows, results, 2)] == ["b-2", "b-1", "a-3", "a-2"]


@nki.jit
def copied(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    return out


def test_a_row_is_simulated_again_with_other_figures(monkeypatch):
    monkeypatch.setattr(
        "bench.accuracy.simulate.launch_of",
        lambda row: leave_out_launch(),
    )
    now, later, same = leave_out.times(row("a-1"), [{START: 2.0}, {}])
    assert later - now == pytest.approx(START.value / 1000) and same == now


def leave_out_launch():
    from bench.accuracy.library import Launch

    return Launch(copied, (np.zeros((128, 64), np.float32),), {})


def test_problems_and_sizes_are_left_out_together():
    rows = [row("kda/silu/a", 99.0), row("att-apc-2", 100.0), row("att-apc-3", 1000.0)]
    found = {kind: [part_of(r) for r in rows] for kind, part_of in leave_out.PARTS.items()}
    assert found == {
        "family": ["kda", "att", "att"],
        "problem": ["kda/silu", "att-apc", "att-apc"],
        "size": ["below 100 us", "100 us to 1 ms", "above 1 ms"],
    }
    of = effects({"att-1": -log(1.6), "b-1": 0.4}, {RATE: [1.0, 1.0]})
    assert refitted(of.without("b", leave_out.PARTS["problem"]), [RATE]) == {RATE: 1.6}


def test_rows_of_many_instructions_are_not_judged():
    rows = [row(f"a-{n}") for n in range(3)]
    results = {
        r.id: replace(result(r.id, 10.0), instructions=1_600 + n) for n, r in enumerate(rows)
    }
    assert [r.id for r in leave_out.quick(rows, results)] == ["a-0"]


def test_measured_with_a_family_left_out(monkeypatch):
    """One family's start takes 0.8 of the figure; the other, whose start is as it says, is told so
    by the first, and the first by the other. As for sizes, there is none to learn from."""
    monkeypatch.setattr("bench.accuracy.simulate.launch_of", lambda row: leave_out_launch())
    monkeypatch.setattr(leave_out, "figures", lambda: [START])
    now, less = leave_out.times(row("a-1"), [{START: 0.8}])
    said = []
    rows = [row("a-1", less), row("b-1", now)]
    found = leave_out.measure(rows, rows, 2, leave_out.Limits(60.0, 8), said.append)
    off = pytest.approx(100 * (now / less - 1), abs=0.01)
    for kind in ("family", "problem"):
        a, b = found[kind]["parts"].values()
        assert a == {"rows": 1, "now": off, "left_out": off, "moved": {}}
        assert b == {"rows": 1, "now": 0.0, "left_out": off, "moved": {"kernel_start_ns": 0.8}}
        assert found[kind]["median"] == found[kind]["p90"] == off
    (size,) = found["size"]["parts"].values()
    assert size["rows"] == found["rows"] == 2 and size["moved"] == {}
    assert found["now"]["median"] < off.expected and len(said) == 4
