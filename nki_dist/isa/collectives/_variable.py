"""What all_gather_v and all_to_all_v share: flat buffers and a metadata tensor of counts."""

from __future__ import annotations

from typing import Final

from nki_dist.arch import Arch
from nki_dist.dtypes import uint32
from nki_dist.errors import NkiValidationError
from nki_dist.isa.collectives import _roles as r
from nki_dist.isa.operands import Tensor
from nki_dist.program import Instruction

# Rows 0, 1 (and 3) are read, row 2 is written.
METADATA: Final = Tensor("rw", r.SBUF_OR_HBM, dtypes=(uint32,))


def check_variable(i: Instruction, arch: Arch) -> None:
    r.check_lists(i, "srcs", "dsts")
    r.check_one(i, "srcs", "dsts")
    r.check_memories(i, "srcs", "dsts")
    for name in ("srcs", "dsts"):
        a = i[name][0]
        if a.region.on_chip:
            raise NkiValidationError(f"{name}[0] is {a.storage.label}; must be in HBM")
    size = r.equal_group_size(i)
    _check_metadata(i, size)
    if not i["has_rdispls"] and i["dsts"][0].size % size:
        raise NkiValidationError(
            f"dst has {i['dsts'][0].size} elements; without receive displacements it is divided "
            f"into {size} equal slots, one per rank"
        )
    r.check_priority(i, arch)


def _check_metadata(i: Instruction, size: int) -> None:
    meta = i["metadata_tensor"]
    rows = 4 if i["has_rdispls"] else 3
    shapes = [(rows, size)] if not meta.region.on_chip else [(1, rows, size)]
    if not i["has_rdispls"]:  # a fourth row may be omitted, and may be there
        shapes.append((*shapes[0][:-2], 4, size))
    if meta.shape not in shapes:
        raise NkiValidationError(
            f"metadata_tensor has shape {meta.shape} in {meta.region.value}; allowed: "
            + " or ".join(map(str, shapes))
        )
    if meta.dynamic is not None:
        raise NkiValidationError("metadata_tensor must have an address known when tracing")
