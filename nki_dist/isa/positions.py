"""nisa.nonzero_with_count, sequence_bounds and topk: where on GpSimd elements are found."""

from __future__ import annotations

import numpy as np

from nki_dist.dtypes import bfloat16, float32, int32, uint32
from nki_dist.errors import invalid
from nki_dist.isa.affine import as_int32
from nki_dist.isa.checks import check_elements, check_range, same_partitions, same_tile
from nki_dist.isa.effects import OPTIMISTIC, Effects, moves
from nki_dist.isa.operands import SBUF, Custom, Number, read, write
from nki_dist.isa.reach import start_partition
from nki_dist.isa.spec import Arch, Cost, Instruction, Kit, Operation, instruction, op
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
def _nonzero_check(i: Instruction, arch: Arch) -> None:
    dst, src = i["dst"], i["src"]
    expected = src.free_size + 1
    why = f"must be one more than src's {src.free_size}"
    check_elements("dst", dst, expected, why, code="free-mismatch")
    core = arch.gpsimd_core_partitions
    for name, a in (("dst", dst), ("src", src)):
        if start_partition(a) % core:
            message = (
                f"{name} starts at partition {start_partition(a)}; must be a multiple of {core}, "
                "the partitions that a GpSimd core reads and writes"
            )
            raise invalid(message, code="partition-start", got=start_partition(a), multiple=core)


@nonzero_with_count.meaning
def _nonzero_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    core = kit.arch.gpsimd_core_partitions  # of whose partitions it uses the first
    source, target = kit.view(i["src"])[::core], kit.view(i["dst"])[::core]
    result = kit.scratch((len(source), i["src"].free_size + 1), np.int32)
    offset = np.int32(i["index_offset"])
    return [
        op(_find_nonzero, source, offset, i["padding_val"], result),
        op(copy, target, result.reshape(target.shape)),
    ]


@function(reads="source", writes="result", name="find nonzero")
def _find_nonzero(source: np.ndarray, offset: np.int32, padding: int, result: np.ndarray) -> None:
    """Where rows aren't zero, and in the last column how often."""
    result[...] = padding
    for row, values in zip(result, source, strict=True):
        found = np.flatnonzero(values)
        np.add(found.astype(np.int32), offset, row[: found.size])
        row[-1] = found.size


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
def _segments_check(i: Instruction, arch: Arch) -> None:
    dst, ids = i["dst"], i["segment_ids"]
    if dst.shape[0] != 1 or ids.shape[0] != 1:
        message = f"dst has {dst.shape[0]} partitions, segment_ids {ids.shape[0]}; both must have 1"
        raise invalid(
            message, code="operand-shape", dst=dst.shape[0], segment_ids=ids.shape[0], allowed=1
        )
    expected = 2 * ids.free_size
    why = f"{ids.free_size} segment ids need {expected}"
    check_elements("dst", dst, expected, why, code="free-mismatch")


@sequence_bounds.meaning
def _segments_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst, ids = i["dst"], i["segment_ids"]
    bounds = kit.scratch((2, ids.free_size), np.int32)
    change = kit.convert(int32, dst.dtype)
    return [
        op(_find_segments, kit.view(ids), bounds),
        op(change, kit.view(dst), bounds.reshape(dst.shape)),
    ]


@function(reads="source", writes="bounds", name="find segments")
def _find_segments(source: np.ndarray, bounds: np.ndarray) -> None:
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


