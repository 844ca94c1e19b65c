"""What users see where Ray can't be started or joined."""

from __future__ import annotations

import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import pytest
import ray

from nki_dist.core_actor.ray_session import STORE_VARIABLE, ensure_ray
from nki_dist.errors import LaunchError


@pytest.mark.parametrize(
    ("raised", "message"),
    [
        (Exception("The current node timed out"), "Ray didn't start .*node timed out.*inprocess"),
        (ConnectionError("nobody there"), "can't join the Ray cluster at '127.0.0.1:.*': nobody"),
    ],
)
def test_rays_own_errors_are_typed(monkeypatch, raised, message) -> None:
    def fails(**options: Any) -> NoReturn:
        raise raised

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", fails)
    with (
        socket.create_server(("127.0.0.1", 0)) as somebody,
        pytest.raises(LaunchError, match=message) as caught,
    ):
        ensure_ray(f"127.0.0.1:{somebody.getsockname()[1]}")
    assert caught.value.__cause__ is raised


@pytest.mark.parametrize("address", ["nonsense", "ray://127.0.0.1:10001", "a:b", ":6379", "a:"])
def test_what_is_no_address_is_refused_before_ray_is_asked(monkeypatch, address) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", None)
    monkeypatch.setenv("RAY_ADDRESS", address)
    with pytest.raises(LaunchError, match=rf"{address}' \(.*RAY_ADDRESS\): allowed are HOST:PORT"):
        ensure_ray(None)


def test_an_address_where_nobody_answers(monkeypatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", None)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(LaunchError, match=rf"can't join .*127.0.0.1:{port}' .*is it running"):
        ensure_ray(f"127.0.0.1:{port}")


def test_the_size_of_the_object_store_is_a_number(monkeypatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setenv(STORE_VARIABLE, "7 GiB")
    with pytest.raises(LaunchError, match="'7 GiB'; must be a number of bytes"):
        ensure_ray("local")


def test_threads_start_one_ray(monkeypatch) -> None:
    """The worlds of several threads may all be the first."""
    started: list[Any] = []

    def slow(**options: Any) -> None:
        assert not started, "a second ray.init"
        threading.Event().wait(0.05)  # others come meanwhile
        started.append(options)

    monkeypatch.setattr(ray, "is_initialized", lambda: bool(started))
    monkeypatch.setattr(ray, "init", slow)
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(ensure_ray, None) for _ in range(4)]:
            done.result()
    assert len(started) == 1
