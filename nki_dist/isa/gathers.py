"""nisa.nc_n_gather and local_gather: elements chosen by indices within partitions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nki_dist.codes.picture import outside
from nki_dist.dtypes import uint16, uint32
from nki_dist.dtypes.poison import poison_bits
from nki_dist.errors import OutOfBoundsError, invalid
from nki_dist.isa.checks import check_elements, same_dtype, same_partitions, same_tile
from nki_dist.isa.effects import OPTIMISTIC, Effects, moves
from nki_dist.isa.operands import SBUF, Number, read, write
from nki_dist.isa.spec import Arch, Cost, Instruction, Kit, Operation, instruction, op
from nki_dist.ops.function import copy, function


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
def _nc_n_gather_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst, data, indices = i["dst"], i["data"], i["indices"]
    shape = (data.shape[0], dst.free_size)
    flat, gathered = kit.scratch(shape, np.intp), kit.scratch(shape, dst.dtype.raw)
    return [
        op(copy, flat.reshape(indices.shape), kit.view(indices)),
        op(_gather_elements, kit.raw(data), data.free_size, kit.name(data), flat, gathered),
        op(copy, kit.raw(dst), gathered.reshape(dst.shape)),
    ]


@function(reads="bits flat", writes="flat gathered", raises=True, name="gather elements")
def _gather_elements(
    bits: np.ndarray, most: int, label: str, flat: np.ndarray, gathered: np.ndarray
) -> None:
    """Of each partition's `most` elements those that its indices `flat` choose."""
    if flat.max() >= most:
        p, n = (int(k) for k in np.argwhere(flat >= most)[0])
        raise OutOfBoundsError(
            f"index {int(flat[p, n])} (partition {p}, position {n}) is outside [0, {most}), the "
            f"elements per partition of data, {label}",
            code="data-index-range",
            hint="repair the indices",
            numbers={"got": flat[p, n], "least": 0, "most": most - 1},
            picture=outside(label, (len(bits), most), 1, [(k, k + 1) for k in flat[flat >= most]]),
        )
    np.add(flat, most * np.arange(len(bits))[:, None], flat)
    np.take(bits.reshape(-1), flat, None, gathered, "clip")


@nc_n_gather.cost
def _nc_n_gather_cost(i: Instruction, arch: Arch) -> Cost:
    groups = -(-i["dst"].free_size // 512)
    return Cost(cycles=groups * arch.gpsimd_start + i["dst"].free_size, known=False)


_WIDTHS: Final = (1, 2, 4, 8, 16, 32)


@instruction(
    engines="gpsimd",
    effects=Effects(OPTIMISTIC, partial=False, bits=moves("dst src_buffer"), state=None),
)
def local_gather(
    dst=write(SBUF),
    src_buffer=read(SBUF),
    index=read(SBUF, dtypes=[uint16]),
    num_elem_per_idx=Number(integer=True).default(1),
    num_valid_indices=Number(integer=True, optional=True).default(None),
    name=None,
):
    """For each group of 16 partitions: `dst[p, n*e + k] = src_buffer[p, indices[n] + k]`.

    `indices` are the group's 16 partitions of `index`, partitions first; e is num_elem_per_idx.

    Args:
        dst: tile with as many elements per partition as are gathered.
        src_buffer, index: tiles with the same partitions, a multiple of 16; index is uint16.
            Indices count elements of the flattened free dimensions.
        num_elem_per_idx: neighbouring elements read at each index: 1, 2, 4, 8, 16 or 32.
        num_valid_indices: indices used per group, at most 4096; all by default.

    Data moves bit by bit. An index outside src_buffer, undefined on hardware, gives poison, because
    published kernels gather by indices they never wrote and discard the result.

    Raises:
        NkiValidationError: shapes, dtypes or counts don't fit.
    """
    return locals()


def _count(i: Instruction, arch: Arch) -> int:
    given = i["num_valid_indices"]
    return arch.gpsimd_core_partitions * i["index"].free_size if given is None else given


@local_gather.check
def _check(i: Instruction, arch: Arch) -> None:
    dst, src, index = i["dst"], i["src_buffer"], i["index"]
    core = arch.gpsimd_core_partitions
    got = {name: i[name].shape[0] for name in ("dst", "src_buffer", "index")}
    if len({*got.values()}) > 1 or got["dst"] % core:
        message = (
            f"dst has {got['dst']} partitions, src_buffer {got['src_buffer']}, index "
            f"{got['index']}; must be the same multiple of {core}"
        )
        raise invalid(message, code="partition-multiple", **got, multiple=core)
    same_dtype("dst src_buffer", "a gather doesn't convert")(i, arch)
    width, count, most = i["num_elem_per_idx"], _count(i, arch), core * index.free_size
    if width not in _WIDTHS:
        message = f"num_elem_per_idx={width}; allowed: {', '.join(map(str, _WIDTHS))}"
        raise invalid(message, code="argument-range", got=width, allowed=_WIDTHS)
    if not 1 <= count <= most:
        message = (
            f"num_valid_indices={count}; allowed: 1 to {most}, the indices of {core} partitions"
        )
        raise invalid(message, code="argument-range", got=count, least=1, most=most)
    if count > arch.local_gather_indices_max:
        message = f"{count} indices per GpSimd core; at most {arch.local_gather_indices_max}"
        raise invalid(message, code="free-limit", got=count, most=arch.local_gather_indices_max)
    why = f"{count} indices of {width} elements make {count * width}"
    check_elements("dst", dst, count * width, why, code="free-mismatch")


@local_gather.meaning
def _local_gather_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst, src, count, width = i["dst"], i["src_buffer"], _count(i, kit.arch), i["num_elem_per_idx"]
    gathered = kit.scratch((src.shape[0], count * width), src.dtype.raw)
    share, missing = kit.arch.gpsimd_core_partitions, src.dtype.raw.type(poison_bits(src.dtype))
    indices = kit.view(i["index"])
    return [
        op(_gather_in_groups, kit.raw(src), indices, count, width, share, missing, gathered),
        op(copy, kit.raw(dst), gathered.reshape(dst.shape)),
    ]


@function(reads="bits indices", writes="gathered", name="gather in groups")
def _gather_in_groups(
    bits: np.ndarray,
    indices: np.ndarray,
    count: int,
    width: int,
    share: int,
    missing: np.integer[Any],
    gathered: np.ndarray,
) -> None:
    """For each `share` partitions, what their indices choose; `missing` outside a partition."""
    partitions = len(bits)
    data, positions = bits.reshape(partitions, -1), indices.reshape(partitions, -1)
    most, neighbours = data.shape[1], np.arange(width)
    for start in range(0, partitions, share):
        core = slice(start, start + share)
        first = positions[core].T.reshape(-1)[:count].astype(np.intp)
        at = (first[:, None] + neighbours).reshape(-1)
        np.take(data[core], at, 1, gathered[core], "clip")
        if at.max() >= most:
            gathered[core][:, at >= most] = missing


@local_gather.cost
def _local_gather_cost(i: Instruction, arch: Arch) -> Cost:
    width = i["num_elem_per_idx"]
    size = i["src_buffer"].dtype.itemsize
    rate = ((28 + 4 * width) / (4 * width)) / min(4 / size, width)
    return Cost(cycles=arch.gpsimd_start + _count(i, arch) * width / rate)
