"""Run-time addresses: which indices keep an operand within its tensor, and the error for others."""

from __future__ import annotations

from typing import Any, Final

from nki_dist.codes.picture import outside as outside_of
from nki_dist.errors import OutOfBoundsError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.enums import oob_mode
from nki_dist.isa.transfers import Values, first_beyond, first_outside, fixed, parts_inside
from nki_dist.program import Access, Dynamic, Instruction
from nki_dist.program.access import reach
from nki_dist.program.walk import run_time_arguments

_FOLLOW: Final = (
    "bound what the index comes from, or index a reshaped view in which all places follow "
    "each other"
)


def sources(i: Instruction) -> tuple[Dynamic, ...]:
    """Where the run-time addresses of an instruction come from."""
    return tuple([a.dynamic for a in run_time_arguments(i) if a.dynamic is not None])


def resolved(i: Instruction, value: Values) -> Instruction:
    """The instruction with its scalar run-time offsets filled in, which `value` gives."""
    return i.with_tensors(lambda a: fixed(a, value))


def parts(i: Instruction, value: Values) -> list[Instruction]:
    """The instruction itself, or those parts of it whose rows are inside, with indices filled in.

    Raises:
        OutOfBoundsError: an index is out of bounds, and not to be skipped.
    """
    for a in run_time_arguments(i):
        assert a.dynamic is not None
        index = value(a.dynamic)
        fits = inside(a, index)
        if fits and a.dynamic.extent is None:
            continue
        blocks = INSTRUCTIONS[i.opcode].blocks(i)
        if row := first_beyond(blocks, a.dynamic, index):
            raise outside(a, index, row, beyond=True)
        if fits:
            continue
        if i.args.get("oob_mode") is oob_mode.skip:
            return parts_inside(i, blocks, value)
        raise outside(a, index, first_outside(blocks, value))
    return [resolved(i, value)]


def inside(a: Access, index: int) -> bool:
    """Whether index `index` keeps the access within its dimension and its storage."""
    assert a.dynamic is not None
    if a.dynamic.within is not None and not 0 <= index < a.dynamic.limit:
        return False
    if a.region.on_chip and not a.stays_in_row(index * a.dynamic.stride):
        return False
    low, high = a.span()
    move = index * a.dynamic.stride * a.dtype.itemsize
    return low + move >= 0 and high + move <= a.storage.nbytes


def interval(a: Access) -> tuple[int, int] | None:
    """Least and most of indices that are all `inside`; None where bounds aren't as simple.

    In HBM these are all that are inside. On chip, where an index may move an access into other
    partitions, they are those that don't, or that move it by whole partitions.
    """
    assert a.dynamic is not None
    if a.dynamic.extent is not None:
        return None
    unit = a.dynamic.stride * a.dtype.itemsize
    low, high = a.span()
    first, last = -low, a.storage.nbytes - high  # bytes that it may be moved
    row = a.storage.partition_bytes
    if a.region.on_chip and unit % row:
        size, (before, behind) = a.dtype.itemsize, reach(a.shape[1:], a.strides[1:])
        column = a.offset * size % row
        first, last = (
            max(first, -column - before * size),
            min(last, row - column - (behind + 1) * size),
        )
    within = a.dynamic.within is not None
    least, most = 0, a.dynamic.limit - 1
    if unit:
        bounds = _quotients(first, last, unit)
        least, most = (max(least, bounds[0]), min(most, bounds[1])) if within else bounds
    elif not within:
        return None
    if least > most or not (inside(a, least) and inside(a, most)):
        return None
    return least, most


def _quotients(first: int, last: int, unit: int) -> tuple[int, int]:
    """Least and most n with first <= n * unit <= last."""
    if unit < 0:
        first, last, unit = -last, -first, -unit
    return -(-first // unit), last // unit


def outside(a: Access, index: int, row: str = "", beyond: bool = False) -> OutOfBoundsError:
    """The error for a run-time index that leaves its tensor.

    Args:
        row: with which it does, in words.
        beyond: with that row the index leaves its dimension, and stays inside the tensor.
    """
    assert a.dynamic is not None
    low, high = _allowed(a)
    hint = None if row else "bound what the index comes from: a loop, a register, a tile"
    if beyond:
        assert a.dynamic.extent is not None
        low, high = 0, a.dynamic.extent[1]
        hint = _FOLLOW
    return OutOfBoundsError(
        f"run-time index {index} is outside [{low}, {high}) of dimension {a.dynamic.dim} "
        f"of {a.storage.label}" + (f": {row}" if row else ""),
        code="data-index-range",
        hint=hint,
        numbers={"got": index, "least": low, "most": high - 1},
        picture=_picture(a, index, high),
        policy="only check='strict' refuses it, as published kernels do so" if beyond else None,
    )


def _picture(a: Access, index: int, allowed: int) -> dict[str, Any]:
    """Which places of the dimension a run-time index asks for, with so many that are allowed."""
    assert a.dynamic is not None
    dim, shape = a.dynamic.dim, a.storage.shape
    size = a.dynamic.within[1] if a.dynamic.within else max(*shape[dim : dim + 1], allowed, 0)
    if shape[dim : dim + 1] != (size,):  # of a view in another shape
        shape = (*[1] * dim, size)
    return outside_of(a.storage.label, shape, dim, [(index, index + size - allowed + 1)])


def _allowed(a: Access) -> tuple[int, int]:
    """Values of the run-time index that keep the whole access inside, half open."""
    assert a.dynamic is not None
    unit = a.dynamic.stride * a.dtype.itemsize
    if a.dynamic.within is not None or a.region.on_chip or unit <= 0:
        return 0, a.dynamic.limit
    low, high = a.span()
    return -(low // unit), (a.storage.nbytes - high) // unit + 1
