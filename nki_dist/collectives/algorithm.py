"""`Algorithm`: all that is known of one way to carry out collectives, declared in its own file.

An algorithm says who sends what to whom, and therefore in which order a reduction adds, which each
file documents; what is gathered is the same bits whichever is used. It says in which stages its
cost consists, and which groups can use it and when it is the one to use. `choose` and `cost` know
no algorithm by name; `algorithms` lists them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final, TypeAlias, cast

import numpy as np

from nki_dist.collectives.members import Members, Stage
from nki_dist.collectives.party import Array, Party, Waiting
from nki_dist.collectives.question import Question
from nki_dist.collectives.reduction import Reduction

# The passes of an operation, by whether they reduce.
PASSES: Final[Mapping[str, tuple[bool, ...]]] = MappingProxyType(
    {"all_gather": (False,), "reduce_scatter": (True,), "all_reduce": (True, False)}
)

# In which order members are added: a member, or (what is left of the operator, what is right).
Order: TypeAlias = "int | tuple[Order, Order]"


def one_by_one(members: Iterable[int]) -> Order:
    """The order `((m[0] + m[1]) + m[2]) + ...`."""
    first, *others = members
    order: Order = first
    for member in others:
        order = order, member
    return order


class Algorithm(ABC):
    """A class is an algorithm, an instance of it is made for one group.

    Exchanges are generators, one per member (see Party).

    Attributes:
        name: how NKI_DIST_COLLECTIVE_ALGORITHM calls it.
        needs: the number of members it needs, in words, if not every group `fits`.
    """

    name: str
    needs: str = ""

    # ---- when it is used ------------------------------------------------------------------------

    @classmethod
    def fits(cls, question: Question) -> bool:
        """Whether the group can use it."""
        return True

    @classmethod
    @abstractmethod
    def preferred(cls, question: Question) -> bool:
        """Whether it is the one to use, if it fits and none before it in the registry is."""

    @classmethod
    def of(cls, question: Question, choose: Callable[[Question], Algorithm]) -> Algorithm:
        """The algorithm for a group.

        Args:
            choose: picks algorithms for parts of the group.
        """
        return cls()

    # ---- who sends what to whom -----------------------------------------------------------------

    @abstractmethod
    def all_gather(self, x: Party, mine: Array) -> Waiting:
        """Returns the members' arrays in the order of the group. `mine` isn't written again."""

    @abstractmethod
    def reduce_scatter(self, x: Party, chunks: Sequence[Array], reduction: Reduction) -> Waiting:
        """Returns the own reduced chunk, not yet finished.

        Args:
            chunks: one per member, as rows of one array if all are equally long and come one after
                the other; they may be written on the way, unless the group `leaves` such rows.
        """

    @abstractmethod
    def all_reduce(self, x: Party, flat: Array, reduction: Reduction) -> Waiting:
        """Returns finished arrays that, one after the other, are the reduced buffer."""

    def leaves(self, elements: int, size: int) -> bool:
        """Whether all-reduce of so many elements doesn't write its buffer, nor does anybody read it
        when it is over; then the buffer may be the tensor itself."""
        return False

    def sums(self, chunk: int, size: int) -> Sequence[Order] | None:
        """In which order all-reduce adds a chunk of the buffer, which has one for each member.

        Returns:
            of each of the chunk's equal parts (as `np.array_split` makes them), by positions; None
            where the parts that have an order aren't those.
        """
        return None

    @abstractmethod
    def messages(self, opcode: str, size: int) -> Sequence[int]:
        """How many messages each member of a group sends, by its place: dry runs ask."""

    # ---- what it costs --------------------------------------------------------------------------

    @abstractmethod
    def stages(self, opcode: str, m: Members, nbytes: float) -> list[Stage]:
        """The stages of all_gather, reduce_scatter or all_reduce of `nbytes` in all."""

    def __str__(self) -> str:
        return self.name


def _split(flat: Array, size: int) -> Sequence[Array]:
    """Chunks of a buffer, one per member: what `np.array_split` gives, or rows if all are alike."""
    if len(flat) % size or not len(flat):
        return np.array_split(flat, size)
    return cast("Sequence[Array]", flat.reshape(size, -1))


class TwoPasses(Algorithm):
    """An algorithm whose all-reduce is reduce-scatter followed by all-gather."""

    def gather_parts(self, x: Party, mine: Array) -> Waiting:
        """What all-reduce gathers with.

        May return several arrays per member, which saves an algorithm that receives them in parts
        from joining them.
        """
        return self.all_gather(x, mine)

    def all_reduce(self, x: Party, flat: Array, reduction: Reduction) -> Waiting:
        mine = yield from self.reduce_scatter(x, _split(flat, x.size), reduction)
        return (yield from self.gather_parts(x, reduction.finish(mine)))

    def messages(self, opcode: str, size: int) -> Sequence[int]:
        return [sum(self.sends(reduces, size) for reduces in PASSES[opcode])] * size

    @abstractmethod
    def sends(self, reduces: bool, size: int) -> int:
        """Messages that every member sends in a pass.

        Args:
            reduces: of reducing and scattering; else of gathering.
        """

    @abstractmethod
    def one_pass(self, m: Members, chunk: float, reduces: bool) -> list[Stage]:
        """The stages of gathering, or of reducing and scattering, a chunk of each member."""

    def stages(self, opcode: str, m: Members, nbytes: float) -> list[Stage]:
        chunk = nbytes / m.size
        return [s for reduces in PASSES[opcode] for s in self.one_pass(m, chunk, reduces)]
