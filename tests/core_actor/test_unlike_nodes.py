"""Clusters with a node that isn't like the others: who is told what, and how soon.

Each test is a program of its own, because a process can be in one cluster only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.clusters import found_by

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def on_nodes(part: str, folder: Path) -> dict[str, Any]:
    """What the program prints; `folder` is its own, as Ray adds it to every worker's path."""
    return found_by(
        "tests.core_actor.on_unlike_nodes",
        part,
        str(folder),
        folder=folder,
        PYTHONPATH=str(ROOT),
        RAY_DEDUP_LOGS="0",
    )


@pytest.mark.parametrize(
    ("how", "code", "said"),
    [
        ("missing", "package-missing", ["No module named 'nki_dist'", "runtime_env"]),
        ("edited", "nodes-differ", ["files of nki_dist: ", "runtime_env"]),
        ("classes", "nodes-differ", ["nki_dist: 97.5.3 there, ", "CoreSlot"]),
    ],
)
def test_another_package_is_an_error_at_once(tmp_path, how, code, said) -> None:
    found = on_nodes(how, tmp_path)
    assert found["code"] == code and f"Ray node {found['node']} (" in found["error"]
    assert all(text in found["error"] for text in said), found["error"]
    assert found["seconds"] < 40  # 3 to 8 on an idle machine; one that tries again takes 60


def test_another_processor_is_one_warning(tmp_path) -> None:
    found = on_nodes("processors", tmp_path)
    if not found["used"]:
        pytest.skip("this processor has nothing that NumPy has code for")
    assert found["right"] and len(found["told"]) == 1
    assert "NumPy for any processor on 1 of them" in found["told"][0]
    assert "[blas-differs]" in found["told"][0]


def test_a_function_that_nodes_do_not_know_is_called_here(tmp_path) -> None:
    assert on_nodes("functions", tmp_path) == {
        "right": True,
        "raised": "the function of per_rank raised ImportError for rank 0: of its own",
        "alive": True,
    }


def test_a_full_store_is_told_with_its_node(tmp_path) -> None:
    found = on_nodes("store", tmp_path)
    assert found["code"] == "object-store-full"
    assert found["error"].startswith("OutOfMemoryError: shared_hbm needs ")
    assert f"Ray node {found['node']} (" in found["error"]
    assert "`ray start --object-store-memory=BYTES`" in found["error"]
    assert "or set NKI_DIST_OBJECT_STORE_BYTES" not in found["error"]


def test_the_doctor_has_a_line_for_every_node(tmp_path) -> None:
    found = on_nodes("doctor", tmp_path)
    assert found["status"] == 1
    failed = [f["found"] for f in found["findings"] if f["level"] == "FAIL"]
    assert any("doesn't import: No module named 'nki_dist'" in line for line in failed)
    assert any(found["frozen"] in line and "doesn't answer for 8 s" in line for line in failed)
    assert len(failed) == 2
    assert len([f for f in found["findings"] if f["subject"] == "node"]) == 3


def test_a_program_that_ray_client_connects_is_told_to_be_a_job(tmp_path) -> None:
    found = on_nodes("client", tmp_path)
    assert found["seconds"] < 5
    assert all("ray job submit" in error and "ray-join" in error for error in found["errors"])
