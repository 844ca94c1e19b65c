"""Published figures of collectives, each with what is simulated in its place.

Those that a simulator can be asked for are rows, what the documentation claims without a figure are
statements and choices of algorithms, the rest is `UNUSABLE`, with the reason. Of the examples of
nccom-test only those that were chosen for calibration are here.

Sources are named as in `nki_dist.arch.DOCUMENTS`. The times of nccom-test (NCT) contain the launch
from the host in its older outputs, so those are compared by the difference of two sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Final, NamedTuple

from nki_dist.arch import Arch
from nki_dist.collectives.algorithm import Algorithm
from nki_dist.collectives.choose import choose
from nki_dist.collectives.cost import cost_ns, move_ns, stages
from nki_dist.collectives.members import Members
from nki_dist.collectives.question import Question, RankLayout
from nki_dist.topology.topology import Topology, system

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
Values = Mapping[str, float]
NOTHING: Final[Values] = {}


@dataclass(frozen=True)
class Group:
    """All ranks of a system, and what they run."""

    platform: str
    ranks: int
    opcode: str = "all_reduce"
    lnc: int | None = None

    def ask(self, nbytes: int, values: Values = NOTHING, members: Sequence[int] = ()) -> Asked:
        """A question about these ranks, or some of them, on an architecture with other values."""
        topology = _topology(self.platform, self.ranks, self.lnc)
        arch = _changed(topology.arch, tuple(values.items()))
        node = topology.ranks_per_instance * arch.instances_per_ultraserver
        layout = RankLayout(topology.ranks_per_chip, node)
        group = tuple(members or range(self.ranks))
        return Asked(Question(self.opcode, nbytes, group, layout, arch), topology)


class Asked(NamedTuple):
    question: Question
    topology: Topology

    @property
    def members(self) -> Members:
        return Members(self.question, self.topology)

    def algorithm(self, forced: str = "") -> Algorithm:
        return choose(self.question, forced)

    def us(self, forced: str = "") -> float:
        return cost_ns(self.members, self.algorithm(forced)) / 1000

    def move_us(self, touches: int = 2) -> float:
        """As a permutation by one channel, of the group's first member to its second."""
        return move_ns(self.members, 1, touches) / 1000

    def copying(self, forced: str) -> float:
        return sum(s.copying for s in stages(self.members, self.algorithm(forced)))


@cache
def _topology(platform: str, ranks: int, lnc: int | None) -> Topology:
    return system(platform, ranks=ranks, lnc=lnc)


@lru_cache(maxsize=64)
def _changed(arch: Arch, values: tuple[tuple[str, float], ...]) -> Arch:
    return arch.with_values("refitted", **dict(values)) if values else arch


@dataclass(frozen=True)
class Row:
    """A published figure that can be asked for.

    Attributes:
        what: operation, system, sizes.
        published: in `unit`.
        simulated: the same, by an architecture with these values in place of its own.
        tolerance: largest ratio, either way, that is accepted; see `test_accuracy.py`.
        kind: "time": measured on a device, counts for the band. "size": where two algorithms take
            equally long; two figures are set by it. "quotient": of what a document states.
    """

    what: str
    source: str
    published: float
    unit: str
    simulated: Callable[[Values], float]
    tolerance: float
    kind: str = "time"

    def ratio(self, values: Values = NOTHING) -> float:
        return self.simulated(values) / self.published


TRN1_PAIR: Final = Group("trn1", 2)
TRN1: Final = Group("trn1", 32, "all_gather")
TRN2_EIGHT: Final = Group("trn2", 8, "all_gather")
TRN2: Final = Group("trn2", 64)
TRN2_TWO: Final = Group("trn2", 128, "all_gather")


def _grown(group: Group, small: int, large: int) -> Callable[[Values], float]:
    return lambda values: group.ask(large, values).us() - group.ask(small, values).us()


def _took(group: Group, nbytes: int) -> Callable[[Values], float]:
    return lambda values: group.ask(nbytes, values).us()


def _crossing(small: str, large: str) -> Callable[[Values], float]:
    """The size in MiB from which on algorithm `large` is the cheaper, all-reduce of 64 ranks."""

    def found(values: Values) -> float:
        def cheaper(nbytes: int) -> bool:
            asked = TRN2.ask(nbytes, values)
            return asked.us(large) < asked.us(small)

        low, high = 1, GIB
        while high - low > KIB:
            middle = (low + high) // 2
            low, high = (low, middle) if cheaper(middle) else (middle, high)
        return high / MIB

    return found


def _single_step_pays(values: Values) -> float:
    """KiB up to which one step is cheaper, all-reduce of a rank on each of four instances."""
    four = Group("trn2", 256)
    heads = (0, 64, 128, 192)
    low, high = 1, MIB
    while high - low > 16:
        middle = (low + high) // 2
        asked = four.ask(middle, values, heads)
        low, high = (
            (middle, high) if asked.us("single_step_mesh") < asked.us("mesh") else (low, middle)
        )
    return low / KIB


