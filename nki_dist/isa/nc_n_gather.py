"""nisa.nc_n_gather: gathers elements within each partition."""

from __future__ import annotations

import numpy as np

from nki_dist.arch import Arch
from nki_dist.codes.picture import outside
from nki_dist.dtypes import uint32
from nki_dist.errors import OutOfBoundsError
from nki_dist.isa.checks import same_dtype, same_partitions, same_tile
from nki_dist.isa.effects import OPTIMISTIC, Effects, moves
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import SBUF, read, write
from nki_dist.isa.spec import Cost, instruction
from nki_dist.ops.function import copy, function
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Instruction


@instruction(
    engines="gpsimd",
    effects=Effects(OPTIMISTIC, partial=False, bits=moves("dst data"), state=None),
    checks=[
        same_partitions("dst data indices"),
        same_tile("dst indices"),
        same_dtype("dst data", "a gather doesn't convert"),
    ],
)
def nc_n_gather(dst=write(SBUF), data=read(SBUF), indices=read(SBUF, dtypes=[uint32]), name=None):
    """`dst[p, n] = data[p, indices[p, n]]`, with flattened free dimensions.

    Args:
        dst: tile with as many elements per partition as indices, same dtype as data.
        data: tile with the same partitions.
        indices: uint32 tile.

    Data moves bit by bit.

    Raises:
        NkiValidationError: shapes or dtypes don't fit.
        OutOfBoundsError: at run time, an index is not below data's elements per partition.
    """
    return locals()


@nc_n_gather.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst, data, indices = i["dst"], i["data"], i["indices"]
    shape = (data.shape[0], dst.free_size)
    flat, gathered = kit.scratch(shape, np.intp), kit.scratch(shape, dst.dtype.raw)
    return [
        op(copy, flat.reshape(indices.shape), kit.view(indices)),
        op(_gather, kit.raw(data), data.free_size, kit.name(data), flat, gathered),
        op(copy, kit.raw(dst), gathered.reshape(dst.shape)),
    ]


@function(reads="bits flat", writes="flat gathered", raises=True, name="gather elements")
def _gather(
    bits: np.ndarray, room: int, label: str, flat: np.ndarray, gathered: np.ndarray
) -> None:
    """Of each partition's `room` elements those that its indices `flat` choose."""
    if flat.max() >= room:
        p, n = (int(k) for k in np.argwhere(flat >= room)[0])
        raise OutOfBoundsError(
            f"index {int(flat[p, n])} (partition {p}, position {n}) is outside [0, {room}), the "
            f"elements per partition of data, {label}",
            code="data-index-range",
            hint="repair the indices",
            numbers={"got": flat[p, n], "least": 0, "most": room - 1},
            picture=outside(label, (len(bits), room), 1, [(k, k + 1) for k in flat[flat >= room]]),
        )
    np.add(flat, room * np.arange(len(bits))[:, None], flat)
    np.take(bits.reshape(-1), flat, None, gathered, "clip")


@nc_n_gather.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    groups = -(-i["dst"].free_size // 512)
    return Cost(cycles=groups * arch.gpsimd_start + i["dst"].free_size, known=False)
