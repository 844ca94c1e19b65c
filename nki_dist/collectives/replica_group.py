"""`ReplicaGroup`: which ranks take part in a collective together.

Invariant: groups are not empty and no rank is in two of them. Whether they hold every rank of a
world is checked at launch, when the world is known (see check.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nki_dist.isa.collectives._roles import rank_groups
from nki_dist.language.nki_object import NKIObject


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

    def __repr__(self) -> str:
        return f"ReplicaGroup({[list(g) for g in self.groups]})"