def _efa(nbytes: int) -> Callable[[Values], float]:
    """Time of the bytes alone from a rank of one instance to one of the other."""

    def found(values: Values) -> float:
        pair = TRN2_TWO.ask(nbytes, values, (0, 64))
        return pair.move_us() - TRN2_TWO.ask(0, values, (0, 64)).move_us()

    return found


def _saved(opcode: str) -> Callable[[Values], float]:
    """Reads and writes of KangaRing, as a fraction of Ring's."""

    def found(values: Values) -> float:
        asked = Group("trn2", 64, opcode).ask(GIB, values)
        return asked.copying("kangaring") / asked.copying("ring")

    return found


ROWS: Final = (
    Row(
        "all-reduce, 2 ranks of a trn1 chip, 16 MiB after 1 MiB",
        "NCT",
        332 - 68,
        "us",
        _grown(TRN1_PAIR, MIB, 16 * MIB),
        1.15,
    ),
    Row(
        "the same, 256 MiB after 16 MiB",
        "NCT",
        4750 - 332,
        "us",
        _grown(TRN1_PAIR, 16 * MIB, 256 * MIB),
        1.15,
    ),
    Row(
        "the same in uint8, 32 MiB after 1 KiB",
        "NCT",
        768 - 58,
        "us",
        _grown(TRN1_PAIR, KIB, 32 * MIB),
        1.35,
    ),
    Row(
        "all-gather, 32 ranks (of trn1, we assume), 1 KiB in all",
        "NCT",
        6.175,
        "us",
        _took(TRN1, KIB),
        1.45,
    ),
    Row("the same, 64 KiB", "NCT", 8.175, "us", _took(TRN1, 64 * KIB), 1.45),
    Row(
        "all-gather, 8 ranks (of trn2, we assume), 1 KiB in all",
        "NCT",
        10.0,
        "us",
        _took(TRN2_EIGHT, KIB),
        1.45,
    ),
    Row("the same, 64 KiB", "NCT", 11.31, "us", _took(TRN2_EIGHT, 64 * KIB), 1.45),
    Row(
        "permutation of pairs on a chip (trn2, we assume), 32 MiB",
        "NCT",
        894.24,
        "us",
        lambda v: TRN2_EIGHT.ask(32 * MIB, v, (0, 1)).move_us(),
        1.05,
    ),
    Row(
        "all-reduce, 64 trn2 ranks: RDH from",
        "INTRA",
        1,
        "MiB",
        _crossing("mesh", "rdh"),
        1.1,
        "size",
    ),
    Row("the same: KangaRing from", "INTRA", 56, "MiB", _crossing("rdh", "kangaring"), 1.1, "size"),
    Row(
        "all-reduce, 4 trn2 instances: one Mesh step up to",
        "INTER",
        15_000 * 6.25 / 1.5 / KIB,
        "KiB",
        _single_step_pays,
        1.05,
        "size",
    ),
    Row("trn2 rank to another instance: 1 KiB", "INTER", 0.160, "us", _efa(KIB), 1.1, "quotient"),
    Row("the same: 1 MiB", "INTER", 160, "us", _efa(MIB), 1.1, "quotient"),
    Row("the same: 1 GiB", "INTER", 160_000, "us", _efa(GIB), 1.1, "quotient"),
    Row(
        "KangaRing's reads and writes: all-gather",
        "INTRA",
        3 / 4,
        "of Ring's",
        _saved("all_gather"),
        1.02,
        "quotient",
    ),
    Row(
        "the same: reduce-scatter",
        "INTRA",
        4 / 6,
        "of Ring's",
        _saved("reduce_scatter"),
        1.02,
        "quotient",
    ),
)


# ---- what is claimed without a figure -----------------------------------------------------------

SIZES: Final = tuple(1 << k for k in range(10, 31))


def _always(first: str, second: str, sizes: Sequence[int]) -> bool:
    return all(TRN2.ask(n).us(first) < TRN2.ask(n).us(second) for n in sizes)


def _flat_ring_gains() -> bool:
    two = Group("trn1", 64).ask(256 * MIB)
    return two.us("ring") < two.us("hierarchical")


def _stage_latency(asked: Asked, forced: str) -> float:
    return sum(s.latency for s in stages(asked.members, asked.algorithm(forced)))


def _parts_have_fewer_steps() -> bool:
    two, one = Group("trn2", 128).ask(GIB), TRN2.ask(GIB)
    across = Group("trn2", 128).ask(GIB, members=(0, 64))
    parts = _stage_latency(one, "ring") + _stage_latency(across, "ring")
    return 1.5 * parts < _stage_latency(two, "ring")


