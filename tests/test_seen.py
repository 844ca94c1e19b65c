"""What operators of a cluster see of worlds: titles, metrics, timeline, logs."""

from __future__ import annotations

import json

import pytest

from nki_dist.core_actor import metrics
from nki_dist.core_actor.title import who
from nki_dist.runtime.hosts import slots
from tests.programs import python

PROGRAM = """
import json, os, socket, time, urllib.request
os.environ |= {"RAY_metrics_report_interval_ms": "1000", "RAY_AUTH_MODE": "disabled"}
import numpy as np, ray
from ray.cluster_utils import Cluster

with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
cluster = Cluster(initialize_head=True, head_node_args={
    "num_cpus": 1, "object_store_memory": 100 << 20, "include_dashboard": True,
    "metrics_export_port": port,
})
os.environ["RAY_ADDRESS"] = cluster.address

import nki_dist as nki
from tests.hosts.kernels import add_halves

x = np.ones((8, 3), np.float32)
worlds = [nki.World(ranks=2, lnc=1), nki.World(ranks=1, lnc=2)]
for world in worlds:
    for _ in range(3):
        world.run(add_halves, x, x)

def command(pid):
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read().rstrip("\\0").split("\\0")

@ray.remote(num_cpus=0)
def say():
    print("a line of the user's own")

ray.get(say.remote())
actors = ray._private.state.actors().values()
found = {"titles": [command(a["Pid"]) for a in actors], "names": [a["Name"] for a in actors]}

def lines():
    text = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10).read().decode()
    return [l for l in text.splitlines() if l.startswith("ray_") and ("nki" in l or "Neuron" in l)]

def events():
    return [e["name"] for e in ray.timeline() if e["cat"] == "launch"]

end = time.monotonic() + 40
while time.monotonic() < end:
    found["lines"], found["events"] = lines(), events()
    if sum("hbm_bytes" in l for l in found["lines"]) == 2 and len(found["events"]) == 6:
        break
    time.sleep(0.5)
print(json.dumps(found))
for world in worlds:
    world.close()
os._exit(0)
"""


def test_a_process_says_which_cores_it_has():
    of_one, packed = slots(4, 2), slots(40, 1)
    assert who(of_one[7:], "3fa2c1") == "rank 3, core 1 of world 3fa2c1"
    assert who(of_one[6:], "3fa2c1") == "rank 3, cores 0, 1 of world 3fa2c1"
    assert who(packed[:32], "3fa2c1") == "ranks 0-31 of world 3fa2c1"


class Metric:
    """Instead of one of Ray's: the value of each label."""

    def __init__(self, name, text, labels):
        self.values, (self.label,) = {}, labels

    def inc(self, amount, tags):
        self.values[tags[self.label]] = self.values.get(tags[self.label], 0) + amount

    def set(self, value, tags):
        self.values[tags[self.label]] = value


def test_many_worlds_share_the_series_of_the_last(monkeypatch):
    monkeypatch.setattr(metrics, "Counter", Metric)
    monkeypatch.setattr(metrics, "Gauge", Metric)
    exported = metrics.Exported()
    for _ in range(2):
        for n in range(30):
            exported.hand_in(f"world{n}", [1.0, 0.5, 8, 4, 0], 100)
    launches, seconds, *_, messages = [counter.values for counter in exported._counters]
    assert len(launches) == 17
    assert launches["world3"] == 2
    assert launches["others"] == 28
    assert seconds["others"] == 14
    assert not messages  # what doesn't happen isn't a series
    assert exported._hbm.values["others"] == 14 * 100
    exported.hand_in("world29", [0] * 5, 0)
    assert exported._hbm.values["others"] == 13 * 100


@pytest.fixture(scope="module")
def seen():
    """What a program in a cluster of its own found, and what was printed."""
    done = python("-c", PROGRAM)
    assert done.returncode == 0, done.stderr[-2000:]
    line = next(line for line in done.stdout.splitlines() if line.startswith("{"))
    return json.loads(line), done.stdout + done.stderr


@pytest.mark.slow
def test_titles_are_arguments_of_which_the_first_is_the_same_for_all(seen):
    found, _ = seen
    assert {title[0] for title in found["titles"]} == {"ray::NeuronCore"}
    assert {title[1].partition(", kernel ")[2] for title in found["titles"]} == {"add_halves"}
    told = sorted(title[1].partition(" of world ")[0] for title in found["titles"])
    assert told == ["rank 0, core 0", "rank 0, core 0", "rank 0, core 1", "rank 1, core 0"]
    assert len({title[1].partition(" of world ")[2] for title in found["titles"]}) == 2  # worlds


@pytest.mark.slow
def test_no_series_is_of_one_core(seen):
    found, _ = seen
    assert set(found["names"]) == {""}
    assert not [line for line in found["lines"] if "rank" in line or "core 0" in line]


@pytest.mark.slow
def test_a_world_has_a_series_of_each_metric(seen):
    found, _ = seen
    ours = [line for line in found["lines"] if line.startswith("ray_nki_dist_")]
    launches = [line for line in ours if "_launches_total{" in line]
    assert [float(line.rpartition(" ")[2]) for line in launches] == [3, 3]
    assert len(ours) == 2 * 5  # and a sixth where processes sent messages
    held = [line for line in ours if "_hbm_bytes{" in line]
    assert all(float(line.rpartition(" ")[2]) > 0 for line in held)


@pytest.mark.slow
def test_each_launch_is_an_event_of_the_timeline(seen):
    found, _ = seen
    assert found["events"] == ["add_halves"] * 6


@pytest.mark.slow
def test_a_cluster_that_is_joined_shows_what_ray_shows(seen):
    _, printed = seen
    assert "a line of the user's own" in printed
    assert "Connecting to existing Ray cluster" in printed
    assert "SIGTERM" not in printed
    assert "(NeuronCore" not in printed
