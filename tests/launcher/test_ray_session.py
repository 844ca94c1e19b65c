"""What users see where Ray can't be started or joined."""

from __future__ import annotations

import os
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, NoReturn

import pytest
import ray

from nki_dist.core_actor.ray_session import (
    FREE_VARIABLE,
    HEAD_VARIABLE,
    ensure_ray,
)
from nki_dist.core_actor.watchdog import Watchdog
from nki_dist.errors import LaunchError
from nki_dist.runtime.settings import STORE_VARIABLE
from tests.faults.servers import Server


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
        closing(Server()) as somebody,
        pytest.raises(LaunchError, match=message) as caught,
    ):
        ensure_ray(f"127.0.0.1:{somebody.address[1]}")
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


@pytest.mark.slow
def test_a_head_that_is_stopped(monkeypatch) -> None:
    """Its kernel takes connections, but nobody speaks."""
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", None)
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(LaunchError, match=r"can't join .* hasn't answered for 12 s; is it running"),
    ):
        ensure_ray(f"127.0.0.1:{silent.getsockname()[1]}")


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

    monkeypatch.setattr(Watchdog, "here", lambda: None)
    monkeypatch.setattr(ray, "is_initialized", lambda: bool(started))
    monkeypatch.setattr(ray, "init", slow)
    with ThreadPoolExecutor(4) as threads:
        for done in [threads.submit(ensure_ray, None) for _ in range(4)]:
            done.result()
    assert len(started) == 1


@pytest.mark.parametrize("own", [None, "250"])
def test_settings_that_ray_starts_with_are_the_programs_if_it_has_any(monkeypatch, own) -> None:
    seen: dict[str, str | None] = {}

    def fails(**options: Any) -> NoReturn:
        seen.update({name: os.environ.get(name) for name in (FREE_VARIABLE, HEAD_VARIABLE)})
        raise ConnectionError("enough")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", fails)
    for name in (FREE_VARIABLE, HEAD_VARIABLE):
        if own is None:
            monkeypatch.delenv(name, raising=False)
        else:
            monkeypatch.setenv(name, own)
    with pytest.raises(LaunchError):
        ensure_ray("local")
    assert seen == {FREE_VARIABLE: own or "0", HEAD_VARIABLE: own or "600"}
    assert {os.environ.get(name) for name in seen} == {own}, "as the program had it"
