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
from typing import Any, Final

from nki_dist import arch as architectures
from nki_dist.arch import Arch
from nki_dist.arch.facts import FrozenMap
from nki_dist.errors import LaunchError
from nki_dist.topology.fabric import Fabric, Spot, Switched, Torus, fabric_of
from nki_dist.topology.identity import ChipId, CoreId, InstanceId, RankId, StackId

EFA: Final = "efa"
_ACROSS: Final = 4  # chips in a line of a drawing where the fabric has no columns

# Dry runs and estimates of as many take tens of seconds, of twice as many twice as long. A choice:
# more than the 60,000 cores of the largest clusters of trn1 that AWS offers.
MOST_RANKS: Final = 65_536

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


def is_int(value: Any) -> bool:
    """Whether it is a whole number, which True and False aren't."""
    return isinstance(value, int) and not isinstance(value, bool)


class Topology:
    """See the module's docstring.

    Args:
        arch: the platform.
        ranks: how many logical cores.
        lnc: physical cores per logical core.

    Raises:
        LaunchError: the platform doesn't allow this LNC degree, or there are too many ranks.
    """

    def __init__(self, arch: Arch, ranks: int, lnc: int) -> None:
        if not is_int(ranks) or not 1 <= ranks <= MOST_RANKS:
            raise LaunchError(
                f"ranks={ranks!r}; must be a positive int, {MOST_RANKS:,} at most: the largest "
                "world that was tried",
                code="world-option",
                numbers={"got": ranks, "least": 1, "most": MOST_RANKS},
            )
        if not is_int(lnc) or not 1 <= lnc <= arch.max_lnc or arch.cores_per_chip % lnc:
            raise LaunchError(
                f"lnc={lnc!r}; {arch.name} allows 1 to {arch.max_lnc} physical cores per logical "
                "core (the LNC limit)",
                code="lnc-range",
                numbers={"got": lnc, "least": 1, "most": arch.max_lnc},
            )
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
            raise LaunchError(
                f"{rank}; this world has ranks 0 to {self.ranks - 1}",
                code="rank-range",
                numbers={"got": rank, "most": self.ranks - 1},
            )
        number, within = divmod(rank.number, self.ranks_per_chip)
        chip = self.chip(number)
        first = within * self.lnc
        cores = tuple(CoreId(chip, first + n) for n in range(self.lnc))
        stack = StackId(chip, first // self.arch.cores_per_stack)
        return Place(rank, chip.instance, chip, stack, cores)

    def chip(self, number: int) -> ChipId:
        """The chip with a number counted over all instances."""
        if not isinstance(number, int) or number < 0:
            raise LaunchError(
                f"chip {number!r}; must be an int from 0 on",
                code="topology",
                numbers={"got": number, "least": 0},
            )
        instance, chip = divmod(number, self.arch.chips_per_instance)
        return ChipId(InstanceId(instance), chip)

    def ranks_of(self, chip: ChipId | int) -> tuple[RankId, ...]:
        """The ranks on a chip; none if it is there but the world is too small to use it."""
        chip = self._checked(chip)
        number = chip.instance.number * self.arch.chips_per_instance + chip.number
        first = number * self.ranks_per_chip
        return tuple(map(RankId, range(first, min(first + self.ranks_per_chip, self.ranks))))

    # ---- distances ------------------------------------------------------------------------------

    def neighbours(self, chip: ChipId | int) -> tuple[ChipId, ...]:
        """Chips at the other end of a chip's direct links, in the order of neuron-ls.

        Args:
            chip: its identity, or its number counted over all instances.
        """
        chip = self._checked(chip)
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
                f"{self.arch.instance} has no network between instances",
                code="topology",
            )
        return (EFA,)

    def hops(self, a: RankId | int, b: RankId | int) -> int:
        """How many links data from one rank to another cross: 0 on one chip, 1 by EFA."""
        return len(self.path(a, b))

    # ---- pictures -------------------------------------------------------------------------------

    def draw(self) -> str:
        """A drawing of the instances: a grid of chips each, with their numbers and their ranks.

        Switches aren't drawn as boxes: a switched instance is a list of chips, and the first lines
        say what connects them. A chip without any ranks has a dash for them.
        """
        lines = _head(self)
        for number in range(self.instances):
            lines += ["", *_instance(self, InstanceId(number))]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return (
            f"<Topology {self.arch.instance}: {self.ranks} ranks of {self.lnc} on {self.chips} "
            f"chips, {self.fabric.describe()}>"
        )

    def _spot(self, chip: ChipId) -> tuple[int, Spot]:
        """The domain of a chip, and where in it the chip is."""
        domain, within = divmod(chip.instance.number, self.arch.instances_per_ultraserver)
        return domain, Spot(within, chip.number)

    def _checked(self, chip: ChipId | int) -> ChipId:
        chip = chip if isinstance(chip, ChipId) else self.chip(chip)
        size = self.arch.instances_per_ultraserver
        there = -(-self.instances // size) * size
        if chip.instance.number >= there or chip.number >= self.arch.chips_per_instance:
            raise LaunchError(
                f"{chip}; there are {there} instances of {self.arch.chips_per_instance} chips",
                code="topology",
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
        raise LaunchError(f"no system {name!r}; allowed: {', '.join(SYSTEMS)}", code="topology")
    gen2 = name == "trn3-gen2"
    arch = architectures.GEN2_ULTRASERVER if gen2 else architectures.get(SYSTEMS[name])
    lnc = arch.default_lnc if lnc is None else lnc
    if ranks is None:
        ranks = arch.cores_per_instance * arch.instances_per_ultraserver // max(lnc, 1)
    return Topology(arch, ranks, lnc)


# ---- drawings -----------------------------------------------------------------------------------


def _head(t: Topology) -> list[str]:
    arch = t.arch
    lines = [
        f"{arch.instance}, LNC={t.lnc}: {_count(t.ranks, 'rank')} of {_count(t.lnc, 'core')}, "
        f"{t.ranks_per_chip} to a chip, on {_count(t.chips, 'chip')} of "
        f"{_count(t.instances, 'instance')}",
        f"chips: {t.fabric.describe()}; "
        + ", ".join(f"{kind} link {gbps:g} GB/s" for kind, gbps in _links(t).items())
        + " each way",
    ]
    if arch.instances_per_ultraserver > 1 and isinstance(t.fabric, Torus):
        lines.append("the same chip of successive instances: ring (z)")
    if isinstance(t.fabric, Switched):
        lines.append("the same chip of the same server in the other rack: direct link")
    if t.instances > arch.instances_per_ultraserver:
        between = f"EFA, {arch.efa_chip_gbps:g} GB/s per chip" if arch.efa_chip_gbps else "nothing"
        lines.append(f"between separate instances or UltraServers: {between}")
    return [*lines, *_first_chip(t)]


def _links(t: Topology) -> dict[str, float]:
    """Bandwidth of each kind of link this system has; z exists in an UltraServer only."""
    several = t.arch.instances_per_ultraserver > 1
    return {kind: gbps for kind, gbps in t.arch.link_gbps.items() if several or kind != "z"}


def _first_chip(t: Topology) -> list[str]:
    """Which rank, cores and HBM stack belong together, on one chip; others are alike."""
    lines = ["on chip 0:"]
    for rank in t.ranks_of(0):
        place = t.place(rank)
        cores = " ".join(str(c.number) for c in place.cores)
        lines.append(f"  {rank}: cores {cores}, HBM stack {place.stack.number}")
    return lines


def _instance(t: Topology, instance: InstanceId) -> list[str]:
    count = t.arch.chips_per_instance
    cells = [_cell(t, ChipId(instance, n)) for n in range(count)]
    width = max(len(text) for cell in cells for text in cell)
    title = str(instance)
    if t.arch.instances_per_ultraserver > 1:
        server, within = divmod(instance.number, t.arch.instances_per_ultraserver)
        title += f" (UltraServer {server}, {_within(t, within)})"
    if isinstance(t.fabric, Torus):
        return [title, *_grid(cells, t.fabric.columns, width)]
    rows = [cells[n : n + _ACROSS] for n in range(0, count, _ACROSS)]
    return [title] + [
        "  " + "  ".join(f"{' '.join(c):<{2 * width}}" for c in r).rstrip() for r in rows
    ]


def _within(t: Topology, instance: int) -> str:
    if isinstance(t.fabric, Switched):
        rack, server = divmod(instance, t.fabric.servers)
        return f"rack {rack}, server {server}"
    return f"z {instance}"


def _cell(t: Topology, chip: ChipId) -> tuple[str, str]:
    ranks = [r.number for r in t.ranks_of(chip)]
    if not ranks:
        return f"chip {chip.number}", "-"
    shown = f"{ranks[0]}" if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"
    return f"chip {chip.number}", shown


def _grid(cells: list[tuple[str, str]], columns: int, width: int) -> list[str]:
    """Cells with their links; ends of a row or column are linked to its other end."""
    rows = [cells[n : n + columns] for n in range(0, len(cells), columns)]
    bars = "   " + "   ".join("|".center(width) for _ in range(columns))
    lines = [bars.rstrip()]
    for row in rows:
        lines.append("-- " + " - ".join(name.center(width) for name, _ in row) + " --")
        lines.append(("   " + "   ".join(ranks.center(width) for _, ranks in row)).rstrip())
        lines.append(bars.rstrip())
    return lines


def _count(n: int, what: str) -> str:
    return f"{n} {what}" + ("" if n == 1 else "s")
