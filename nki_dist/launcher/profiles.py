"""The simulated time of a launch, from its programs and how often their loops iterated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

from nki_dist.collectives.timing import collective_rules
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.encode import encode
from nki_dist.errors import ProgramFormatError
from nki_dist.program import Program
from nki_dist.timing import COMPILED, Profile, profile_launch
from nki_dist.timing.exchange import EXCHANGES
from nki_dist.topology.topology import Topology


def profile_of(
    topology: Topology,
    algorithm: str,
    compiled: Compiled,
    trips: Sequence[Sequence[int]],
    schedule: str = COMPILED,
    programs: Sequence[Program] | None = None,
) -> Profile:
    """The profile of a launch.

    Args:
        topology: of the world that launched it.
        algorithm: the one its collectives were told to use, or "".
        trips: per core, ranks one after the other, the rounds of each dynamic loop.
        schedule: "compiled" or "program".
        programs: of every core, if ranks ran different ones.
    """
    rules = collective_rules(topology, algorithm)
    return profile_launch(
        compiled.programs * topology.ranks if programs is None else programs,
        trips,
        topology.arch,
        compiled.programs[0].kernel,
        exchanges={**EXCHANGES, **rules},
        schedule=schedule,
    )


def profile_of_reports(
    world: Any,
    algorithm: str,
    compiled: Compiled,
    reports: Sequence[Any],
    schedule: str,
    programs: Sequence[Program] | None = None,
) -> Profile:
    """The profile of a launch on a world, from what each core reports; as of `profile_of`."""
    trips = [r.trips for r in sorted(reports, key=lambda r: r.core)]
    return profile_of(world.topology, algorithm, compiled, trips, schedule, programs)


def digest_of(
    topology: Topology, algorithm: str, compiled: Compiled, trips: Sequence[Sequence[int]]
) -> str:
    """Equal for launches that execute the same instructions, which take the same time.

    What kernels and files are called is left out. Arguments as of `profile_of`.
    """
    where = repr((topology.arch, topology.ranks, topology.lnc, algorithm, trips))
    total = sha256(where.encode())
    for program in compiled.programs:
        facts = {name: fact for name, fact in program.facts.items() if name != "files"}
        bare = replace(program, kernel="", locations=[], facts=facts)
        try:
            total.update(encode(bare))
        except ProgramFormatError:  # nobody has written down what only it has
            return compiled.key
    return total.hexdigest()
