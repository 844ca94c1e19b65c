"""`nki-dist doctor` on Ray's trouble: what it sees here, and what it says of machines elsewhere."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest
import ray

from nki_dist.cli.doctor import Machine, examine
from nki_dist.cli.doctor import ray as doctor
from nki_dist.cli.doctor.ray import Process, RayFacts
from nki_dist.core_actor import authentication, ray_session
from nki_dist.launcher.world import World

HEAD = Process(11, "gcs_server", "/tmp/ray/session_1", "2.60.0")
NODE = Process(12, "raylet", "/tmp/ray/session_1", "2.60.0")
GOOD = RayFacts(
    version="2.60.0",
    answers={"127.0.0.1:6379": "Connection refused", "10.0.0.1": ""},
    local_address="10.0.0.1",
    disk=9 << 30,
)


def of(address: str, why: str) -> dict:
    return {
        "environment": {"RAY_ADDRESS": address},
        "answers": {**GOOD.answers, address: why},
    }


def findings(**changes) -> dict:
    facts = replace(GOOD, **changes)
    return {f.subject: f for check in doctor.CHECKS for f in check(facts)}


def test_nothing_to_report():
    assert {f.level for f in findings().values()} == {"ok"}
    assert findings()["running Ray"].found == "none; a world starts one"
    for address, why in (("auto", ""), ("local", ""), ("10.0.0.9:6379", "")):
        changes = {**of(address, why), "processes": (HEAD, NODE)}
        assert {f.level for f in findings(**changes).values()} == {"ok"}, address
    joined = (replace(NODE, session="/tmp/ray/session_2", user=7),)  # another's, of a cluster
    for processes in ((HEAD, NODE), (HEAD, NODE, *joined), joined):
        for said in doctor.check_running(replace(GOOD, processes=processes)):
            assert said.level == "ok" and not said.fix  # whoever uses it isn't known
    assert said.found.endswith("raylet 12, of user 7")


def test_only_what_is_surely_left_behind_is_to_be_ended():
    said = findings(processes=(HEAD,))["running Ray"].fix
    assert "`pkill -f /tmp/ray/session_1` ends it" in said
    lost = findings(processes=(replace(HEAD, session="."),))["running Ray"].fix
    assert "`kill 11`" in lost and "pkill" not in lost  # "." is in every command line
    for used in (replace(HEAD, callers=("10.0.0.7",)), replace(HEAD, user=7)):
        found = findings(processes=(used,))["running Ray"]
        assert found.level == "ok" and not found.fix
    assert "called from 10.0.0.7" in findings(processes=(replace(HEAD, callers=("10.0.0.7",)),))[
        "running Ray"
    ].found  # fmt: skip


def test_who_is_connected_to_a_port_is_seen():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port), source_address=("127.0.0.5", 0)):
            assert doctor.callers_of(port) == ("127.0.0.5",)
        with socket.create_connection(("127.0.0.1", port)):
            assert "127.0.0.1" not in doctor.callers_of(port)  # this machine itself


@pytest.mark.parametrize(
    ("changes", "subject", "level", "message"),
    [
        (of("10.0.0.9:6379", "Connection refused"), "RAY_ADDRESS", "FAIL", "doesn't answer: Conn"),
        (of("10.0.0.9:6379", "timed out"), "RAY_ADDRESS", "FAIL", "unset RAY_ADDRESS, then"),
        (of("ray://h:10001", ""), "RAY_ADDRESS", "FAIL", "ray:// shares no memory"),
        (of("host", ""), "RAY_ADDRESS", "FAIL", "'host' is no address"),
        (of("auto", ""), "RAY_ADDRESS", "FAIL", "auto, but no Ray runs here"),
        (
            {"processes": (replace(HEAD, version="2.40.0"), replace(NODE, version="2.40.0"))},
            "running Ray",
            "warn",
            "Ray 2.40.0 runs here (gcs_server 11, raylet 12), Python imports 2.60.0",
        ),
        (
            {"processes": (HEAD,)},
            "running Ray",
            "warn",
            "a head of yours without a node, that nobody calls: `pkill -f /tmp/ray/session_1` ends",
        ),
        (
            {
                "last_cluster": "10.0.0.1:6379",
                "answers": {**GOOD.answers, "10.0.0.1:6379": "Connection refused"},
            },
            "running Ray",
            "warn",
            "remove /tmp/ray/ray_current_cluster",
        ),
        ({"answers": {"10.0.0.1": "timed out"}}, "ports", "FAIL", "10.0.0.1 doesn't reach itself"),
        ({"answers": {"127.0.0.1:6379": ""}}, "ports", "warn", "6379 is taken, and not by Ray"),
        ({"folder": "/home/" + "x" * 40}, "RAY_TMPDIR", "FAIL", "bytes of 107"),
        ({"disk": 1 << 20}, "RAY_TMPDIR", "warn", "make room"),
        ({"disk": -1}, "RAY_TMPDIR", "warn", "can't be looked at"),
        ({"files": 1024}, "open files", "warn", "ulimit -n 4096"),
        ({"environment": {"RAY_AUTH_MODE": "token"}}, "Ray's token", "FAIL", "there is none"),
        ({"environment": {"RAY_AUTH_TOKEN_PATH": "/no"}}, "Ray's token", "FAIL", "unset RAY_AUTH"),
        ({**of("h:1", ""), "token": True}, "Ray's token", "warn", "set RAY_AUTH_MODE=token"),
    ],
)
def test_what_it_says_of_a_fault(changes, subject, level, message):
    found = findings(**changes)
    assert found[subject].level == level and message in str(found[subject])
    assert found[subject].fix
    assert {f.subject for f in found.values() if f.level != "ok"} == {subject}


def test_a_port_of_ray_itself_is_no_fault():
    facts = {"answers": {"127.0.0.1:6379": ""}, "processes": (HEAD, NODE)}
    assert findings(**facts)["ports"].level == "ok"


def test_addresses_are_tried():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port = listening.getsockname()[1]
        assert "refused" in doctor.answer("127.0.0.1", port).lower()
        listening.listen()
        assert doctor.answer("127.0.0.1", port) == ""
    assert doctor.endpoint("[::1]:80") == ("::1", 80)
    for wrong in ("", "auto", "host:", ":80", "ray://h:1", "h:99999", "h:0"):
        assert doctor.endpoint(wrong) is None


def test_names_and_limits_are_those_of_who_uses_them():
    """They are said twice because the doctor must run where Ray can't be imported."""
    assert doctor.ADDRESS == ray_session.ADDRESS_VARIABLE
    assert doctor.FOLDER == ray_session.FOLDER_VARIABLE
    assert (doctor.MODE, doctor.TOKEN, doctor.TOKEN_PATH) == (
        authentication.MODE,
        authentication.TOKEN,
        authentication.PATH,
    )
    assert doctor.DISK > ray_session.LEAST_DISK


def test_a_world_that_runs_is_seen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with World(ranks=1, host="ray"):
        facts = doctor.look(ray.__version__)
        session = ray.get_runtime_context().worker.node.get_session_dir_path()
        mine = [p for p in facts.processes if p.session == session]
        assert sorted(p.kind for p in mine) == ["gcs_server", "raylet"]
        assert {p.version for p in mine} == {ray.__version__}
        assert len(Path(session).name) <= len(Path(doctor.SOCKET).parts[1])
    # Others may run here, too, or have run.
    found = [f for f in examine(replace(machine(), ray=facts)) if f.subject == "running Ray"]
    assert [f.level for f in found if session in f.found] == ["ok"]


def machine() -> Machine:
    return Machine(
        python=(3, 11), packages={}, cpus=2, memory=1 << 34, shm_total=1 << 34, shm_free=1 << 34
    )
