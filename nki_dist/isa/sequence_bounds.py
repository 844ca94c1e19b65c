"""nisa.sequence_bounds: where the segment of each element begins and ends."""

from __future__ import annotations

import numpy as np

from nki_dist.dtypes import float32, int32
from nki_dist.errors import invalid
from nki_dist.isa.checks import check_elements
from nki_dist.isa.effects import OPTIMISTIC, Effects
from nki_dist.isa.operands import SBUF, read, write
from nki_dist.isa.spec import Arch, Instruction, Kit, Operation, instruction, op
from nki_dist.isa.timing_rules import on_gpsimd
from nki_dist.ops.function import function

_TYPES = (float32, int32)


@instruction(
    engines="gpsimd",
    effects=Effects(OPTIMISTIC, partial=False, bits=None, state=None),
    cost=on_gpsimd("segment_ids", share=2, known=False),
)
def sequence_bounds(
    dst=write(SBUF, dtypes=_TYPES), segment_ids=read(SBUF, dtypes=_TYPES), name=None
):
    """Start and end (one past the last) of the run of equal ids each element is in.

    Args:
        dst: tile (1, 2, N), float32 or int32: starts, then ends. Elements with id 0 are padding
            and get start N and end -1.
        segment_ids: tile (1, N), float32 or int32, non-negative integers.

    Raises:
        NkiValidationError: shapes or dtypes don't fit.
    """
    return locals()


@sequence_bounds.check
def _check(i: Instruction, arch: Arch) -> None:
    dst, ids = i["dst"], i["segment_ids"]
    if dst.shape[0] != 1 or ids.shape[0] != 1:
        message = f"dst has {dst.shape[0]} partitions, segment_ids {ids.shape[0]}; both must have 1"
        raise invalid(
            message, code="operand-shape", dst=dst.shape[0], segment_ids=ids.shape[0], allowed=1
        )
    wanted = 2 * ids.free_size
    why = f"{ids.free_size} segment ids need {wanted}"
    check_elements("dst", dst, wanted, why, code="free-mismatch")


@sequence_bounds.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst, ids = i["dst"], i["segment_ids"]
    bounds = kit.scratch((2, ids.free_size), np.int32)
    change = kit.convert(int32, dst.dtype)
    return [
        op(_find, kit.view(ids), bounds),
        op(change, kit.view(dst), bounds.reshape(dst.shape)),
    ]


@function(reads="source", writes="bounds", name="find segments")
def _find(source: np.ndarray, bounds: np.ndarray) -> None:
    """First element of each element's segment, and the one after the last."""
    ids, n = source.reshape(-1), source.size
    first = np.ones(n, bool)
    np.not_equal(ids[1:], ids[:-1], first[1:])
    starts = np.flatnonzero(first).astype(np.int32)
    ends = np.append(starts[1:], np.int32(n))
    run = np.cumsum(first) - 1
    bounds[0], bounds[1] = starts[run], ends[run]
    padding = ids == 0
    bounds[0][padding], bounds[1][padding] = n, -1
