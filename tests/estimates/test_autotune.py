"""`nki.autotune`: what is chosen, when it is chosen again, and what is refused."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compat import beta1
from nki_dist.errors import CompileError, LaunchError, NkiValidationError, RefusedConfigWarning
from nki_dist.launcher.profiles import Executed
from nki_dist.timing.band import groups

F32 = np.float32
X = np.random.default_rng(5).standard_normal((256, 512)).astype(F32)
FACTOR = [3.0]


@nki.jit
def scaled(x, columns, factor=3.0):
    """x times `factor`; each core takes every other tile of rows."""
    assert x.shape[1] % columns == 0, f"{x.shape[1]} columns aren't a multiple of {columns}"
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for row in range(nl.program_id(0) * 128, x.shape[0], 128 * nl.num_programs(0)):
        for column in range(0, x.shape[1], columns):
            tile = nl.load(x[row : row + 128, column : column + columns])
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=factor)
            nl.store(out[row : row + 128, column : column + columns], tile)
    return out


@pytest.fixture(autouse=True)
def in_process(monkeypatch):
    monkeypatch.setenv("NKI_DIST_HOST", "inprocess")


@pytest.fixture
def estimates(monkeypatch):
    """Counts what is estimated."""
    made = []
    profile = Executed.profile

    def counted(launch, *schedule):
        if not schedule:  # else it is a profile that the test asks for
            made.append(launch.compiled.kernel)
        return profile(launch, *schedule)

    monkeypatch.setattr(Executed, "profile", counted)
    return made


def tuned(*columns, kernel=scaled, **options):
    return nki.autotune(configs=[{"columns": n} for n in columns], **options)(kernel)


def test_the_fastest_is_used_and_told():
    best = tuned(32, 256, 128)
    assert best.best_config is None and best.timings == [] == best.failures
    np.testing.assert_array_equal(best(X), F32(3) * X)
    alone = [nki.estimate(scaled)(X, columns=n) for n in (32, 256, 128)]
    by_time = sorted(alone, key=lambda p: p.device_us)
    assert [t.device_us for t in best.timings] == [p.device_us for p in by_time]
    assert best.best_config == best.timings[0].config
    for t in best.timings:
        assert t.low_us < t.device_us < t.high_us


def test_settings_that_compile_to_the_same_are_timed_once(estimates):
    best = tuned(512, 128, 512, kernel=lambda x, columns: scaled(x, min(columns, 256)))
    best(X)
    assert len(estimates) == 2
    times = [(t.config["columns"], t.device_us) for t in best.timings]
    alone = nki.estimate(scaled)(X, columns=256).device_us
    assert times.count((512, alone)) == 2 and len(times) == 3


def test_groups_say_which_cannot_be_told_apart():
    best = tuned(32, 512, 256, 16)
    best(X)
    assert [t.group for t in best.timings] == groups([t.device_us for t in best.timings])
    assert best.timings[0].group == 1 < best.timings[-1].group


def test_every_way_to_launch():
    spec = nki.TensorSpec(X.shape, nl.float32)
    best = tuned(32, 512)
    np.testing.assert_array_equal(nki.simulate(best)(X), F32(3) * X)
    assert best.best_config == {"columns": 512}
    chosen = nki.estimate(scaled)(spec, columns=512).to_dict()
    assert nki.estimate(best)(spec).to_dict() == chosen
    assert nki.profile(best)(X).profile.to_dict() == chosen
    assert best.compile(X).programs[0].facts == scaled.compile(X, columns=512).programs[0].facts
    two = best[2]
    np.testing.assert_array_equal(two(X), F32(3) * X)
    assert nki.estimate(two)(spec).to_dict() == nki.estimate(scaled[2])(spec, columns=512).to_dict()
    world = nki.World(ranks=2)
    outs = world.run(best, nki.per_rank([X, X + 1]), factor=2.0)
    np.testing.assert_array_equal(outs, [2 * X, 2 * (X + 1)])
    assert world.dry_run(best, spec).instructions == (6, 6)


def test_it_decorates():
    @nki.autotune(configs=[{"columns": 64}, {"columns": 256}])
    @nki.jit(platform_target="trn1")
    def doubled(x, columns):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for column in range(0, x.shape[1], columns):
            tile = nl.load(x[:128, column : column + columns])
            nl.store(out[:128, column : column + columns], tile)
        return out

    assert nki.estimate(doubled)(X[:128]).platform == "trn1"
    again = nki.jit(doubled, platform_target="trn2")
    assert nki.estimate(again)(X[:128]).platform == "trn2"
    assert isinstance(again, nki.Autotuned) and again.best_config == {"columns": 256}


def test_a_choice_is_remembered_for_its_signature(estimates):
    best = tuned(128, 512)
    for _ in range(3):
        best(X)
        best(X + 1)  # contents don't count
    assert len(estimates) == 2
    best(X[:128])  # a shape does
    assert len(estimates) == 4
    best(X, factor=2.0)  # so does a value
    assert len(estimates) == 6
    nki.World(ranks=2).estimate(best, X)  # and the world
    assert len(estimates) == 8
    best(X)
    assert len(estimates) == 8


def test_the_platform_counts(estimates, monkeypatch):
    best = tuned(128, 512)
    best(X)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    best(X)
    assert len(estimates) == 4


def test_the_code_counts(estimates):
    def kernel(x, columns):
        return scaled(x, columns, FACTOR[0])

    best = tuned(128, 512, kernel=kernel)
    best(X)
    FACTOR[0] = 4.0
    try:
        np.testing.assert_array_equal(best(X), 4 * X)
    finally:
        FACTOR[0] = 3.0
    assert len(estimates) == 4


def test_key_says_what_counts(estimates):
    best = tuned(128, 512, key=["x"])
    best(X)
    np.testing.assert_array_equal(best(X, factor=2.0), 2 * X)
    assert len(estimates) == 2
    best(X[:128])
    assert len(estimates) == 4


def test_equal_ones_go_by_their_order():
    configs = [{"columns": 512, "factor": f} for f in (5.0, 4.0, 3.0)]
    best = nki.autotune(configs)(scaled)
    best(X)
    assert best.best_config["factor"] == 5.0
    assert [t.config["factor"] for t in best.timings] == [5.0, 4.0, 3.0]


def test_what_does_not_compile_is_left_out_and_told():
    best = tuned(100, 1 << 20, 256)
    with pytest.warns(RefusedConfigWarning, match="2 of 3 configurations of scaled") as caught:
        np.testing.assert_array_equal(best(X), 3 * X)
    assert "columns=100: AssertionError: 512 columns aren't a multiple of 100 at" in str(
        caught[0].message
    )
    assert [f.config["columns"] for f in best.failures] == [100, 1 << 20]
    assert [f.location.startswith(__file__) for f in best.failures] == [True, True]
    assert len(best.timings) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        best(X)  # once


def test_nothing_compiles():
    with pytest.raises(CompileError, match="none of the 2 configurations of scaled") as e:
        tuned(100, 3)(X)
    assert e.value.code == "autotune-nothing"
    assert re.search(r"columns=100: AssertionError.*\n.*columns=3: AssertionError", e.value.message)


def test_errors_of_ours_are_told_with_code_and_line():
    def kernel(x, rows):
        nisa.memset(nl.ndarray((rows, 8), nl.float32, buffer=nl.sbuf), 0)

    with pytest.raises(CompileError, match=r"rows=129: \w+: .* at .*test_autotune.py:\d+ \[") as e:
        nki.autotune([{"rows": 129}])(kernel)(X)
    assert isinstance(e.value, CompileError) and not isinstance(e.value, NkiValidationError)


@pytest.mark.parametrize("call", [lambda k: k(X, 256), lambda k: k(X, columns=256)])
def test_a_call_cannot_give_what_is_chosen(call):
    with pytest.raises(LaunchError, match=r"is given columns, which nki\.autotune chooses"):
        call(tuned(128, 256))


@pytest.mark.parametrize(
    ("configs", "options", "message"),
    [
        ([], {}, "configs is empty"),
        ({"columns": 3}, {}, "allowed: a list of dicts"),
        ([{"columns": 3}, 4], {}, "configuration 4; allowed: a dict"),
        ([{1: 2}], {}, "allowed: a dict"),
        ([{"column": 3}], {}, "column: scaled has no such parameter; its parameters are x, col"),
        ([{"columns": 3}], {"key": ["y"]}, "y: scaled has no such parameter"),
        ([{"columns": 3}], {"key": "x"}, "allowed: a list of names"),
    ],
)
def test_configurations_that_are_none(configs, options, message):
    with pytest.raises(LaunchError, match=message) as e:
        nki.autotune(configs, **options)(scaled)
    assert e.value.code == "autotune-config" and __file__ in e.value.location


def test_beta_1_keeps_its_grids():
    @beta1.jit
    def rows(x, columns):
        out = beta1.language.ndarray(x.shape, x.dtype, buffer=beta1.language.shared_hbm)
        i = beta1.language.program_id(0) * 128
        for column in range(0, x.shape[1], columns):
            tile = beta1.language.load(x[i : i + 128, column : column + columns])
            beta1.language.store(out[i : i + 128, column : column + columns], tile)
        return out

    best = tuned(64, 512, kernel=rows)
    np.testing.assert_array_equal(best[2](X), X)  # two instances on one core
    assert nki.estimate(best[2])(X).cores == 1
    assert best.best_config == {"columns": 512}
    np.testing.assert_array_equal(beta1.simulate_kernel(best[2], X), X)


def test_inlined_it_takes_its_arguments():
    best = tuned(64, 512)

    def outer(x):
        return best(x, 128)

    assert nki.estimate(outer)(X).instructions == 2 * 4 * 3
    assert best.best_config is None
