"""A Ray of one program starts without helpers that nobody in it asks."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest
import ray
from ray._private.node import Node

from nki_dist.core_actor import ray_session, ray_start
from nki_dist.core_actor.ray_session import ensure_ray
from nki_dist.core_actor.ray_start import replacing
from nki_dist.core_actor.watchdog import Watchdog

HELPERS = ("start_monitor", "start_log_monitor", "start_api_server")

PROGRAM = """
import nki_dist as nki
import numpy as np
import ray
from tests.hosts.kernels import add_halves

x = np.arange(24, dtype=np.float32).reshape(8, 3)
assert np.array_equal(add_halves[2](x, x), x + x)
from ray._private.worker import _global_node
print(*sorted(_global_node.all_processes))
print(len(ray.nodes()), [actor for actor in ray._private.state.actors()] != [])
"""


def methods():
    return {name: vars(Node)[name] for name in HELPERS}


def test_the_methods_are_rays_own_again_even_after_a_failure():
    own = methods()
    with pytest.raises(ConnectionError), replacing("ray-helpers"):
        assert all(method is not own[name] for name, method in methods().items())
        raise ConnectionError
    assert methods() == own


def test_there_is_no_address_of_a_dashboard():
    node = SimpleNamespace(_webui_url=None)
    with replacing("ray-helpers"):
        Node.start_monitor(node)
        Node.start_log_monitor(node)
        assert node._webui_url is None
        Node.start_api_server(node, include_dashboard=False, raise_on_failure=False)
    assert node._webui_url == ""


@pytest.mark.parametrize("found", [None, type("Node", (), {"start_monitor": 3})])
def test_a_ray_without_such_methods_is_left_alone(monkeypatch, found):
    def module(name):
        if found is None:
            raise ImportError(name)
        return SimpleNamespace(Node=found)

    own = methods()
    monkeypatch.setattr(ray_start.importlib, "import_module", module)
    with replacing("ray-helpers"):
        assert methods() == own
        assert found is None or found.start_monitor == 3


@pytest.mark.parametrize("address", ["local", "auto"])
def test_only_a_ray_that_is_started_here(monkeypatch, address):
    own, seen, ours = methods(), [], []
    owner = SimpleNamespace(started=lambda: ours.append(address))
    monkeypatch.setattr(ray_session, "local_ray", lambda: owner)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", lambda **_: seen.append(methods()))
    monkeypatch.setattr(Watchdog, "here", lambda: None)
    ensure_ray(address)
    assert [found == own for found in seen] == [address == "auto"]
    assert ours == ["local"] * (address == "local")  # which ends with the program


def test_a_program_runs_without_them():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    processes, rest = done.stdout.splitlines()
    assert {"gcs_server", "raylet"} <= set(processes.split())
    assert not {"monitor", "log_monitor", "dashboard"} & set(processes.split())
    assert rest == "1 True"
