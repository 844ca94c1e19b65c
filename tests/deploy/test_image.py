"""The Dockerfile's steps in a clean folder, and the job on a cluster started in KubeRay's way.

Steps that need docker (the base image, its user) are left out; the Python is that of the tests.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

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
    quantity,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

OTHERS = ("PYTHON", "RAY_", "NKI_", "VIRTUAL_ENV")
SMALL = {"object-store-memory": "100000000"}  # bytes
UP = 120.0  # seconds


class Image:
    """What the Dockerfile makes, below a folder.

    Attributes:
        folder: where it is.
        home: its WORKDIR.
        env: of its processes.
    """

    def __init__(self, folder: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
        self.env = {n: v for n, v in os.environ.items() if not n.startswith(OTHERS)}
        self.env["PATH"] = f"{folder / 'venv' / 'bin'}:{self.env['PATH']}"
        self.folder, self.home = folder, folder
        for word, rest in instructions():
            if word == "ENV":
                self.env |= dict(each.split("=", 1) for each in shlex.split(rest))
            elif word == "WORKDIR":
                self.home = self._below(rest)
                self.home.mkdir(parents=True)
            elif word == "COPY":
                self._copy(*shlex.split(rest))
            elif word == "RUN":
                for command in rest.split("&&"):
                    self._carry_out(*shlex.split(command))
            else:
                assert word in ("FROM", "USER", "CMD"), f"{word}: what does it do?"
        self.env["HOME"] = str(self.home)

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in it, whose end is looked at by the caller."""
        return subprocess.run(
            command, cwd=self.home, env=self.env, capture_output=True, text=True, timeout=900,
            check=False,
        )  # fmt: skip

    def inside(self, command: str) -> str:
        """A command whose paths are those of the image."""
        parts = shlex.split(command)
        return shlex.join([str(self._below(p)) if p.startswith("/") else p for p in parts])

    def _below(self, path: str) -> Path:
        return self.folder / path.lstrip("/")

    def _copy(self, *names: str) -> None:
        *sources, target = names
        for source in sources:
            found = [f for f in _files(ROOT / source) if in_context(f.relative_to(ROOT).as_posix())]
            assert found, f".dockerignore keeps {source} out"
            for file in found:
                to = self.home / target
                if (ROOT / source).is_dir():
                    to /= file.relative_to(ROOT / source)
                elif target.endswith("/"):
                    to /= file.name
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, to)

    def _carry_out(self, name: str, *arguments: str) -> None:
        if name == "pip":
            done = self.run("python", "-m", "pip", *arguments)
            assert done.returncode == 0, done.stderr[-3000:]
        elif name == "rm":
            (folder,) = [a for a in arguments if not a.startswith("-")]
            shutil.rmtree(self.home / folder)
        else:
            assert name == "useradd", f"{name}: is it needed, and how is it tried here?"


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]


def ports(count: int) -> list[str]:
    """Ports that nobody has."""
    with ExitStack() as held:
        found = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [str(s.getsockname()[1]) for s in found]


def ray_start(group: Mapping[str, Any], **ours: str) -> list[str]:
    """The command that KubeRay makes for a group's pods, but for some parameters."""
    limits = container(group)["resources"]["limits"]
    told = {"num-cpus": limits["cpu"], "memory": str(quantity(limits["memory"]))}
    told |= {**group["rayStartParams"], **SMALL}
    if "labels" in group:
        told["labels"] = ",".join(f"{n}={v}" for n, v in group["labels"].items())
    told |= {name.replace("_", "-"): value for name, value in ours.items()}
    return ["ray", "start", "--block", *[f"--{name}={value}" for name, value in told.items()]]


@contextmanager
def node(image: Image, command: list[str]) -> Iterator[None]:
    """A node of a cluster, from when Ray says that it runs for as long as the block does."""
    log = image.home / f"node_{secrets.token_hex(3)}.txt"
    with log.open("w") as out:
        process = subprocess.Popen(
            command, cwd=image.home, env=image.env, stdout=out, stderr=out, start_new_session=True
        )
    try:
        late = time.monotonic() + UP
        while "Ray runtime started" not in log.read_text():
            assert process.poll() is None and time.monotonic() < late, log.read_text()
            time.sleep(0.2)
        yield
    finally:
        process.terminate()  # which ends what it started
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()


def wait_for(image: Image, *command: str) -> None:
    late = time.monotonic() + UP
    while (done := image.run(*command)).returncode:
        assert time.monotonic() < late, done.stdout + done.stderr
        time.sleep(1)


@pytest.fixture
def image(tmp_path: Path) -> Iterator[Image]:
    """The image, in a folder that pytest doesn't keep: it has half a gigabyte."""
    yield Image(tmp_path)
    shutil.rmtree(tmp_path)


def test_the_job_runs_in_what_the_dockerfile_makes(image: Image) -> None:
    (installed,) = image.folder.rglob("nki_dist/__init__.py")
    assert "site-packages" in installed.parts
    told = image.run("ray", "--version").stdout.split()[-1]
    assert told == CLUSTER["spec"]["rayVersion"]
    gcs, dashboard, *others = ports(6)
    image.env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    image.env["RAY_USAGE_STATS_ENABLED"] = "0"
    here = dict(zip(("dashboard_agent_listen_port", "metrics_export_port"), others))
    there = dict(zip(("dashboard_agent_listen_port", "metrics_export_port"), others[2:]))
    head = ray_start(HEAD, port=gcs, dashboard_port=dashboard, **here)
    worker = ray_start(WORKERS, address=f"127.0.0.1:{gcs}", **there)
    with (
        tempfile.TemporaryDirectory(prefix="nki") as folder,  # short, because of Ray's sockets
        node(image, [*head, "--head", f"--temp-dir={folder}"]),
        node(image, worker),
    ):
        done = image.run(*submission(image, f"http://127.0.0.1:{dashboard}"))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert re.search(rf"2 cores and 4 ranks are right on [\d.]+:{gcs},", done.stdout)


def submission(image: Image, dashboard: str) -> list[str]:
    """The command that KubeRay makes of the job, quoted as there, once the dashboard answers."""
    wait_for(image, "ray", "job", "list", "--address", dashboard)
    spec = JOB["spec"]
    environment = json.dumps(yaml.safe_load(spec["runtimeEnvYAML"]))
    command = (
        f"ray job submit --address {dashboard} --runtime-env-json {json.dumps(environment)} "
        f"--entrypoint-num-cpus {spec['entrypointNumCpus']:f} -- {image.inside(spec['entrypoint'])}"
    )
    return ["bash", "-c", command]
