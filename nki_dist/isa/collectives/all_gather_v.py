"""ncc.all_gather_v: every rank sends one chunk, as long as its metadata says, to all others."""

from __future__ import annotations

from nki_dist.arch import Arch
from nki_dist.isa.collectives import _roles as r
from nki_dist.isa.collectives._variable import METADATA, flat_buffers
from nki_dist.isa.operands import FLAG
from nki_dist.program import Instruction


def _limits(i: Instruction, arch: Arch) -> None:
    if i["has_rdispls"]:
        r.limitation("has_rdispls=True; allowed: False", code="collective-displacements")
    size = r.equal_group_size(i)
    if size != 4:
        r.limitation(
            f"all_gather_v with groups of {size} ranks; allowed: exactly 4",
            code="replica-group-sizes",
            numbers={"got": size, "allowed": 4},
        )


@r.collective(*r.SINGLE, flat_buffers, _limits, effects=r.IN_PART)
def all_gather_v(
    srcs=r.SOURCES,
    dsts=r.TARGETS,
    replica_group=r.GROUPS,
    metadata_tensor=METADATA,
    recv_counts_known=FLAG.default(False),
    has_rdispls=FLAG.default(False),
    priority=r.PRIORITY,
    name=None,
):
    """Each rank's `src[displ : displ + count]` lands in its slot of every rank's dst.

    Args:
        srcs, dsts: one tensor each, in HBM, seen as flat buffers.
        replica_group: ReplicaGroup with groups of equal size.
        metadata_tensor: uint32, (rows, ranks) in HBM or (1, rows, ranks) in SBUF. Row 0: own count
            (first column). Row 1: own displacement in src (first column). Row 2: counts received,
            written unless recv_counts_known. Row 3: displacements in dst, if has_rdispls.
        recv_counts_known: row 2 is left alone.
        has_rdispls: row 3 says where chunks land; otherwise dst has one slot of equal size per
            rank.
        priority: 0 (highest) to 3, NeuronCore-v4 only.

    Raises:
        OutOfBoundsError: at run time, a chunk leaves src, its slot or dst.
    """
    return locals()
