"""Collectives in simulated time: who meets whom, and for how long.

Rules for the replay (`nki_dist.timing.exchange`). Members of a group start together, so the last to
come decides when all are over; in a permutation a rank waits for the one it receives from only. As
in `execute`, cores meet their own rank's others where a tensor is shared.

Doesn't model: more than one stream per core (its collectives follow each other), priorities, counts
known only at run time (all_to_all_v and all_gather_v take as long as with full buffers). Source:
neuron-runtime/explore/compute-comm-overlap.rst.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from nki_dist.arch import Arch
from nki_dist.collectives.choose import choose, named
from nki_dist.collectives.cost import all_to_all_ns, cost_ns, move_ns
from nki_dist.collectives.members import Members
from nki_dist.collectives.operands import belongs_to_rank, larger_side
from nki_dist.collectives.operations import OPERATIONS, Kind
from nki_dist.collectives.question import Question, RankLayout
from nki_dist.errors import LaunchError
from nki_dist.isa.effects import Exchange
from nki_dist.program import Instruction
from nki_dist.program.walk import operands
from nki_dist.timing.exchange import Rule, Seats
from nki_dist.topology.topology import Topology


class _Groups:
    """The groups of a collective: where each rank is, worked out once.

    Attributes:
        groups: ranks of each.
        of: by rank, the number of its group and its position there.
    """

    def __init__(self, groups: Sequence[tuple[int, ...]], ranks_per_chip: int) -> None:
        self.groups = groups
        self.of = {rank: (n, at) for n, group in enumerate(groups) for at, rank in enumerate(group)}
        self._per_chip = ranks_per_chip
        chips = (chip for group in groups for chip in {r // ranks_per_chip for r in group})
        self._on_chip = Counter(chips)

    def sharing(self, group: Sequence[int]) -> int:
        """How many groups have members on the chip of a group's first rank."""
        return self._on_chip[group[0] // self._per_chip]


class _Cached(NamedTuple):
    """What is known of an instruction; it is kept, so that no other has its identity.

    Attributes:
        groups: of its replica_group, if it has one.
        targets, sources: of its pairs, by rank.
        exchanges: what its rule gave, by whom that is for.
    """

    i: Instruction
    nbytes: int
    groups: _Groups | None
    targets: Mapping[int, int]
    sources: Mapping[int, int]
    exchanges: dict[Any, Exchange]


class _Rules:
    """Costs of one launch; equal questions are worked out once."""

    def __init__(self, topology: Topology, forced: str) -> None:
        self.topology = topology
        self.forced = forced
        self._costs: dict[tuple[Question, int, int], float] = {}
        self._meets: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, ...]] = {}
        self._cores: dict[int, dict[int, int]] = {}  # rank -> number within it -> over the launch
        self._instructions: dict[int, _Cached] = {}
        self._groups: dict[tuple[tuple[int, ...], ...], _Groups] = {}
        self._equal: dict[tuple[Any, ...], _Cached] = {}

    def _cached(self, i: Instruction) -> _Cached:
        cached = self._instructions.get(id(i))
        if cached is None:
            groups, pairs = None, i.args.get("source_target_pairs", ())
            if "replica_group" in i.args:
                key = tuple(map(tuple, i["replica_group"]))
                groups = self._groups.get(key)
                if groups is None:
                    groups = self._groups[key] = _Groups(key, self.topology.ranks_per_chip)
            targets, sources = dict(pairs), {t: s for s, t in pairs}
            cached = _Cached(i, larger_side(i), groups, targets, sources, {})
            # Layers and rounds repeat what their first does.
            channels = len(i.args.get("channel_ids", ()))
            like = (i.opcode, cached.nbytes, id(groups), tuple(map(tuple, pairs)), channels)
            equal = self._equal.setdefault((*like, _kinds(i)), cached)
            cached = self._instructions[id(i)] = equal._replace(i=i)
        return cached

    def _question(self, cached: _Cached, group: tuple[int, ...], arch: Arch) -> Question:
        instance = self.topology.ranks_per_instance
        layout = RankLayout(self.topology.ranks_per_chip, instance * arch.instances_per_ultraserver)
        return Question(cached.i.opcode, cached.nbytes, group, layout, arch)

    def _numbers(self, ranks: Iterable[int | None], kind: Sequence[int]) -> tuple[int, ...]:
        """Cores over the launch: those of the ranks with these numbers within the rank."""
        return tuple(self._cores[r][c] for r in ranks if r is not None for c in kind)

    def _kind(self, i: Instruction, me: int, seats: Seats) -> tuple[int, ...]:
        """Which cores of a rank take part: all of them, or the own one."""
        self._cores = seats.ranks
        mine = tuple(self._cores[seats[me].rank])
        return mine if belongs_to_rank(i, len(mine)) else (seats[me].core,)

    def group(self, i: Instruction, me: int, seats: Seats, arch: Arch) -> Exchange:
        """Everybody waits for everybody."""
        rank, core, cached = seats[me].rank, seats[me].core, self._cached(i)
        assert cached.groups is not None
        number, _ = cached.groups.of[rank]
        if (number, core) not in cached.exchanges:
            group, kind = cached.groups.groups[number], self._kind(i, me, seats)
            sharing = cached.groups.sharing(group)
            if not belongs_to_rank(i, 2):
                sharing *= len(self._cores[rank])  # each core has tensors of its own
            cost = self._cost(self._question(cached, group, arch), sharing, len(kind))
            if (group, kind) not in self._meets:
                self._meets[group, kind] = self._numbers(group, kind)
            exchange = Exchange(i.opcode, (), (), cost, cost, self._meets[group, kind])
            cached.exchanges[number, core] = exchange
        return cached.exchanges[number, core]

    def _cost(self, question: Question, number: int, cores: int) -> float:
        """A cost, which all groups that sit alike have.

        Args:
            number: of groups that share a chip, or of channels between two ranks.
        """
        key = question.moved(), number, cores
        if key not in self._costs:
            try:
                self._costs[key] = self._computed(*key)
            except LaunchError:  # which names the ranks of the group that was asked about
                self._costs[key] = self._computed(question, number, cores)
        return self._costs[key]

    def _computed(self, question: Question, number: int, cores: int) -> float:
        operation, topology = OPERATIONS[question.opcode], self.topology
        if operation.kind in (Kind.RING, Kind.PAIRS):
            return move_ns(Members(question, topology, cores=cores), number, operation.touches)
        if operation.kind is Kind.DIRECT:
            return all_to_all_ns(Members(question, topology, number, cores))
        algorithm = choose(question, self.forced)
        return cost_ns(Members(question, topology, number, cores), algorithm)

    def moved(self, i: Instruction, me: int, seats: Seats, arch: Arch) -> Exchange:
        """Sent to one rank, received from another: of pairs, or the next ones in a ring."""
        rank, cached = seats[me].rank, self._cached(i)
        target: int | None
        source: int | None
        if cached.groups is None:  # each may be missing, or the rank itself
            target, source, channels = cached.targets.get(rank), cached.sources.get(rank), 1
        else:
            number, at = cached.groups.of[rank]
            group, channels = cached.groups.groups[number], len(i["channel_ids"])
            target, source = group[(at + 1) % len(group)], group[at - 1]
        if target is None and source is None:
            return Exchange(i.opcode, (), (), 0.0, 0.0)
        if me not in cached.exchanges:
            kind, busy = self._kind(i, me, seats), 0.0
            if target is not None:
                question = self._question(cached, (rank, target), arch)
                busy = self._cost(question, channels, len(kind))
            out, come = (self._numbers({r} - {None, rank}, kind) for r in (target, source))
            same_rank = [n for n in self._numbers([rank], kind) if n != me]
            # A rank's cores start together and are over together.
            exchange = Exchange(i.opcode, (*same_rank, *out), (*same_rank, *come), busy, busy)
            cached.exchanges[me] = exchange
        return cached.exchanges[me]


def _kinds(i: Instruction) -> frozenset[str]:
    """The memories that its tensors are in."""
    return frozenset(a.region.value for _, a in operands(i.args))


def collective_rules(topology: Topology, forced: str = "") -> Mapping[str, Rule]:
    """Rules of all collectives for one launch.

    Args:
        topology: where ranks sit.
        forced: an algorithm for all groups, as NKI_DIST_COLLECTIVE_ALGORITHM, or "".

    Raises:
        LaunchError: `forced` names none.
    """
    if forced:
        named(forced)
    rules = _Rules(topology, forced)
    meet = (Kind.ALGORITHM, Kind.DIRECT)
    return {n: rules.group if o.kind in meet else rules.moved for n, o in OPERATIONS.items()}
