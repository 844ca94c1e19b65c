"""Tracebacks of slips: the frames of the user, and not those of the package."""

from __future__ import annotations

import re
import sys
import traceback

import pytest

import nki_dist as nki
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.errors import LaunchError, OutOfBoundsError
from tests.newcomers import X, copied, one_waits, refused
from tests.programs import python


@pytest.fixture(scope="module", params=("inprocess", "ray"))
def world(request):
    with nki.World(lnc=2, host=request.param) as made:
        yield made


def helper(x):
    return nl.load(x[64])  # raised


@nki.jit
def calls_helper(x):
    return helper(x)


@nki.jit
def raises_itself(x):
    def body(i):
        raise KeyError("of the kernel")

    nl.fori_loop(0, 3, body)


def frames(error):
    """The names, but for the one frame with the bare `raise` that Python 3.10 leaves."""
    found = [entry.name for entry in traceback.extract_tb(error.__traceback__)]
    left = [name for name in found if name in ("called", "__call__")]
    if sys.version_info < (3, 11) and len(left) == 1:
        found.remove(left[0])
    return found


def test_tracebacks_hold_the_users_frames_only(world):
    me = "test_tracebacks_hold_the_users_frames_only"
    with pytest.raises(OutOfBoundsError) as caught:
        world.run(calls_helper, X)
    assert frames(caught.value) == [me, "calls_helper", "helper"]
    with pytest.raises(KeyError) as raised:
        world.run(raises_itself, X)
    assert frames(raised.value) == [me, "raises_itself", "body"]
    with pytest.raises(errors.DeadlockError) as stuck:
        world.run(one_waits, X)
    assert frames(stuck.value) == [me]
    for call in (
        lambda: nki.simulate(calls_helper)(X),
        lambda: world.dry_run(calls_helper, X),
        lambda: calls_helper.compile(X),
    ):
        with pytest.raises(OutOfBoundsError) as caught:
            call()
        assert frames(caught.value) == [me, "<lambda>", "calls_helper", "helper"]
    for call in (lambda: copied[3](X), lambda: nki.World(ranks=0), lambda: nki.jit(3)):
        with pytest.raises(LaunchError) as wrong:
            call()
        assert frames(wrong.value) == [me, "<lambda>"]
    with pytest.raises(TypeError, match="rank"):  # within the package from end to end
        nki.World(rank=1)


def test_all_frames_on_request(monkeypatch):
    monkeypatch.setenv("NKI_DIST_TRACEBACK", "full")
    error = refused(calls_helper.fn, OutOfBoundsError, "index 64", X)
    assert {"_launch", "compile_kernel", "helper", "_index"} <= set(frames(error))


def test_errors_of_the_package_itself_keep_their_frames(monkeypatch):
    def broken(*_):
        raise ZeroDivisionError("a bug of ours")

    code = broken.__code__.replace(co_filename=errors.__file__)
    monkeypatch.setattr("nki_dist.language.transfer._check_rows", type(broken)(code, globals()))
    error = refused(copied.fn, ZeroDivisionError, "a bug", X[:5])  # compiled anew
    assert frames(error)[-3:] == ["copied", "load", "broken"]


def test_causes_stay_what_they_were():
    def chained(x):
        try:
            x[99]
        except OutOfBoundsError as error:
            raise RuntimeError("mine") from error

    try:
        raise LookupError("of the caller")
    except LookupError as before:
        error = refused(chained, RuntimeError, "mine", X)
        assert type(error.__cause__) is OutOfBoundsError
        assert error.__cause__.__context__ is before
        assert frames(before) == ["test_causes_stay_what_they_were"]
    assert frames(error.__cause__) == ["chained"]


OUTSIDE = """
import numpy as np
import nki_dist as nki
import nki_dist.language as nl

def test_outside_a_kernel():
    nl.load(np.ones((4, 4), np.float32))

def test_in_a_kernel():
    nki.simulate(lambda x: nl.load(x[4]))(np.ones((4, 4), np.float32))
"""


def test_pytest_shows_no_frames_of_the_package(tmp_path):
    (tmp_path / "test_it.py").write_text(OUTSIDE)
    shown = python("-m", "pytest", "-q", "-p", "no:cacheprovider", tmp_path).stdout
    assert "nki.language and nki.isa functions work only inside a kernel" in shown
    assert "index 4 on dimension 0 of size 4 of x" in shown
    places = re.findall(r"^(\S+):\d+: ", shown, re.MULTILINE)
    assert len(places) >= 2 and all(place.endswith("test_it.py") for place in places), shown
