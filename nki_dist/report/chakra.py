"""Chakra execution traces of launches, one file per rank, for ASTRA-sim and other readers.

A rank's nodes are its exchanges with other ranks, and for each stretch of its programs between two
of them one node that computes: what all of its cores do there, without what they wait for other
ranks. A node depends on those that its instructions wait for, so that work which needs nothing of
an exchange may go on beside it; stretches follow each other. Launches follow each other, too.

Durations are simulated and whole microseconds; what rounding takes from one node of a rank is given
to the next. Doesn't say: what the cores of a rank tell each other, what a device spends before and
after a kernel, and how long the host takes between launches.

Follows: et_def.proto of MLCommons' Chakra; `Workload.cc` of ASTRA-sim, which reads NAME.RANK.et and
the ranks of process groups from a JSON file, and counts the bytes that a rank gives as `comm_size`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from os import PathLike
from pathlib import Path
from typing import Any, Final, TypeAlias

from nki_dist.errors import LaunchError
from nki_dist.program import Instruction
from nki_dist.report.chakra_schema import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_TO_ALL,
    COLL,
    COMP,
    RECV,
    REDUCE_SCATTER,
    SEND,
    schema,
)
from nki_dist.report.explorer import union_ns
from nki_dist.timing.timeline import CoreTimeline, Timeline

VERSION: Final = "0.0.4"  # of the schema, as Chakra's own converters write it
GROUPS: Final = "comm_groups.json"
COLLECTIVES: Final = {
    "all_reduce": ALL_REDUCE,
    "all_gather": ALL_GATHER,
    "all_gather_v": ALL_GATHER,
    "all_to_all": ALL_TO_ALL,
    "all_to_all_v": ALL_TO_ALL,
    "reduce_scatter": REDUCE_SCATTER,
}
PAIRED: Final = (
    "collective_permute",
    "collective_permute_implicit",
    "collective_permute_implicit_reduce",
)
_SOURCES: Final = ("srcs", "srcs_by_channel")

Key: TypeAlias = (
    "tuple[int, bool]"  # number of the exchange, and whether it is that or what precedes
)


@dataclass
class _Piece:
    """A node as all ranks of a class have it.

    Attributes:
        exchange: one core's instruction, or None for work.
        spans: (start, done) of the instructions, in ns.
        moved: of an exchange, the bytes its rank gives; of work, those to and from HBM.
        needs: keys of other pieces.
    """

    exchange: Instruction | None = None
    spans: list[tuple[float, float]] = field(default_factory=list)
    flops: int = 0
    moved: int = 0
    needs: set[Key] = field(default_factory=set)

    @property
    def ns(self) -> float:
        """How long any of it was under way; an exchange, from the start of the last core on."""
        if self.exchange is not None:
            return max(e for _, e in self.spans) - max(s for s, _ in self.spans)
        return union_ns(self.spans)


def pieces(cores: Sequence[CoreTimeline]) -> dict[Key, _Piece]:
    """The nodes of a rank, in an order in which each follows what it needs."""
    found: dict[Key, _Piece] = {}
    for core in cores:
        of: list[Key] = []
        exchanges = 0
        for at, i in enumerate(core.graph.executed):
            outside = i.opcode in COLLECTIVES or i.opcode in PAIRED
            key = (exchanges, outside)
            exchanges += outside
            of.append(key)
            piece = found.setdefault(key, _Piece())
            piece.needs.update(of[b] for b in core.graph.before(at) if of[b] != key)
            if outside:
                _exchanged(piece, i)
            elif at not in core.dropped:
                piece.flops += core.cost(at).flops
                if (transfer := core.transfers.get(i.ordinal)) is not None:
                    piece.moved += transfer.hbm_read + transfer.hbm_written
            if at not in core.dropped:
                piece.spans.append((core.start[at], core.done[at]))
    ordered = dict(sorted(found.items()))
    before: Key | None = None
    for key, piece in ordered.items():
        if piece.exchange is None:
            piece.needs |= {before} if before is not None else set()
            before = key
    return ordered


def _exchanged(piece: _Piece, i: Instruction) -> None:
    """Note an exchange of one core: tensors in HBM are the rank's, others its cores' own."""
    sources = [a for name in _SOURCES for a in _flat(i.args.get(name, ()))]
    shared = all(a.storage.region.value.endswith("hbm") for a in sources)
    if piece.exchange is None or not shared:
        piece.moved += sum(a.nbytes for a in sources)
    piece.exchange = i


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for part in value:
            yield from _flat(part)
    else:
        yield value


class _Ring:
    """Of an instruction, for each rank its group, and whom it sends to and receives from."""

    def __init__(self, i: Instruction) -> None:
        self.group: dict[int, tuple[int, ...]] = {}
        self.target: dict[int, int] = {}
        if "source_target_pairs" in i.args:
            self.target = dict(i.args["source_target_pairs"])
        else:
            for group in map(tuple, i.args["replica_group"]):
                self.group.update(dict.fromkeys(group, group))
                self.target.update(zip(group, group[1:] + group[:1]))
        self.source = {t: s for s, t in self.target.items()}


class _Launch:
    """A timeline whose classes of ranks are looked at once."""

    def __init__(self, timeline: Timeline) -> None:
        seats = timeline.launch.seats if timeline.launch else [c.seat for c in timeline.cores]
        numbered = groupby(range(len(timeline.which)), lambda n: seats[n].rank)
        self.cores = [list(numbers) for _, numbers in numbered]
        self._timeline = timeline
        self._pieces: dict[tuple[int, ...], dict[Key, _Piece]] = {}
        self._rings: dict[int, _Ring] = {}

    def rank(self, rank: int) -> dict[Key, _Piece]:
        which = tuple(self._timeline.which[n] for n in self.cores[rank])
        if which not in self._pieces:
            self._pieces[which] = pieces([self._timeline.distinct[n] for n in which])
        return self._pieces[which]

    def ring(self, i: Instruction) -> _Ring:
        if id(i) not in self._rings:
            self._rings[id(i)] = _Ring(i)
        return self._rings[id(i)]


class _Rank:
    """The nodes of one rank, launch after launch."""

    def __init__(self, rank: int, group: Callable[[tuple[int, ...]], int]) -> None:
        self.rank, self.group = rank, group
        self.schema = schema()
        self.last: list[int] = []  # what the next launch begins after
        self.count = self.exchanges = 0
        self.owed = 0.0  # microseconds that rounding took

    def nodes(self, launch: _Launch, kernel: str) -> Iterator[Any]:
        made: dict[Key, list[int]] = {}
        used: set[int] = set()
        for key, piece in launch.rank(self.rank).items():
            needs = sorted({n for k in piece.needs for n in made[k]}) or self.last
            used.update(needs)
            made[key] = []
            for kind, name, attributes in self._kinds(launch, piece, kernel):
                node = self.schema.Node(id=self.count, name=name, type=kind, data_deps=needs)
                node.duration_micros = self._micros(piece.ns)
                for attribute, (value, number) in attributes.items():
                    node.attr.add(name=attribute, **{value: number})
                made[key].append(self.count)
                self.count += 1
                yield node
            made[key] = made[key] or needs  # a rank that takes no part in an exchange
            self.exchanges += piece.exchange is not None
        ends = {n for numbers in made.values() for n in numbers} - used
        self.last = sorted(ends) or self.last

    def _micros(self, ns: float) -> int:
        whole = max(0, round(ns / 1000 + self.owed))
        self.owed += ns / 1000 - whole
        return whole

    def _kinds(
        self, launch: _Launch, piece: _Piece, kernel: str
    ) -> Iterator[tuple[int, str, dict[str, tuple[str, Any]]]]:
        """What becomes of a piece: type, name and attributes of its nodes."""
        common: dict[str, tuple[str, Any]] = {"is_cpu_op": ("bool_val", False)}
        size = {"comm_size": ("uint64_val", piece.moved)}
        i = piece.exchange
        if i is None:
            work = {"num_ops": piece.flops, "tensor_size": piece.moved}
            yield COMP, kernel, common | {n: ("uint64_val", v) for n, v in work.items()}
            return
        ring, name = launch.ring(i), f"{kernel}: {i.opcode}"
        if i.opcode in COLLECTIVES:
            group = {"pg_name": ("string_val", str(self.group(ring.group[self.rank])))}
            kind = {"comm_type": ("uint64_val", COLLECTIVES[i.opcode])}
            yield COLL, name, common | kind | size | group
            return
        tag = {"comm_tag": ("uint32_val", self.exchanges)}
        for kind_, peers, end, own in (
            (SEND, ring.target, "comm_dst", "comm_src"),
            (RECV, ring.source, "comm_src", "comm_dst"),
        ):
            if self.rank in peers:
                ends = {own: ("uint32_val", self.rank), end: ("uint32_val", peers[self.rank])}
                yield kind_, name, common | size | tag | ends


def write_chakra(
    profiles: Iterable[Any], folder: str | PathLike[str], name: str = "trace"
) -> list[Path]:
    """Write Chakra execution traces of launches that follow each other on the same ranks.

    Args:
        profiles: of each launch, in order; the same one may come repeatedly.
        folder: gets `NAME.RANK.et` for each rank, and `comm_groups.json`, for ASTRA-sim's
            `--comm-group-configuration`.

    Returns:
        The files of the ranks.

    Raises:
        LaunchError: no launches, or their numbers of ranks differ.
        ImportError: protobuf isn't there.
    """
    launches: dict[int, _Launch] = {}
    order = list(profiles)
    for profile in order:
        launches.setdefault(id(profile), _Launch(profile.timeline))
    ranks = sorted({len(launch.cores) for launch in launches.values()})
    if len(ranks) != 1:
        raise LaunchError(
            f"execution traces are of launches on the same ranks; got {ranks or 'no launches'}",
            code="chakra-ranks",
            numbers={"got": ranks},
        )
    groups: dict[tuple[int, ...], int] = {}

    def group(members: tuple[int, ...]) -> int:
        return groups.setdefault(members, len(groups) + 1)  # 0 is all ranks

    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    paths = []
    for rank in range(ranks[0]):
        state = _Rank(rank, group)
        paths.append(target / f"{name}.{rank}.et")
        with open(paths[-1], "wb") as file:
            file.write(_delimited(state.schema.GlobalMetadata(version=VERSION)))
            for profile in order:
                for node in state.nodes(launches[id(profile)], profile.kernel):
                    file.write(_delimited(node))
    members = {str(number): list(ranks) for ranks, number in groups.items()}
    (target / GROUPS).write_text(json.dumps(members), encoding="utf-8")
    return paths


def _delimited(message: Any) -> bytes:
    """A message after its length, a variable number of seven bits each."""
    content: bytes = message.SerializeToString()
    length, head = len(content), bytearray()
    while length > 127:
        head.append(length & 127 | 128)
        length >>= 7
    head.append(length)
    return bytes(head) + content
