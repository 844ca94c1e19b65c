"""ncc.all_gather, all_reduce, reduce_scatter and all_to_all: a group exchanges equal tensors."""

from __future__ import annotations

from nki_dist.arch import Arch
from nki_dist.errors import invalid
from nki_dist.isa.collectives import roles as r
from nki_dist.program import Instruction


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


def _blocks(i: Instruction, arch: Arch) -> None:
    """Each tensor has a block for each rank of a group."""
    dim, size = i["collective_dim"], r.equal_group_size(i)
    for n, (src, dst) in enumerate(zip(i["srcs"], i["dsts"])):
        flat = dim == 0 and not src.region.on_chip and src.size == dst.size
        if not flat and src.shape != dst.shape:
            message = f"dsts[{n}] has shape {dst.shape}, srcs[{n}] {src.shape}; they must be equal"
            raise invalid(message, code="collective-shape", got=dst.shape, allowed=src.shape)
        for name, a in (("srcs", src), ("dsts", dst)):
            if a.shape[dim] % size:
                message = (
                    f"{name}[{n}] has {a.shape[dim]} elements along collective_dim={dim}; must be "
                    f"a multiple of the {size} ranks of a group"
                )
                raise invalid(message, code="collective-shape", got=a.shape[dim], multiple=size)


@r.collective(*r.COALESCED, r.in_hbm("srcs dsts"), r.dimension, _blocks)
def all_to_all(
    srcs=r.SOURCES,
    dsts=r.TARGETS,
    replica_group=r.GROUPS,
    collective_dim=r.DIMENSION,
    priority=r.PRIORITY,
    name=None,
):
    """`dsts = blocks p of all ranks' srcs, concatenated` for the group's rank p.

    Args:
        srcs, dsts: tensors of equal shapes, in HBM, whose size along collective_dim is a multiple
            of the group's size.
        replica_group: ReplicaGroup with groups of equal size.
        collective_dim: 0.
        priority: 0 (highest) to 3, NeuronCore-v4 only.

    Bits are copied. See all_reduce for who waits for whom.
    """
    return locals()
