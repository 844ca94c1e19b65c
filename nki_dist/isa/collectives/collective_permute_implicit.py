"""ncc.collective_permute_implicit: each rank sends to the next of its group, as a ring."""

from __future__ import annotations

from nki_dist.isa.collectives import _roles as r

_TENSORS = "srcs_by_channel dsts_by_channel"


@r.collective(
    r.channels(_TENSORS), r.memories(_TENSORS), r.equal_sizes(_TENSORS), r.free_dimensions(_TENSORS)
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
