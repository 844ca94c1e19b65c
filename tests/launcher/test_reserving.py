"""Worlds that Ray's scheduler sees, on clusters with pools and with an autoscaler."""

import pytest

from tests.clusters import found_by

pytestmark = pytest.mark.slow


def test_what_a_world_reserves_is_seen_waited_for_and_given_back():
    found = found_by("tests.launcher.on_pools", "reserves")
    for text in (
        "core-not-reserved",
        "CPU: 1",
        "pool=sim",
        "0 of 4 free",
        "NKI_DIST_START_TIMEOUT",
    ):
        assert text in found["error"]
    assert "no node that is there has as much in all" in found["never"]
    assert len(found["told"]) == 1 and "waits until Ray has reserved" in found["told"][0]
    assert found["right"] and found["after a wait"]
    assert (found["taken"], found["of the environment"], found["given back"]) == (4, 2, 0)


def test_worlds_without_options_go_to_the_node_with_the_least_load():
    assert found_by("tests.launcher.on_pools", "least") == {
        "right": True,
        "nodes": [1, 1, 1, 1],
        "worlds of a node": [2, 2],
    }


def test_a_world_stays_in_its_placement_group():
    found = found_by("tests.launcher.on_pools", "group")
    assert found["given"] == [True, True]
    assert found["processes"] == 2, "as many as the bundle has processors"
    assert "has no room for the processes of this world" in found["full"]
    assert found["within"] == [[True, True, 8], [True, True, 1]], "the task has one of two"
    assert found["removed"][0].startswith("CoreLostError")
    assert "was removed; make another world" in found["removed"][1]


def test_a_program_leaves_a_cluster_and_joins_it_again():
    assert found_by("tests.launcher.on_pools", "sessions") == {"right": [True] * 5, "taken": 2}


@pytest.mark.parametrize(("options", "used"), [([], 1), (['{"num_cpus": 1}'], 2)])
def test_an_autoscaler_brings_nodes(options, used):
    """Four instances: two processors are reserved for each node, or one asked for in all."""
    found = found_by("tests.launcher.on_autoscaler", *options)
    if "skip" in found:
        pytest.skip(found["skip"])
    assert found == {"right": True, "before": 0, "used": used, "on the head": False, "after": 0}


def test_what_ray_s_memory_monitor_kills_is_lost_and_replaced():
    found = found_by("tests.launcher.on_pools", "memory")
    assert found["before"] and found["after"]
    for text in (
        "CoreLostError",
        "memory monitor killed it",
        "GB in use",
        "killed above",
        "Ray node",
    ):
        assert text in found["error"]
    assert found["retries"] == 1 and "tried 2 times" in found["again"]
