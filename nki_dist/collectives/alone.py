"""A rank's part in collectives without the other ranks: what it does itself, and what it sends.

Where all ranks are known to take part in the same collectives in the same order, nobody has to run
their exchanges: each comes to its end once all members have come, and how many messages a member
sends depends on its group's algorithm and its place there. Where they aren't, `begun` says in which
order a rank's cores come to their collectives, and `stops` has them wait in one of these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nki_dist.arch import Arch
from nki_dist.collectives import in_place
from nki_dist.collectives.algorithm import Algorithm
from nki_dist.collectives.choose import choose
from nki_dist.collectives.execute import describe, group_of, link
from nki_dist.collectives.operands import belongs_to_rank, larger_side
from nki_dist.collectives.operations import OPERATIONS, Kind, Member, Run
from nki_dist.collectives.party import Party, Waiting
from nki_dist.collectives.question import Question, RankLayout
from nki_dist.isa.core import CoreSlot
from nki_dist.isa.kit import Kit
from nki_dist.program import Instruction


class _Places(NamedTuple):
    """Where the ranks of an instruction are; it is kept, so that no other has its identity."""

    i: Instruction
    groups: Mapping[int, tuple[int, ...]]
    targets: Mapping[int, int]
    sources: Mapping[int, int]
    sent: dict[int, int]  # by rank, messages of the one core, or of each, that takes part


class Alone:
    """Collectives of one world whose other ranks aren't run.

    Args:
        slot: of any of its cores.
        collectives: that are linked as they are in the program; others have addresses that are
            known at run time.

    Attributes:
        begun: for each core of the rank that is run, ordinals of the collectives that it has been
            through with other ranks, or would be if it were part of them.
        stops: by core of the rank, after how many of these it waits for ever.
    """

    def __init__(self, slot: CoreSlot, arch: Arch, collectives: Iterable[Instruction] = ()) -> None:
        self._slot = slot
        self._arch = arch
        self._layout = RankLayout.of(arch, slot.cores, slot.ranks_per_node)
        self._rendezvous: dict[int, dict[Any, Any]] = {id(i): {} for i in collectives}
        self._places: dict[int, _Places] = {}
        self.begun: list[list[int]] = []
        self.stops: Mapping[int, int] = {}
        self._groups: dict[Any, Mapping[int, tuple[int, ...]]] = {}
        self._same: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._positions: dict[int, Mapping[int, int]] = {}
        self._counts: dict[Question, tuple[Algorithm, Sequence[int]]] = {}

    def link(self, i: Instruction, kit: Kit) -> Callable[[], Any]:
        """As `execute.link`; cores of the rank meet as ever, other ranks aren't asked."""
        group, begun = self.group(i, kit.slot.rank), self.begun[kit.slot.lnc_core]
        if not group:
            leads = kit.slot.lnc_core == 0 or not belongs_to_rank(i, kit.slot.cores)
            return lambda: begun.append(i.ordinal) if leads else None
        if not self._rendezvous.get(id(i)):  # what is wrong with it is so on every rank
            OPERATIONS[i.opcode].plan(Member(i, kit, group, kit.slot.rank))
        kit.cache = self._rendezvous.get(id(i))
        try:
            return link(i, kit, self.group, alone=self._part(i, kit.slot))
        finally:
            kit.cache = None

    def _part(self, i: Instruction, slot: CoreSlot) -> Run:
        """Instead of the exchange with other ranks."""
        begun, stop = self.begun[slot.lnc_core], self.stops.get(slot.lnc_core)

        def run(x: Party) -> Waiting:
            if len(begun) == stop:
                _, source = self.neighbours(i, slot.rank)
                yield x.await_from(source * slot.cores + x.cores[x.me] % slot.cores)
            begun.append(i.ordinal)

        return run

    def group(self, i: Instruction, rank: int) -> tuple[int, ...]:
        """As `execute.group_of`.

        Raises:
            NkiValidationError: the rank is in no group.
        """
        places = self._placed(i)
        found = places.groups.get(rank)
        if found is None:
            return () if places.targets else group_of(i, rank)
        return found

    def neighbours(self, i: Instruction, rank: int) -> tuple[int, int]:
        """Whom a rank sends to first, and whom it waits for; itself if it is nobody else."""
        places = self._placed(i)
        if places.targets:
            return places.targets.get(rank, rank), places.sources.get(rank, rank)
        group = self.group(i, rank)
        if id(group) not in self._positions:
            self._positions[id(group)] = {r: n for n, r in enumerate(group)}
        at = self._positions[id(group)][rank]
        return group[(at + 1) % len(group)], group[at - 1]

    def described(self, i: Instruction, rank: int) -> dict[str, Any]:
        """What a rank's messages say of a collective."""
        return describe(i, self.group(i, rank))

    def groups_like(self, group: Sequence[int]) -> Mapping[int, tuple[int, ...]]:
        """By rank, the group of a collective in which this is one of the groups."""
        found = (g for g in self._groups.values() if g.get(group[0]) == tuple(group))
        return next(found)

    def is_part(self, i: Instruction, rank: int) -> bool:
        """Whether a rank takes part in a collective; in other exchanges all do."""
        return i.opcode not in OPERATIONS or bool(self.group(i, rank))

    def sent(self, i: Instruction, slot: CoreSlot) -> int:
        """Messages that a core sends to other ranks when it carries out an instruction once.

        Raises:
            LaunchError: the algorithm that was asked for doesn't fit the group.
        """
        if i.opcode not in OPERATIONS:
            return 0
        places = self._placed(i)
        if slot.lnc_core and belongs_to_rank(i, slot.cores):  # the first is the rank's
            return 0
        if slot.rank not in places.sent:
            places.sent.update(self._counted(i, slot.rank))
        return places.sent[slot.rank]

    def _interned(self, group: tuple[int, ...]) -> tuple[int, ...]:
        """One object for equal groups: their collectives are counted together."""
        return self._same.setdefault(group, group)

    def _counted(self, i: Instruction, rank: int) -> Mapping[int, int]:
        """By rank of a rank's group, what it sends."""
        kind, group = OPERATIONS[i.opcode].kind, self.group(i, rank)
        if kind is Kind.PAIRS:
            return {rank: int(self._placed(i).targets.get(rank, rank) != rank)}
        if kind is Kind.RING:
            return dict.fromkeys(group, int(len(group) > 1))
        tensors = len(i["srcs"])
        if kind is Kind.DIRECT:
            return dict.fromkeys(group, (len(group) - 1) * tensors)
        question = Question(i.opcode, larger_side(i), group, self._layout, self._arch)
        algorithm, counts = self._by_place(question)
        if in_place.is_in_place(i, len(group), algorithm):
            return dict.fromkeys(group, in_place.messages(i.opcode, len(group), tensors))
        return {r: n * tensors for r, n in zip(group, counts, strict=True)}

    def _by_place(self, question: Question) -> tuple[Algorithm, Sequence[int]]:
        equal = question.moved()
        if equal not in self._counts:
            algorithm = choose(equal, self._slot.algorithm)
            self._counts[equal] = algorithm, algorithm.messages(equal.opcode, equal.size)
        return self._counts[equal]

    def _placed(self, i: Instruction) -> _Places:
        places = self._places.get(id(i))
        if places is None:
            groups: Mapping[int, tuple[int, ...]] = {}
            if "replica_group" in i.args:
                key = tuple([self._interned(tuple(group)) for group in i["replica_group"]])
                if key not in self._groups:
                    self._groups[key] = {rank: group for group in key for rank in group}
                groups = self._groups[key]
            targets = dict(i.args.get("source_target_pairs", ()))
            sources = {target: source for source, target in targets.items()}
            if targets:
                everybody = self._interned(tuple(sorted({*targets, *targets.values()})))
                groups = dict.fromkeys(everybody, everybody)
            places = self._places[id(i)] = _Places(i, groups, targets, sources, {})
        return places
