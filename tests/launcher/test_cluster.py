"""Worlds on several Ray nodes: one per instance, same bits, and what happens when one dies.

Each test is a program of its own, because a process can be in one cluster only.
"""

from __future__ import annotations

import re

import pytest

from tests.clusters import printed
from tests.programs import python

pytestmark = pytest.mark.slow


def on_cluster(nodes: int, what: str) -> dict:
    done = python("-m", "tests.launcher.on_cluster", nodes, what)
    assert done.returncode == 0, done.stderr[-3000:]
    return printed(done.stdout, done.stderr)


@pytest.mark.parametrize("nodes", [2, 4])
def test_each_instance_gets_a_node(nodes):
    found = on_cluster(nodes, "bits")
    told = found.pop("told")
    assert found == {
        "same": True,
        "nodes": nodes,
        "nodes of instance 0": 1,
        "makers": [nodes, 1],  # functions are called on each node; or here, if they can't be sent
    }
    assert re.match(
        r"argument x is \(6, 4\) int32 on rank 0 and \(5, 4\) int32 on rank \d+; ", told
    )


def test_worlds_share_nodes_and_use_those_that_join():
    """The launcher's own node has no processors; nothing is simulated there."""
    found = on_cluster(3, "join")
    assert found == {"same": True, "nodes": [2, 2, 3, 2], "on the head": False}


def test_a_killed_node_is_reported_and_replaced():
    found = on_cluster(2, "kill")
    assert found == {"error": "CoreLostError", "nodes after": 1, "works again": True}


def test_a_launch_that_lost_a_node_is_run_again_on_the_others():
    found = on_cluster(4, "retry")
    assert found == {"same": True, "nodes": [4, 3], "warnings": ["RetryWarning"]}
