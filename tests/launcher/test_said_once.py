"""Warnings of a launch: one of a kind, how it is switched off, of whose code nothing is said."""

import statistics
import warnings

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.language as nl
from nki_dist import errors, kernels
from nki_dist.codes import EVIDENCE
from nki_dist.compiler import notes
from nki_dist.compiler.source_rules import check_sources

X = np.ones((8, 6), np.float32)
HOSTS = ["inprocess", "debug"]


@nki.jit
def several(x):
    tile = nl.load(x)
    for a, _ in [(0, 1)]:
        tile = nl.add(tile, tile) if a == 0 else tile
    for b, _ in [(0, 1)]:
        tile = nl.add(tile, tile) if b == 0 else tile
    for c, _ in [(0, 1)]:
        tile = nl.add(tile, tile) if c == 0 else tile
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


@nki.jit
def contradicted(x):
    tiles = [nl.load(x) for _ in range(2)]
    if len(tiles) != 2:
        raise ValueError("two")
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tiles[1])
    return out


@nki.jit
def in_part(x):
    outs = [nl.ndarray((9, 6), dtype=x.dtype, buffer=nl.shared_hbm) for _ in range(3)]
    for n in range(3):
        nl.store(outs[n][n : n + 2], nl.load(x[0:2]))
    return outs


def launched(kernel, host="inprocess", ranks=1, **options):
    """The warnings of one launch, all that Python's filters would let through."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with nki.World(ranks=ranks, host=host, **options) as world:
            world.run(kernel, X)
    return [w.message for w in caught]


@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("ranks", [1, 3])
def test_several_places_are_one_warning_at_the_first(host, ranks):
    (found,) = launched(several, host, ranks)
    assert type(found) is errors.CompilerMayRejectWarning
    assert found.numbers == {"places": 3}
    first = several.fn.__code__.co_firstlineno + 3
    assert found.location == f"{__file__}:{first}"
    assert "3 places" in str(found) and "several loop variables (`(a, _)`)" in str(found)
    assert "nki-dist check" in str(found) and len(str(found).splitlines()) <= 3


@pytest.mark.parametrize("host", HOSTS)
def test_outputs_that_are_stored_in_part_are_one_warning(host):
    (found,) = launched(in_part, host)
    assert type(found) is errors.UnwrittenOutputWarning
    assert "3 returned tensors" in str(found) and found.numbers == {"places": 3}


def test_what_a_release_has_removed_is_one_warning():
    @nki.jit
    def looping(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for n in nl.dynamic_range(4):
            nl.store(out[nl.ds(n, 1)], nl.load(x[nl.ds(n, 1)]))
        for n in nl.dynamic_range(4, 8):
            nl.store(out[nl.ds(n, 1)], nl.load(x[nl.ds(n, 1)]))
        return out

    found = [w for w in launched(looping) if isinstance(w, errors.ReleaseWarning)]
    assert [w.numbers for w in found] == [{"places": 2}]


@pytest.mark.parametrize("host", HOSTS)
def test_it_can_be_switched_off(host):
    assert launched(several, host, check="refusals=off") == []
    assert launched(several, host, check=nki.Checks(refusals="off")) == []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", errors.CompilerMayRejectWarning)
        with nki.World(host=host) as world:
            world.run(several, X)
        warnings.simplefilter("error", errors.CompilerMayRejectWarning)
        with nki.World(host=host) as world, pytest.raises(errors.CompilerMayRejectWarning):
            world.run(several, X)


def test_what_ran_on_devices_is_silent_unless_asked_for():
    assert launched(contradicted) == []
    (found,) = launched(contradicted, check="refusals=all")
    assert found.numbers == {"places": 2}
    every = nki.simulate(contradicted, check="strict").compile(X).warnings
    assert {w.code for w in every} == {"python-comprehension", "python-raise"}
    for warning in every:
        evidence = EVIDENCE[warning.code]
        assert evidence.refused_by in warning.message and evidence.kernel in warning.message


def test_a_rule_without_evidence_speaks(monkeypatch):
    monkeypatch.setattr(notes, "EVIDENCE", {})
    assert {w.code for w in nki.simulate(contradicted).compile(X[0:4]).warnings} == {
        "python-comprehension",
        "python-raise",
    }


def test_nothing_is_said_of_pythons_and_of_our_own_functions():
    def users(x):
        for a, b in x:
            yield a * b

    assert [w.code for w in check_sources([users.__code__])] == ["python-targets"]
    # Each has a raise statement, a comprehension or several loop variables.
    theirs = (statistics.mean, statistics.correlation, kernels.rms_norm.fn, kernels.mlp.fn)
    assert check_sources([f.__code__ for f in theirs]) == []
