"""What `nki-dist doctor` looks at to explain why Ray doesn't start, or joins the wrong cluster.

Nothing is started or joined: addresses are tried by connecting to them, processes are read from
/proc, so other users' and other systems' may stay unseen. Checks are functions of `RayFacts` alone.
"""

from __future__ import annotations

import os
import resource
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from nki_dist.cli.doctor.finding import Finding

ADDRESS: Final = "RAY_ADDRESS"
FOLDER: Final = "RAY_TMPDIR"
MODE, TOKEN, TOKEN_PATH = "RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"
HEAD_PORT: Final = 6379  # of `ray start --head`
WAIT: Final = 2.0  # seconds for an answer
DISK: Final = 1 << 30  # bytes that logs and spilled objects may need
FILES: Final = 4096  # open at once; Ray's processes hold dozens for each other process
# A Unix socket's path has at most so many bytes on Linux, and Ray's end like this.
SOCKET_PATH: Final = 107
SOCKET: Final = "ray/session_2026-01-01_00-00-00_000000_0000000/sockets/plasma_store"
_CONNECTED: Final = "01"  # TCP_ESTABLISHED of Linux's tcp_states.h
_STARTS_OWN: Final = "programs start a Ray of their own"


@dataclass(frozen=True)
class Process:
    """A raylet or gcs_server of this machine.

    Attributes:
        kind: "raylet" or "gcs_server".
        session: folder of its session, which all processes of one Ray have.
        version: of the Ray it belongs to, or "" if that can't be seen.
        user: number of the user whose it is.
        callers: addresses of other machines that are connected to it.
    """

    pid: int
    kind: str
    session: str
    version: str = ""
    user: int = 0
    callers: tuple[str, ...] = ()


@dataclass(frozen=True)
class RayFacts:
    """What the checks look at.

    Attributes:
        version: of the Ray that Python imports, or "".
        environment: the process's environment.
        processes: those of any Ray here.
        answers: why an address doesn't take a connection, "" if it does; of those that are tried.
        own_address: this machine's, as Ray finds it.
        last_cluster: the address that `ray start` left for `RAY_ADDRESS=auto`, or "".
        folder, disk: where Ray keeps sockets and logs, and the bytes left there; -1 if unknown.
        files: how many files a process may open.
        token: whether a file of a token is where Ray looks.
        user: number of the user who asks.
    """

    version: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    processes: tuple[Process, ...] = ()
    answers: Mapping[str, str] = field(default_factory=dict)
    local_address: str = "127.0.0.1"
    last_cluster: str = ""
    folder: str = "/tmp"
    disk: int = 1 << 40
    files: int = 1 << 20
    token: bool = False
    user: int = 0


# ---- looking ------------------------------------------------------------------------------------


def look(version: str) -> RayFacts:
    """The facts about this machine.

    Args:
        version: of the Ray that Python imports, or "".
    """
    environment = dict(os.environ)
    folder = environment.get(FOLDER) or environment.get("TMPDIR") or "/tmp"
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    local, last = _local_address(), _read(Path(folder, "ray", "ray_current_cluster"))
    tried = {environment.get(ADDRESS, ""), last, f"127.0.0.1:{HEAD_PORT}"}
    answers = {a: answer(*where) for a in tried if (where := endpoint(a)) is not None}
    return RayFacts(
        version=version,
        environment=environment,
        processes=_processes(),
        answers={**answers, local: _answers_itself(local)},
        local_address=local,
        last_cluster=last,
        folder=folder,
        disk=_free(folder),
        files=FILES if files == resource.RLIM_INFINITY else files,
        token=_has_token(environment),
        user=os.getuid(),
    )


def endpoint(address: str) -> tuple[str, int] | None:
    """Host and port of HOST:PORT, None if it isn't of that form."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or "//" in address or not 0 < int(port) < 1 << 16:
        return None
    return host.strip("[]"), int(port)


def answer(host: str, port: int) -> str:
    """Why nothing takes a connection there; "" if something does."""
    try:
        socket.create_connection((host, port), WAIT).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _local_address() -> str:
    """As Ray finds it: the address from which this machine would reach another one."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 80))  # of no machine; nothing is sent
            return str(probe.getsockname()[0])
        except OSError:
            return "127.0.0.1"


def _answers_itself(host: str) -> str:
    """Why this machine doesn't reach itself under its own address, over a free port."""
    try:
        with socket.socket() as listening:
            listening.bind((host, 0))
            listening.listen()
            return answer(host, listening.getsockname()[1])
    except OSError as error:
        return error.strerror or str(error)


