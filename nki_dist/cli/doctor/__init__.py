"""`nki-dist doctor`: can this machine run simulated NeuronCores, and if not, what to do.

Check that this machine can run simulated NeuronCores: Python and packages, shared memory for Ray's
object store (where shared_hbm lives), processors and BLAS threads. Then what keeps Ray from
starting, or makes it join the wrong cluster: RAY_ADDRESS (its form, and whether it answers), Rays
that run here (left behind, of another version), ports, the folder of its sockets and logs, open
files, tokens. Nothing is started or joined.

With --cluster a cluster is joined, that of --address or RAY_ADDRESS, and each of its nodes looked
at: whether it answers, this package and versions there, object store and /dev/shm, open files,
processor and BLAS.

Each line says ok, warn or FAIL, and what to do about it. The exit status is 1 if something
failed.
"""

# Every check is a function of a `Machine`, the plain facts that `look` gathers, so checks can be
# tried on machines that aren't there; those of Ray are in `doctor/ray.py`. It starts no Ray
# cluster: what needs one shows at launch.

from __future__ import annotations

import argparse
import importlib
import json
import os
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import Any, Final

from nki_dist.cli.doctor import cluster, ray
from nki_dist.cli.doctor.finding import Finding
from nki_dist.cli.doctor.ray import RayFacts
from nki_dist.cli.shared.command import add_command, refused
from nki_dist.errors import LaunchError
from nki_dist.runtime.host_memory import machine_bytes
from nki_dist.runtime.settings import processors

GIB: Final = 1 << 30
SHM: Final = "/dev/shm"
STORE_VARIABLE: Final = "NKI_DIST_OBJECT_STORE_BYTES"
PACKAGES: Final = (
    ("numpy", (1, 26)),
    ("ml_dtypes", (0, 5)),
    ("msgpack", (1, 0, 7)),
    ("scipy", (1, 11)),
    ("threadpoolctl", (3, 5)),
    ("ray", (2, 40)),
)
_OPTIONAL: Final = ("torch", "jax")
_BLAS_VARIABLES: Final = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
# Ray's own defaults: the share of memory its object store takes, and its upper limit.
_STORE_SHARE: Final = 0.3
_STORE_LIMIT: Final = 200 * GIB


