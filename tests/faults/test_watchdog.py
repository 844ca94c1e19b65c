"""Whether a Ray session lives, seen from its sockets; with a clock of the test's own."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Iterator

import pytest
import ray

from nki_dist.core_actor.watchdog import (
    EVERY,
    REFUSED,
    SILENT,
    STOPPED,
    UNREACHED,
    SessionLost,
    Watchdog,
)
from tests.faults.servers import Server


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def raylet(tmp_path) -> Iterator[tuple[str, socket.socket]]:
    path = str(tmp_path / "raylet")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(path)
        listening.listen()
        yield path, listening


def test_a_session_that_speaks_lives(raylet) -> None:
    server, clock = Server(), Clock()
    watchdog = Watchdog(raylet[0], {"the head": server.address}, clock)
    for _ in range(5):
        assert watchdog.lost() is None
        clock.now += SILENT
    watchdog.check()
    assert watchdog.lost(now_too=True) is None


def test_a_raylet_that_hangs_up_is_gone_at_once(raylet) -> None:
    server, clock = Server(), Clock()
    watchdog = Watchdog(raylet[0], {"the head": server.address}, clock)
    other, _ = raylet[1].accept()
    assert watchdog.lost() is None
    other.close()
    with pytest.raises(SessionLost, match="raylet of this node has ended"):
        watchdog.check()
    assert watchdog.lost() is not None, "what is lost stays lost"


def test_a_port_without_a_server_is_given_some_time(raylet) -> None:
    server, clock = Server(), Clock()
    watchdog = Watchdog(raylet[0], {"the head": server.address}, clock)
    server.close()
    assert watchdog.lost() is None
    clock.now += REFUSED - 0.01
    assert watchdog.lost() is None
    clock.now += EVERY
    assert watchdog.lost() == f"the head at 127.0.0.1:{server.address[1]} has ended"


def test_a_server_that_is_known_to_have_ended_is_given_none(raylet) -> None:
    server, ended = Server(), [False]
    watchdog = Watchdog(raylet[0], {"the head": server.address}, Clock(), ended=lambda: ended[0])
    ended[0] = True
    assert watchdog.lost() is None, "another server of the session has ended, this one speaks"
    server.close()
    watchdog = Watchdog(raylet[0], {"the head": server.address}, Clock(), ended=lambda: ended[0])
    assert watchdog.lost() == f"the head at 127.0.0.1:{server.address[1]} has ended"


def test_what_has_failed_already_is_looked_into_at_once(raylet) -> None:
    """`now_too` doesn't wait for the next look, and looks until it is certain."""
    server = Server()
    watchdog = Watchdog(raylet[0], {"the head": server.address})
    assert watchdog.lost() is None
    server.close()
    assert watchdog.lost() is None, "it has just looked"
    assert "has ended" in str(watchdog.lost(now_too=True))


def test_silence_is_borne_for_long_but_not_for_ever(raylet) -> None:
    server, clock = Server(speaks=False), Clock()
    watchdog = Watchdog(raylet[0], {"the head": server.address}, clock)
    assert watchdog.lost() is None
    clock.now += SILENT - EVERY
    assert watchdog.lost() is None
    clock.now += EVERY
    assert f"hasn't answered for {SILENT:.0f} s" in str(watchdog.lost())


def test_silence_of_one_that_is_stopped_is_borne_for_less(raylet) -> None:
    server, clock, stopped = Server(speaks=False), Clock(), [False]
    watchdog = Watchdog(raylet[0], {"the head": server.address}, clock, lambda: stopped[0])
    assert watchdog.lost() is None
    clock.now += STOPPED
    assert watchdog.lost() is None
    stopped[0] = True
    clock.now += EVERY
    assert str(watchdog.lost()).endswith("it is stopped, as SIGSTOP does")


@pytest.mark.parametrize(
    "how", [TimeoutError("timed out"), OSError(errno.EHOSTUNREACH, "no route")]
)
def test_a_machine_that_takes_no_connections_is_gone(raylet, monkeypatch, how) -> None:
    """A stopped process's kernel does take them."""

    def cut(*_: object) -> None:
        raise how

    server, clock = Server(), Clock()
    watchdog = Watchdog(raylet[0], {"the head": server.address}, clock)
    monkeypatch.setattr(socket, "create_connection", cut)
    assert watchdog.lost() is None
    clock.now += UNREACHED - 0.01
    assert watchdog.lost() is None
    clock.now += EVERY
    assert "can't be reached: its machine or the way to it is down" in str(watchdog.lost())


def test_whoever_is_about_to_ask_ray_waits_until_all_answer(raylet) -> None:
    server = Server(speaks=False)
    watchdog = Watchdog(raylet[0], {"the head": server.address})
    threading.Timer(0.5, lambda: setattr(server, "speaks", True)).start()
    begun = time.monotonic()
    watchdog.settle()
    assert time.monotonic() - begun > 0.4
    server.close()
    with pytest.raises(SessionLost, match="has ended"):
        watchdog.settle()


def test_a_server_that_speaks_again_is_forgiven(raylet) -> None:
    server, clock = Server(speaks=False), Clock()
    watchdog = Watchdog(raylet[0], {"the head": server.address}, clock)
    for _ in range(4):
        server.speaks = not server.speaks
        assert watchdog.lost() is None
        clock.now += 0.6 * SILENT


def test_silence_means_nothing_with_tls(raylet, monkeypatch) -> None:
    monkeypatch.setenv("RAY_USE_TLS", "1")
    server, clock = Server(speaks=False), Clock()
    watchdog = Watchdog(raylet[0], {"the head": server.address}, clock)
    for _ in range(3):
        assert watchdog.lost() is None
        clock.now += SILENT


def test_troubles_of_this_side_mean_nothing(raylet, monkeypatch) -> None:
    def full(*_: object) -> None:
        raise OSError(24, "Too many open files")

    server, clock = Server(), Clock()
    watchdog = Watchdog(raylet[0], {"the head": server.address}, clock)
    monkeypatch.setattr(socket, "create_connection", full)
    for _ in range(3):
        assert watchdog.lost() is None
        clock.now += SILENT


def test_other_nodes_are_watched_but_dont_carry_the_session(raylet, monkeypatch) -> None:
    head, other, clock = Server(), Server(), Clock()
    watchdog = Watchdog(raylet[0], {"the raylet": head.address}, clock)
    nodes = [
        {"NodeID": name, "NodeManagerAddress": server.address[0], "NodeManagerPort": port}
        for name, server, port in (
            ("this", head, head.address[1]),
            ("other", other, other.address[1]),
            ("idle", other, 1),
        )
    ]
    monkeypatch.setattr(ray, "nodes", lambda: nodes)
    watchdog.watch(["this", "other"])
    assert watchdog.lost() is None and watchdog.gone == set()
    other.close()
    for _ in range(2):
        clock.now += REFUSED
        assert watchdog.lost() is None
    assert watchdog.gone == {"other"}, "and not one that no world uses"
