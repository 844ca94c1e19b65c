"""A start of Ray waits for no port that another has, and not by whole seconds."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import suppress
from types import SimpleNamespace

import pytest
from ray._private.node import Node
from ray._private.state import GlobalState

from nki_dist.core_actor import ray_start
from nki_dist.core_actor.ray_start import replacing

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
print(_global_node.dashboard_agent_listen_port)
print((pathlib.Path(_global_node.get_logs_dir_path()) / "dashboard_agent.log").read_text())
"""


def methods():
    return vars(Node)["start_raylet"], vars(GlobalState)["get_node"]


def test_the_methods_are_rays_own_again_even_after_a_failure():
    own = methods()
    with pytest.raises(ConnectionError), replacing("ray-waits"):
        assert all(there is not rays for there, rays in zip(methods(), own, strict=True))
        raise ConnectionError
    assert methods() == own


@pytest.mark.parametrize("found", [None, SimpleNamespace()])
def test_a_ray_without_such_methods_is_left_alone(monkeypatch, found):
    def module(name):
        if found is None:
            raise ImportError(name)
        return found

    own = methods()
    monkeypatch.setattr(ray_start.importlib, "import_module", module)
    with replacing("ray-waits"):
        assert methods() == own


@pytest.mark.parametrize("params", [{}, {"_ray_params": SimpleNamespace()}])
def test_a_node_without_such_a_port_starts_as_it_likes(monkeypatch, params):
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


def test_a_program_beside_another_ray():
    with socket.socket() as taken:
        with suppress(OSError):  # another Ray has it, which does as well
            taken.bind(("127.0.0.1", AGENTS_PORT))
            taken.listen()
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-2000:]
    port, log = done.stdout.split("\n", 1)
    assert int(port) != AGENTS_PORT
    assert "agent" in log
    assert "bind" not in log
