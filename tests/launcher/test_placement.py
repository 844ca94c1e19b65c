"""Which node simulates what, with nodes that aren't there."""

from __future__ import annotations

import pytest

from nki_dist.core_actor import placement
from nki_dist.core_actor.placement import Placement
from nki_dist.runtime.hosts import slots


def place(monkeypatch, nodes, ranks, per_instance, per_actor="auto", lnc=2):
    monkeypatch.setattr(placement, "usable_nodes", lambda gone=(): dict(nodes))
    return Placement(slots(ranks, lnc), lnc, per_actor, per_instance)


def instances_by_node(placed, per_instance):
    found: dict[str, set[int]] = {}
    for node, cores in zip(placed.nodes, placed.packs):
        found.setdefault(node, set()).update(c.rank // per_instance for c in cores)
    return found


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        (["a", "b", "c", "d"], {"a": {0}, "b": {1}, "c": {2}, "d": {3}}),
        (["a", "b", "c"], {"a": {0, 3}, "b": {1}, "c": {2}}),
        (["a", "b"], {"a": {0, 2}, "b": {1, 3}}),
        (["a"], {"a": {0, 1, 2, 3}}),
        (["a", "b", "c", "d", "e"], {"a": {0}, "b": {1}, "c": {2}, "d": {3}}),
    ],
)
def test_instances_go_to_nodes_in_turns(monkeypatch, nodes, expected):
    placed = place(monkeypatch, dict.fromkeys(nodes, 2), ranks=200, per_instance=64)
    assert instances_by_node(placed, 64) == expected
    assert [c.core for cores in placed.packs for c in cores] == list(range(400))


def test_one_instance_stays_on_the_first_node(monkeypatch):
    placed = place(monkeypatch, {"a": 2, "b": 8}, ranks=64, per_instance=64)
    assert set(placed.nodes) == {"a"}


def test_packs_fit_the_processors_of_their_node(monkeypatch):
    placed = place(monkeypatch, {"a": 2, "b": 8}, ranks=128, per_instance=64)
    assert (placed.nodes.count("a"), placed.nodes.count("b")) == (2, 8)


def test_instances_on_one_node_share_its_processors(monkeypatch):
    placed = place(monkeypatch, {"a": 4, "b": 2}, ranks=3 * 64, per_instance=64)
    assert instances_by_node(placed, 64) == {"a": {0, 2}, "b": {1}}
    assert (placed.nodes.count("a"), placed.nodes.count("b")) == (4, 2)
    placed = place(monkeypatch, {"a": 1, "b": 1}, ranks=6 * 64, per_instance=64)
    assert (placed.nodes.count("a"), placed.nodes.count("b")) == (3, 3)  # an instance isn't split


def test_few_cores_of_a_large_world_share_actors(monkeypatch):
    """The last instance has 3 of 67 ranks: that they are few doesn't make the world small."""
    placed = place(monkeypatch, {"a": 2, "b": 2}, ranks=67, per_instance=64)
    assert [len(p) for p in placed.packs] == [64, 64, 4, 2]
    placed = place(monkeypatch, {"a": 2, "b": 2}, ranks=8, per_instance=4)
    assert [len(p) for p in placed.packs] == [1] * 16


def test_nodes_without_processors_simulate_nothing(monkeypatch):
    def node(name, cpus, alive=True):
        resources = {"CPU": cpus} if cpus else {}
        return {"NodeID": name, "Alive": alive, "Resources": resources}

    monkeypatch.setattr(placement, "here", lambda: "head")
    nodes = [node("b", 8.0), node("head", 0), node("gone", 4.0, alive=False), node("a", 2.0)]
    monkeypatch.setattr(placement.ray, "nodes", lambda: nodes)
    assert list(placement.usable_nodes().items()) == [("a", 2), ("b", 8)]
    nodes[1] = node("head", 1.0)
    assert list(placement.usable_nodes()) == ["head", "a", "b"]
    assert list(placement.usable_nodes({"a"})) == ["head", "b"], "Ray may not know yet"
    nodes[:] = [node("head", 0)]
    assert placement.usable_nodes() == {"head": 1}


def test_ranks_of_an_actor_share_an_object(monkeypatch):
    placed = place(monkeypatch, {"a": 2, "b": 2}, ranks=80, per_instance=64)
    assert placed.groups() == {
        "a": [list(range(32)), list(range(32, 64))],
        "b": [list(range(64, 72)), list(range(72, 80))],
    }
    placed = place(monkeypatch, {"a": 2}, ranks=3, per_instance=64)
    assert placed.groups() == {"a": [[0], [1], [2]]}  # an actor per core: two share a rank


def test_what_is_left_takes_over(monkeypatch):
    placed = place(monkeypatch, {"a": 2, "b": 2}, ranks=80, per_instance=64)
    assert not placed.lost()
    monkeypatch.setattr(placement, "usable_nodes", lambda gone=(): {"a": 2})
    assert placed.lost()
    placed.choose()
    assert set(placed.nodes) == {"a"}
    assert not placed.lost()


def test_instances_on_nodes_that_are_left_stay_there(monkeypatch):
    placed = place(monkeypatch, dict.fromkeys("abcd", 2), ranks=4 * 64, per_instance=64)
    before = instances_by_node(placed, 64)
    assert before == {"a": {0}, "b": {1}, "c": {2}, "d": {3}}
    monkeypatch.setattr(placement, "usable_nodes", lambda gone=(): {"a": 2, "c": 2, "d": 2, "e": 2})
    placed.choose()
    assert instances_by_node(placed, 64) == {"a": {0}, "c": {2}, "d": {3}, "e": {1}}
    monkeypatch.setattr(placement, "usable_nodes", lambda gone=(): {"c": 2, "d": 2})
    placed.choose()
    assert instances_by_node(placed, 64) == {"c": {0, 2}, "d": {1, 3}}
