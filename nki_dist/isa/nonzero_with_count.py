"""nisa.nonzero_with_count: positions of nonzero elements, on every sixteenth partition."""

from __future__ import annotations

import numpy as np

from nki_dist.dtypes import float32, int32
from nki_dist.errors import invalid
from nki_dist.isa.affine import as_int32
from nki_dist.isa.checks import check_elements, same_partitions
from nki_dist.isa.effects import OPTIMISTIC, Effects
from nki_dist.isa.nc_stream_shuffle import start_partition
from nki_dist.isa.operands import SBUF, Custom, read, write
from nki_dist.isa.spec import Arch, Instruction, Kit, Operation, instruction, op
from nki_dist.isa.timing_rules import on_gpsimd
from nki_dist.ops.function import copy, function


@instruction(
    engines="gpsimd",
    effects=Effects(OPTIMISTIC, partial=True, bits=None, state=None),
    min_generation=3,
    checks=[same_partitions("dst src")],
    cost=on_gpsimd("src", known=False),
)
def nonzero_with_count(
    dst=write(SBUF, dtypes=[int32], any_start=True),
    src=read(SBUF, dtypes=[float32, int32], any_start=True),
    index_offset=Custom(as_int32).default(0),
    padding_val=Custom(as_int32).default(-1),
    name=None,
):
    """Positions of nonzero elements, padding, and their count, on partitions 0, 16, ..., 112.

    Args:
        dst: int32 tile with one element per partition more than src: the positions plus
            index_offset, then padding_val, then the count. Other partitions are left alone.
        src: float32 or int32 tile; only partitions 0, 16, ..., 112 are read.
        index_offset, padding_val: 32-bit integers.

    Raises:
        NkiValidationError: shapes or dtypes don't fit.
    """
    return locals()


@nonzero_with_count.check
def _check(i: Instruction, arch: Arch) -> None:
    dst, src = i["dst"], i["src"]
    wanted = src.free_size + 1
    why = f"must be one more than src's {src.free_size}"
    check_elements("dst", dst, wanted, why, code="free-mismatch")
    core = arch.gpsimd_core_partitions
    for name, a in (("dst", dst), ("src", src)):
        if start_partition(a) % core:
            message = (
                f"{name} starts at partition {start_partition(a)}; must be a multiple of {core}, "
                "the partitions that a GpSimd core reads and writes"
            )
            raise invalid(message, code="partition-start", got=start_partition(a), multiple=core)


@nonzero_with_count.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    core = kit.arch.gpsimd_core_partitions  # of whose partitions it uses the first
    source, target = kit.view(i["src"])[::core], kit.view(i["dst"])[::core]
    result = kit.scratch((len(source), i["src"].free_size + 1), np.int32)
    offset = np.int32(i["index_offset"])
    return [
        op(_find, source, offset, i["padding_val"], result),
        op(copy, target, result.reshape(target.shape)),
    ]


@function(reads="source", writes="result", name="find nonzero")
def _find(source: np.ndarray, offset: np.int32, padding: int, result: np.ndarray) -> None:
    """Where rows aren't zero, and in the last column how often."""
    result[...] = padding
    for row, values in zip(result, source, strict=True):
        found = np.flatnonzero(values)
        np.add(found.astype(np.int32), offset, row[: found.size])
        row[-1] = found.size
