"""`ReplicaGroup`: which ranks take part in a collective together.

Invariant: groups are not empty and no rank is in two of them. Whether they hold every rank of a
world is checked at launch, when the world is known (see check.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from operator import and_, floordiv, mod
from types import MappingProxyType
from typing import Any, Final

from nki_dist.errors import NkiValidationError
from nki_dist.isa.collectives.roles import rank_groups
from nki_dist.language.nki_object import NKIObject


class rg_partition_op(Enum):
    """How `ReplicaGroup.from_partition_op` tells ranks apart.

    `div` makes groups of neighbours, `mod` strided ones, and `bitwise_and` groups of ranks with the
    same bits under a mask. Those three are the ones in the documentation's examples.

    Source: nki.collectives.ReplicaGroup in the documentation of SDK 2.33 (NKI 0.7).
    """

    bitwise_and = "bitwise_and"
    div = "div"
    mod = "mod"


_PARTITIONS: Final[Mapping[rg_partition_op, Callable[[int, int], int]]] = MappingProxyType(
    {rg_partition_op.bitwise_and: and_, rg_partition_op.div: floordiv, rg_partition_op.mod: mod}
)


@dataclass(frozen=True, init=False)
class ReplicaGroup(NKIObject):
    """Groups of ranks; each group does a collective by itself.

    Attributes:
        groups: ranks of each group, as tuples. The order within a group is the order of blocks in
            gathered tensors, and the order of a ring.

    Raises:
        NkiValidationError: a group is empty, or a rank is in two groups.
    """

    groups: tuple[tuple[int, ...], ...]

    def __init__(self, groups: Any) -> None:
        checked = rank_groups("ReplicaGroup", groups)
        object.__setattr__(self, "groups", tuple(map(tuple, checked)))

    @staticmethod
    def from_partition_op(world_size: int, op: rg_partition_op, operand: int) -> ReplicaGroup:
        """Ranks 0 to `world_size` - 1, those with the same `op(rank, operand)` in one group.

        Groups are in the order of that number, ranks in ascending order. For 8 ranks:
        `bitwise_and, 0` is one group of all, `div, 4` is [[0, 1, 2, 3], [4, 5, 6, 7]], and
        `mod, 4` is [[0, 4], [1, 5], [2, 6], [3, 7]].

        Raises:
            NkiValidationError: an argument isn't what it should be, or divides by zero.
        """
        if not isinstance(op, rg_partition_op):
            names = ", ".join(f"rg_partition_op.{o.name}" for o in rg_partition_op)
            raise NkiValidationError(f"op={op!r}; allowed: {names}", code="argument-choice")
        least = 0 if op is rg_partition_op.bitwise_and else 1
        for name, value, low in (("world_size", world_size, 1), ("operand", operand, least)):
            if not isinstance(value, int) or isinstance(value, bool) or value < low:
                raise NkiValidationError(
                    f"{name}={value!r} with rg_partition_op.{op.name}; allowed: an int from {low}",
                    code="argument-range",
                    numbers={"got": value, "least": low},
                )
        lists: dict[int, list[int]] = {}
        for rank in range(world_size):
            lists.setdefault(_PARTITIONS[op](rank, operand), []).append(rank)
        return ReplicaGroup([lists[number] for number in sorted(lists)])

    def __repr__(self) -> str:
        return f"ReplicaGroup({[list(g) for g in self.groups]})"
