"""Ray and tokens: what to do is said for each case; and with real clusters that ask for one."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import pytest
import ray
import ray.exceptions

from nki_dist.core_actor import authentication
from nki_dist.core_actor.ray_session import ensure_ray
from nki_dist.errors import LaunchError
from tests.clusters import ray_folder
from tests.faults.servers import Server

AuthenticationError = getattr(ray.exceptions, "AuthenticationError", None)
needs_tokens = pytest.mark.skipif(AuthenticationError is None, reason="Ray older than 2.52")
TOKEN = "0123456789abcdef" * 4


@pytest.fixture
def home(monkeypatch, tmp_path) -> Path:
    """A home directory without a token, and an environment that says nothing of tokens."""
    for name in (authentication.MODE, authentication.TOKEN, authentication.PATH):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    return tmp_path


def write_token(home: Path, token: str = TOKEN) -> None:
    path = home / authentication.DEFAULT
    path.parent.mkdir()
    path.write_text(token)


@pytest.mark.parametrize(
    ("mode", "source", "advice"),
    [
        (None, None, "there is none here: copy what `ray get-auth-token` .* set RAY_AUTH_MODE="),
        (None, "file", "the one in ~/.ray/auth_token isn't sent: set RAY_AUTH_MODE=token, before"),
        ("disabled", "variable", "the one in RAY_AUTH_TOKEN isn't sent: set RAY_AUTH_MODE=token"),
        ("token", None, "RAY_AUTH_MODE=token, but there is no token here: copy .* or unset"),
        ("TOKEN", "path", r"the token in /some/file \(RAY_AUTH_TOKEN_PATH\) may not be the clus"),
    ],
)
def test_what_to_do_where_a_cluster_takes_no_connection(monkeypatch, home, mode, source, advice):
    def fails(**options: Any) -> NoReturn:
        raise ConnectionError("Failed to connect to Ray cluster")

    if mode is not None:
        monkeypatch.setenv(authentication.MODE, mode)
    if source == "file":
        write_token(home)
    elif source is not None:
        monkeypatch.setenv(*{"variable": (authentication.TOKEN, TOKEN),
                             "path": (authentication.PATH, "/some/file")}[source])  # fmt: skip
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", fails)
    with (
        closing(Server()) as somebody,
        pytest.raises(LaunchError, match=f"can't join .*Failed to connect.*{advice}") as caught,
    ):
        ensure_ray(f"127.0.0.1:{somebody.address[1]}")
    assert "docs/clusters.md" in str(caught.value)
    assert TOKEN not in str(caught.value)


@needs_tokens
@pytest.mark.parametrize(
    ("path", "advice"),
    [(None, "get-auth-token --generate` makes one"), ("/no/file", "unset RAY_AUTH_TOKEN_PATH=/no")],
)
def test_what_to_do_where_a_ray_of_ones_own_wants_a_token(monkeypatch, home, path, advice):
    def fails(**options: Any) -> NoReturn:
        raise AuthenticationError("no token was found. And so on, at length")

    if path is not None:
        monkeypatch.setenv(authentication.PATH, path)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", fails)
    with pytest.raises(LaunchError, match=f"didn't start .*no token was found.*{advice}") as caught:
        ensure_ray("local")
    assert "RAY_AUTH_MODE=disabled" in str(caught.value)
    assert 'host="inprocess"' in str(caught.value)


def test_a_home_that_takes_no_token(monkeypatch, home):
    error = PermissionError(13, "Permission denied", str(home / ".ray"))
    assert "set HOME; " in str(authentication.to_start(error))
    assert authentication.to_start(PermissionError(13, "Permission denied", "/else")) is None
    assert authentication.to_start(Exception("The current node timed out")) is None


HEAD = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(
    initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100 << 20}
)
print(cluster.address, flush=True)
sys.stdin.readline()
cluster.shutdown()
"""
JOIN = """
import sys
import nki_dist as nki
try:
    with nki.World(address=sys.argv[1]) as world:
        print("joined", len(world.host.processes))
except nki.errors.NkiError as error:
    print(type(error).__name__, error)
"""


@pytest.fixture
def started_variables():
    with ray_folder() as variables:
        yield variables


@needs_tokens
@pytest.mark.slow
def test_a_cluster_that_asks_for_a_token(tmp_path, started_variables):
    """Once with each mistake; Ray tries for some twenty seconds before it says so."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("RAY_")} | started_variables

    def environment(name: str, token: str | None, **more: str) -> dict[str, str]:
        home = tmp_path / name
        home.mkdir()
        if token is not None:
            write_token(home, token)
        return {**clean, "HOME": str(home), **more}

    def join(address: str, **options: Any) -> str:
        command = [sys.executable, "-c", JOIN, address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, env=options)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    head = subprocess.Popen(
        [sys.executable, "-c", HEAD],
        env=environment("head", TOKEN, RAY_AUTH_MODE="token"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert head.stdout is not None
        address = head.stdout.readline().strip()
        joined = join(address, **environment("right", TOKEN, RAY_AUTH_MODE="token"))
        assert joined == "joined 1\n"
        said = join(address, **environment("wrong", TOKEN[::-1], RAY_AUTH_MODE="token"))
        assert said.startswith("LaunchError can't join the Ray cluster")
        assert "~/.ray/auth_token may not be the cluster's" in said
        said = join(address, **environment("unset", TOKEN))
        assert "the one in ~/.ray/auth_token isn't sent: set RAY_AUTH_MODE=token" in said
        said = join(address, **environment("none", None, RAY_AUTH_MODE="token"))
        assert "but there is no token here" in said
    finally:
        head.communicate("\n", timeout=60)
