"""ncc.reduce_scatter: element-wise reduction over a group, each rank keeps one block of it."""

from __future__ import annotations

from nki_dist.isa.collectives import _roles as r


@r.collective(*r.COALESCED, r.dimension, r.gathered("dsts srcs"), r.reducible("srcs"))
def reduce_scatter(
    srcs=r.SOURCES,
    dsts=r.TARGETS,
    replica_group=r.GROUPS,
    collective_dim=r.DIMENSION,
    op=r.REDUCE,
    priority=r.PRIORITY,
    name=None,
):
    """`dsts = block p, along collective_dim, of the reduction of srcs` for the group's rank p.

    Args:
        srcs: tensors of each rank, all in HBM or one in SBUF.
        dsts: tensors of srcs' size divided by the ranks of the group along collective_dim.
        replica_group: ReplicaGroup with groups of equal size.
        collective_dim: 0.
        op: nl.add, nl.minimum or nl.maximum.
        priority: 0 (highest) to 3, NeuronCore-v4 only.

    See all_reduce for arithmetic and for who waits for whom.
    """
    return locals()
