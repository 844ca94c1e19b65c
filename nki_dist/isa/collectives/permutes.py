"""ncc.collective_permute and its implicit forms: each rank sends to one other."""

from __future__ import annotations

from nki_dist.arch import Arch
from nki_dist.isa.collectives import roles as r
from nki_dist.program import Instruction
from nki_dist.ranges import shown


def _ring(i: Instruction, arch: Arch) -> None:
    pairs = i["source_target_pairs"]
    if not _is_circular(pairs):
        r.limitation(
            f"source_target_pairs={shown(pairs)}; allowed: one ring",
            code="collective-pairs",
        )


@r.collective(
    *r.SINGLE, r.equal_sizes("srcs dsts"), r.in_hbm("srcs dsts"), _ring, effects=r.IN_PART
)
def collective_permute(
    srcs=r.SOURCES, dsts=r.TARGETS, source_target_pairs=r.PAIRS, priority=r.PRIORITY, name=None
):
    """`dsts of target = srcs of source` for every pair.

    Args:
        srcs, dsts: one tensor each, of equal sizes and dtypes, in HBM.
        source_target_pairs: (source, target) ranks; each rank at most once on either side.
        priority: 0 (highest) to 3, NeuronCore-v4 only.

    Ranks in no pair do nothing; a rank that is no target keeps its dsts.
    """
    return locals()


def _is_circular(pairs: list[list[int]]) -> bool:
    """Whether following the pairs from any rank leads through all of them and back."""
    following = {source: target for source, target in pairs}  # noqa: C416 (pairs are lists)
    rank = first = pairs[0][0]
    for _ in pairs[1:]:
        rank = following.get(rank, -1)
        if rank in (first, -1):
            return False
    return following.get(rank) == first


_TWO = "srcs_by_channel dsts_by_channel"


@r.collective(
    r.channels(_TWO),
    r.memories(_TWO),
    r.equal_sizes(_TWO),
    r.free_dimensions(_TWO),
)
def collective_permute_implicit(
    srcs_by_channel=r.SOURCES,
    dsts_by_channel=r.TARGETS,
    replica_group=r.GROUPS,
    channel_ids=r.CHANNELS.default([0]),  # as documented; never changed
    priority=r.PRIORITY,
    name=None,
):
    """`dsts = the preceding rank's srcs`, channel by channel.

    Args:
        srcs_by_channel, dsts_by_channel: for each channel a list of exactly one tensor; all in HBM
            or all in SBUF.
        replica_group: ReplicaGroup; each group, in its order, is a ring.
        channel_ids: numbers of the channels; at most 2, or 4 for groups with all devices of a node.
        priority: 0 (highest) to 3, NeuronCore-v4 only.

    All channels go round in the same direction.
    """
    return locals()


_THREE = "srcs0_by_channel srcs1_by_channel dsts_by_channel"


@r.collective(
    r.channels(_THREE),
    r.memories(_THREE),
    r.equal_sizes(_THREE),
    r.reducible("srcs0_by_channel"),
    r.free_dimensions(_THREE),
)
def collective_permute_implicit_reduce(
    srcs0_by_channel=r.SOURCES,
    srcs1_by_channel=r.SOURCES,
    dsts_by_channel=r.TARGETS,
    replica_group=r.GROUPS,
    op=r.REDUCE,
    channel_ids=r.CHANNELS.default([0]),  # as documented; never changed
    priority=r.PRIORITY,
    name=None,
):
    """`dsts = the preceding rank's op(srcs0, srcs1)`, channel by channel.

    Args:
        srcs0_by_channel, srcs1_by_channel, dsts_by_channel: for each channel a list of exactly one
            tensor; all in HBM or all in SBUF.
        replica_group: ReplicaGroup; each group, in its order, is a ring.
        op: nl.add, nl.minimum or nl.maximum, in float32 with one rounding; integers exactly.
        channel_ids: numbers of the channels; at most 2, or 4 for groups with all devices of a node.
        priority: 0 (highest) to 3, NeuronCore-v4 only.
    """
    return locals()