def _processes() -> tuple[Process, ...]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            user = folder.stat().st_uid
        except OSError:  # it has just ended, or belongs to somebody who hides it
            continue
        kind = Path(words[0]).name
        if kind in ("raylet", "gcs_server"):
            session = _value(words, "--session-dir") or _value(words, "--session_dir")
            session = session or str(Path(_value(words, "--log_dir") or "?").parent)
            port = _value(words, "--gcs_server_port")
            callers = callers_of(int(port)) if port.isdigit() else ()
            version = _version(Path(words[0]))
            found.append(Process(int(folder.name), kind, session, version, user, callers))
    return tuple(sorted(found, key=lambda p: (p.session, p.pid)))


def callers_of(port: int) -> tuple[str, ...]:
    """From where else this port is in use: the other ends of connections that aren't its own."""
    found = set()
    for table in ("tcp", "tcp6"):
        for line in _read(Path("/proc/net", table)).splitlines()[1:]:
            local, other, state = line.split()[1:4]
            near, far = local.split(":")[0], other.split(":")[0]
            if state == _CONNECTED and int(local.split(":")[1], 16) == port and near != far:
                found.add(_host(far))
    return tuple(sorted(found))


def _host(text: str) -> str:
    """An address as /proc/net has it: words of four bytes, each in the machine's order."""
    words = [int(text[i : i + 8], 16).to_bytes(4, sys.byteorder) for i in range(0, len(text), 8)]
    family = socket.AF_INET if len(words) == 1 else socket.AF_INET6
    return socket.inet_ntop(family, b"".join(words))


def _value(words: list[str], option: str) -> str:
    """Of --option=value, or of --option value."""
    for word, following in zip(words, [*words[1:], ""]):
        if word == option:
            return following
        if word.startswith(option + "="):
            return word[len(option) + 1 :]
    return ""


def _version(program: Path) -> str:
    """Of the package that a program is a file of."""
    for parent in program.parents:
        if parent.name == "ray":
            for found in parent.parent.glob("ray-*.dist-info"):
                return found.name.removeprefix("ray-").removesuffix(".dist-info")
    return ""


