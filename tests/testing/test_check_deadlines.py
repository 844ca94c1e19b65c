"""Kernels and Python that take too long under check_kernel."""

from __future__ import annotations

import threading

import pytest

from nki_dist.testing import check_kernel, trial
from nki_dist.testing.deadline import TimeOver, deadline
from tests.testing.checked import CASE, wrong
from tests.testing.test_right_kernels import double
from tests.testing.wrong_kernels import doubled, runs_for_ever


def test_a_loop_that_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """The world gives up by itself, where it can; what is left after that is ended, too."""
    monkeypatch.setattr(trial, "GRACE", 0.3)
    report = wrong(runs_for_ever, doubled, CASE, timeout=0.3)
    (result,) = report.results
    (failure,) = result.failures
    assert failure.code == "timeout" or failure.type == "DeadlockError"
    assert (failure.file or "").endswith("wrong_kernels.py")
    assert check_kernel(double, doubled, CASE).ok


def test_a_deadline_ends_python_that_swallows_exceptions() -> None:
    def for_ever() -> None:
        while True:
            try:
                while True:
                    pass
            except Exception:
                continue

    with pytest.raises(TimeOver, match=r"not done after 0\.05 s"), deadline(0.05):
        for_ever()


def test_a_deadline_comes_again_where_it_was_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nki_dist.testing.deadline.AGAIN", 0.05)
    swallowed = []

    def for_ever() -> None:
        while True:
            try:
                while True:
                    pass
            except BaseException as error:
                swallowed.append(error)
                if len(swallowed) == 3:
                    raise

    with pytest.raises(TimeOver), deadline(0.05):
        for_ever()
    assert len(swallowed) == 3


def test_a_deadline_that_is_kept_leaves_nothing_behind() -> None:
    before = threading.active_count()
    for seconds in (None, 10.0, 0.02):
        with deadline(seconds):
            pass
    with pytest.raises(KeyError), deadline(10.0):
        raise KeyError("of the block")
    assert threading.active_count() == before
