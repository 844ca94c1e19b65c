"""Policies: how they are written, and that each part does what it says, on both hosts."""

import warnings

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.checks import Checks, checks_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning"),
]

X = np.random.default_rng(8).standard_normal((48, 40)).astype(np.float32)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("default", Checks()),
        ("strict", Checks(unwritten="strict", refusals="all")),
        ("spill", Checks(capacity="spill")),
        (
            ["spill", "strict"],
            Checks(unwritten="strict", capacity="spill", refusals="all"),
        ),
        ("unwritten=zero,races=warn", Checks("zero", "warn")),
        (" unwritten = nan , spill", Checks("nan", capacity="spill")),
        (Checks(races="off"), Checks(races="off")),
        ("strict,unwritten=strict", Checks("strict", refusals="all")),
    ],
)
def test_ways_to_write_one(written, meant):
    assert checks_of(written) == meant
    assert checks_of(str(meant)) == meant


@pytest.mark.parametrize(
    "written",
    [
        "",
        "lenient",
        "unwritten",
        "unwritten=perhaps",
        "race=warn",
        3,
        ["strict", 4],
        "strict;spill",
    ],
)
def test_what_there_is_not_is_refused_with_what_there_is(written):
    with pytest.raises(
        errors.LaunchError, match=r"default, strict, spill.*unwritten=error\|strict"
    ):
        nki.World(check=written)


def test_two_answers_to_one_question_are_refused():
    with pytest.raises(errors.LaunchError, match="unwritten=strict and unwritten=zero"):
        checks_of("strict,unwritten=zero")
    with pytest.raises(errors.LaunchError, match="check races='maybe'; allowed: error, warn, off"):
        Checks(races="maybe")


def test_the_environment_counts_where_the_program_says_nothing(monkeypatch):
    monkeypatch.setenv("NKI_DIST_CHECK", "races=warn,unwritten=nan")
    assert nki.World().checks == Checks("nan", "warn")
    assert nki.World(check="strict").checks == Checks("strict", refusals="all")
    monkeypatch.setenv("NKI_DIST_CHECK", "races=never")
    with pytest.raises(errors.LaunchError, match=r"NKI_DIST_CHECK: .*'races=never' is unknown"):
        nki.World()


# ---- unwritten ----------------------------------------------------------------------------------


@nki.jit
def padded_product(x, w):
    """Rows 30 to 39 of the moving tile are never written and meet weights of zero."""
    tile, weights = nl.ndarray((40, 24), x.dtype, buffer=nl.sbuf), nl.load(w)
    nisa.dma_copy(dst=tile[0:30, :], src=x[0:30, 0:24])
    psum = nl.ndarray((16, 24), nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=psum, stationary=weights, moving=tile)
    out = nl.ndarray((16, 24), x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(psum))
    return out


@nki.jit
def shows_what_memory_held(x):
    """Unwritten SBUF, private HBM and shared HBM, floats and integers."""
    outs = []
    for buffer in (nl.sbuf, nl.private_hbm, nl.shared_hbm):
        for dtype in (nl.float32, nl.bfloat16, nl.int32, nl.uint8):
            out = nl.ndarray((5, 8), dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=out, src=nl.ndarray((5, 8), dtype, buffer=buffer))
            outs.append(out)
    return outs


def run(kernel, *args, lnc=1, **options):
    with nki.World(lnc=lnc, host="inprocess", **options) as world:
        return world.run(kernel, *args)[0]


def test_padding_that_meets_zero_weights():
    w = np.zeros((40, 16), np.float32)
    w[:30] = X[:30, 24:40]
    with pytest.raises(errors.UninitializedReadError, match="unwritten=zero"):
        run(padded_product, X, w)
    wanted = w[:30].astype(np.float64).T @ X[:30, :24]
    np.testing.assert_allclose(
        run(padded_product, X, w, check="unwritten=zero"), wanted, 1e-4, 1e-5
    )
    assert np.isnan(run(padded_product, X, w, check="unwritten=nan")).all()
    simulated = nki.simulate(padded_product, check="unwritten=zero")(X, w)
    np.testing.assert_allclose(simulated, wanted, 1e-4, 1e-5)


def test_zero_is_zero_everywhere_and_again():
    """Also where an earlier run of other kernels left something, and in memory used twice."""
    with nki.World(host="inprocess", check=Checks(unwritten="zero")) as world:
        for _ in range(2):
            world.run(padded_product, X + 1, np.ones((40, 16), np.float32))
            for got in world.run(shows_what_memory_held, X)[0]:
                assert not got.astype(np.float32).any()


def test_nan_is_nan_in_floats():
    outs = run(shows_what_memory_held, X, check="unwritten=nan")
    for got in outs:
        values = got.astype(np.float32)
        assert (
            np.isnan(values).all() if got.dtype.kind != "i" and got.itemsize > 1 else values.all()
        )


def test_a_dry_run_follows_the_policy():
    @nki.jit
    def counts_with_what_nobody_wrote(x):
        count = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
        register = nisa.register_alloc()
        nisa.register_load(register, count)
        tile = nl.load(x)
        for _ in nl.dynamic_range(register):
            nisa.reciprocal(dst=tile, data=tile)
        return x

    with nki.World(host="inprocess", check="unwritten=zero") as world:
        report = world.dry_run(counts_with_what_nobody_wrote, X)
    assert report is not None
    with (
        nki.World(host="inprocess") as world,
        pytest.raises(errors.UninitializedReadError, match="unwritten=zero"),
    ):
        world.dry_run(counts_with_what_nobody_wrote, X)


# ---- races --------------------------------------------------------------------------------------


@nki.jit
def both_store(x):
    out = nl.ndarray((48, 40), x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=float(nl.program_id(0)))
    nl.store(out, tile)
    return out


def test_races_are_errors_warnings_or_nothing():
    with pytest.raises(errors.RaceError, match="races=warn"):
        run(both_store, X, lnc=2)
    with pytest.warns(errors.RaceWarning, match="nothing orders a store by core") as seen:
        out = run(both_store, X, lnc=2, check="races=warn")
    assert np.array_equal(out, X) or np.array_equal(out, X + 1)
    assert seen[0].message.location.startswith(__file__) and seen[0].message.policy is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(both_store, X, lnc=2, check="races=off")


# ---- capacity -----------------------------------------------------------------------------------


def test_a_refusal_for_lack_of_memory_names_the_policy():
    def kernel(x):
        tiles = [nl.ndarray((128, 2048), nl.float32, buffer=nl.psum) for _ in range(3)]
        for tile in tiles:
            nisa.memset(dst=tile, value=1)
        out = nl.ndarray((128, 2048), nl.float32, buffer=nl.shared_hbm)
        for tile in tiles:
            nl.store(out, nl.copy(tile))
        return out

    with pytest.raises(errors.OutOfMemoryError) as caught:
        run(kernel, X)
    assert "capacity=spill" in caught.value.hint and "capacity=spill" in str(caught.value)
    assert run(kernel, X, check="capacity=spill").all()
