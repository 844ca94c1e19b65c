"""Processes that die or freeze, and Ray sessions that lose their node or head, during launches.

Each test is a program of its own (`on_faults`), because it may lose its Ray session. Seconds are
bounds of what is promised, and looked at here because a fault that is never noticed is a hang.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.clusters import printed
from tests.programs import python

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="stops processes by /proc"),
]

PROMISED = 8.0  # seconds from a fault to its error
AFTER_TIMEOUT = 3.0  # seconds from a timeout to its error


def on_faults(fault: str, when: str, **options: Any) -> dict[str, Any]:
    given = [f"{name}={value}" for name, value in options.items()]
    done = python("-m", "tests.faults.on_faults", fault, when, *given)
    found = printed(done.stdout, done.stderr)
    assert found["next"], "the next launch has other results"
    assert found["victim gone"], "it still runs"
    return found


def test_a_killed_process() -> None:
    found = on_faults("kill", "launch")
    assert found["error"] == "CoreLostError" and found["core"] == 2 and found["untouched"]
    assert f"the process {found['victim']} that simulates rank 2 core 0 died" in found["text"]
    assert "when it last answered, rank 2 core 0 " in found["text"]
    assert "kernels.py:" in found["text"]
    assert found["seconds"] <= PROMISED


@pytest.mark.parametrize(
    ("when", "options"),
    [
        ("launch", {"transport": "ring"}),
        ("launch", {"transport": "messages", "lnc": 2, "per_actor": 1}),
        ("idle", {"lnc": 2, "per_actor": 2}),
    ],
)
def test_a_stopped_process_is_given_up_at_the_timeout(when, options) -> None:
    found = on_faults("stop", when, timeout=5, **options)
    assert found["error"] == "CoreLostError" and found["untouched"]
    assert f"the process {found['victim']} that simulates rank 2 core" in found["text"]
    assert "the world's timeout of 5 s: it is stopped, as SIGSTOP does" in found["text"]
    assert ("kernels.py:" in found["text"]) == (when == "launch"), "a line, where one was running"
    assert 0 <= found["seconds"] <= AFTER_TIMEOUT


@pytest.mark.parametrize("fault", ["raylet", "gcs"])
@pytest.mark.parametrize("orphan", ["", "1"])
def test_a_lost_session_is_an_error_and_the_next_launch_makes_another(fault, orphan) -> None:
    """Also where the program's parent is process 1, whose children Ray takes for abandoned."""
    found = on_faults(fault, "launch", orphan=orphan)
    assert found["error"] == "CoreLostError" and found["untouched"]
    what = {"raylet": "the raylet of this node", "gcs": "the head's gcs_server"}[fault]
    assert f"Ray lost this process: {what}" in found["text"]
    assert found["seconds"] <= PROMISED


def test_a_session_that_is_lost_between_launches() -> None:
    """Noticed before a launch it is replaced; while one begins, the launch is lost."""
    found = on_faults("raylet", "idle")
    assert found.get("same") or found["error"] == "CoreLostError"


@pytest.mark.parametrize(
    ("fault", "options"),
    [("kill", {}), ("raylet", {}), ("stop", {"timeout": 15})],
)
def test_a_launch_that_is_run_again_gives_the_same_bits(fault, options) -> None:
    """The kernel adds to its inputs in place, so a second start from what a first left shows."""
    found = on_faults(fault, "launch", retries=1, rounds=3000, **options)  # not over too early
    assert found["same"]
    (warning,) = found["warnings"]
    assert warning.startswith("RetryWarning: a launch is run again, retry 1 of 1, because ")


def test_a_stopped_process_is_named_while_the_world_waits_for_it() -> None:
    """Without a timeout, it may go on some time: here after it was warned of."""
    found = on_faults("pause", "launch", rounds=500)
    assert found["same"]
    (warning,) = found["warnings"]
    assert warning.startswith("UnresponsiveWarning: the process ")
    assert "it is stopped, as SIGSTOP does: SIGCONT lets it go on" in warning
