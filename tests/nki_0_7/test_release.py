"""The switch between releases: what 0.7 removed, deprecated and added, by every way to say it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import compat, errors, release
from tests.isa.helpers import numbers, output
from tests.programs import said

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning")

X = numbers(1, (5, 3))


def with_dynamic_range(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.dynamic_range(5):
        nl.store(out[i], nl.load(x[i]))
    return out


def with_while(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(x))
    left, none = nisa.register_alloc(1), nisa.register_alloc(0)
    while left:
        nisa.register_move(left, none)
    return out


def with_fori_loop(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)

    def body(i):
        nl.store(out[i], nl.load(x[i]))

    nl.fori_loop(0, 5, body)
    return out


def launched(kernel, against_release=None, host="inprocess"):
    """What a launch returns, and the codes of its warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with nki.World(host=host, release=against_release) as world:
            (out,) = world.run(nki.jit(kernel), X)
    return out, [(w.message.code, w.category) for w in caught]


REMOVED = {
    "nl.dynamic_range": (with_dynamic_range, "use nl.fori_loop"),
    "while register": (with_while, "use nl.while_loop"),
}


@pytest.mark.parametrize("host", ["inprocess", "debug"])
@pytest.mark.parametrize("name", REMOVED)
def test_what_0_7_removed(name, host):
    kernel, instead = REMOVED[name]
    out, codes = launched(kernel, host=host)
    assert np.array_equal(out, X)
    assert ("release-removed", errors.ReleaseWarning) in codes
    assert issubclass(errors.ReleaseWarning, DeprecationWarning)
    out, codes = launched(kernel, "0.6", host)
    assert np.array_equal(out, X) and codes == []
    with pytest.raises(errors.CompileError, match=f"removed {name}.*{instead}") as caught:
        launched(kernel, "0.7", host)
    assert caught.value.code == "release-removed" and caught.value.location.startswith(__file__)


@pytest.mark.parametrize("against_release", [None, "0.6", "0.7", "any"])
def test_what_replaces_them_is_in_both(against_release):
    out, codes = launched(with_fori_loop, against_release)
    assert np.array_equal(out, X)
    # 0.6 has it that inner functions may be refused unless they are bodies; so there is nothing.
    assert codes == []


def test_every_launch_warns_with_the_line():
    kernel = nki.simulate(nki.jit(with_dynamic_range))
    for _ in range(2):
        with pytest.warns(errors.ReleaseWarning, match="NKI_DIST_RELEASE=0.6") as caught:
            kernel(X)
        (warning,) = [w for w in caught if w.category is errors.ReleaseWarning]
        first = with_dynamic_range.__code__.co_firstlineno
        assert (warning.filename, warning.lineno) == (__file__, first + 2)


RANGES = {name: getattr(nl, name) for name in ("affine_range", "sequential_range", "static_range")}


@pytest.mark.parametrize("name", RANGES)
def test_deprecated_ranges(name):
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in RANGES[name](5):
            nl.store(out[i], nl.load(x[i]))
        return out

    for against_release in (None, "0.6"):
        assert launched(kernel, against_release)[1] == []
    out, codes = launched(kernel, "0.7")
    assert np.array_equal(out, X) and codes == [("release-deprecated", errors.ReleaseWarning)]


def test_the_launch_grid(monkeypatch):
    """Deprecated; and another number of cores than the environment's is refused."""
    kernel = nki.simulate(nki.jit(with_fori_loop)[2])
    kernel(X)
    monkeypatch.setenv("NKI_DIST_RELEASE", "0.7")
    with pytest.warns(errors.ReleaseWarning, match="the launch grid is deprecated") as caught:
        kernel(X)
    assert caught[0].filename == __file__
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    with pytest.warns(errors.ReleaseWarning):
        kernel(X)
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "1")
    with pytest.raises(errors.LaunchError, match=r"grid of 2 cores.*CONFIG=1") as refused:
        kernel(X)
    assert refused.value.code == "lnc-mismatch"
    monkeypatch.setenv("NKI_DIST_RELEASE", "0.6")
    kernel(X)


def test_who_says_which_release(monkeypatch):
    """The program before the policy before the environment before AWS's variable."""

    def release_of(**options):
        return nki.World(host="inprocess", **options).checks.release

    assert release_of() == "any"
    monkeypatch.setenv("NKI_COMPILER_FRONTEND", "custom")
    assert release_of() == "0.6"
    monkeypatch.setenv("NKI_DIST_RELEASE", "0.7.0")
    assert release_of() == release_of(check="strict") == "0.7"
    assert release_of(check="release=0.6") == "0.6"
    assert release_of(check="release=0.6", release="0.7") == "0.7"
    assert release_of(release="any") == "any"
    monkeypatch.setenv("NKI_DIST_RELEASE", "0.5")
    with pytest.raises(errors.LaunchError, match=r"NKI_DIST_RELEASE='0.5'; allowed: any, 0.6, 0.7"):
        release_of()
    monkeypatch.delenv("NKI_DIST_RELEASE")
    with pytest.raises(errors.LaunchError, match="release=7; allowed"):
        release_of(release=7)


