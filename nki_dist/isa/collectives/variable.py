"""ncc.all_gather_v and all_to_all_v: flat buffers, and a tensor that says how much goes where."""

from __future__ import annotations

from typing import Final

from nki_dist.arch import Arch
from nki_dist.dtypes import uint32
from nki_dist.errors import invalid
from nki_dist.isa.collectives import roles as r
from nki_dist.isa.operands import FLAG, SBUF_OR_HBM, Counts
from nki_dist.program import Access, Instruction


def flat_buffers(i: Instruction, arch: Arch) -> None:
    """Tensors are in HBM, and as long as the metadata's form asks for."""
    for name in ("srcs", "dsts"):
        a = i[name][0]
        if a.region.on_chip:
            message = f"{name}[0] is {a.storage.label}; must be in HBM"
            raise invalid(message, code="collective-memory")
    size = r.equal_group_size(i)
    _check_metadata(i, size)
    if not i["has_rdispls"] and i["dsts"][0].size % size:
        message = (
            f"dst has {i['dsts'][0].size} elements; without receive displacements it is divided "
            f"into {size} equal slots, one per rank"
        )
        raise invalid(message, code="collective-shape", got=i["dsts"][0].size, multiple=size)


def _check_metadata(i: Instruction, size: int) -> None:
    meta = i["metadata_tensor"]
    rows = 4 if i["has_rdispls"] else 3
    shapes = [(rows, size)] if not meta.region.on_chip else [(1, rows, size)]
    if not i["has_rdispls"]:  # a fourth row may be omitted, and may be there
        shapes.append((*shapes[0][:-2], 4, size))
    if meta.shape not in shapes:
        message = (
            f"metadata_tensor has shape {meta.shape} in {meta.region.value}; allowed: "
            + " or ".join(map(str, shapes))
        )
        raise invalid(message, code="collective-metadata", got=meta.shape)
    if meta.dynamic is not None:
        message = "metadata_tensor must have an address known when tracing"
        raise invalid(message, code="collective-metadata")
    row, column = meta.strides[-2:]
    if row != size or (column != 1 and size > 1):
        message = (
            f"metadata_tensor has strides {row} and {column} between rows and columns; it must be "
            f"contiguous, with strides {size} and 1"
        )
        raise invalid(message, code="collective-metadata", got=[row, column], allowed=[size, 1])


def rows_read(i: Instruction) -> list[Access]:
    """The parts of metadata_tensor that are inputs.

    Row 2, the counts received, never is. all_gather_v reads the first column of rows 0 and 1 only.
    """
    meta, size = i["metadata_tensor"], i["metadata_tensor"].shape[-1]
    parts = [_rows(meta, 0, 2, 1 if i.opcode == "all_gather_v" else size)]
    return [*parts, _rows(meta, 3, 1, size)] if i["has_rdispls"] else parts


def rows_written(i: Instruction) -> list[Access]:
    """The parts of metadata_tensor that are results: row 2, unless the counts are known."""
    meta = i["metadata_tensor"]
    return [] if i["recv_counts_known"] else [_rows(meta, 2, 1, meta.shape[-1])]


def _rows(meta: Access, first: int, count: int, columns: int) -> Access:
    shape = (*meta.shape[:-2], count, columns)
    offset = meta.offset + first * meta.strides[-2]
    return Access(meta.storage, offset, shape, meta.strides, meta.dtype)


METADATA: Final = Counts("rw", SBUF_OR_HBM, (uint32,), read=rows_read, written=rows_written)


def _all_gather_v_limits(i: Instruction, arch: Arch) -> None:
    if i["has_rdispls"]:
        r.limitation("has_rdispls=True; allowed: False", code="collective-displacements")
    size = r.equal_group_size(i)
    if size != 4:
        r.limitation(
            f"all_gather_v with groups of {size} ranks; allowed: exactly 4",
            code="replica-group-sizes",
            got=size,
            allowed=4,
        )


@r.collective(*r.SINGLE, flat_buffers, _all_gather_v_limits, effects=r.IN_PART)
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


def _all_to_all_v_limits(i: Instruction, arch: Arch) -> None:
    if i["has_rdispls"] and arch.fabric != "switch":
        r.limitation(
            f"has_rdispls=True on {arch.name}; allowed: on platforms with NeuronSwitch",
            code="collective-displacements",
        )


@r.collective(*r.SINGLE, flat_buffers, _all_to_all_v_limits, effects=r.IN_PART)
def all_to_all_v(
    srcs=r.SOURCES,
    dsts=r.TARGETS,
    replica_group=r.GROUPS,
    metadata_tensor=METADATA,
    recv_counts_known=FLAG.default(False),
    has_rdispls=FLAG.default(False),
    priority=r.PRIORITY,
    name=None,
):
    """`src[displs[r] : displs[r] + counts[r]]` goes to rank r of the group, also to itself.

    Args:
        srcs, dsts: one tensor each, in HBM, seen as flat buffers.
        replica_group: ReplicaGroup with groups of equal size.
        metadata_tensor: uint32, (rows, ranks) in HBM or (1, rows, ranks) in SBUF. Row 0: counts
            sent. Row 1: displacements in src. Row 2: counts received, written unless
            recv_counts_known. Row 3: displacements in dst, if has_rdispls.
        recv_counts_known: row 2 is left alone.
        has_rdispls: row 3 says where chunks land; otherwise dst has one slot of equal size per
            rank.
        priority: 0 (highest) to 3, NeuronCore-v4 only.

    Raises:
        OutOfBoundsError: at run time, a chunk leaves src, its slot or dst.
    """
    return locals()
