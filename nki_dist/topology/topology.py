"""Where each rank of a world sits, and how far ranks are from each other.

Ranks are numbered as the documentation numbers logical cores: all of chip 0, then of chip 1, and
so on through the instances, so rank r has the physical cores lnc * r to lnc * r + lnc - 1. A world
with more ranks than an instance has logical cores has several instances; those of an UltraServer
are wired together, others reach each other by EFA.

Invariant: a topology is a value, computed from the arch, the number of ranks and the LNC degree. It
has nothing to do with the processes or Ray nodes that simulate it. Distances count links crossed;
they aren't times, and don't model contention or the way between cores of one chip (not published).

Source: hardware guide; about/lnc.rst for cores, pairs and stacks; see `fabric` for links.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nki_dist import arch as architectures
from nki_dist.arch import Arch
from nki_dist.arch.facts import FrozenMap
from nki_dist.errors import LaunchError
from nki_dist.topology.fabric import Fabric, Spot, fabric_of
from nki_dist.topology.identity import ChipId, CoreId, InstanceId, RankId, StackId

EFA: Final = "efa"

SYSTEMS: Final = FrozenMap(
    {
        "trn1": "trn1",
        "trn1n": "trn1n",
        "inf2": "inf2",
        "trn2": "trn2",
        "trn2-ultraserver": "trn2u",
        "trn3": "trn3",
        "trn3-gen2": "trn3",
    }
)
"""Platform of each system that `system` knows."""


@dataclass(frozen=True)
class Place:
    """Where a rank sits.

    Attributes:
        instance: of its cores.
        chip: of its cores.
        stack: the HBM stack its cores share.
        cores: its physical cores, in order of program_id(0).
    """

    rank: RankId
    instance: InstanceId
    chip: ChipId
    stack: StackId
    cores: tuple[CoreId, ...]

    def __str__(self) -> str:
        cores = ", ".join(str(c.number) for c in self.cores)
        return f"{self.rank}: cores {cores} and {self.stack}"


class Topology:
    """See the module's docstring.

    Args:
        arch: the platform.
        ranks: how many logical cores.
        lnc: physical cores per logical core.

    Raises:
        LaunchError: the platform doesn't allow this LNC degree.
    """

    def __init__(self, arch: Arch, ranks: int, lnc: int) -> None:
        if not 1 <= lnc <= arch.max_lnc or arch.cores_per_chip % lnc:
            raise LaunchError(f"lnc={lnc}; {arch.instance} allows 1 to {arch.max_lnc}")
        if ranks < 1:
            raise LaunchError(f"ranks={ranks}; must be positive")
        self.arch = arch
        self.ranks = ranks
        self.lnc = lnc
        self.fabric: Fabric = fabric_of(arch)

    # ---- counts ---------------------------------------------------------------------------------

    @property
    def ranks_per_chip(self) -> int:
        return self.arch.cores_per_chip // self.lnc

    @property
    def ranks_per_instance(self) -> int:
        return self.ranks_per_chip * self.arch.chips_per_instance

    @property
    def instances(self) -> int:
        """Instances with at least one rank."""
        return -(-self.ranks // self.ranks_per_instance)

    @property
    def chips(self) -> int:
        """Chips with at least one rank."""
        return -(-self.ranks // self.ranks_per_chip)

    # ---- places ---------------------------------------------------------------------------------

    def place(self, rank: RankId | int) -> Place:
        """Where a rank sits.

        Raises:
            LaunchError: the world has no such rank.
        """
        rank = rank if isinstance(rank, RankId) else RankId(rank)
        if rank.number >= self.ranks:
            raise LaunchError(f"{rank}; this world has ranks 0 to {self.ranks - 1}")
        number, within = divmod(rank.number, self.ranks_per_chip)
        chip = self.chip(number)
        first = within * self.lnc
        cores = tuple(CoreId(chip, first + n) for n in range(self.lnc))
        stack = StackId(chip, first // self.arch.cores_per_stack)
        return Place(rank, chip.instance, chip, stack, cores)

    def chip(self, number: int) -> ChipId:
        """The chip with a number counted over all instances."""
        if not isinstance(number, int) or number < 0:
            raise LaunchError(f"chip {number!r}; must be an int from 0 on")
        instance, chip = divmod(number, self.arch.chips_per_instance)
        return ChipId(InstanceId(instance), chip)

    def ranks_of(self, chip: ChipId | int) -> tuple[RankId, ...]:
        """The ranks on a chip; none if it is there but the world is too small to use it."""
        chip = self._known(chip)
        number = chip.instance.number * self.arch.chips_per_instance + chip.number
        first = number * self.ranks_per_chip
        return tuple(map(RankId, range(first, min(first + self.ranks_per_chip, self.ranks))))

    # ---- distances ------------------------------------------------------------------------------

    def neighbours(self, chip: ChipId | int) -> tuple[ChipId, ...]:
        """Chips at the other end of a chip's direct links, in the order of neuron-ls.

        Args:
            chip: its identity, or its number counted over all instances.
        """
        chip = self._known(chip)
        domain, spot = self._spot(chip)
        first = domain * self.arch.instances_per_ultraserver
        return tuple(
            ChipId(InstanceId(first + s.instance), s.chip) for s in self.fabric.neighbours(spot)
        )

    def path(self, a: RankId | int, b: RankId | int) -> tuple[str, ...]:
        """The links that data from one rank to another cross, by kind.

        Kinds are those of `arch.link_gbps` ("xy" and "z" of a torus; "server", "rack" and "direct"
        of switches), or "efa". Ranks of one chip have no link between them.

        Raises:
            LaunchError: there is no such rank, or nothing connects the two.
        """
        here, there = self.place(a), self.place(b)
        (domain, spot), (other, end) = self._spot(here.chip), self._spot(there.chip)
        if domain == other:
            return self.fabric.path(spot, end)
        if not self.arch.efa_chip_gbps:
            raise LaunchError(
                f"{here.rank} is on {here.instance} and {there.rank} on {there.instance}; "
                f"{self.arch.instance} has no network between instances"
            )
        return (EFA,)

    def hops(self, a: RankId | int, b: RankId | int) -> int:
        """How many links data from one rank to another cross: 0 on one chip, 1 by EFA."""
        return len(self.path(a, b))

    # ---- pictures -------------------------------------------------------------------------------

    def draw(self) -> str:
        """A drawing of the instances with the ranks on their chips."""
        from nki_dist.topology.drawing import draw

        return draw(self)

    def __repr__(self) -> str:
        return (
            f"<Topology {self.arch.instance}: {self.ranks} ranks of {self.lnc} on {self.chips} "
            f"chips, {self.fabric.describe()}>"
        )

    def _spot(self, chip: ChipId) -> tuple[int, Spot]:
        """The domain of a chip, and where in it the chip is."""
        domain, within = divmod(chip.instance.number, self.arch.instances_per_ultraserver)
        return domain, Spot(within, chip.number)

    def _known(self, chip: ChipId | int) -> ChipId:
        chip = chip if isinstance(chip, ChipId) else self.chip(chip)
        size = self.arch.instances_per_ultraserver
        there = -(-self.instances // size) * size
        if chip.instance.number >= there or chip.number >= self.arch.chips_per_instance:
            raise LaunchError(
                f"{chip}; there are {there} instances of {self.arch.chips_per_instance} chips"
            )
        return chip


def system(name: str, ranks: int | None = None, lnc: int | None = None) -> Topology:
    """The topology of a product: all of it unless the number of ranks is given.

    Args:
        name: a key of `SYSTEMS`.
        ranks: how many logical cores.
        lnc: physical cores per logical core; what the platform does by default if None.

    Raises:
        LaunchError: there is no such system, or it doesn't allow these numbers.
    """
    if name not in SYSTEMS:
        raise LaunchError(f"no system {name!r}; allowed: {', '.join(SYSTEMS)}")
    gen2 = name == "trn3-gen2"
    arch = architectures.GEN2_ULTRASERVER if gen2 else architectures.get(SYSTEMS[name])
    lnc = arch.default_lnc if lnc is None else lnc
    if ranks is None:
        ranks = arch.cores_per_instance * arch.instances_per_ultraserver // max(lnc, 1)
    return Topology(arch, ranks, lnc)