@instruction(
    engines="gpsimd",
    effects=Effects(OPTIMISTIC, partial=True, bits=moves("val_dst src"), state=None),
    exactness=(
        "approximate: the set of values is exact; their places in dst, and which of equal values "
        "are taken, aren't documented"
    ),
    checks=[same_partitions("val_dst idx_dst src"), same_tile("val_dst idx_dst")],
)
def topk(
    val_dst=write(SBUF, dtypes=[bfloat16]),
    idx_dst=write(SBUF, dtypes=[uint32]),
    src=read(SBUF, dtypes=[bfloat16]),
    n=Number(integer=True),
    name=None,
):
    """The K largest of n elements per group of 16 partitions, in ascending order.

    A group holds its elements as a snake: element e is in partition e % 16, column e // 16.
    Results are laid out likewise: number j goes to partition j % 16, column j // 16 of the group in
    val_dst and idx_dst, and their other columns are left alone. Of equal values those with the
    lower index are taken; NaN only when nothing else is left.

    Args:
        val_dst: bfloat16 tile (P, K); K is at most n and below 32768.
        idx_dst: uint32 tile (P, K): positions in the snake.
        src: bfloat16 tile (P, X), X at least n / 16; P is a multiple of 16.
        n: elements of the snake, 8 to 65535.

    Raises:
        NkiValidationError: shapes, dtypes or counts don't fit.
    """
    return locals()


@topk.check
def _topk_check(i: Instruction, arch: Arch) -> None:
    values, src, n = i["val_dst"], i["src"], i["n"]
    k, core = values.free_size, arch.gpsimd_core_partitions
    if src.shape[0] % core:
        message = f"src has {src.shape[0]} partitions; must be a multiple of {core}"
        raise invalid(message, code="partition-multiple", got=src.shape[0], multiple=core)
    check_range("n", n, 8, 65535)
    if not 1 <= k < 32768 or k > n:
        message = f"val_dst asks for K={k} elements; allowed: 1 to {min(n, 32767)}"
        raise invalid(message, code="argument-range", got=k, least=1, most=min(n, 32767))
    if src.free_size < -(-n // core):
        message = f"src has {src.free_size} elements per partition; n={n} needs {-(-n // core)}"
        raise invalid(message, code="free-limit", got=src.free_size, least=-(-n // core))


@topk.meaning
def _topk_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    values, places = kit.raw(i["val_dst"]), kit.raw(i["idx_dst"])
    share, k = kit.arch.gpsimd_core_partitions, i["val_dst"].free_size
    return [op(_topk_select, kit.raw(i["src"]), i["n"], k, share, values, places)]


@function(reads="bits values places", writes="values places", name="top k")
def _topk_select(
    bits: np.ndarray, n: int, k: int, share: int, values: np.ndarray, places: np.ndarray
) -> None:
    """Of each `share` partitions' first n elements the k largest, and where they are."""
    snake, columns = bits.reshape(len(bits), -1), -(-k // share)
    order = np.arange(k)
    rows, cols = order % share, order // share
    for start in range(0, len(bits), share):
        taken = snake[start : start + share].T.reshape(-1)[:n]
        best = np.argsort(_descending(taken), kind="stable")[:k][::-1]
        for target, what in ((values, taken[best]), (places, best)):
            group = target[start : start + share].reshape(share, -1)
            head = group[:, :columns].copy()
            head[rows, cols] = what
            group[:, :columns] = head
            target[start : start + share] = group.reshape(target[:share].shape)


def _descending(bits: np.ndarray) -> np.ndarray:
    """Keys of bfloat16, float32 or float64 bits that sort from large to small, NaN last.

    16 bits sort by radix.
    """
    width = 8 * bits.itemsize
    exponent = 11 if width == 64 else 8
    whole, top = (1 << width) - 1, 1 << width - 1
    ones, sign, infinity = (
        bits.dtype.type(n) for n in (whole, top, top - (1 << width - 1 - exponent))
    )
    rest = ones ^ sign
    bits = np.where(bits == sign, bits.dtype.type(0), bits)  # the zeros are equal
    keys = np.where(bits & sign, bits, bits ^ rest)
    keys[(bits & rest) > infinity] = ones
    return keys


@topk.cost
def _topk_cost(i: Instruction, arch: Arch) -> Cost:
    return Cost(cycles=4 * i["n"] + i["val_dst"].free_size)