@dataclass(frozen=True)
class Machine:
    """What the checks look at.

    Attributes:
        python: version.
        packages: version of each package that imports; for others why it doesn't, after "!".
        cpus: processors this process may use.
        memory: bytes that a process can have.
        shm_total, shm_free: bytes of /dev/shm, or None if there is none.
        blas: (library, threads) that NumPy and SciPy have loaded.
        environment: the process's environment.
        pool: the status of a kept Ray (`nki-dist cluster`), or {"state": "error", "why": text}.
        ray: what may keep Ray from starting, or make it join something else.
    """

    python: tuple[int, ...]
    packages: Mapping[str, str]
    cpus: int
    memory: int
    shm_total: int | None
    shm_free: int | None
    blas: tuple[tuple[str, int], ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    pool: Mapping[str, Any] = field(default_factory=lambda: {"state": "none"})
    ray: RayFacts = field(default_factory=RayFacts)


def register(subparsers: Any) -> None:
    parser = add_command(
        subparsers, "doctor", "check that this machine can run simulated cores", __doc__, run
    )
    parser.add_argument("--cluster", action="store_true", help="look at all nodes of a cluster")
    parser.add_argument(
        "--address", metavar="HOST:PORT", help="of the cluster; that of RAY_ADDRESS by default"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(arguments: argparse.Namespace) -> int:
    if arguments.address and not arguments.cluster:
        raise refused("--address is for --cluster")
    if arguments.cluster:
        findings = cluster.examine(cluster.look(arguments.address))
    else:
        findings = examine(look())
    levels = Counter(finding.level for finding in findings)
    counts = {"failed": levels["FAIL"], "warned": levels["warn"], "ok": levels["ok"]}
    if arguments.json:
        print(json.dumps({"findings": [asdict(f) for f in findings], **counts}, indent=1))
    else:
        print("\n".join(map(str, findings)))
        print("\n" + ", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["failed"] else 0


def examine(machine: Machine) -> list[Finding]:
    """All checks on one machine."""
    found = [finding for check in _CHECKS for finding in check(machine)]
    return found + [f for check in ray.CHECKS for f in check(machine.ray)]


# ---- looking ----------------------------------------------------------------------------------


def look() -> Machine:
    """The facts about this machine."""
    names = [name for name, _ in PACKAGES] + list(_OPTIONAL)
    packages = {name: _package(name) for name in names}
    shm = shutil.disk_usage(SHM) if os.path.isdir(SHM) else None
    return Machine(
        python=sys.version_info[:3],
        packages=packages,
        cpus=processors(),
        memory=machine_bytes(),
        shm_total=shm.total if shm else None,
        shm_free=shm.free if shm else None,
        blas=_blas(),
        environment=dict(os.environ),
        pool=_pool() if packages["ray"][0] != "!" else {"state": "none"},
        ray=ray.look(packages["ray"] if packages["ray"][0] != "!" else ""),
    )


def _package(name: str) -> str:
    if name in _OPTIONAL:  # importing a framework takes seconds, so its metadata must do
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return "!not installed"
    try:
        importlib.import_module(name)
        return metadata.version(name)
    except Exception as error:  # an import may fail in any way, and which way is the finding
        return f"!{type(error).__name__}: {error}"


def _pool() -> dict[str, Any]:
    from nki_dist.core_actor.pool import control  # it imports Ray, which may be missing

    try:
        return control.status()
    except LaunchError as error:
        return {"state": "error", "why": error.message}


def _blas() -> tuple[tuple[str, int], ...]:
    try:
        from threadpoolctl import threadpool_info
    except ImportError:  # reported as a missing package
        return ()
    pools = [p for p in threadpool_info() if p.get("user_api") == "blas"]
    return tuple((str(p.get("internal_api")), int(p.get("num_threads", 0))) for p in pools)


# ---- checks -----------------------------------------------------------------------------------


def check_python(m: Machine) -> list[Finding]:
    found = ".".join(map(str, m.python))
    if m.python < (3, 10):
        return [Finding("FAIL", "Python", found, "nki_dist needs Python 3.10 or later")]
    return [Finding("ok", "Python", found)]


def check_packages(m: Machine) -> list[Finding]:
    findings = []
    for name, least in PACKAGES:
        found = m.packages.get(name, "!not installed")
        lowest = ".".join(map(str, least))
        fix = f"pip install '{name}>={lowest}'"
        if found.startswith("!"):
            findings.append(Finding("FAIL", name, f"doesn't import ({found[1:]})", fix))
        elif numbers(found) < least:
            findings.append(Finding("FAIL", name, f"{found}; at least {lowest}", fix))
        else:
            findings.append(Finding("ok", name, found))
    for name in _OPTIONAL:
        found = m.packages.get(name, "!not installed")
        shown = "not installed (optional)" if found.startswith("!") else found
        findings.append(Finding("ok", name, shown))
    return findings


def numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: 2.4.0rc1 is (2, 4, 0)."""
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else ()


def check_shared_memory(m: Machine) -> list[Finding]:
    """Ray keeps its object store in /dev/shm; where that is too small it falls back to disk."""
    if m.shm_total is None or m.shm_free is None:
        fix = "mount a tmpfs there; without it Ray's object store lies on disk and is slow"
        return [Finding("warn", SHM, "not there", fix)]
    found = f"{_gib(m.shm_free)} free of {_gib(m.shm_total)}"
    if m.shm_free < store_bytes(m):
        fix = (
            f"Ray's object store wants {_gib(store_bytes(m))}: run containers with a larger "
            f"--shm-size, remount {SHM} with a larger size, or set {STORE_VARIABLE}"
        )
        return [Finding("warn", SHM, found, fix)]
    return [Finding("ok", SHM, found)]


def store_bytes(m: Machine) -> int:
    """Bytes of the object store: what the environment asks for, else Ray's default."""
    setting = m.environment.get(STORE_VARIABLE, "")
    if setting.isdigit() and int(setting):
        return int(setting)
    return int(min(m.memory * _STORE_SHARE, _STORE_LIMIT))


def check_pool(m: Machine) -> list[Finding]:
    """A Ray kept between programs: whether there is one, and whether programs will use it."""
    state = m.pool["state"]
    if m.environment.get("NKI_DIST_CLUSTER") == "off":
        return [Finding("ok", "kept Ray", "NKI_DIST_CLUSTER=off: programs don't look for one")]
    if state == "none":
        return [Finding("ok", "kept Ray", "none; `nki-dist cluster start` shortens first launches")]
    if state == "running" and not m.pool["differs"]:
        what = f"process {m.pool['pid']}, {m.pool['waiting']} actors wait"
        return [Finding("ok", "kept Ray", what, "`nki-dist cluster stop` ends it")]
    if state == "running":
        fix = "`nki-dist cluster stop` and `start` here; until then programs start their own"
        return [
            Finding("warn", "kept Ray", "isn't like this: " + "; ".join(m.pool["differs"]), fix)
        ]
    if state == "stale":
        fix = "`nki-dist cluster stop` clears up, `start` starts another"
        return [Finding("warn", "kept Ray", f"was killed; {m.pool['folder']} is left", fix)]
    fix = "`nki-dist cluster stop --force` kills one that doesn't answer"
    return [Finding("warn", "kept Ray", str(m.pool.get("why", state)), fix)]


def check_object_store(m: Machine) -> list[Finding]:
    setting = m.environment.get(STORE_VARIABLE)
    if setting is not None and not (setting.isdigit() and int(setting)):
        fix = f"set {STORE_VARIABLE} to a positive number of bytes, or unset it"
        return [Finding("FAIL", "object store", f"{STORE_VARIABLE}={setting!r}", fix)]
    size = store_bytes(m)
    by = STORE_VARIABLE if setting else "Ray's default, 30 % of memory"
    found = f"{_gib(size)} for all shared_hbm ({by})"
    if size > m.memory:
        fix = f"lower {STORE_VARIABLE} below the {_gib(m.memory)} of memory"
        return [Finding("FAIL", "object store", found, fix)]
    if size < GIB:
        fix = f"large tensors won't fit: set {STORE_VARIABLE}, or use a machine with more memory"
        return [Finding("warn", "object store", found, fix)]
    return [Finding("ok", "object store", found)]


def check_processors(m: Machine) -> list[Finding]:
    found = f"{m.cpus} usable"
    if m.cpus < 2:
        fix = "simulated cores will take turns; results and simulated time are the same"
        return [Finding("warn", "processors", found, fix)]
    return [Finding("ok", "processors", found)]


def check_blas(m: Machine) -> list[Finding]:
    """Actors limit themselves to one thread; the environment must not ask for more than exist."""
    findings = []
    for name in _BLAS_VARIABLES:
        value = m.environment.get(name)
        if value is None:
            continue
        if not (value.isdigit() and 1 <= int(value) <= m.cpus):
            fix = f"unset {name}, or set it to 1..{m.cpus}: more threads than processors are slower"
            findings.append(Finding("warn", "BLAS threads", f"{name}={value}", fix))
    pools = ", ".join(f"{name} {threads}" for name, threads in m.blas) or "no BLAS found"
    return [*findings, Finding("ok", "BLAS threads", f"{pools} (this process; actors use 1)")]


def _gib(size: float) -> str:
    return f"{size / GIB:.1f} GiB"


_CHECKS: Final[tuple[Callable[[Machine], list[Finding]], ...]] = (
    check_python,
    check_packages,
    check_shared_memory,
    check_object_store,
    check_pool,
    check_processors,
    check_blas,
)