def test_kernels_without_a_world_are_held_to_the_environment(monkeypatch):
    monkeypatch.setenv("NKI_DIST_RELEASE", "0.7")
    for make in (nki.simulate, nki.debug, nki.record):
        with pytest.raises(errors.CompileError, match=r"has removed nl\.dynamic_range"):
            make(nki.jit(with_dynamic_range))(X)
    monkeypatch.setenv("NKI_DIST_RELEASE", "0.6")
    assert np.array_equal(nki.simulate(nki.jit(with_dynamic_range))(X), X)


def test_install_says_it_for_the_process():
    program = (
        "import os\nfrom nki_dist import compat\ncompat.install(release='0.7')\n"
        "import nki.compiler\nprint(os.environ['NKI_DIST_RELEASE'], nki.compiler.CompileConfig)"
    )
    done = said("-c", program, NKI_DIST_RELEASE="0.6")
    assert done.startswith("0.7 <class")
    with pytest.raises(errors.LaunchError, match=r"release='1\.0'"):
        compat.install(release="1.0")


def test_records_keep_the_release(monkeypatch):
    """They are made in a world of their own."""
    monkeypatch.setenv("NKI_DIST_RELEASE", "0.7")
    for against_release in ("0.6", "any"):
        with nki.World(host="inprocess", release=against_release) as world:
            record = world.record(nki.jit(with_dynamic_range), X)
        assert np.array_equal(record.outputs[0], X)


# ---- what 0.6 hasn't ----------------------------------------------------------------------------


def tile(x):
    return nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)


ADDED = {
    "nl.int64": lambda x: nl.ndarray((1, 1), dtype=nl.int64),
    "nl.uint64": lambda x: nl.ndarray((1, 1), dtype=nl.uint64),
    "nl.tiles": lambda x: nl.tiles(x, tile_shape=(2, 2)),
    "nl.blocks": lambda x: nl.blocks(x, tile_shape=(2, 2), block_shape=(1, 1)),
    "nl.alloc_tiles": lambda x: nl.alloc_tiles(
        tile_shape=(2, 2), element_shape=(4, 4), buffer=nl.sbuf, dtype=nl.float32
    ),
    "nl.alloc_blocks": lambda x: nl.alloc_blocks(
        tile_shape=(2, 2),
        block_shape=(1, 1),
        element_shape=(4, 4),
        buffer=nl.sbuf,
        dtype=nl.float32,
    ),
    "nl.empty_like(transpose_axes=)": lambda x: nl.empty_like(
        x, buffer=nl.sbuf, transpose_axes=(1, 0)
    ),
    "nl.empty_like(address=)": lambda x: nl.empty_like(x, buffer=nl.sbuf, address=(0, 0)),
    "nisa.scalar_load": lambda x: nisa.scalar_load(tile(x)),
    "nisa.scalar_store": lambda x: nisa.scalar_store(tile(x), None),
    "depends_on(kind=)": lambda x: nisa.memset(tile(x), 0).depends_on(kind=nisa.dependency.runtime),
}


@pytest.mark.parametrize("name", ADDED)
def test_what_0_6_has_not(name):
    def kernel(x):
        ADDED[name](x)
        return output(nl.load(x))

    with pytest.raises(
        errors.CompileError, match=r"came with NKI 0\.7.*checked against 0\.6"
    ) as caught:
        launched(kernel, "0.6")
    assert caught.value.code == "release-added" and name in caught.value.message


def test_every_addition_is_tested_here_or_beside():
    beside = {
        "ncc.all_to_all_v_prepare",
        "ncc.all_gather_v_prepare",
        "nki.jit(compile_config=)",
        "nki.jit(specialization_config=)",
        "fori_loop with an NkiScalar",
        "all of Python",
    }
    assert {*release.ADDED} == {*ADDED} | beside
    assert {*release.REMOVED} == {*REMOVED}


def test_a_wide_argument_of_a_kernel_of_0_6():
    came = r"nl\.int64 came with NKI 0\.7.*use nl\.int32"
    with (
        nki.World(host="inprocess", release="0.6") as world,
        pytest.raises(errors.CompileError, match=came),
    ):
        world.run(nki.jit(lambda x: output(x)), np.ones((2, 2), np.int64))
