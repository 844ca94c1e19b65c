"""The files in `deploy` are what KubeRay, kustomize and Ray's autoscaler take.

KUBERAY=DIR (`tests/deploy/kuberay.py`) compares with the whole of KubeRay's schema, too.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.deploy.kuberay import DOCUMENTS, KEPT, definitions, parts
from tests.deploy.manifests import (
    CLUSTER,
    DEPLOY,
    HEAD,
    JOB,
    WORKERS,
    container,
    manifest,
    quantity,
)

KNOWN = json.loads(KEPT.read_text())
BASES = os.environ.get("KUBERAY")


def known(kind: str) -> dict[str, Any]:
    """The part of a kind's schema that is kept."""
    return {**KNOWN, "$ref": f"#/{kind}"}


def wrong(schema: dict[str, Any], document: dict[str, Any]) -> list[str]:
    """What a schema has against a document."""
    found = jsonschema.Draft202012Validator(schema).iter_errors(document)
    return [f"{'.'.join(map(str, e.absolute_path))}: {e.message}" for e in found]


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_files_fit_the_part_of_the_schema_that_is_kept(kind):
    assert DOCUMENTS[kind]["kind"] == kind
    assert not wrong(known(kind), DOCUMENTS[kind])


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("spec", "enableInTreeAutoscalling"), True, "Additional properties"),
        (("spec", "headGroupSpec", "rayStartParams", "num-cpus"), 0, "not of type 'string'"),
        (("spec", "authOptions", "mode"), "secret", "not one of"),
        (("spec", "workerGroupSpecs", 0, "maxReplicas"), "4", "not of type 'integer'"),
    ],
)
def test_what_kuberay_would_refuse_is_noticed(path, value, said):
    changed: Any = copy.deepcopy(CLUSTER)
    place = changed
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    (told,) = wrong(known("RayCluster"), changed)
    assert said in told


@pytest.mark.skipif(not BASES, reason="KUBERAY isn't set")
def test_files_fit_the_whole_schema_and_the_part_is_of_it():
    whole = definitions(Path(BASES))
    for kind, document in DOCUMENTS.items():
        assert not wrong(whole[kind], document)
    assert {"kuberay": KNOWN["kuberay"], **parts(Path(BASES))} == KNOWN


def test_rules_of_the_operator_that_no_schema_has():
    """ValidateRayClusterSpec and ValidateRayJobSpec of KubeRay 1.7.0, for the fields used here."""
    for group in (HEAD, WORKERS):
        assert "labels" not in group["rayStartParams"], "the group has a field for them"
        assert "resources" not in group, "they are in rayStartParams"
        assert "restartPolicy" not in group["template"]["spec"], "Never, with autoscaler v2"
    assert WORKERS["minReplicas"] <= WORKERS["maxReplicas"]
    assert JOB["spec"]["shutdownAfterJobFinishes"], "what ttlSecondsAfterFinished needs"
    assert "clusterSelector" not in JOB["spec"]
    assert all(len(each["metadata"]["name"]) <= 47 for each in (CLUSTER, JOB))


@pytest.mark.slow  # Ray's autoscaler takes two seconds to import
def test_rays_autoscaler_sees_processors_memory_and_labels():
    """How Ray reads the cluster; part of Ray, but not of what it promises."""
    ray = pytest.importorskip("ray.autoscaler._private.kuberay.autoscaling_config")
    if not hasattr(ray, "_derive_autoscaling_config_from_ray_cr"):
        pytest.skip("this Ray reads it in another way")
    cluster = copy.deepcopy(CLUSTER)
    cluster["metadata"]["namespace"] = "default"
    config = ray._derive_autoscaling_config_from_ray_cr(cluster)
    head = config["available_node_types"]["headgroup"]
    workers = config["available_node_types"][WORKERS["groupName"]]
    assert head["resources"]["CPU"] == 0
    assert workers["labels"] == WORKERS["labels"]
    assert workers["resources"] == {
        "CPU": quantity(container(WORKERS)["resources"]["limits"]["cpu"]),
        "memory": int(WORKERS["rayStartParams"]["memory"]),
    }
    assert (workers["min_workers"], workers["max_workers"]) == (0, WORKERS["maxReplicas"])


def test_kustomize_puts_the_image_and_the_token_where_they_belong(tmp_path):
    if not shutil.which("kubectl"):
        pytest.skip("kubectl isn't installed")
    folder = shutil.copytree(DEPLOY, tmp_path / "deploy", ignore=shutil.ignore_patterns("auth_*"))
    command = ["kubectl", "kustomize", str(folder)]
    bare = subprocess.run(command, capture_output=True, text=True, check=False)
    assert bare.returncode and "auth_token" in bare.stderr, "no token that everybody knows"
    (folder / "auth_token").write_text("of a test")
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    (image,) = manifest("kustomization.yaml")["images"]
    assert made.count(f"image: {image['newName']}:{image['newTag']}\n") == 4
    assert made.count("image:") == 4
    kinds = {d["kind"]: d for d in yaml.safe_load_all(made)}
    assert set(kinds) == {"Secret", *DOCUMENTS}
    assert list(kinds["Secret"]["data"]) == ["auth_token"], "the key that KubeRay reads"