def _ultraserver_gains() -> bool:
    inside, apart = Group("trn2-ultraserver", 256), Group("trn2", 256)
    return all(inside.ask(n).us() < apart.ask(n).us() for n in (KIB, MIB, GIB))


STATEMENTS: Final[tuple[tuple[str, str, Callable[[], bool]], ...]] = (
    (
        "KangaRing is better than Ring at all sizes",
        "INTRA",
        lambda: _always("kangaring", "ring", SIZES),
    ),
    (
        "KangaRing loses to Mesh at small sizes",
        "INTRA",
        lambda: _always("mesh", "kangaring", SIZES[:10]),
    ),
    (
        "one Mesh step is for the smallest all-reduces",
        "INTRA",
        lambda: (
            _always("single_step_mesh", "mesh", SIZES[:3])
            and _always("mesh", "single_step_mesh", SIZES[4:])
        ),
    ),
    (
        "a step of a ring takes 1 to 2 us within a node",
        "INTRA",
        lambda: 1000 <= _topology("trn2", 64, None).arch.ring_hop_ns <= 2000,
    ),
    (
        "all latencies within a node are 1 to tens of us (Mesh, RDH)",
        "INTRA",
        lambda: all(1 < TRN2.ask(4).us(name) < 100 for name in ("mesh", "rdh")),
    ),
    (
        "rings within and between nodes have far fewer steps in a row than one flat ring",
        "INTER",
        _parts_have_fewer_steps,
    ),
    ("NeuronLink's Z axis beats EFA: 4 instances of an UltraServer", "COLL", _ultraserver_gains),
    ("a flat ring has an edge on trn1 for large sizes", "INTER", _flat_ring_gains),
)

CHOICES: Final = (
    ("64 ranks, 512 KiB", "INTRA: Mesh", TRN2.ask(MIB // 2), "mesh"),
    ("64 ranks, 8 MiB", "INTRA: RDH", TRN2.ask(8 * MIB), "rdh"),
    ("64 ranks, 128 MiB", "INTRA: KangaRing", TRN2.ask(128 * MIB), "kangaring"),
    (
        "a rank on each of 16 chips, 128 MiB",
        "INTRA: Ring, not KangaRing",
        TRN2.ask(128 * MIB, members=range(0, 64, 4)),
        "ring",
    ),
    (
        "a rank on each of 4 instances, 256 KiB",
        "INTER: Mesh, small groups and sizes",
        Group("trn2", 256).ask(MIB // 4, members=range(0, 256, 64)),
        "mesh",
    ),
    (
        "a rank on each of 16 instances, 8 MiB",
        "INTER: RDH, small to medium sizes",
        Group("trn2", 1024).ask(8 * MIB, members=range(0, 1024, 64)),
        "rdh",
    ),
    (
        "a rank on each of 4 instances, 1 GiB",
        "INTER: Ring, large sizes",
        Group("trn2", 256).ask(GIB, members=range(0, 256, 64)),
        "ring",
    ),
    (
        "4 instances, 256 KiB",
        "INTER: Mesh within, Mesh between",
        Group("trn2", 256).ask(MIB // 4),
        "hierarchical(mesh, single_step_mesh)",
    ),
    (
        "16 instances, 1 GiB",
        "INTER: KangaRing within, RDH between",
        Group("trn2", 1024).ask(GIB),
        "hierarchical(kangaring, rdh)",
    ),
    (
        "2 trn1 instances, 256 MiB",
        "INTER: one flat ring",
        Group("trn1", 64).ask(256 * MIB),
        "ring",
    ),
)
"""All-reduces: who, what the documentation says, the question, what is chosen here."""

UNUSABLE: Final = (
    ("all-reduce, 2 trn1 ranks, 1 to 64 KiB: 58 us each", "NCT", "the launch from the host"),
    ("all-gather, 32 ranks, v2.20: 149 to 179 us", "NCT", "the launch from the host"),
    ("all_to_all_v, 2 nodes of a rank, 1 MB: 955 us", "NCT", "platform and launch unknown"),
    ("all-reduce by Ring, 524 KB: 457 us", "PROFILE", "the group isn't shown"),
    ("barrier of the collectives: 369 ns", "PROFILE", "is our figure: `core_barrier_ns`"),
    ("smallest packet between instances: 15 us", "COLL", "is our figure: `efa_alpha_ns`"),
    (
        "16 trn2 chips over EFA at once: 270 of 400 GB/s",
        "Mooncake #3888",
        "no collective; see below",
    ),
    ("all-gather above 1 MB, TP 8: 35 % faster than before", "release notes", "no time"),
    ("reduce-scatter on a chip: 20 and 60 % faster", "release notes", "no time"),
    ("all-reduce on a chip, TP 4: 50 % faster", "release notes", "no time"),
    ("32x2 groups: 65 % faster", "release notes", "no time"),
)
