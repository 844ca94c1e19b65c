"""What `nki-dist doctor` looks at on this machine, and what it says of it.

Addresses are tried as launches try them, processes are read from /proc, so other systems' may stay
unseen. Checks are functions of a `Machine` alone.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import resource
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Final

from nki_dist.cli.doctor.finding import GIB, STORE_ON_DISK, Finding, check_files
from nki_dist.errors import LaunchError
from nki_dist.runtime.host_memory import machine_bytes
from nki_dist.runtime.settings import STORE_VARIABLE, processors

# Said again here because the doctor must run where Ray can't be imported.
ADDRESS: Final = "RAY_ADDRESS"
FOLDER: Final = "RAY_TMPDIR"
DISK: Final = 1 << 30  # bytes that logs and spilled objects may need
SHM: Final = "/dev/shm"
PACKAGES: Final = {  # as pyproject has them
    "numpy": (2, 0),
    "ml_dtypes": (0, 5, 1),
    "msgpack": (1, 0, 7),
    "scipy": (1, 13),
    "threadpoolctl": (3, 5),
    "ray": (2, 54),
}
_OPTIONAL: Final = ("torch", "jax")
# Ray's own defaults: the share of memory its object store takes, and its upper limit.
_STORE_SHARE: Final = 0.3
_STORE_LIMIT: Final = 200 * GIB
_SESSION: Final = re.compile(r"--session[-_]dir[=\0]([^\0]+)")


@dataclass(frozen=True)
class Machine:
    """What the checks look at.

    Attributes:
        packages: version of each package that imports; for others why it doesn't, after "!".
        cpus: processors this process may use.
        memory: bytes that a process can have.
        shm: bytes of /dev/shm, in all and free; None if there is none.
        environment: the process's environment.
        refusals: by address of a Ray cluster why launches don't join it, "" if they do: that of
            the environment, and that which `ray start` left for `RAY_ADDRESS=auto`.
        last_cluster: the latter, or "".
        sessions: folders of the Rays that run here, and their processes.
        folder, disk: where Ray keeps sockets and logs, and the bytes left there.
        files: how many a process may open; -1 for any number.
    """

    packages: Mapping[str, str]
    cpus: int
    memory: int
    shm: tuple[int, int] | None
    environment: Mapping[str, str] = field(default_factory=dict)
    refusals: Mapping[str, str] = field(default_factory=dict)
    last_cluster: str = ""
    sessions: Mapping[str, str] = field(default_factory=dict)
    folder: str = "/tmp"
    disk: int = 1 << 40
    files: int = -1


def examine(m: Machine) -> list[Finding]:
    """All checks on one machine."""
    checks = (check_packages, check_memory, check_address, check_running, check_folder)
    return [*(f for check in checks for f in check(m)), check_files(m.files)]


# ---- looking ------------------------------------------------------------------------------------


def look() -> Machine:
    """The facts about this machine."""
    environment = dict(os.environ)
    shm = shutil.disk_usage(SHM) if os.path.isdir(SHM) else None
    folder = environment.get(FOLDER) or environment.get("TMPDIR") or "/tmp"
    there = next(f for f in (Path(folder), *Path(folder).parents) if os.path.isdir(f))  # so far
    last = _read(Path(folder, "ray", "ray_current_cluster"))
    return Machine(
        packages={name: _package(name) for name in (*PACKAGES, *_OPTIONAL)},
        cpus=processors(),
        memory=machine_bytes(),
        shm=shm and (shm.total, shm.free),
        environment=environment,
        refusals={a: _refusal(a) for a in (environment.get(ADDRESS), last) if a},
        last_cluster=last,
        sessions=_sessions(),
        folder=folder,
        disk=shutil.disk_usage(there).free,
        files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )


def _package(name: str) -> str:
    try:
        if name not in _OPTIONAL:  # importing a framework takes seconds, so its metadata must do
            importlib.import_module(name)
        return metadata.version(name)
    except Exception as error:  # an import may fail in any way, and which way is the finding
        return f"!{type(error).__name__}: {error}"


def _refusal(address: str) -> str:
    try:
        from nki_dist.core_actor.ray_session import check_address  # Ray may be missing

        check_address(address)
    except LaunchError as error:
        return error.message
    except ImportError:  # reported as a missing package
        pass
    return ""


def _sessions() -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        words = _read(folder / "cmdline")
        kind, session = Path(words.split("\0")[0]).name, _SESSION.search(words)
        if kind in ("raylet", "gcs_server"):
            found.setdefault(session[1] if session else "?", []).append(f"{kind} {folder.name}")
    return {session: ", ".join(sorted(found[session])) for session in sorted(found)}


def _read(file: Path) -> str:
    try:
        return file.read_text(errors="replace").strip()
    except OSError:  # there is none, or not for this user
        return ""


# ---- checks -------------------------------------------------------------------------------------


def check_packages(m: Machine) -> Iterator[Finding]:
    yield Finding("ok", "Python", platform.python_version())
    for name, least in PACKAGES.items():
        found, lowest = m.packages[name], ".".join(map(str, least))
        fix = f"pip install '{name}>={lowest}'"
        if found.startswith("!"):
            yield Finding("FAIL", name, f"doesn't import ({found[1:]})", fix)
        elif numbers(found) < least:
            yield Finding("FAIL", name, f"{found}; at least {lowest}", fix)
        else:
            yield Finding("ok", name, found)
    for name in _OPTIONAL:
        found = m.packages.get(name, "!")
        yield Finding("ok", name, "not installed (optional)" if found[0] == "!" else found)


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: 2.4.0rc1 is (2, 4, 0)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def check_memory(m: Machine) -> Iterator[Finding]:
    """Ray keeps its object store in /dev/shm; where that is too small it falls back to disk."""
    setting = m.environment.get(STORE_VARIABLE, "")
    size = int(setting) if setting.isdigit() else int(min(m.memory * _STORE_SHARE, _STORE_LIMIT))
    if m.shm is None:
        yield Finding("warn", SHM, "not there", STORE_ON_DISK)
    else:
        total, free = (f"{n / GIB:.1f} GiB" for n in m.shm)
        fix = (
            f"Ray's object store wants {size / GIB:.1f} GiB: run containers with a larger "
            f"--shm-size, remount {SHM} with a larger size, or set {STORE_VARIABLE}"
        )
        level, fix = ("warn", fix) if m.shm[1] < size else ("ok", "")
        yield Finding(level, SHM, f"{free} free of {total}", fix)
    by = STORE_VARIABLE if setting.isdigit() else "Ray's default, 30 % of memory"
    fix = f"large tensors won't fit: set {STORE_VARIABLE}, or use a machine with more memory"
    level, fix = ("warn", fix) if size < GIB else ("ok", "")
    yield Finding(level, "object store", f"{size / GIB:.1f} GiB for all shared_hbm ({by})", fix)
    yield Finding("ok", "processors", f"{m.cpus} usable")


def check_address(m: Machine) -> Iterator[Finding]:
    """RAY_ADDRESS: what programs join, which they do only where it is set."""
    address = m.environment.get(ADDRESS, "")
    refusal = m.refusals.get(address, "")
    if address == "auto" and not (m.last_cluster or m.sessions):
        refusal = "auto, but no Ray runs here; `ray start --head` starts one"
    if refusal:
        fix = f"or unset {ADDRESS}: then programs start a Ray of their own"
        yield Finding("FAIL", ADDRESS, refusal, fix)
    elif address in ("", "local"):
        yield Finding("ok", ADDRESS, f"{address or 'not set'}: programs start a Ray of their own")
    elif address == "auto":
        yield Finding("ok", ADDRESS, f"auto: {m.last_cluster or 'a Ray that runs here'}")
    else:
        yield Finding("ok", ADDRESS, f"{address} answers")


def check_running(m: Machine) -> Iterator[Finding]:
    """Rays of this machine. Others may use them, so none is said to be one too many."""
    for session, processes in m.sessions.items():
        yield Finding("ok", "running Ray", f"{session}: {processes}")
    if m.refusals.get(m.last_cluster):
        file = Path(m.folder, "ray", "ray_current_cluster")
        fix = f"it misleads {ADDRESS}=auto: remove {file}"
        yield Finding("warn", "running Ray", f"{m.last_cluster} is gone", fix)
    elif not m.sessions:
        yield Finding("ok", "running Ray", "none; a world starts one")


def check_folder(m: Machine) -> Iterator[Finding]:
    """Where Ray keeps sockets, logs and spilled objects."""
    fix = f"logs and spilled objects go there: make room, or set {FOLDER} to another folder"
    level, fix = ("warn", fix) if m.disk < DISK else ("ok", "")
    yield Finding(level, FOLDER, f"{m.folder}: {m.disk / GIB:.1f} GiB free", fix)
