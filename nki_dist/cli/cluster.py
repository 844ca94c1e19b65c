"""`nki-dist cluster`: a Ray with waiting actors, kept between programs of this machine.

Keep a local Ray with waiting NeuronCore actors between programs, so that the first launch of each
needn't start them. Programs of the same user on this machine find it by themselves, unless they
name a cluster (RAY_ADDRESS, address=), call ray.init, or run with NKI_DIST_CLUSTER=off. It is for
programs of the same versions of everything; others say so in a warning, and start their own Ray.
It ends after some time without a program. docs/clusters.md has the rest.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from typing import Any, Final

from nki_dist.cli.shared.command import add_command, refused
from nki_dist.runtime.settings import object_store_bytes

ACTORS: Final = 4  # two launches on two cores
IDLE: Final = 1800.0


def register(subparsers: Any) -> None:
    parser = add_command(subparsers, "cluster", "keep Ray and actors between programs", __doc__)
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    start = actions.add_parser("start", help="start it, and return when its actors wait")
    start.add_argument(
        "--actors",
        type=int,
        default=ACTORS,
        metavar="N",
        help=f"how many wait (default {ACTORS}, some 90 MB each); what programs borrow is replaced",
    )
    start.add_argument(
        "--idle",
        type=float,
        default=IDLE,
        metavar="SECONDS",
        help=f"end after so long without a program (default {IDLE:g})",
    )
    status = actions.add_parser("status", help="say how it is; exit status 1 if none runs")
    stop = actions.add_parser("stop", help="end it")
    stop.add_argument("--force", action="store_true", help="also if programs use it")
    for action, run in ((start, _start), (status, _status), (stop, _stop)):
        action.add_argument("--json", action="store_true", help="print JSON")
        action.set_defaults(run=run)


def _start(arguments: argparse.Namespace) -> int:
    from nki_dist.core_actor.pool import control

    for name, value, least in (("actors", arguments.actors, 1), ("idle", arguments.idle, 1.0)):
        if not math.isfinite(value) or value < least:
            raise refused(
                f"--{name} {value:g}; must be at least {least:g}",
                got=value,
                least=least,
            )
    found = control.start(arguments.actors, arguments.idle, object_store_bytes())
    return _show(found, arguments.json)


def _status(arguments: argparse.Namespace) -> int:
    from nki_dist.core_actor.pool import control

    found = control.status()
    _show(found, arguments.json)
    return 0 if found["state"] == "running" else 1


def _stop(arguments: argparse.Namespace) -> int:
    from nki_dist.core_actor.pool import control

    done = control.stop(arguments.force)
    print(json.dumps({"done": done}) if arguments.json else done)
    return 0


def _show(found: dict[str, Any], as_json: bool) -> int:
    print(json.dumps(found, indent=1) if as_json else describe(found))
    return 0


def describe(found: dict[str, Any]) -> str:
    """A status as text."""
    if found["state"] == "none":
        return f"no Ray is kept ({found['folder']}); `nki-dist cluster start` starts one"
    if found["state"] == "stale":
        return (
            f"a keeper was killed, or the machine was switched off; {found['folder']} has its "
            "socket: `nki-dist cluster start` starts another, `stop` only clears up"
        )
    if found["state"] == "silent":
        return f"a keeper doesn't answer ({found['why']}): `nki-dist cluster stop --force` kills it"
    users = ", ".join(map(str, found["programs"])) or "none"
    lines = [
        f"running since {time.ctime(found['since'])}, process {found['pid']}, Ray at "
        f"{found['address']}",
        f"actors: {found['waiting']} wait, {found['starting']} start, {found['lent']} are lent",
        f"programs: {users}",
        f"ends after {found['idle_after']:g} s without a program; {found['idle']:.0f} s so far",
    ]
    if found["differs"]:
        lines.append("programs of this environment don't use it:")
        lines += [f"  - {line}" for line in found["differs"]]
    return "\n".join(lines)
