"""How instructions that wait for other cores meet in simulated time.

A rule turns one such instruction into the messages it sends and awaits; the replay matches them by
(source, target, channel, sequence), as the cores themselves do. To time another instruction, add a
rule to the mapping given to `replay`. Those of collectives are above this package, in
`nki_dist.collectives.timing`.

Doesn't model: contention of `sendrecv` with the DMA traffic of either core. Latencies of
`core_barrier` and `sendrecv` aren't published; `Arch.assumptions()` says what was chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from nki_dist.arch import Arch
from nki_dist.arch.facts import FrozenMap
from nki_dist.isa.enums import dma_engine
from nki_dist.program import Instruction
from nki_dist.timing.timeline import Place


@dataclass(frozen=True)
class Exchange:
    """Messages of one instruction.

    Attributes:
        channel: messages of one channel between two cores are matched in order.
        sends, receives: cores, numbered over the launch.
        busy_ns: time its own engine works, whatever the others do.
        latency_ns: from its start to a message's arrival.
        meets: cores that wait for each other, the own one included, instead of messages: all are
            over `latency_ns` after the last has started. Meetings of one channel and the same cores
            are matched in order.
    """

    channel: str
    sends: tuple[int, ...]
    receives: tuple[int, ...]
    busy_ns: float
    latency_ns: float
    meets: tuple[int, ...] = ()


Rule: TypeAlias = Callable[[Instruction, int, Sequence[Place], Arch], Exchange]


def _same_rank(me: int, places: Sequence[Place]) -> dict[int, int]:
    """Cores of the same logical core: number within it -> number over the launch."""
    rank = places[me].rank
    return {p.core: n for n, p in enumerate(places) if p.rank == rank}


def _sendrecv(i: Instruction, me: int, places: Sequence[Place], arch: Arch) -> Exchange:
    peers = _same_rank(me, places)
    channel = f"sendrecv pipe {i['pipe_id']}"
    size = i["src"].nbytes
    if i["dma_engine"] is dma_engine.gpsimd_dma:
        busy = size / arch.gpsimd_dma_gbps if arch.gpsimd_dma_gbps else 0.0
        latency = arch.sendrecv_gpsimd_ns
    else:
        busy = size / arch.sendrecv_gbps
        latency = arch.sendrecv_ns
    to, source = peers[i["send_to_rank"]], peers[i["recv_from_rank"]]
    return Exchange(channel, (to,), (source,), busy, busy + latency)


def _core_barrier(i: Instruction, me: int, places: Sequence[Place], arch: Arch) -> Exchange:
    peers = _same_rank(me, places)
    others: tuple[int, ...] = ()
    if places[me].core in i["cores"]:
        others = tuple(peers[c] for c in sorted(i["cores"]) if c in peers and peers[c] != me)
    busy = arch.cycles_to_ns(arch.min_issue_cycles, i.engine)
    return Exchange("core_barrier", others, others, busy, arch.core_barrier_ns)


EXCHANGES: Final[Mapping[str, Rule]] = FrozenMap(
    {"sendrecv": _sendrecv, "core_barrier": _core_barrier}
)
