"""ncc.collective_permute_implicit_reduce: a ring step that sends the reduction of two tensors."""

from __future__ import annotations

from nki_dist.isa.collectives import _roles as r

_TENSORS = "srcs0_by_channel srcs1_by_channel dsts_by_channel"


@r.collective(
    r.channels(_TENSORS),
    r.memories(_TENSORS),
    r.equal_sizes(_TENSORS),
    r.reducible("srcs0_by_channel"),
    r.free_dimensions(_TENSORS),
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
