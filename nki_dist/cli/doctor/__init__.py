"""`nki-dist doctor`: can this machine run simulated NeuronCores, and if not, what to do.

Check that this machine can run simulated NeuronCores: packages, shared memory for Ray's object
store (where shared_hbm lives), processors. Then what keeps Ray from starting, or makes it join the
wrong cluster: RAY_ADDRESS (its form, and whether it answers), Rays that run here, room for logs,
open files. Nothing is started or joined.

With --cluster a cluster is joined, that of --address or RAY_ADDRESS, and each of its nodes looked
at: whether it answers, this package and versions there, object store and /dev/shm, open files,
processor and BLAS.

Each line says ok, warn or FAIL, and what to do about it. The exit status is 1 if something
failed.
"""

# Every check is a function of plain facts about this machine or about nodes, so checks can be tried
# on machines that aren't there. What a launch says itself isn't looked for: tokens, other versions
# of Ray, paths that are too long for sockets, settings that aren't numbers.

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import asdict
from typing import Any

from nki_dist.cli.doctor import cluster, machine
from nki_dist.cli.shared.command import add_command, refused


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
        findings = machine.examine(machine.look())
    levels = Counter(finding.level for finding in findings)
    counts = {"failed": levels["FAIL"], "warned": levels["warn"], "ok": levels["ok"]}
    if arguments.json:
        print(json.dumps({"findings": [asdict(f) for f in findings], **counts}, indent=1))
    else:
        print("\n".join(map(str, findings)))
        print("\n" + ", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["failed"] else 0
