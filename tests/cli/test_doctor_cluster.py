"""`nki-dist doctor --cluster` on facts of clusters that aren't there; one that is: test_unlike."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from nki_dist.cli import main
from nki_dist.cli.doctor import cluster as doctor
from nki_dist.cli.doctor.cluster import GIB, Node

SEEN = {"versions": {}, "ray": "2.60.0", "products": "b", "files": 9999, "shm": [7 * GIB, 8 * GIB]}
GOOD = Node("Ray node aa (10.0.0.1)", {"CPU": 4.0, "object_store_memory": 5.0 * GIB}, SEEN)
HEAD = Node("Ray node hh (10.0.0.9)", {"object_store_memory": 5.0 * GIB}, SEEN)


def levels(*nodes: Node) -> dict[str, str]:
    """Of each subject the worst level."""
    found: dict[str, str] = {}
    for f in doctor.examine(list(nodes)):
        found[f.subject] = max(
            found.get(f.subject, ""), f.level, key=("", "ok", "warn", "FAIL").index
        )
    return found


def test_a_good_cluster() -> None:
    assert set(levels(GOOD, HEAD).values()) == {"ok"}


@pytest.mark.parametrize(
    ("change", "subject", "level", "said"),
    [
        (
            {"seen": "it doesn't answer for 20 s"},
            "node",
            "FAIL",
            "aa (10.0.0.1): it doesn't answer",
        ),
        ({"missing": "No module named 'nki_dist'"}, "package", "FAIL", "ship it in the programs'"),
        ({"differs": ("NumPy: 1 there, 2 here",)}, "package", "FAIL", "NumPy: 1 there, 2 here"),
        ({"seen": {**SEEN, "shm": []}}, "object store", "warn", "no /dev/shm"),
        (
            {"seen": {**SEEN, "shm": [1, GIB]}},
            "object store",
            "warn",
            "larger /dev/shm (docker run",
        ),
        (
            {"resources": {"CPU": 1.0, "object_store_memory": 8e7}},
            "object store",
            "warn",
            "`ray start --object-store-memory=` there",
        ),
        ({"seen": {**SEEN, "files": 1024}}, "open files", "warn", "ulimit -n 4096"),
        ({"seen": {**SEEN, "products": "c"}}, "processors", "warn", "OPENBLAS_CORETYPE"),
    ],
)
def test_what_it_says(change: dict[str, Any], subject: str, level: str, said: str) -> None:
    bad = replace(GOOD, **change)
    (found,) = [
        f for f in doctor.examine([replace(GOOD, title="Ray node bb"), bad]) if f.level != "ok"
    ]
    assert (found.subject, found.level) == (subject, level) and said in str(found)
    assert found.fix and bad.title in found.found + found.node


@pytest.mark.parametrize(
    "change",
    [{"seen": "it doesn't answer for 20 s"}, {"missing": "no"}, {"differs": ("NumPy: 1",)}],
)
def test_a_node_that_simulates_nothing_fails_nothing(change: dict[str, Any]) -> None:
    found = levels(GOOD, replace(HEAD, **change))
    assert "FAIL" not in found.values() and "warn" in found.values()
    assert levels(HEAD)["cluster"] == "warn"


def test_its_output(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    bad = replace(GOOD, missing="No module named 'nki_dist'")
    monkeypatch.setattr(doctor, "look", lambda address: {None: [GOOD], "h:1": [GOOD, bad]}[address])
    assert main(["doctor", "--cluster"]) == 0
    text = capsys.readouterr().out
    assert "ok    node             Ray node aa (10.0.0.1): 4 processors, Ray 2.60.0\n" in text
    assert "\nok      package        as here\n" in text and text.endswith(
        "0 failed, 0 warned, 6 ok\n"
    )
    assert main(["doctor", "--cluster", "--address", "h:1", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["failed"] == 1 and found["ok"] == len(found["findings"]) - 1
    (failed,) = [f for f in found["findings"] if f["level"] == "FAIL"]
    assert failed["subject"] == "package" and failed["node"] == GOOD.title
    assert set(failed) == {"level", "subject", "found", "fix", "node"}


def test_a_cluster_must_be_named(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    for address in (None, "local"):
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
        if address:
            monkeypatch.setenv("RAY_ADDRESS", address)
        assert main(["doctor", "--cluster"]) == 1
        assert "name one with --address HOST:PORT or in RAY_ADDRESS" in capsys.readouterr().err
    assert main(["doctor", "--address", "h:1"]) == 1
    assert "--address is for --cluster" in capsys.readouterr().err
