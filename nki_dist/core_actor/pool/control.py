"""Starting a keeper, asking it, ending it: what `nki-dist cluster` does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

from nki_dist.core_actor.fingerprint import differences, facts
from nki_dist.core_actor.pool import place
from nki_dist.core_actor.processes import Process
from nki_dist.errors import LaunchError
from nki_dist.runtime.settings import start_timeout

LOOK_EVERY: Final = 0.05  # seconds
STOP_SECONDS: Final = 15.0  # for Ray's processes to end
LOCK_SECONDS: Final = 3.0  # for a killed keeper's lock to be free: its threads end one by one
_PACKAGE: Final = str(Path(__file__).resolve().parents[3])
_LINES: Final = 8  # of the log, in a message


def status() -> dict[str, Any]:
    """How the keeper of this user is; its `state` is "running", "none", "stale" or "silent".

    Raises:
        LaunchError: others can enter its folder.
    """
    where = place.folder()
    found: dict[str, Any] = {"state": "none", "folder": str(where)}
    try:
        answer = place.status()
        if answer is None:
            return found
    except place.Stale:
        return {**found, "state": "stale"}
    except place.Silent as error:
        return {**found, "state": "silent", "why": str(error)}
    theirs = answer.pop("facts", {})
    return {**found, "state": "running", **answer, "differs": differences(theirs, facts())}


def start(actors: int, idle: float, store: int | None) -> dict[str, Any]:
    """Start a keeper, and return its status when all its actors wait.

    Args:
        actors: how many wait for programs.
        idle: seconds without a program after which it ends.
        store: bytes of Ray's object store, or None for Ray's default.

    Raises:
        LaunchError: there is one already, or it doesn't come up.
    """
    where = place.make()
    held = place.lock(where)
    if held is None:
        raise LaunchError(
            f"a kept Ray runs or starts already ({where}): `nki-dist cluster status` shows it",
            code="cluster-start",
        )
    os.close(held)
    options = json.dumps({"actors": actors, "idle": idle, "store": store})
    code = "import sys; from nki_dist.core_actor.pool.keeper import main; main(sys.argv[1])"
    path = os.pathsep.join(filter(None, (_PACKAGE, os.environ.get("PYTHONPATH"))))
    log = os.open(where / place.LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        process = subprocess.Popen(
            [sys.executable, "-c", code, options],
            cwd="/",  # so that no folder is kept, nor a module of the user's imported from it
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    finally:
        os.close(log)
    ends = time.monotonic() + start_timeout()
    while process.poll() is None:
        found = status()
        if found["state"] == "running" and found["waiting"] >= actors:
            return found
        if time.monotonic() > ends:
            process.kill()  # Linux ends Ray's processes with it
            process.wait()
            raise _failed(where, f"hasn't come up for {start_timeout():g} s and was ended", "")
        time.sleep(LOOK_EVERY)
    advice = "\n  `nki-dist doctor` looks for reasons"
    raise _failed(where, f"didn't start (exit status {process.returncode})", advice)


def stop(force: bool) -> str:
    """End the keeper and its Ray; returns what was done.

    Args:
        force: also if programs use it.

    Raises:
        LaunchError: programs use it, or it doesn't end.
    """
    where = place.folder()
    try:
        line = place.connect()
    except place.Stale:
        return _cleared(where)
    except place.Silent as error:
        raise _silent(where, str(error)) from None
    if line is None:
        return f"no Ray is kept ({where})"
    keeper = Process.of(line.pid)
    try:
        answer = line.ask(want="stop", force=force)
    except place.Silent as error:
        if not force:
            raise _silent(where, str(error), line.pid) from None
        answer = {}
    finally:
        line.close()
    if users := answer.get("programs"):
        raise LaunchError(
            f"programs use the kept Ray (processes {', '.join(map(str, users))}); wait for them, "
            "or --force, which ends their launches with a CoreLostError",
            code="cluster-start",
        )
    ends = time.monotonic() + (STOP_SECONDS if answer else 0)
    while keeper.there() and time.monotonic() < ends:
        time.sleep(LOOK_EVERY)
    if not keeper.there():
        return f"stopped (process {keeper.pid})"
    keeper.kill()  # Linux ends Ray's processes with it
    while keeper.there():
        time.sleep(LOOK_EVERY)
    return f"killed (process {keeper.pid}), as it didn't end by itself; {_cleared(where)}"


def _cleared(where: Path) -> str:
    ends = time.monotonic() + LOCK_SECONDS
    while (held := place.lock(where)) is None and time.monotonic() < ends:
        time.sleep(LOOK_EVERY)
    if held is None:
        raise LaunchError(
            f"a keeper that starts or ends holds {where / place.LOCK}; try again",
            code="cluster-start",
        )
    try:
        (where / place.SOCKET).unlink(missing_ok=True)
    finally:
        os.close(held)
    return f"removed what a killed keeper left in {where}"


def _silent(where: Path, why: str, pid: int | None = None) -> LaunchError:
    which = "" if pid is None else f" (process {pid})"
    return LaunchError(
        f"the keeper{which} doesn't answer: {why}. It may be stopped (SIGCONT lets it go on) or "
        f"starved; --force kills it. Its log is {where / place.LOG}",
        code="cluster-start",
    )


def _failed(where: Path, how: str, advice: str) -> LaunchError:
    log = where / place.LOG
    lines = log.read_text(errors="replace").splitlines()[-_LINES:]
    tail = "\n".join(f"    {line}" for line in lines) or "    nothing"
    return LaunchError(
        f"the kept Ray {how}; its log ({log}) ends with\n{tail}{advice}", code="cluster-start"
    )
