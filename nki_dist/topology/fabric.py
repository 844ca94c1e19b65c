"""What links chips: torus, ring or switches, within the instances that are wired together.

A fabric answers two questions about chips of one domain (an instance, or the instances of an
UltraServer): which chips a chip has links to, and which kinds of links a transfer crosses. Kinds
are the keys of `Arch.link_gbps`. Invariant: both are symmetric, and the path is a shortest one.

Doesn't model which port of a chip a link uses (not published), which of several shortest paths a
transfer takes, nor contention. Source: hardware guide of trn1, trn2, trn3 and inf2; device tables
of neuron-runtime/explore/runtime-performance-tips.rst.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt
from typing import Final, Protocol

from nki_dist.arch import Arch
from nki_dist.errors import LaunchError

RACKS: Final = 2  # of a trn3 UltraServer; in Gen1 its pairs of servers take the part of racks


@dataclass(frozen=True, order=True)
class Spot:
    """A chip within its domain: the instance's number in it, and the chip's in the instance."""

    instance: int
    chip: int


class Fabric(Protocol):
    """See the module's docstring."""

    def neighbours(self, spot: Spot) -> tuple[Spot, ...]:
        """Chips that a link of this chip ends at, without a switch in between."""

    def path(self, a: Spot, b: Spot) -> tuple[str, ...]:
        """The kind of each link from one chip to the other; empty for the same chip."""

    def describe(self) -> str:
        """The shape in a few words."""


@dataclass(frozen=True)
class Torus:
    """Rows and columns of one instance, and rings through the instances (Z) if there are several.

    Chip d sits in row d // columns, column d % columns. All three directions close into rings.
    """

    rows: int
    columns: int
    depth: int = 1

    def neighbours(self, spot: Spot) -> tuple[Spot, ...]:
        """In the order of neuron-ls: up, left, down, right; then Z down, Z up."""
        row, column = divmod(spot.chip, self.columns)
        found = [
            Spot(
                spot.instance, (row + dr) % self.rows * self.columns + (column + dc) % self.columns
            )
            for dr, dc in ((-1, 0), (0, -1), (1, 0), (0, 1))
        ]
        if self.depth > 1:
            found += [Spot((spot.instance + dz) % self.depth, spot.chip) for dz in (-1, 1)]
        return tuple(found)

    def path(self, a: Spot, b: Spot) -> tuple[str, ...]:
        (row_a, column_a), (row_b, column_b) = (divmod(s.chip, self.columns) for s in (a, b))
        plane = _hops(row_a, row_b, self.rows) + _hops(column_a, column_b, self.columns)
        return ("xy",) * plane + ("z",) * _hops(a.instance, b.instance, self.depth)

    def describe(self) -> str:
        third = f"x{self.depth}" if self.depth > 1 else ""
        return f"{self.rows}x{self.columns}{third} torus"


@dataclass(frozen=True)
class Ring:
    """Chips of one instance in a ring: chip d has links to d - 1 and d + 1."""

    size: int

    def neighbours(self, spot: Spot) -> tuple[Spot, ...]:
        return tuple(Spot(spot.instance, (spot.chip + d) % self.size) for d in (-1, 1))

    def path(self, a: Spot, b: Spot) -> tuple[str, ...]:
        return ("xy",) * _hops(a.chip, b.chip, self.size)

    def describe(self) -> str:
        return f"ring of {self.size}"


@dataclass(frozen=True)
class Switched:
    """Chips on a switch in their server and one in their rack; direct links between two racks.

    A transfer through a switch crosses two links of its kind. The direct link ends at the chip in
    the same position of the other rack; a transfer to any other chip there goes within one's own
    rack first. For Gen1 (4 servers of 16 chips) the figure shows servers 0, 1 and 2, 3 on switches
    and direct links from 0 to 2 and from 1 to 3, which is the same wiring with two racks of two
    servers; how the 16 chips of a server share its switches isn't published.
    """

    servers: int  # per rack
    chips: int  # per server

    def neighbours(self, spot: Spot) -> tuple[Spot, ...]:
        return (Spot((spot.instance + self.servers) % (RACKS * self.servers), spot.chip),)

    def path(self, a: Spot, b: Spot) -> tuple[str, ...]:
        (rack_a, server_a), (rack_b, server_b) = (divmod(s.instance, self.servers) for s in (a, b))
        across = ("direct",) if rack_a != rack_b else ()
        if server_a != server_b:
            return ("rack", "rack", *across)
        return across if a.chip == b.chip else ("server", "server", *across)

    def describe(self) -> str:
        return f"{RACKS} racks of {self.servers} servers with {self.chips} chips, switched"


def fabric_of(arch: Arch) -> Fabric:
    """The fabric of one domain of a platform.

    Raises:
        LaunchError: a changed arch has a number of chips that its fabric can't have.
    """
    chips, instances = arch.chips_per_instance, arch.instances_per_ultraserver
    if arch.fabric == "torus":
        side = isqrt(chips)
        if side * side != chips:
            raise LaunchError(
                f"a torus of {chips} chips per instance; allowed: square numbers",
                code="topology",
                numbers={"got": chips},
            )
        return Torus(side, side, instances)
    if arch.fabric == "ring":
        return Ring(chips)
    if arch.fabric == "switch" and instances % RACKS == 0:
        return Switched(instances // RACKS, chips)
    raise LaunchError(
        f"no fabric {arch.fabric!r} with {instances} instances; allowed: torus, ring, and switch "
        f"with a multiple of {RACKS} instances",
        code="topology",
        numbers={"got": instances},
    )


def _hops(a: int, b: int, size: int) -> int:
    """Steps from a to b on a ring, the shorter way."""
    return min((a - b) % size, (b - a) % size)
