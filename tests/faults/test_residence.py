"""What becomes of tensors in HBM when a process, a node or a Ray session is lost under them.

Each test is a program of its own (`on_residence`), because it may lose its Ray session.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from tests.clusters import printed

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc"),
]

LOST = ["CoreLostError", True]  # and its message names the tensor


def right_or_lost(found: dict[str, Any]) -> bool:
    """Until somebody notices, the processes of a lost node may still answer."""
    return all(found["then"][name] in (True, LOST) for name in ("plain", "written"))


def on_residence(fault: str, when: str, **options: Any) -> dict[str, Any]:
    given = [f"{name}={value}" for name, value in options.items()]
    command = [sys.executable, "-m", "tests.faults.on_residence", fault, when, *given]
    queued = {k: v for k, v in os.environ.items() if k != "PYTEST_CURRENT_TEST"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=queued)
    found = printed(done.stdout, done.stderr)
    assert found["anew"], "what is written anew isn't there"
    assert found["next"], "the next launch has other results"
    assert found["then"]["kept"] is found["then"]["again"] is True, "put again"
    return found


def all_there(found: dict[str, Any]) -> bool:
    return set(found["then"].values()) == {True} and found["made"] == 0


@pytest.mark.parametrize("retries", [0, 1])
def test_a_process_that_dies_between_launches(retries) -> None:
    """The launcher has the memory of its node's tensors: none is lost."""
    found = on_residence("kill", "idle", retries=retries)
    assert all_there(found)
    if retries:
        assert found["launch"] is True
    else:
        assert found["launch"][0] == "CoreLostError" and "the launch of added" in found["launch"][1]


@pytest.mark.parametrize(("retries", "lnc"), [(0, 1), (1, 2)])
def test_a_process_that_dies_in_a_row(retries, lnc) -> None:
    found = on_residence("kill", "row", retries=retries, lnc=lnc)
    assert all_there(found)
    if retries:
        assert found["launch"] is True and found["values"] == ["True"]
    else:  # the launch that was under way; others depend on nothing of it
        error, text = found["launch"]
        assert error == "CoreLostError" and "This is the launch of" in text
        assert found["values"] == ["CoreLostError", "True"]


def test_a_process_that_dies_amid_launches_that_write_in_place() -> None:
    """What is written is whole, old or new, or has no value."""
    found = on_residence("kill", "launch", retries=1)
    assert found["launch"] is True and found["values"] == ["True"] and all_there(found)


@pytest.mark.parametrize("when", ["idle", "row"])
def test_a_lost_session(when) -> None:
    found = on_residence("raylet", when)
    assert right_or_lost(found)
    assert found["made"] <= 1, "a function is asked once"


@pytest.mark.parametrize("retries", [0, 1])
def test_a_session_that_is_lost_while_a_launch_is_handed_over(retries) -> None:
    """The launch knew where its tensors were; they are nowhere now."""
    found = on_residence("raylet", "placed", retries=retries)
    assert right_or_lost(found) and found["made"] <= 1
    if retries:
        assert found["launch"] is True
    else:
        assert found["launch"][0] == "CoreLostError" and "the launch of added" in found["launch"][1]


@pytest.mark.parametrize("when", ["idle", "row"])
def test_a_lost_node(when) -> None:
    found = on_residence("node", when, retries=1)
    assert right_or_lost(found) and found["made"] <= 1
    if when == "row":
        assert found["values"] in (["True"], ["CoreLostError", "True"])


@pytest.mark.parametrize("when", ["idle", "launch"])
def test_the_process_that_has_the_tensors_of_another_node(when) -> None:
    """It is as if the node were lost; the world goes on, with another such process."""
    found = on_residence("agent", when, retries=1)
    assert found["then"]["written"] == LOST
