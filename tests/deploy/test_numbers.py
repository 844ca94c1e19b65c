"""Numbers and names in `deploy` that depend on each other."""

import json
import re
import shlex

import pytest
import yaml

from tests.deploy.manifests import (
    CLUSTER,
    HEAD,
    JOB,
    ROOT,
    WORKERS,
    container,
    in_context,
    instructions,
    manifest,
    of,
    quantity,
    shared_memory,
)

PROJECT = (ROOT / "pyproject.toml").read_text()
LEFT_FOR_RAY = 2 << 30  # of a worker: raylet, agents, drivers, tasks
GROUPS = pytest.mark.parametrize("group", [HEAD, WORKERS], ids=["head", "workers"])
KUSTOMIZATION = manifest("kustomization.yaml")


def store(group):
    return int(group["rayStartParams"]["object-store-memory"])


def limit(group, what):
    return quantity(container(group)["resources"]["limits"][what])


@GROUPS
def test_shared_memory_holds_the_object_store(group):
    """Ray looks at what is free there, and takes a folder of the disk if that is less."""
    assert store(group) < shared_memory(group)


@GROUPS
def test_requests_are_limits_and_hold_shared_memory(group):
    resources = container(group)["resources"]
    assert resources["requests"] == resources["limits"]
    assert shared_memory(group) + LEFT_FOR_RAY <= limit(group, "memory")


def test_the_memory_that_ray_counts_is_there():
    counted = int(WORKERS["rayStartParams"]["memory"])
    assert counted + shared_memory(WORKERS) + LEFT_FOR_RAY <= limit(WORKERS, "memory")


def test_the_head_takes_nothing_and_the_job_asks_for_a_worker():
    assert HEAD["rayStartParams"]["num-cpus"] == "0"
    assert JOB["spec"]["entrypointNumCpus"] > 0


def test_the_job_has_a_cluster_like_the_shared_one():
    assert JOB["spec"]["rayClusterSpec"] == CLUSTER["spec"]


def test_what_the_job_asks_for_its_cores_is_on_a_worker():
    env = yaml.safe_load(JOB["spec"]["runtimeEnvYAML"])["env_vars"]
    options = json.loads(env["NKI_DIST_ACTOR_OPTIONS"])
    assert options.pop("label_selector").items() <= WORKERS["labels"].items()
    ranks = int(re.search(r"^RANKS = (\d+)$", (ROOT / "deploy/smoke.py").read_text(), re.M)[1])
    here = ranks + 2  # the world's processes, and those of the launch on two cores before it
    cpus = JOB["spec"]["entrypointNumCpus"] + here * options.pop("num_cpus")
    assert cpus <= limit(WORKERS, "cpu")
    assert here * options.pop("memory") <= int(WORKERS["rayStartParams"]["memory"])
    assert not options


def test_the_version_of_ray_is_one():
    """The image's, what the manifests tell KubeRay, and one that the package allows."""
    installed = re.findall(r'"ray\[default\]==([\d.]+)"', "".join(of("RUN")))
    assert installed == [CLUSTER["spec"]["rayVersion"]]
    (least,) = re.findall(r'^ +"ray>=([\d.]+)"', PROJECT, re.M)
    version = [tuple(map(int, v.split("."))) for v in (*installed, least)]
    assert version[0] >= version[1]


def test_python_is_one_that_the_package_promises():
    (image,) = of("FROM")
    (minor,) = re.findall(r"^python:(\d+\.\d+)-slim$", image)
    assert f"Python :: {minor}" in PROJECT


def test_names_agree():
    (image,) = KUSTOMIZATION["images"]
    assert {container(g)["image"] for g in (HEAD, WORKERS)} == {image["name"]}
    ray, python = CLUSTER["spec"]["rayVersion"], of("FROM")[0].split(":")[1].split("-")[0]
    assert image["newTag"] == f"ray{ray}-py{python.replace('.', '')}"
    (secret,) = KUSTOMIZATION["secretGenerator"]
    assert secret["name"] == CLUSTER["spec"]["authOptions"]["secretName"]
    assert secret["files"] == ["auth_token"]


def test_the_token_stays_out_of_git_distributions_and_images():
    git = ROOT / ".gitignore"  # which a source distribution hasn't
    assert not git.exists() or "deploy/auth_token" in git.read_text().splitlines()
    assert "exclude deploy/auth_token" in (ROOT / "MANIFEST.in").read_text().splitlines()
    assert not in_context("deploy/auth_token")
    assert in_context("nki_dist/arch/__init__.py") and in_context("deploy/smoke.py")
    assert not in_context("nki_dist/__pycache__/arch.pyc") and not in_context(".git/config")


def test_the_image_runs_as_the_user_of_the_pods():
    (user,) = of("USER")
    assert instructions()[-2] == ("USER", user), "nothing is done as root after it"
    (made,) = re.findall(r"--uid (\d+)", "".join(of("RUN")))
    for group in (HEAD, WORKERS):
        told = group["template"]["spec"]["securityContext"]
        assert told["runAsNonRoot"] and user == f"{told['runAsUser']}:{told['fsGroup']}"
        assert str(told["runAsUser"]) == made


def test_the_job_runs_what_the_image_has():
    (home,) = of("WORKDIR")
    copied = [f"{home}/{shlex.split(rest)[-1]}" for rest in of("COPY")]
    assert JOB["spec"]["entrypoint"].split()[-1] in copied
