"""Which node simulates what, with nodes that aren't there."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from nki_dist.core_actor import nodes as ray_nodes
from nki_dist.core_actor import spots
from nki_dist.core_actor.placement import Placement
from nki_dist.core_actor.request import NOTHING, Request
from nki_dist.errors import LaunchError
from nki_dist.runtime.hosts import slots


def there(monkeypatch, nodes, here="a", load=(), taken=(), labels=()):
    """A cluster with these nodes, with as many processors."""
    listed = {
        name: {"Resources": {"CPU": float(count)}, "Labels": dict(labels).get(name, {})}
        for name, count in nodes.items()
    }
    monkeypatch.setattr(
        spots, "usable_nodes", lambda gone=(): {n: c for n, c in nodes.items() if c}
    )
    monkeypatch.setattr(spots, "alive", lambda gone=(): listed)
    monkeypatch.setattr(spots, "here", lambda: here)
    monkeypatch.setattr(spots, "simulating", lambda: Counter(dict(load)))
    monkeypatch.setattr(spots, "reserved", lambda: dict(taken))
    monkeypatch.setattr(spots, "captured", lambda: None)
    monkeypatch.setattr(spots, "wait_for_processors", lambda check, gone=(): None)


def placed_by(request, ranks, per_instance, per_actor="auto", lnc=2):
    return Placement(slots(ranks, lnc), lnc, per_actor, per_instance, request, lambda: None)


def place(monkeypatch, nodes, ranks, per_instance, per_actor="auto", lnc=2, **more):
    there(monkeypatch, nodes, **more)
    return placed_by(NOTHING, ranks, per_instance, per_actor, lnc)


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


@pytest.mark.parametrize(
    ("ranks", "here", "load", "taken", "expected"),
    [
        (1, "b", {}, {}, "b"),  # near, whose stacks are read without copying
        (2, "b", {"b": 2}, {}, "b"),  # as long as it has processors for them
        (2, "b", {"b": 3}, {}, "a"),
        (2, "b", {"b": 2}, {"b": 1}, "a"),  # processors that others have count, too
        (2, "b", {"b": 3, "a": 4}, {}, "b"),  # the least, not the first
        (2, "b", {"b": 3}, {"a": 4.0}, "b"),
        (64, "b", {"b": 8}, {"a": 3}, "a"),
        (2, "head", {}, {}, "a"),  # which has no processors
    ],
)
def test_one_instance_goes_where_there_is_the_least_load(
    monkeypatch, ranks, here, load, taken, expected
):
    nodes = {"a": 4, "b": 4, "head": 0}
    placed = place(
        monkeypatch, nodes, ranks, per_instance=64, lnc=1, here=here, load=load, taken=taken
    )
    assert set(placed.nodes) == {expected}


def test_worlds_one_after_the_other_share_two_nodes(monkeypatch):
    load = Counter()
    for _ in range(4):
        placed = place(monkeypatch, {"a": 4, "b": 4}, 16, 64, lnc=1, here="head", load=load)
        load.update(placed.nodes)
    assert load == {"a": 32, "b": 32}


def test_a_world_stays_on_a_head_without_processors_when_a_worker_joins(monkeypatch):
    there(monkeypatch, {"head": 0}, here="head")
    monkeypatch.setattr(spots, "usable_nodes", lambda gone=(): {"head": 1})
    placed = placed_by(NOTHING, 2, 64)
    there(monkeypatch, {"head": 0, "a": 4}, here="head")
    assert not placed.lost(), "its processes live there"
    there(monkeypatch, {"a": 4}, here="head")
    assert placed.lost()
    placed.choose()
    assert set(placed.nodes) == {"a"}


def test_only_a_world_that_asks_for_nothing_takes_any_actor(monkeypatch):
    assert place(monkeypatch, {"a": 4}, 2, 64).plain
    environment = Request({"runtime_env": {"env_vars": {"A": "1"}}})
    assert not placed_by(environment, 2, 64).plain
    assert not reserving(monkeypatch, {"a": 4}, {"num_cpus": 1}, 2)[1].plain


def test_a_node_with_many_processors_takes_more(monkeypatch):
    placed = place(monkeypatch, {"a": 4, "b": 64}, ranks=4 * 64, per_instance=64, here="head")
    assert instances_by_node(placed, 64) == {"a": {0}, "b": {1, 2, 3}}


class Group:
    """A placement group as Ray shows it; its bundles are on these nodes."""

    def __init__(self, bundles, nodes):
        self.bundles, self.at, self.asked = bundles, nodes, []
        self.id, self.gone = "01ab", False

    def nodes(self, gone=()):
        return self.at

    def removed(self):
        return self.gone

    def remove(self):
        self.gone = True

    def options(self, bundle):
        return {"bundle": bundle}


def reserving(monkeypatch, nodes, options, ranks, per_instance=64, per_actor="auto", labels=()):
    """A world that reserves; what it asks for, and its placement."""
    there(monkeypatch, nodes, labels=labels)
    groups = []

    def made(request, processes):
        bundles = [request.bundle(n) for n in processes]
        groups.append(Group(bundles, [f"n{i}" for i in range(len(processes))]))
        return groups[-1]

    monkeypatch.setattr(spots.Reservation, "create", lambda r, sizes, check: made(r, sizes))
    placed = placed_by(Request(options), ranks, per_instance, per_actor, lnc=1)
    return groups, placed


def test_what_reserves_has_a_bundle_for_each_instance(monkeypatch):
    one = {"num_cpus": 1, "memory": 5, "resources": {"x": 0.5}}
    groups, placed = reserving(monkeypatch, {"a": 8}, one, ranks=6, per_instance=4)
    assert groups[0].bundles == [
        {"CPU": 4, "memory": 20, "x": 2},
        {"CPU": 2, "memory": 10, "x": 1},
    ]
    assert placed.nodes == ["n0"] * 4 + ["n1"] * 2
    assert placed.options(5) == {"bundle": 1, **one}
    placed.close()
    assert groups[0].gone
    placed.choose()
    assert groups[1].bundles == groups[0].bundles, "a world that starts again reserves again"


@pytest.mark.parametrize(
    ("nodes", "ranks", "options", "bundle"),
    [
        ({"a": 4}, 4, {"num_cpus": 1}, {"CPU": 4}),
        ({"a": 4, "b": 2}, 16, {"num_cpus": 1}, {"CPU": 2}),  # 16 would fit nowhere
        ({"a": 16, "b": 2}, 16, {"num_cpus": 1}, {"CPU": 16}),
        ({"a": 8, "b": 8}, 64, {"num_cpus": 2}, {"CPU": 8}),
        ({}, 64, {"num_cpus": 2}, {"CPU": 2}),  # nothing is known of nodes that will come
        ({}, 3, {"num_cpus": 1}, {"CPU": 3}),
        ({"a": 2}, 3, {"num_cpus": 4}, {"CPU": 12}),  # nothing fits: Ray says so
        ({"a": 8}, 3, {"label_selector": {"pool": "x"}}, {"memory": 1}),
        ({"a": 8, "x": 2}, 16, {"num_cpus": 1, "label_selector": {"pool": "x"}}, {"CPU": 2}),
    ],
)
def test_as_many_processes_as_a_node_has_room_for(monkeypatch, nodes, ranks, options, bundle):
    labels = {"x": {"pool": "x"}}
    groups, _ = reserving(monkeypatch, nodes, options, ranks, labels=labels)
    assert groups[0].bundles == [bundle]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"num_cpus": -1}, "num_cpus=-1: must be"),
        ({"num_cpus": 1.5}, "num_cpus=1.5: must be a whole number"),
        ({"num_cpus": True}, "num_cpus=True"),
        ({"num_cpus": float("nan")}, "num_cpus=nan"),
        ({"memory": float("inf")}, "memory=inf"),
        ({"memory": "1GB"}, "memory='1GB'"),
        ({"num_cpu": 1}, "has 'num_cpu': allowed: num_cpus, memory"),
        ({"name": "x"}, "has 'name': allowed"),
        ({"resources": {"CPU": 1}}, "num_cpus"),
        ({"resources": {"x": "y"}}, r"resources\['x'\]='y'"),
        ({"resources": 3}, "resources"),
        ({"label_selector": 3}, "label_selector"),
        ({"label_selector": {"a": "in("}}, "label selector"),
        ({"label_selector": {"a": 3}}, "label_selector"),
        ([("num_cpus", 1)], "must be a dict"),
    ],
)
def test_options_that_ray_does_not_have_are_refused(wrong, said):
    with pytest.raises(LaunchError, match=said) as caught:
        Request.of(wrong)
    assert caught.value.code == "world-option"


def test_a_group_and_labels_together_are_refused():
    group = Group([{"CPU": 1}], ["a"])
    group.bundle_specs = group.bundles
    with pytest.raises(LaunchError, match="bundle_label_selector"):
        Request.of({"label_selector": {"a": "b"}}, group)
    with pytest.raises(LaunchError, match=r"must be a ray\.util\.placement_group"):
        Request.of(None, "group")
    assert Request.of({"num_cpus": 0}, group) == Request({"num_cpus": 0}, group)


def within(monkeypatch, group, request, ranks, free=()):
    monkeypatch.setattr(spots, "Reservation", lambda group, check: group)
    monkeypatch.setattr(
        spots, "free_in", lambda node, group, n, bundle: {**bundle, **dict(free).get(n, {})}
    )
    return placed_by(request, ranks, 64, lnc=1)


def test_a_world_stays_in_the_bundles_of_its_group(monkeypatch):
    there(monkeypatch, {"a": 8, "b": 8, "c": 8})
    group = Group([{"CPU": 2.0}, {"CPU": 4.0}], ["b", "c"])
    placed = within(monkeypatch, group, Request({}, group), ranks=3 * 64)
    assert instances_by_node(placed, 64) == {"b": {0}, "c": {1, 2}}
    assert Counter(placed.nodes) == {"b": 2, "c": 4}
    group.gone = True
    placed.close()
    assert placed.lost()


def test_what_runs_in_a_bundle_leaves_less_room(monkeypatch):
    there(monkeypatch, {"a": 8})
    group, options = Group([{"CPU": 4.0}], ["a"]), {"num_cpus": 1}
    placed = within(monkeypatch, group, Request(options, group), 8, free={0: {"CPU": 3}})
    assert len(placed.packs) == 3
    with pytest.raises(LaunchError, match=r"placement group 01ab has no room for"):
        within(monkeypatch, group, Request(options, group), 8, free={0: {"CPU": 0}})


def test_more_processes_than_a_bundle_has_room_for_are_refused(monkeypatch):
    there(monkeypatch, {"a": 8})
    group = Group([{"CPU": 2.0}], ["a"])
    monkeypatch.setattr(spots, "Reservation", lambda group, check: group)
    monkeypatch.setattr(spots, "free_in", lambda node, group, n, bundle: bundle)
    one = Request({"num_cpus": 1}, group)
    assert len(placed_by(one, 3 * 64, 64, lnc=1).packs) == 2, "instances share a bundle"
    with pytest.raises(LaunchError, match="fewer processes"):
        placed_by(one, 4, 64, per_actor=1, lnc=1)


def test_what_is_taken_whole_is_not_free(monkeypatch):
    """Ray leaves out resources of which there is nothing left."""
    free = {"a": {"bundle_group_0_01ab": 999.9, "CPU_group_1_01ab": 2.0}}
    monkeypatch.setattr(ray_nodes, "available", lambda: free)
    assert ray_nodes.free_in("a", "01ab", 0, {"CPU": 4.0}) == {"CPU": 0.0}
    assert ray_nodes.free_in("a", "01ab", 1, {"CPU": 4.0}) == {"CPU": 2.0}
    assert ray_nodes.free_in("b", "01ab", 0, {"CPU": 4.0}) == {"CPU": 4.0}, "Ray doesn't say"


def test_a_captured_group_that_ends_is_left(monkeypatch):
    there(monkeypatch, {"a": 8, "b": 8})
    group = Group([{"CPU": 4.0}], ["b"])
    ray_s = SimpleNamespace(id=SimpleNamespace(hex=lambda: group.id))
    monkeypatch.setattr(spots, "captured", lambda: None if group.gone else ray_s)
    monkeypatch.setattr(spots, "Reservation", lambda given, check: group)
    monkeypatch.setattr(spots, "free_in", lambda node, group, n, bundle: bundle)
    placed = placed_by(NOTHING, 2, 64, lnc=1)
    assert set(placed.nodes) == {"b"}
    assert not placed.lost()
    group.gone = True
    assert placed.lost()
    placed.choose()
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

    monkeypatch.setattr(ray_nodes, "here", lambda: "head")
    nodes = [node("b", 8.0), node("head", 0), node("gone", 4.0, alive=False), node("a", 2.0)]
    monkeypatch.setattr(ray_nodes.ray, "nodes", lambda: nodes)
    assert list(ray_nodes.usable_nodes().items()) == [("a", 2), ("b", 8)]
    nodes[1] = node("head", 1.0)
    assert list(ray_nodes.usable_nodes()) == ["head", "a", "b"]
    assert list(ray_nodes.usable_nodes({"a"})) == ["head", "b"], "Ray may not know yet"
    nodes[:] = [node("head", 0)]
    assert ray_nodes.usable_nodes() == {"head": 1}


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
    there(monkeypatch, {"a": 2})
    assert placed.lost()
    placed.choose()
    assert set(placed.nodes) == {"a"}
    assert not placed.lost()


def test_instances_on_nodes_that_are_left_stay_there(monkeypatch):
    placed = place(monkeypatch, dict.fromkeys("abcd", 2), ranks=4 * 64, per_instance=64)
    before = instances_by_node(placed, 64)
    assert before == {"a": {0}, "b": {1}, "c": {2}, "d": {3}}
    there(monkeypatch, dict.fromkeys("acde", 2), load=Counter("acd"))
    placed.choose()
    assert instances_by_node(placed, 64) == {"a": {0}, "c": {2}, "d": {3}, "e": {1}}
    there(monkeypatch, dict.fromkeys("cd", 2))
    placed.choose()
    assert instances_by_node(placed, 64) == {"c": {0, 2}, "d": {1, 3}}
