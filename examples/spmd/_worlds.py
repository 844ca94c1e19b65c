"""What the scripts of the examples for several ranks do: make a world, run, compare, report.

Such an example's kernel needs its replica groups, so it can't run outside a world; its inputs
depend on how many ranks there are. See `_common` for examples of one rank.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from _common import allowed_error, error

import nki_dist as nki
import nki_dist.collectives as ncc


@dataclass(frozen=True)
class Case:
    """What one world computes.

    Attributes:
        what: the sizes, for people.
        arguments: of the kernel, by name; `nki.per_rank` where ranks differ.
        expected: what every rank returns: (ranks, ...), computed by NumPy in float64.
    """

    what: str
    arguments: Mapping[str, Any]
    expected: np.ndarray


@dataclass(frozen=True)
class WorldExample:
    """An example of several ranks.

    Attributes:
        title: for people.
        kernel: run by every rank.
        case: `case(rng, ranks, small)` makes arguments and reference.
        ranks, lnc: of the script, unless its command line says otherwise.
        platform: to run on; trn2 or, beyond one instance of it, its UltraServer unless given.
        kernels: those that one rank can run by itself, as in `_common.Example`: none.
    """

    title: str
    kernel: Any
    case: Callable[[np.random.Generator, int, bool], Case]
    ranks: int = 4
    lnc: int = 2
    platform: str | None = field(default=None)
    kernels: ClassVar[tuple[Any, ...]] = ()


def everybody(ranks: int) -> ncc.ReplicaGroup:
    """One group of all ranks."""
    return ncc.ReplicaGroup([list(range(ranks))])


def make_world(example: WorldExample, ranks: int, lnc: int, host: str) -> nki.World:
    """The world of an example: part of one trn2 instance, or of an UltraServer if it's too small.

    What differs between the two is what connects the ranks, so which algorithms collectives use.
    """
    if example.platform is not None:
        return nki.World(ranks=ranks, lnc=lnc, host=host, platform=example.platform)
    world = nki.World.trn2(ranks=ranks, lnc=lnc, host=host)
    if world.topology.instances > 1:
        return nki.World.trn2_ultraserver(ranks=ranks, lnc=lnc, host=host)
    return world


def options(description: str | None, example: WorldExample) -> argparse.Namespace:
    """The command line all these examples share."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=example.ranks, help="logical cores")
    parser.add_argument("--lnc", type=int, default=example.lnc, help="cores per rank: 1 or 2")
    parser.add_argument(
        "--host",
        choices=("ray", "inprocess"),
        default="ray",
        help="cores in Ray actors, or all in this process",
    )
    parser.add_argument("--small", action="store_true", help="shapes that run in no time")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs")
    return parser.parse_args()


def run(example: WorldExample) -> None:
    """Run an example and say what came out; exit with 1 if it isn't what NumPy says."""
    chosen = options(sys.modules["__main__"].__doc__, example)
    with make_world(example, chosen.ranks, chosen.lnc, chosen.host) as world:
        case = example.case(np.random.default_rng(chosen.seed), chosen.ranks, chosen.small)
        print(f"{example.title}: {case.what}")
        print(f"  {world.topology!r}, host {chosen.host}")
        good = _run_twice(world, example.kernel, case)
    sys.exit(0 if good else 1)


def _run_twice(world: nki.World, kernel: Any, case: Case) -> bool:
    """The first run compiles; True if both are right and equal."""
    first, first_took = _timed(world, kernel, case)
    again, took = _timed(world, kernel, case)
    limit, found = allowed_error(first.dtype), error(first, case.expected)
    same = first.tobytes() == again.tobytes()
    print(f"  error against NumPy  {found:.1e} of the maximum (allowed {limit:.0e})")
    print(f"  repeated             {'identical bits' if same else 'DIFFERENT BITS'}")
    print(f"  host time            {1e3 * took:.1f} ms (first run {1e3 * first_took:.1f} ms)")
    return found <= limit and same


def _timed(world: nki.World, kernel: Any, case: Case) -> tuple[np.ndarray, float]:
    """(results of all ranks, seconds on the host)."""
    started = time.perf_counter()
    results = world.run(kernel, **case.arguments)
    return np.stack(results), time.perf_counter() - started
