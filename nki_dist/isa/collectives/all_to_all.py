"""ncc.all_to_all: rank p of a group receives block p of every rank's tensor."""

from __future__ import annotations

from nki_dist.arch import Arch
from nki_dist.errors import NkiValidationError
from nki_dist.isa.collectives import _roles as r
from nki_dist.program import Instruction


def _blocks(i: Instruction, arch: Arch) -> None:
    """Each tensor has a block for each rank of a group."""
    dim, size = i["collective_dim"], r.equal_group_size(i)
    for n, (src, dst) in enumerate(zip(i["srcs"], i["dsts"])):
        flat = dim == 0 and not src.region.on_chip and src.size == dst.size
        if not flat and src.shape != dst.shape:
            raise NkiValidationError(
                f"dsts[{n}] has shape {dst.shape}, srcs[{n}] {src.shape}; they must be equal",
                code="collective-shape",
                numbers={"got": dst.shape, "allowed": src.shape},
            )
        for name, a in (("srcs", src), ("dsts", dst)):
            if a.shape[dim] % size:
                raise NkiValidationError(
                    f"{name}[{n}] has {a.shape[dim]} elements along collective_dim={dim}; must be "
                    f"a multiple of the {size} ranks of a group",
                    code="collective-shape",
                    numbers={"got": a.shape[dim], "multiple": size},
                )


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
