"""What looks at a node needs nothing of this package there, and what failed there is explained."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
import ray
import ray.exceptions as raised
from ray import cloudpickle

from nki_dist.core_actor import fingerprint, looking
from nki_dist.errors import LaunchError

# A process as a node's that has Ray and not this package.
WITHOUT = """
import json, sys
class None_:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] in ("nki_dist", "scipy"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, None_())
from ray import cloudpickle
print(json.dumps(cloudpickle.loads(sys.stdin.buffer.read())()))
"""
NODE = "ab12"


def test_it_runs_where_the_package_is_missing() -> None:
    """Pickled as it is, not by a name that would have to be imported."""
    sent = cloudpickle.dumps(looking.looker())
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], input=sent, capture_output=True, timeout=100, check=True
    )
    seen = json.loads(done.stdout)
    assert seen["versions"]["nki_dist"] == "not there: No module named 'nki_dist'"
    assert seen["versions"]["SciPy"] == "not there: No module named 'scipy'"
    assert seen["versions"]["NumPy"] == fingerprint.versions()["NumPy"]
    assert seen["ray"] == ray.__version__ and seen["products"] == "" and seen["files"] > 0
    assert looking.absent(seen["versions"]) and not looking.absent(fingerprint.versions())


def test_here_it_tells_what_this_process_has() -> None:
    seen = looking.looker()()
    assert seen["versions"] == fingerprint.versions()
    assert "NumPy for " in seen["products"]
    assert fingerprint.imported().items() <= fingerprint.versions().items()


def made(text: str) -> raised.ActorDiedError:
    """As Ray has it for what is raised while an actor is made."""
    error = raised.ActorDiedError()
    error.error_msg, error._actor_init_failed = (
        f"raised in its creation task\n{text}\n ^^^ \n",
        True,
    )
    return error


def task_error() -> Exception:
    cause = AttributeError("Can't get attribute 'Net'")
    return raised.RayTaskError("connect", "Traceback\nCan't get 'Net'", cause).as_instanceof_cause()


GONE, EQUAL = "it doesn't answer for 6 s", {"versions": fingerprint.versions()}
NEWER = {"versions": {**fingerprint.versions(), "nki_dist": "97.5.3"}}
BROKEN = {"versions": {**fingerprint.versions(), "nki_dist": "not there: no msgpack"}}


@pytest.mark.parametrize(
    ("error", "seen", "code", "said"),
    [
        (made("ModuleNotFoundError: No module named 'nki_dist'"), None, "package-missing", "ship"),
        (made("ImportError: x"), BROKEN, "package-missing", "can't import nki_dist: no msgpack"),
        (made("TypeError: takes 2"), NEWER, "nodes-differ", "97.5.3 there.*failed with: TypeError"),
        (made("OSError: no"), EQUAL, "core-not-started", "processes of this world: OSError: no"),
        (made("OSError: no"), GONE, "core-not-started", "OSError: no; it doesn't answer for 6 s"),
        (task_error(), NEWER, "nodes-differ", "failed with: .*Net"),
        (raised.RuntimeEnvSetupError("no\n  pip"), None, "runtime-env", "environment of.*: .*no p"),
    ],
)
def test_what_is_final(monkeypatch, error: Exception, seen: Any, code: str, said: str) -> None:
    monkeypatch.setattr(looking, "reached", lambda node: True)
    monkeypatch.setattr(looking, "title", lambda node: f"Ray node {node} (10.0.0.9, pod-3)")
    monkeypatch.setattr(looking, "look_at", lambda nodes, seconds: {NODE: seen})
    with pytest.raises(LaunchError, match=f"(?s)Ray node {NODE} .10.0.0.9, pod-3.*{said}") as found:
        raise looking.refusal(error, NODE) or AssertionError("it isn't refused")
    assert found.value.code == code


@pytest.mark.parametrize(
    ("error", "reached", "seen"),
    [
        (made("RpcError: socket closed"), False, None),  # with its node
        (raised.RuntimeEnvSetupError("agent failed"), False, None),
        (raised.ActorDiedError(), True, None),  # nobody knows why: perhaps with its node
        (raised.ActorUnschedulableError("no such node"), True, None),
        (raised.OutOfMemoryError("killed"), True, None),
        (task_error(), True, EQUAL),  # a mistake of its own
        (task_error(), True, GONE),
    ],
)
def test_what_is_not_final(monkeypatch, error: Exception, reached: bool, seen: Any) -> None:
    def look(nodes: Any, seconds: float) -> Any:
        assert seen is not None, "nobody has to look"
        return {NODE: seen}

    monkeypatch.setattr(looking, "reached", lambda node: reached)
    monkeypatch.setattr(looking, "look_at", look)
    assert looking.refusal(error, NODE) is None
