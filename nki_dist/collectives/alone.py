"""Collectives of which nobody needs the values: without the other ranks, or without the algorithm.

Where all ranks are known to take part in the same collectives in the same order, nobody has to run
their exchanges (`Alone`): each comes to its end once all members have come, and how many messages a
member sends depends on its group's algorithm and its place there. Where they aren't, all ranks are
run (`Together`), and it is enough that nobody leaves before all have come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nki_dist.arch import Arch
from nki_dist.collectives import in_place
from nki_dist.collectives.algorithm import Algorithm
from nki_dist.collectives.choose import choose
from nki_dist.collectives.execute import group_of, link
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
        more: by core, messages that it would send beside those that it has sent.
    """

    def __init__(self, slot: CoreSlot, arch: Arch, collectives: Iterable[Instruction] = ()) -> None:
        self._slot = slot
        self._arch = arch
        self._layout = RankLayout.of(arch, slot.cores, slot.ranks_per_node)
        self._meetings: dict[int, dict[Any, Any]] = {id(i): {} for i in collectives}
        self._places: dict[int, _Places] = {}
        self.begun: list[list[int]] = []
        self.more: Counter[int] = Counter()
        self._groups: dict[Any, Mapping[int, tuple[int, ...]]] = {}
        self._same: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._counts: dict[Question, tuple[Algorithm, Sequence[int]]] = {}

    def link(self, i: Instruction, kit: Kit) -> Callable[[], Any]:
        """As `execute.link`; cores of the rank meet as ever, other ranks aren't asked."""
        group = self.group(i, kit.slot.rank)
        if not group:
            leads = kit.slot.lnc_core == 0 or not belongs_to_rank(i, kit.slot.cores)
            return lambda: self._begin(i, kit.slot) if leads else None
        if not self._meetings.get(id(i)):  # what is wrong with it is so on every rank
            OPERATIONS[i.opcode].plan(Member(i, kit, group, kit.slot.rank))
        kit.known = self._meetings.get(id(i))
        try:
            return link(i, kit, self.group, alone=self._part(i, kit.slot))
        finally:
            kit.known = None

    def _begin(self, i: Instruction, slot: CoreSlot) -> None:
        self.begun[slot.lnc_core].append(i.ordinal)

    def _part(self, i: Instruction, slot: CoreSlot) -> Run:
        """Instead of the exchange with other ranks."""

        def run(x: Party) -> Waiting:
            self._begin(i, slot)
            yield from ()

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

    def _kept(self, group: tuple[int, ...]) -> tuple[int, ...]:
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
        alike = question.moved()
        if alike not in self._counts:
            algorithm = choose(alike, self._slot.algorithm)
            self._counts[alike] = algorithm, algorithm.messages(alike.opcode, alike.size)
        return self._counts[alike]

    def _placed(self, i: Instruction) -> _Places:
        places = self._places.get(id(i))
        if places is None:
            groups: Mapping[int, tuple[int, ...]] = {}
            if "replica_group" in i.args:
                key = tuple([self._kept(tuple(group)) for group in i["replica_group"]])
                if key not in self._groups:
                    self._groups[key] = {rank: group for group in key for rank in group}
                groups = self._groups[key]
            targets = dict(i.args.get("source_target_pairs", ()))
            sources = {target: source for source, target in targets.items()}
            if targets:
                everybody = self._kept(tuple(sorted({*targets, *targets.values()})))
                groups = dict.fromkeys(everybody, everybody)
            places = self._places[id(i)] = _Places(i, groups, targets, sources, {})
        return places


class Together(Alone):
    """Collectives of one world whose ranks are all run, but for the values.

    Args:
        slot, collectives: see Alone.
        carried_out: of each core of a rank, ordinals of those that are executed as ever.
    """

    def __init__(
        self,
        slot: CoreSlot,
        arch: Arch,
        collectives: Iterable[Instruction],
        carried_out: Sequence[Collection[int]],
    ) -> None:
        super().__init__(slot, arch, collectives)
        self._carried_out = carried_out

    def link(self, i: Instruction, kit: Kit) -> Callable[[], Any]:
        """As `execute.link`."""
        # In rings and pairs, members wait for no more than one message: only these know when.
        if OPERATIONS[i.opcode].kind in (Kind.RING, Kind.PAIRS):
            return link(i, kit, self.group)
        if i.ordinal in self._carried_out[kit.slot.lnc_core]:
            return link(i, kit, self.group)
        return super().link(i, kit)

    def _begin(self, i: Instruction, slot: CoreSlot) -> None:
        """Nobody asks for the order."""

    def _part(self, i: Instruction, slot: CoreSlot) -> Run:
        """All tell the first, which tells all: as many messages as there are members."""

        def run(x: Party) -> Waiting:
            told = range(1, x.size) if x.me == 0 else range(1)
            self.more[slot.core] += self.sent(i, slot) - len(told)
            if x.me:
                x.tell(0)
            for member in told:
                yield from x.receive(member)
            if not x.me:
                for member in told:
                    x.tell(member)

        return run
