"""ncc.all_gather: the tensors of all ranks of a group, one after the other, on each."""

from __future__ import annotations

from nki_dist.isa.collectives import _roles as r


@r.collective(*r.COALESCED, r.dimension, r.gathered("srcs dsts"))
def all_gather(
    srcs=r.SOURCES,
    dsts=r.TARGETS,
    replica_group=r.GROUPS,
    collective_dim=r.DIMENSION,
    priority=r.PRIORITY,
    name=None,
):
    """`dsts = the ranks' srcs, concatenated along collective_dim` in the order of the group.

    Args:
        srcs: tensors of each rank, all in HBM or one in SBUF.
        dsts: tensors as many times as large along collective_dim as the group has ranks.
        replica_group: ReplicaGroup with groups of equal size.
        collective_dim: 0; in SBUF also 1.
        priority: 0 (highest) to 3, NeuronCore-v4 only.

    Bits are copied. See all_reduce for who waits for whom.
    """
    return locals()
