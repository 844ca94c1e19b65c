"""What lies in `deploy`, as data."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
DEPLOY: Final = ROOT / "deploy"
DOCKERFILE: Final = (DEPLOY / "Dockerfile").read_text()

_UNITS: Final = {"": 1, "Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


def manifest(name: str) -> dict[str, Any]:
    """The one document of a file."""
    return yaml.safe_load((DEPLOY / name).read_text())


CLUSTER: Final = manifest("raycluster.yaml")
JOB: Final = manifest("rayjob.yaml")
HEAD: Final = CLUSTER["spec"]["headGroupSpec"]
(WORKERS,) = CLUSTER["spec"]["workerGroupSpecs"]


def quantity(said: str) -> int:
    """Kubernetes' quantity in bytes, or in processors."""
    found = re.fullmatch(r"(\d+)(\w*)", str(said))
    assert found, f"{said!r} isn't a quantity that this reads"
    return int(found[1]) * _UNITS[found[2]]


def container(group: dict[str, Any]) -> dict[str, Any]:
    """The one that runs Ray."""
    (found,) = group["template"]["spec"]["containers"]
    return found


def shared_memory(group: dict[str, Any]) -> int:
    """Bytes of /dev/shm in a group's pods."""
    (name,) = [m["name"] for m in container(group)["volumeMounts"] if m["mountPath"] == "/dev/shm"]
    (volume,) = [v for v in group["template"]["spec"]["volumes"] if v["name"] == name]
    assert volume["emptyDir"]["medium"] == "Memory"
    return quantity(volume["emptyDir"]["sizeLimit"])


def instructions() -> list[tuple[str, str]]:
    """The Dockerfile's, each with what follows it."""
    joined = DOCKERFILE.replace("\\\n", " ")
    lines = [line.strip() for line in joined.splitlines()]
    found = [line.split(maxsplit=1) for line in lines if line and not line.startswith("#")]
    return [(word, rest) for word, rest in found]


def of(word: str) -> list[str]:
    """What follows an instruction, each time that it is there."""
    return [rest for name, rest in instructions() if name == word]


def in_context(path: str) -> bool:
    """Whether docker is given a file: the last line of .dockerignore that fits it says so."""
    found = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        pattern = line.removeprefix("!").removeprefix("**/")
        if not line or line.startswith("#"):
            continue
        parts = path.split("/")
        above = ["/".join(parts[: n + 1]) for n in range(len(parts))]
        names = parts if "**/" in line else above
        if any(fnmatchcase(name, pattern) for name in names):
            found = line.startswith("!")
    return found
