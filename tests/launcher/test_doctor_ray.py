"""`nki-dist doctor` on Ray's trouble: what it sees here, and what it says of machines elsewhere."""

from __future__ import annotations

import os
import shutil
import socket
from dataclasses import replace
from pathlib import Path

import pytest
import ray

from nki_dist.cli.doctor import machine as doctor
from nki_dist.cli.doctor.machine import Machine
from nki_dist.core_actor import private, ray_session
from nki_dist.launcher.world import World

GOOD = Machine(
    packages=dict.fromkeys(doctor.PACKAGES, "99"),
    cpus=2,
    memory=1 << 34,
    shm=(1 << 34, 1 << 34),
    disk=9 << 30,
    files=9999,
)
RUNS = {"/tmp/ray/session_1": "gcs_server 11, raylet 12"}


def of(address: str, why: str) -> dict:
    return {"environment": {"RAY_ADDRESS": address}, "refusals": {address: why}}


def findings(**changes) -> dict:
    return {f.subject: f for f in doctor.examine(replace(GOOD, **changes))}


def test_nothing_to_report():
    assert {f.level for f in findings().values()} == {"ok"}
    assert findings()["running Ray"].found == "none; a world starts one"
    for address in ("auto", "local", "10.0.0.9:6379"):
        found = findings(**of(address, ""), sessions=RUNS)
        assert {f.level for f in found.values()} == {"ok"}, address
        assert found["RAY_ADDRESS"].found.startswith(address)
        said = found["running Ray"]
        assert said.found == "/tmp/ray/session_1: gcs_server 11, raylet 12"
        assert not said.fix  # whoever uses it isn't known


@pytest.mark.parametrize(
    ("changes", "subject", "level", "message"),
    [
        (of("10.0.0.9:6379", "can't join"), "RAY_ADDRESS", "FAIL", "can't join"),
        (of("10.0.0.9:6379", "can't join"), "RAY_ADDRESS", "FAIL", "or unset RAY_ADDRESS: then"),
        (of("auto", ""), "RAY_ADDRESS", "FAIL", "auto, but no Ray runs here"),
        (
            {"last_cluster": "10.0.0.1:6379", "refusals": {"10.0.0.1:6379": "no"}},
            "running Ray",
            "warn",
            "remove /tmp/ray/ray_current_cluster",
        ),
        ({"disk": 1 << 20}, "RAY_TMPDIR", "warn", "make room"),
        ({"files": 1024}, "open files", "warn", "ulimit -n 4096"),
    ],
)
def test_what_it_says_of_a_fault(changes, subject, level, message):
    found = findings(**changes)
    assert found[subject].level == level and message in str(found[subject])
    assert found[subject].fix
    assert {f.subject for f in found.values() if f.level != "ok"} == {subject}


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("ray://h:10001", "Ray Client (ray://) shares no memory"),
        ("host", "allowed are HOST:PORT of a node"),
        ("127.0.0.1:1", "Connection refused"),
        ("", ""),
        ("auto", ""),
        ("local", ""),
    ],
)
def test_addresses_are_tried_as_launches_try_them(address, said, monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_ADDRESS", address)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    refusal = doctor.look().refusals.get(address, "")
    assert said in refusal and bool(said) == bool(refusal)


def test_a_folder_that_ray_has_to_make(monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "of" / "ray"))
    machine = doctor.look()
    assert machine.folder == str(tmp_path / "of" / "ray")
    assert machine.disk == pytest.approx(shutil.disk_usage(tmp_path).free, rel=0.1)


def test_a_file_that_leads_to_a_cluster_that_is_gone(monkeypatch, tmp_path):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    (tmp_path / "ray").mkdir()
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))  # so that nobody else listens there
        gone = f"127.0.0.1:{silent.getsockname()[1]}"
        (tmp_path / "ray" / "ray_current_cluster").write_text(f"{gone}\n")
        said = [str(f) for f in doctor.examine(doctor.look()) if gone in f.found]
    assert len(said) == 1 and f"remove {tmp_path}/ray/ray_current_cluster" in said[0]


def test_names_and_limits_are_those_of_who_uses_them():
    """They are said twice because the doctor must run where Ray can't be imported."""
    assert doctor.ADDRESS == ray_session.ADDRESS_VARIABLE
    assert doctor.FOLDER == private.FOLDER_VARIABLE
    assert doctor.DISK > ray_session.LEAST_DISK


def test_a_world_that_runs_is_seen(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    with World(ranks=1, host="ray"):
        sessions = doctor.look().sessions
        session = ray.get_runtime_context().worker.node.get_session_dir_path()
    names, pids = zip(*(process.split() for process in sessions[session].split(", ")))
    assert names == ("gcs_server", "raylet")
    assert str(os.getpid()) not in pids and Path(session).is_absolute()
