"""nki.jit(compile_config=, specialization_config=) and the kinds of dependencies.

From the pages nki.compiler, nki.compiler.CompileConfig, SpecializationConfig, AddressRotation,
nki.jit, nki.isa.NkiInstruction and nki.isa.dependency of SDK 2.33.
"""

import pickle
import warnings

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.compat.compiler import AddressRotation, CompileConfig, SpecializationConfig
from tests.isa.helpers import numbers, output
from tests.test_checks import both_store
from tests.timing.test_replay import timed

X = numbers(1, (48, 40))


def copied(x):
    return output(nl.load(x))


def test_what_the_page_gives_as_defaults():
    config = CompileConfig()
    assert config.address_rotation is AddressRotation.AUTO
    assert config.nki_alloc_fallback is True and config.prefetch_auto is False
    assert {a.name for a in AddressRotation} == {"AUTO", "ENABLE", "DISABLE"}
    assert SpecializationConfig().allow_nested_config_override is None  # not on the page


OPTIONS = {
    "address_rotation": list(AddressRotation),
    "non_ssa_legalization": [True, False],
    "dead_code_elim": [True, False],
    "barrier_check": [True, False],
    "prefetch_auto": [True, False],
    "nki_alloc_fallback": [True, False],
}


@pytest.mark.parametrize("name", OPTIONS)
def test_results_are_the_same(name):
    for value in OPTIONS[name]:
        kernel = nki.jit(compile_config=CompileConfig(**{name: value}))(copied)
        for made in (nki.simulate(kernel), nki.simulate(kernel[2]), nki.debug(kernel)):
            assert np.array_equal(made(X), X)


@pytest.mark.parametrize("host", ["inprocess", "debug"])
def test_barrier_check_makes_errors_of_races(host):
    with_check = nki.jit(both_store, compile_config=CompileConfig(barrier_check=True))
    without = nki.jit(both_store, compile_config=CompileConfig(barrier_check=False))
    with nki.World(lnc=2, host=host, check="races=off") as world:
        world.run(without, X)
        with pytest.raises(errors.RaceError):
            world.run(with_check, X)


def test_barrier_check_stays_with_a_saved_program(tmp_path):
    kernel = nki.jit(both_store, compile_config=CompileConfig(barrier_check=True))
    with nki.World(lnc=2, host="inprocess", check="races=off") as world:
        made = world.compile(kernel, X)
        made.save(tmp_path / "kernel.nkip")
        loaded = type(made).load(tmp_path / "kernel.nkip")
        assert loaded.races_are_errors
        with pytest.raises(errors.RaceError):
            world.run(loaded, X)


def too_much(x):
    tiles = [nl.ndarray((128, 2048), nl.float32, buffer=nl.psum) for _ in range(3)]
    for tile in tiles:
        nisa.memset(dst=tile, value=1)
    return [output(nl.copy(tile)) for tile in tiles]


@pytest.mark.parametrize("host", ["inprocess", "debug"])
def test_without_fallback_too_much_is_an_error(host):
    with nki.World(host=host, check="spill") as world:
        world.run(nki.jit(too_much, compile_config=CompileConfig()), X)
        with pytest.raises(errors.OutOfMemoryError):
            world.run(nki.jit(too_much, compile_config=CompileConfig(nki_alloc_fallback=False)), X)


# ---- kernels in kernels -------------------------------------------------------------------------

INNER = nki.jit(compile_config=CompileConfig(dead_code_elim=False))(copied)


def outer_of(compile_config=None, specialization_config=None, inner=INNER):
    def outer(x):
        return inner(x)

    return nki.simulate(
        nki.jit(outer, compile_config=compile_config, specialization_config=specialization_config)
    )


def test_a_nested_kernel_that_disagrees():
    wrong = CompileConfig(dead_code_elim=True)
    with pytest.raises(errors.CompileError, match="dead_code_elim=False inside, True outside") as e:
        outer_of(wrong)(X)
    assert e.value.code == "nested-config"
    with pytest.raises(errors.CompileError, match="dead_code_elim=False inside"):
        outer_of(wrong, SpecializationConfig(allow_nested_config_override=False))(X)
    with pytest.warns(errors.NestedConfigWarning, match="What is outside counts"):
        out = outer_of(wrong, SpecializationConfig(allow_nested_config_override=True))(X)
    assert np.array_equal(out, X)


def test_nested_kernels_that_agree():
    with warnings.catch_warnings():
        warnings.simplefilter("error", errors.NestedConfigWarning)
        assert np.array_equal(outer_of(CompileConfig(dead_code_elim=False))(X), X)
        assert np.array_equal(outer_of(CompileConfig(), inner=nki.jit(copied))(X), X)
        assert np.array_equal(outer_of()(X), X)


# ---- what isn't taken ---------------------------------------------------------------------------

