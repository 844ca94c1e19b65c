"""nisa.topk: the largest elements of each group of 16 partitions, and where they were."""

from __future__ import annotations

import numpy as np

from nki_dist.dtypes import bfloat16, uint32
from nki_dist.errors import invalid
from nki_dist.isa.checks import check_range, same_partitions, same_tile
from nki_dist.isa.effects import OPTIMISTIC, Effects, moves
from nki_dist.isa.operands import SBUF, Number, read, write
from nki_dist.isa.spec import Arch, Cost, Instruction, Kit, Operation, instruction, op
from nki_dist.ops.function import function


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
def _check(i: Instruction, arch: Arch) -> None:
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
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    values, places = kit.raw(i["val_dst"]), kit.raw(i["idx_dst"])
    share, k = kit.arch.gpsimd_core_partitions, i["val_dst"].free_size
    return [op(_select, kit.raw(i["src"]), i["n"], k, share, values, places)]


@function(reads="bits", writes="values places", partial=True, name="top k")
def _select(
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
def _cost(i: Instruction, arch: Arch) -> Cost:
    return Cost(cycles=4 * i["n"] + i["val_dst"].free_size)
