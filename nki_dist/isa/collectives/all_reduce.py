"""ncc.all_reduce: element-wise reduction over the ranks of a group, result on each."""

from __future__ import annotations

from nki_dist.isa.collectives import _roles as r


@r.collective(
    *r.COALESCED, r.equal_sizes("srcs dsts"), r.reducible("srcs"), r.free_dimensions("srcs dsts")
)
def all_reduce(
    srcs=r.SOURCES,
    dsts=r.TARGETS,
    replica_group=r.GROUPS,
    op=r.REDUCE,
    priority=r.PRIORITY,
    name=None,
):
    """`dsts = op over all ranks of the group of srcs`, on every rank.

    Args:
        srcs, dsts: lists of tensors of equal sizes and dtypes, all in HBM or one in SBUF.
        replica_group: ReplicaGroup.
        op: nl.add, nl.minimum or nl.maximum.
        priority: 0 (highest) to 3, NeuronCore-v4 only.

    In HBM the operation is done once per rank and waits for both cores of an LNC; in SBUF core i of
    each rank works with core i of the others. Floats are reduced in float32, in an order that the
    algorithm defines (see nki_dist.collectives.algorithms), and rounded once; integers are exact
    and wrap.

    Raises:
        NkiValidationError: operands don't fit.
        CollectiveMismatchError: ranks call different collectives.
        DeadlockError: a rank never calls it.
    """
    return locals()
