"""Launches that are lost and run again, with a host that loses as many as it is told."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import nki_dist as nki
from nki_dist import errors
from nki_dist.launcher.retrying import launch_again
from nki_dist.runtime.hosts import Launch, LaunchResult
from tests.launcher import kernels as K


class Host:
    """Prints and then fails, once for each error it is given; the next attempt succeeds."""

    def __init__(self, *fails: Exception) -> None:
        self.fails = list(fails)
        self.attempts = 0

    def launch(self, launch: Launch) -> Any:
        self.attempts += 1
        launch.printer(0, f"attempt {self.attempts}", np.zeros(1))
        if self.fails:
            raise self.fails.pop(0)
        return LaunchResult(None, [])  # type: ignore[arg-type]

    def close(self) -> None: ...


def lost() -> errors.CoreLostError:
    return errors.CoreLostError("the process 7 died", core=3, location="kernel.py:12")


def attempted(host: Host, retries: int) -> tuple[list[str], list[Any], Any]:
    """What was printed, the warnings, and the result or the error."""
    prints: list[str] = []
    warned: list[Any] = []
    launch = Launch(
        "key", None, [], lambda core, prefix, array: prints.append(prefix), None, warned.append
    )  # type: ignore[arg-type]
    try:
        return prints, warned, launch_again(lambda: host.launch, launch, retries)
    except errors.NkiError as error:
        return prints, warned, error


def test_a_lost_launch_is_run_again_and_says_so() -> None:
    first, second = lost(), lost()
    host = Host(first, second)
    prints, warned, result = attempted(host, 2)
    assert host.attempts == 3
    assert result.losses == [first, second]
    assert prints == ["attempt 3"], "what lost attempts printed isn't printed again"
    assert [type(w) for w in warned] == [errors.RetryWarning] * 2
    text = str(warned[1])
    assert "run again, retry 2 of 2, because the process 7 died" in text
    assert "on core 3 at kernel.py:12" in text


def test_a_launch_that_loses_nothing_warns_of_nothing() -> None:
    prints, warned, result = attempted(Host(), 5)
    assert (prints, warned, result.losses) == (["attempt 1"], [], [])


@pytest.mark.parametrize("retries", [1, 3])
def test_used_up_retries(retries) -> None:
    host = Host(*[lost() for _ in range(5)])
    prints, warned, error = attempted(host, retries)
    assert isinstance(error, errors.CoreLostError)
    assert host.attempts == retries + 1 and len(warned) == retries
    assert prints == [f"attempt {retries + 1}"]
    said = f"tried {retries + 1} times and lost each time (World(retries={retries}))"
    assert (said in str(error)) == bool(retries)


@pytest.mark.parametrize("kind", [errors.DeadlockError, errors.RaceError, errors.OutOfMemoryError])
def test_errors_of_kernels_arent_run_again(kind) -> None:
    host = Host(kind("wrong"))
    prints, warned, error = attempted(host, 3)
    assert type(error) is kind and host.attempts == 1 and not warned
    assert prints == ["attempt 1"]


def test_what_is_left_may_not_be_enough() -> None:
    loss, refusal = lost(), errors.LaunchError("no cluster at 10.0.0.1:6379")
    _, warned, error = attempted(Host(loss, refusal), 3)
    assert error is refusal and error.__cause__ is loss and len(warned) == 1


@pytest.mark.parametrize("retries", [-1, 1.0, True, "1", None])
def test_values_that_arent_numbers_of_retries(retries) -> None:
    with pytest.raises(errors.LaunchError, match=r"retries=.*; must be an int, 0 or more"):
        nki.World(retries=retries)


def test_in_process_nothing_is_lost() -> None:
    x = np.ones((2, 3), np.float32)
    with nki.World(host="inprocess", retries=2) as world, warnings.catch_warnings():
        warnings.simplefilter("error")
        run = world.run(K.add_weights, x, 2 * x, profile=True)
    np.testing.assert_array_equal(run.outputs[0], 3 * x)
    assert run.losses == []
