"""nisa.nc_n_gather: gathers elements within each partition."""

from __future__ import annotations

import numpy as np

from nki_dist.arch import Arch
from nki_dist.dtypes import uint32
from nki_dist.errors import NkiValidationError, OutOfBoundsError
from nki_dist.isa.checks import same_partitions, same_tile
from nki_dist.isa.effects import OPTIMISTIC, Effects, moves
from nki_dist.isa.kit import Kit, Step
from nki_dist.isa.operands import SBUF, read, write
from nki_dist.isa.spec import Cost, instruction
from nki_dist.program import Instruction


@instruction(
    engines="gpsimd",
    effects=Effects(OPTIMISTIC, partial=False, bits=moves("dst data"), state=None),
    dst=write(SBUF),
    data=read(SBUF),
    indices=read(SBUF, dtypes=[uint32]),
)
def nc_n_gather(dst, data, indices, name=None):
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


@nc_n_gather.check
def _check(i: Instruction, arch: Arch) -> None:
    same_partitions(dst=i["dst"], data=i["data"], indices=i["indices"])
    same_tile(dst=i["dst"], indices=i["indices"])
    if i["dst"].dtype is not i["data"].dtype:
        raise NkiValidationError(
            f"dst has dtype {i['dst'].dtype}, data {i['data'].dtype}; a gather doesn't convert",
            code="dtype-mismatch",
            numbers={"dst": i["dst"].dtype, "data": i["data"].dtype},
        )


@nc_n_gather.meaning
def _meaning(i: Instruction, kit: Kit) -> Step:
    dst, data = i["dst"], i["data"]
    bits, indices, target = kit.raw(data), kit.view(i["indices"]), kit.raw(dst)
    partitions, room = data.shape[0], data.free_size
    flat = kit.scratch((partitions, dst.free_size), np.intp)
    gathered = kit.scratch((partitions, dst.free_size), dst.dtype.raw)
    rows = room * np.arange(partitions)[:, None]
    into, shaped, label = (
        flat.reshape(i["indices"].shape),
        gathered.reshape(dst.shape),
        kit.name(data),
    )

    def gather() -> None:
        np.copyto(into, indices)
        if flat.max() >= room:
            p, n = (int(k) for k in np.argwhere(flat >= room)[0])
            raise OutOfBoundsError(
                f"index {int(flat[p, n])} (partition {p}, position {n}) is outside [0, {room}), "
                f"the elements per partition of data, {label}",
                code="data-index-range",
                hint="repair the indices",
                numbers={"got": flat[p, n], "least": 0, "most": room - 1},
            )
        np.add(flat, rows, flat)
        np.take(bits.reshape(-1), flat, None, gathered, "clip")
        np.copyto(target, shaped)

    return gather


@nc_n_gather.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    groups = -(-i["dst"].free_size // 512)
    return Cost(cycles=groups * arch.gpsimd_start + i["dst"].free_size, known=False)


__all__ = ["nc_n_gather"]
