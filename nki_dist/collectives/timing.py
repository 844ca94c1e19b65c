"""Collectives in simulated time: who meets whom, and for how long.

Rules for the replay (`nki_dist.timing.exchange`). Members of a group start together, so the last to
come decides when all are over; in a permutation a rank waits for the one it receives from only. As
in `execute`, cores meet their own rank's others where a tensor is shared.

Doesn't model: more than one stream per core (its collectives follow each other), priorities, counts
known only at run time (all_to_all_v and all_gather_v take as long as with full buffers). Source:
neuron-runtime/explore/compute-comm-overlap.rst.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from nki_dist.arch import Arch
from nki_dist.collectives.choose import choose, named
from nki_dist.collectives.operands import belongs_to_rank, larger_side
from nki_dist.collectives.operations import OPERATIONS, Kind
from nki_dist.collectives.price import all_to_all_ns, move_ns, price_ns, sharing_groups
from nki_dist.collectives.question import Question, RankLayout
from nki_dist.isa.effects import Exchange
from nki_dist.program import Instruction
from nki_dist.timing.exchange import Rule
from nki_dist.timing.timeline import Seat
from nki_dist.topology.topology import Topology


class _Rules:
    """Prices of one launch; equal questions are worked out once."""

    def __init__(self, topology: Topology, forced: str) -> None:
        self.topology = topology
        self.forced = forced
        self._prices: dict[tuple[Question, int, int], float] = {}
        self._moves: dict[tuple[Question, int, int], float] = {}
        self._meets: dict[tuple[tuple[int, ...], tuple[int, ...]], tuple[int, ...]] = {}
        self._cores: dict[int, dict[int, int]] = {}  # rank -> number within it -> over the launch

    def _question(self, i: Instruction, group: Sequence[int], arch: Arch) -> Question:
        instance = self.topology.ranks_per_instance
        layout = RankLayout(self.topology.ranks_per_chip, instance * arch.instances_per_ultraserver)
        return Question(i.opcode, larger_side(i), tuple(group), layout, arch)

    def _look(self, seats: Sequence[Seat]) -> None:
        """Note once where every core of the launch is."""
        if not self._cores:
            for number, p in enumerate(seats):
                self._cores.setdefault(p.rank, {})[p.core] = number

    def _numbers(self, ranks: Sequence[int | None], kind: Sequence[int]) -> tuple[int, ...]:
        """Cores over the launch: those of the ranks with these numbers within the rank."""
        return tuple(self._cores[r][c] for r in ranks if r is not None for c in kind)

    def _kind(self, i: Instruction, me: int, seats: Sequence[Seat]) -> tuple[int, ...]:
        """Which cores of a rank take part: all of them, or the own one."""
        self._look(seats)
        mine = tuple(self._cores[seats[me].rank])
        return mine if belongs_to_rank(i, len(mine)) else (seats[me].core,)

    def group(self, i: Instruction, me: int, seats: Sequence[Seat], arch: Arch) -> Exchange:
        """Everybody waits for everybody."""
        rank = seats[me].rank
        group = next(g for g in i["replica_group"] if rank in g)
        question = self._question(i, group, arch)
        kind = self._kind(i, me, seats)
        sharing = sharing_groups(i["replica_group"], question)
        if not belongs_to_rank(i, 2):
            sharing *= len(self._cores[rank])  # each core has tensors of its own
        key = (question, sharing, len(kind))
        if key not in self._prices:
            self._prices[key] = self._price(*key)
        who = (question.group, kind)
        if who not in self._meets:
            self._meets[who] = self._numbers(group, kind)
        meets = self._meets[who]
        price = self._prices[key]
        return Exchange(i.opcode, (), (), price, price, meets)

    def _price(self, question: Question, sharing: int, cores: int) -> float:
        if OPERATIONS[question.opcode].kind is Kind.DIRECT:
            return all_to_all_ns(question, self.topology, sharing, cores)
        return price_ns(question, choose(question, self.forced), self.topology, sharing, cores)

    def ring(self, i: Instruction, me: int, seats: Sequence[Seat], arch: Arch) -> Exchange:
        """A step of a ring: to the next of the group, from the one before."""
        rank = seats[me].rank
        group = next(g for g in i["replica_group"] if rank in g)
        at = group.index(rank)
        target, source = group[(at + 1) % len(group)], group[at - 1]
        return self._moved(i, me, seats, arch, target, source, len(i["channel_ids"]))

    def pairs(self, i: Instruction, me: int, seats: Sequence[Seat], arch: Arch) -> Exchange:
        """A permutation; a rank in no pair has nothing to do."""
        rank = seats[me].rank
        target = next((t for s, t in i["source_target_pairs"] if s == rank), None)
        source = next((s for s, t in i["source_target_pairs"] if t == rank), None)
        return self._moved(i, me, seats, arch, target, source, 1)

    def _moved(
        self,
        i: Instruction,
        me: int,
        seats: Sequence[Seat],
        arch: Arch,
        target: int | None,
        source: int | None,
        channels: int,
    ) -> Exchange:
        """Send to one rank, receive from another; each may be missing, or the rank itself."""
        if target is None and source is None:
            return Exchange(i.opcode, (), (), 0.0, 0.0)
        rank, kind = seats[me].rank, self._kind(i, me, seats)
        busy = 0.0
        if target is not None:
            question = self._question(i, (rank, target), arch)
            key = (question, channels, len(kind))
            if key not in self._moves:
                touches = OPERATIONS[i.opcode].touches
                self._moves[key] = move_ns(question, self.topology, channels, touches, len(kind))
            busy = self._moves[key]
        out = self._numbers([r for r in (target,) if r not in (None, rank)], kind)
        come = self._numbers([r for r in (source,) if r not in (None, rank)], kind)
        own = [n for n in self._numbers([rank], kind) if n != me]
        # A rank's cores start together and are over together.
        return Exchange(i.opcode, (*own, *out), (*own, *come), busy, busy)


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
    between_two = {Kind.RING: rules.ring, Kind.PAIRS: rules.pairs}
    return {name: between_two.get(o.kind, rules.group) for name, o in OPERATIONS.items()}
