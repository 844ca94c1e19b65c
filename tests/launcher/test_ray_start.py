"""What is changed of Ray while it is started: no helpers, no waits, for this machine alone."""

from __future__ import annotations

import socket
from contextlib import suppress
from types import SimpleNamespace

import pytest
import ray
from ray._private import services
from ray._private.node import Node
from ray._private.state import GlobalState

from nki_dist.core_actor import ray_session, ray_start
from nki_dist.core_actor.ray_session import ensure_ray
from nki_dist.core_actor.ray_start import replacing
from nki_dist.core_actor.watchdog import Watchdog
from tests.programs import python

HELPERS = [(Node, name) for name in ("start_monitor", "start_log_monitor", "start_api_server")]
CHANGES = {
    "ray-helpers": HELPERS,
    "ray-waits": [(Node, "start_raylet"), (GlobalState, "get_node")],
    "ray-loopback": [(services.ray_constants, "ENABLE_RAY_CLUSTER")],
}
AGENTS_PORT = 52365

PROGRAM = """
import pathlib
import nki_dist as nki
import numpy as np
import ray
from tests.hosts.kernels import add_halves

x = np.arange(24, dtype=np.float32).reshape(8, 3)
assert np.array_equal(add_halves[2](x, x), x + x)
from ray._private.worker import _global_node
print(*sorted(_global_node.all_processes))
print(len(ray.nodes()), [actor for actor in ray._private.state.actors()] != [])
print(_global_node.dashboard_agent_listen_port)
print((pathlib.Path(_global_node.get_logs_dir_path()) / "dashboard_agent.log").read_text())
"""


def now(places):
    return [vars(holder)[name] for holder, name in places]


@pytest.mark.parametrize("changed", CHANGES)
def test_all_is_rays_own_again_even_after_a_failure(changed):
    places = CHANGES[changed]
    own = now(places)
    with pytest.raises(ConnectionError), replacing(changed):
        assert all(there is not rays for there, rays in zip(now(places), own, strict=True))
        raise ConnectionError
    assert now(places) == own


@pytest.mark.parametrize("changed", CHANGES)
@pytest.mark.parametrize("found", [None, {}, {"Node": type("Node", (), {"start_monitor": 3})}])
def test_a_ray_without_such_names_is_left_alone(monkeypatch, changed, found):
    def module(name):
        if found is None:
            raise ImportError(name)
        return SimpleNamespace(**found)

    own = now(CHANGES[changed])
    monkeypatch.setattr(ray_start.importlib, "import_module", module)
    with replacing(changed):
        assert now(CHANGES[changed]) == own
        assert not found or found["Node"].start_monitor == 3


def test_there_is_no_address_of_a_dashboard():
    node = SimpleNamespace(_webui_url=None)
    with replacing("ray-helpers"):
        Node.start_monitor(node)
        Node.start_log_monitor(node)
        assert node._webui_url is None
        Node.start_api_server(node, include_dashboard=False, raise_on_failure=False)
    assert node._webui_url == ""


@pytest.mark.parametrize("address", ["local", "auto"])
def test_helpers_are_left_out_of_a_ray_that_is_started_here(monkeypatch, address):
    own, seen, ours = now(HELPERS), [], []
    owner = SimpleNamespace(started=lambda: ours.append(address))
    monkeypatch.setattr(ray_session, "local_ray", lambda: owner)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: seen.append(now(HELPERS)))
    monkeypatch.setattr(Watchdog, "here", lambda: None)
    ensure_ray(address)
    assert [found == own for found in seen] == [address == "auto"]
    assert ours == ["local"] * (address == "local")  # which ends with the program


@pytest.mark.parametrize("params", [{}, {"_ray_params": SimpleNamespace()}])
def test_a_node_without_an_agents_port_starts_as_it_likes(monkeypatch, params):
    monkeypatch.setattr(Node, "start_raylet", lambda node, *more: (node, more))
    node = SimpleNamespace(**params)
    with replacing("ray-waits"):
        assert Node.start_raylet(node, "/dev/shm") == (node, ("/dev/shm",))
    assert vars(node) == params and not vars(params.get("_ray_params", SimpleNamespace()))


def test_a_raylet_is_asked_for_until_it_is_there(monkeypatch):
    tables = [[], [{"NodeID": "a", "Alive": True}], [{"NodeID": "b", "Alive": False}]]
    tables += [[{"NodeID": "b", "Alive": True}], []]
    asked = iter(tables)
    monkeypatch.setattr(GlobalState, "node_table", lambda _: next(asked))
    monkeypatch.setattr(GlobalState, "get_node", lambda _, node_id: {"node": node_id})
    with replacing("ray-waits"):
        assert GlobalState().get_node("b") == {"node": "b"}
    assert list(asked) == [[]]


def test_and_left_to_ray_where_it_does_not_come(monkeypatch):
    monkeypatch.setattr(ray_start, "LONGEST", 0.05)
    monkeypatch.setattr(GlobalState, "node_table", lambda _: [])
    monkeypatch.setattr(GlobalState, "get_node", lambda _, node_id: {"node": node_id})
    with replacing("ray-waits"):
        assert GlobalState().get_node("b") == {"node": "b"}


def test_a_program_runs_so_beside_another_ray():
    with socket.socket() as taken:
        with suppress(OSError):  # another Ray has it, which does as well
            taken.bind(("127.0.0.1", AGENTS_PORT))
            taken.listen()
        done = python("-c", PROGRAM)
    assert done.returncode == 0, done.stderr[-2000:]
    processes, rest, port, log = done.stdout.split("\n", 3)
    assert {"gcs_server", "raylet"} <= set(processes.split())
    assert not {"monitor", "log_monitor", "dashboard"} & set(processes.split())
    assert rest == "1 True"
    assert int(port) != AGENTS_PORT
    assert "agent" in log
    assert "bind" not in log