WRONG = {
    "a dict": (lambda: nki.jit(copied, compile_config={}), "allowed: a nki.compiler.CompileConfig"),
    "the other": (
        lambda: nki.jit(copied, specialization_config=CompileConfig()),
        "allowed: a nki.compiler.SpecializationConfig",
    ),
    "a number": (lambda: CompileConfig(barrier_check=1), "barrier_check=1.*True or False"),
    "text": (lambda: CompileConfig(address_rotation="AUTO"), "AddressRotation.ENABLE"),
    "text for a flag": (
        lambda: SpecializationConfig(allow_nested_config_override="yes"),
        "True or False",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_configurations(case):
    wrong, message = WRONG[case]
    with pytest.raises(errors.LaunchError, match=message) as caught:
        wrong()
    assert caught.value.code == "compile-config"


@pytest.mark.parametrize("option", ["compile_config", "specialization_config"])
def test_0_6_has_no_configurations(option):
    value = CompileConfig() if option == "compile_config" else SpecializationConfig()
    came = rf"nki.jit\({option}=\) came with NKI 0.7"
    with (
        nki.World(host="inprocess", release="0.6") as world,
        pytest.raises(errors.CompileError, match=came),
    ):
        world.run(nki.jit(copied, **{option: value}), X)


def test_a_kernel_with_a_configuration_is_cached_and_pickled():
    kernel = nki.simulate(INNER)
    with nki.World(host="inprocess") as world:
        assert world.compile(INNER, X) is world.compile(INNER, X)
    assert np.array_equal(kernel(X), X)
    assert repr(pickle.loads(pickle.dumps(CompileConfig()))) == repr(CompileConfig())


def test_platform_and_configuration_go_together():
    kernel = nki.jit(copied, platform_target="trn3", compile_config=CompileConfig())
    assert kernel.platform == "trn3" and kernel.__name__ == "copied"
    assert np.array_equal(nki.simulate(kernel)(X), X)


# ---- kinds of dependencies ----------------------------------------------------------------------


def two(kind, engine):
    """Two instructions without data in common; the second depends on the first."""

    def kernel(x):
        a, b = (nl.ndarray((32, 4096), nl.float32, buffer=nl.sbuf) for _ in range(2))
        first = nisa.memset(dst=a, value=0, engine=nisa.engine.vector)
        second = nisa.memset(dst=b, value=0, engine=nisa.engine[engine])
        assert second.depends_on(first, kind=kind) == second

    return timed(kernel, [(2, 2)]).cores[0]


def test_runtime_waits_and_schedule_orders_one_engine():
    waits = two(nisa.dependency.runtime, "gpsimd")
    assert waits.start[1] >= waits.done[0]
    overlaps = two(nisa.dependency.schedule, "gpsimd")
    assert overlaps.start[1] < overlaps.end[0]
    left_out = two(None, "gpsimd")
    assert list(left_out.start) == list(waits.start)
    in_order = two(nisa.dependency.schedule, "vector")
    assert in_order.start[1] >= in_order.end[0]


@pytest.mark.parametrize(
    ("kind", "engine", "kept"),
    [("runtime", "vector", 1), ("runtime", "gpsimd", 1), ("schedule", "vector", 1),
     ("schedule", "gpsimd", 0)],
)  # fmt: skip
def test_what_schedulers_are_told(kind, engine, kept):
    def kernel(x):
        a, b = (nl.ndarray((32, 8), nl.float32, buffer=nl.sbuf) for _ in range(2))
        first = nisa.memset(dst=a, value=0, engine=nisa.engine.vector)
        second = nisa.memset(dst=b, value=0, engine=nisa.engine[engine])
        second.depends_on(first, kind=nisa.dependency[kind])
        return output(b)

    with nki.World(host="inprocess") as world:
        (program,) = world.compile(nki.jit(kernel), X).programs
    first, second = (i for i in program.body if i.opcode == "memset")
    assert second.after == (first.ordinal,) * kept


def test_kinds_that_there_are():
    assert {d.name for d in nisa.dependency} == {"runtime", "schedule"}

    def kernel(x):
        tile = nl.load(x)
        first = nisa.memset(tile, 1)
        nisa.memset(tile, 0).depends_on(first, kind="runtime")

    with pytest.raises(errors.NkiValidationError, match=r"allowed: nisa\.dependency\.runtime") as e:
        nki.simulate(nki.jit(kernel))(X)
    assert e.value.code == "depends-on"


def test_without_a_kind_is_deprecated(monkeypatch):
    def kernel(x):
        tile = nl.load(x)
        first = nisa.memset(tile, 1)
        nisa.memset(tile, 0).depends_on(first)
        return output(tile)

    monkeypatch.setenv("NKI_DIST_RELEASE", "0.7")
    with pytest.warns(errors.ReleaseWarning, match="depends_on without kind is deprecated"):
        nki.simulate(nki.jit(kernel))(X)


def test_a_kind_in_with_schedule_is_refused():
    """The page names it, and doesn't say how it is written."""
    with pytest.raises(errors.NkiValidationError):
        nki.jit(copied).with_schedule([("a", "b", nisa.dependency.runtime)])
