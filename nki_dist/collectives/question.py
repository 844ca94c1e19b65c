"""What the choice and the cost of an algorithm depend on: an operation, a group, where it sits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nki_dist.arch import Arch
from nki_dist.forks import cached_property


@dataclass(frozen=True)
class RankLayout:
    """How ranks sit on chips and nodes; rank r is on chip r // ranks_per_chip.

    A node is what NeuronLink connects: an instance, or the instances of an UltraServer.
    """

    ranks_per_chip: int
    ranks_per_node: int

    @classmethod
    def of(cls, arch: Arch, lnc: int, ranks_per_node: int = 0) -> RankLayout:
        """The layout of a platform; `ranks_per_node` is 0 where a node is one instance."""
        chip = arch.cores_per_chip // lnc
        return cls(chip, ranks_per_node or chip * arch.chips_per_instance)


@dataclass(frozen=True)
class Question:
    """What a choice depends on.

    Attributes:
        opcode: of the collective.
        nbytes: of the larger side of its operands.
        group: ranks, in the order of the group.
    """

    opcode: str
    nbytes: int
    group: tuple[int, ...]
    layout: RankLayout
    arch: Arch

    @property
    def size(self) -> int:
        return len(self.group)

    @property
    def one_node(self) -> bool:
        return len(self.nodes) == 1

    @property
    def one_per_node(self) -> bool:
        return len(self.nodes) == self.size

    @cached_property
    def nodes(self) -> list[list[int]]:
        """Positions of members that share a node, in the order of the group."""
        return _together(self.group, self.layout.ranks_per_node)

    @cached_property
    def chips(self) -> list[list[int]]:
        """Positions of members that share a chip, in the order of the group."""
        return _together(self.group, self.layout.ranks_per_chip)

    def moved(self) -> Question:
        """A question with the same answers, and the same for all groups that sit alike.

        Nodes are numbered as they appear, and so are ranks within a chip: what a choice or a cost
        depends on is which members share a node or a chip, and which chips of a node they are on.
        """
        chip, node = self.layout.ranks_per_chip, self.layout.ranks_per_node
        nodes: dict[int, int] = {}
        taken: dict[int, int] = {}  # by chip, how many of its ranks
        ranks: dict[int, int] = {}
        for rank in dict.fromkeys(self.group):  # a pair may be a rank and itself
            number, within = divmod(rank, node)
            first = nodes.setdefault(number, len(nodes)) * node + within // chip * chip
            place = taken[first] = taken.get(first, -1) + 1
            ranks[rank] = first + place
        return replace(self, group=tuple([ranks[r] for r in self.group]))


def _together(group: Sequence[int], ranks: int) -> list[list[int]]:
    found: dict[int, list[int]] = {}
    for position, rank in enumerate(group):
        found.setdefault(rank // ranks, []).append(position)
    return list(found.values())
