"""The simulated time of a launch, from its programs and how often their loops iterated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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


@dataclass
class Executed:
    """What a launch executed: all that its simulated time depends on.

    Attributes:
        topology: of the world that launched it.
        algorithm: the one its collectives were told to use, or "".
        trips: per core, ranks one after the other, the rounds of each dynamic loop.
        programs: of every core, if ranks ran different ones.
    """

    topology: Topology
    algorithm: str
    compiled: Compiled
    trips: Sequence[tuple[int, ...]]
    programs: Sequence[Program] | None = None

    def profile(self, schedule: str = COMPILED) -> Profile:
        """Its simulated time, with the instructions in this order ("compiled" or "program")."""
        topology, each = self.topology, self.compiled.programs
        return profile_launch(
            each * topology.ranks if self.programs is None else self.programs,
            self.trips,
            topology.arch,
            each[0].kernel,
            exchanges={**EXCHANGES, **collective_rules(topology, self.algorithm)},
            schedule=schedule,
        )

    @property
    def digest(self) -> str:
        """Equal for launches of one program that execute the same instructions.

        These take the same time. What kernels and files are called is left out.
        """
        t = self.topology
        where = repr((t.arch, t.ranks, t.lnc, self.algorithm, self.trips))
        total = sha256(where.encode())
        for program in self.compiled.programs:
            facts = {name: fact for name, fact in program.facts.items() if name != "files"}
            bare = replace(program, kernel="", locations=[], facts=facts)
            try:
                total.update(encode(bare))
            except ProgramFormatError:  # nobody has written down what only it has
                return self.compiled.key
        return total.hexdigest()


def executed(
    world: Any,
    algorithm: str,
    compiled: Compiled,
    reports: Sequence[Any],
    programs: Sequence[Program] | None = None,
) -> Executed:
    """What a launch on a world executed, from what each core reports; as of `Executed`."""
    trips = [tuple(r.trips) for r in sorted(reports, key=lambda r: r.core)]
    return Executed(world.topology, algorithm, compiled, trips, programs)
