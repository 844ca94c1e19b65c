"""`nki-dist topology`: which rank sits where, and how far ranks are from each other.

Draw the instances, chips and ranks of a system, with the links between chips. SYSTEM is one of
{systems}; trn3 is a Gen1 UltraServer. Nothing is started.

[options]

examples:
  nki-dist topology trn2
  nki-dist topology trn2-ultraserver --lnc 1
  nki-dist topology trn2 --ranks 80             two instances, the second one with 16 ranks
  nki-dist topology trn2-ultraserver --hops 0 255
"""

from __future__ import annotations

import argparse
from typing import Any

from nki_dist.cli.shared.command import add_command
from nki_dist.topology.topology import SYSTEMS, Topology, system


def register(subparsers: Any) -> None:
    parser = add_command(
        subparsers, "topology", "draw where ranks sit", __doc__, run, systems=", ".join(SYSTEMS)
    )
    parser.add_argument("system", metavar="SYSTEM", nargs="?", default="trn2", choices=SYSTEMS)
    parser.add_argument("--ranks", type=int, metavar="N", help="logical cores; default: all")
    parser.add_argument(
        "--lnc", type=int, metavar="L", help="physical cores per rank; default: the platform's"
    )
    parser.add_argument(
        "--hops", type=int, nargs=2, metavar=("A", "B"), help="say how far rank A is from rank B"
    )


def run(arguments: argparse.Namespace) -> int:
    """Print the drawing, or one distance.

    Raises:
        LaunchError: the system doesn't allow these numbers.
    """
    topology = system(arguments.system, arguments.ranks, arguments.lnc)
    if arguments.hops is None:
        print(topology.draw())
    else:
        print(_distance(topology, *arguments.hops))
    return 0


def _distance(topology: Topology, a: int, b: int) -> str:
    path = topology.path(a, b)
    links = " + ".join(path) if path else "none: same chip"
    return f"{topology.place(a)}\n{topology.place(b)}\nhops {len(path)} (links: {links})"