def _read(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return ""


def _free(folder: str) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return -1


def _has_token(environment: Mapping[str, str]) -> bool:
    path = environment.get(TOKEN_PATH) or Path.home() / ".ray/auth_token"
    return bool(environment.get(TOKEN)) or Path(path).is_file()


# ---- checks -------------------------------------------------------------------------------------


def check_address(f: RayFacts) -> list[Finding]:
    """RAY_ADDRESS: what programs join, which they do only where it is set."""
    address = f.environment.get(ADDRESS, "")
    if not address:
        return [Finding("ok", ADDRESS, f"not set: {_STARTS_OWN}")]
    if address == "local":
        return [Finding("ok", ADDRESS, f"local: {_STARTS_OWN}")]
    without = f"unset {ADDRESS}, then {_STARTS_OWN}"
    if address == "auto":
        if f.last_cluster or f.processes:
            return [Finding("ok", ADDRESS, f"auto: {f.last_cluster or 'a Ray that runs here'}")]
        return [
            Finding(
                "FAIL", ADDRESS, "auto, but no Ray runs here", f"`ray start --head`, or {without}"
            )
        ]
    if endpoint(address) is None:
        fix = f"allowed: HOST:PORT of a node, auto, local (ray:// shares no memory); or {without}"
        return [Finding("FAIL", ADDRESS, f"{address!r} is no address", fix)]
    if why := f.answers.get(address, ""):
        fix = (
            "start the cluster, take the port of its `ray start --head`, open that port in the "
            f"firewall; or {without}"
        )
        return [Finding("FAIL", ADDRESS, f"{address} doesn't answer: {why}", fix)]
    return [Finding("ok", ADDRESS, f"{address} answers")]


def check_running(f: RayFacts) -> list[Finding]:
    """Rays of this machine. Others may use them: only what is surely left behind is to be ended."""
    found = []
    for session in dict.fromkeys(p.session for p in f.processes):
        parts = [p for p in f.processes if p.session == session]
        pids = ", ".join(f"{p.kind} {p.pid}" for p in parts)
        other = {p.version for p in parts if p.version and f.version and p.version != f.version}
        if other:
            fix = (
                f"programs can't join it; use the Python of Ray {min(other)} for those that shall, "
                "because all nodes and programs need the same Ray. Others aren't affected"
            )
            what = f"Ray {min(other)} runs here ({pids}), Python imports {f.version}"
            found.append(Finding("warn", "running Ray", what, fix))
        elif left_behind(parts, f.user):
            # Helpers outlive a gcs_server; all have the session's folder as an argument.
            absolute = Path(session).is_absolute()
            named = f"pkill -f {session}" if absolute else f"kill {parts[0].pid}"
            fix = f"a head of yours without a node, that nobody calls: `{named}` ends it"
            found.append(Finding("warn", "running Ray", f"{session}: {pids}", fix))
        else:
            whose = "" if parts[0].user == f.user else f", of user {parts[0].user}"
            callers = sorted({c for p in parts for c in p.callers})
            whose += f", called from {', '.join(callers)}" if callers else ""
            found.append(Finding("ok", "running Ray", f"{session}: {pids}{whose}"))
    if f.last_cluster and f.answers.get(f.last_cluster):
        file = Path(f.folder, "ray", "ray_current_cluster")
        fix = f"it misleads {ADDRESS}=auto: remove {file}"
        found.append(Finding("warn", "running Ray", f"{f.last_cluster} is gone", fix))
    return found or [Finding("ok", "running Ray", "none; a world starts one")]


def left_behind(parts: Sequence[Process], user: int) -> bool:
    """Whether a Ray is of no use to anybody: the head of this user has lost its own node, as one
    does whose program was killed, and no other machine is connected to it."""
    alone = {p.kind for p in parts} == {"gcs_server"}
    return alone and all(p.user == user and not p.callers for p in parts)


def check_ports(f: RayFacts) -> list[Finding]:
    """Ray's processes reach each other under the machine's own address, over free ports."""
    local = f.local_address
    if why := f.answers.get(local, ""):
        fix = (
            "a firewall, VPN or sandbox is in the way: allow connections of this machine to "
            'itself; host="inprocess" needs none'
        )
        return [Finding("FAIL", "ports", f"{local} doesn't reach itself: {why}", fix)]
    taken = f.answers.get(f"127.0.0.1:{HEAD_PORT}") == ""
    if taken and not any(p.kind == "gcs_server" for p in f.processes):
        fix = f"only for a cluster: `ray start --head --port=` another one, and {ADDRESS} likewise"
        return [Finding("warn", "ports", f"{HEAD_PORT} is taken, and not by Ray", fix)]
    return [Finding("ok", "ports", f"{local} reaches itself; a world's Ray takes free ports")]


def check_folder(f: RayFacts) -> list[Finding]:
    """Where Ray keeps sockets, logs and spilled objects."""
    path = Path(f.folder, SOCKET)
    if len(str(path)) > SOCKET_PATH:
        found = f"{f.folder}: paths of sockets have up to {len(str(path))} bytes of {SOCKET_PATH}"
        return [Finding("FAIL", FOLDER, found, f"set {FOLDER} to a short path, such as /tmp")]
    if f.disk < 0:
        return [Finding("warn", FOLDER, f"{f.folder} can't be looked at", "Ray has to make it")]
    found = f"{f.folder}: {f.disk / (1 << 30):.1f} GiB free"
    if f.disk < DISK:
        fix = f"logs and spilled objects go there: make room, or set {FOLDER} to another folder"
        return [Finding("warn", FOLDER, found, fix)]
    return [Finding("ok", FOLDER, found)]


def check_files(f: RayFacts) -> list[Finding]:
    found = f"{f.files} for a process"
    if f.files < FILES:
        fix = f"large worlds need more: `ulimit -n {FILES}`, and more than one core per actor"
        return [Finding("warn", "open files", found, fix)]
    return [Finding("ok", "open files", found)]


def check_token(f: RayFacts) -> list[Finding]:
    """Tokens: see the section on them in docs/clusters.md, which has all combinations."""
    path, mode = f.environment.get(TOKEN_PATH), f.environment.get(MODE, "").lower()
    if path and not f.token:
        fix = f"unset {TOKEN_PATH}, or put the token there: no Ray starts without"
        return [Finding("FAIL", "Ray's token", f"{TOKEN_PATH}={path} isn't there", fix)]
    if mode == "token" and not f.token:
        fix = f"copy what `ray get-auth-token` prints there to ~/.ray/auth_token, or unset {MODE}"
        return [Finding("FAIL", "Ray's token", f"{MODE}=token, and there is none", fix)]
    joins = f.environment.get(ADDRESS, "local") != "local"
    if joins and f.token and mode != "token":
        fix = f"a cluster may ask for it: set {MODE}=token before Python starts, if joining fails"
        return [Finding("warn", "Ray's token", f"there is one, but {MODE} isn't token", fix)]
    return [Finding("ok", "Ray's token", "found" if f.token else "none; a world's Ray makes one")]


CHECKS: Final[tuple[Callable[[RayFacts], list[Finding]], ...]] = (
    check_address,
    check_running,
    check_ports,
    check_folder,
    check_files,
    check_token,
)
