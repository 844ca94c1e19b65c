"""Makes instructions of Beta 1 operations: results, masks, assignment, transfers.

Every operation allocates its result as the language does, runs on the box its mask leaves, and
where the kernel assigns the result at once, the last instruction is made to write the destination
itself. Reductions of `nl.loop_reduce` are float32 sums kept from iteration to iteration.

Follows: `nki.language` of the NKI 0.1 documentation (SDK 2.26).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from nki_dist.compat.beta1.mask import Box
from nki_dist.compat.beta1.promotion import of_operand, promoted
from nki_dist.compat.beta1.regions import common, is_empty, region, taken, untouched
from nki_dist.compat.beta1.retarget import retarget
from nki_dist.compat.beta1.select import cut
from nki_dist.compat.beta1.state import state
from nki_dist.compat.beta1.tile import BlockTile, Tile
from nki_dist.dtypes import bool_
from nki_dist.errors import NkiValidationError
from nki_dist.isa import dma_copy, memset, tensor_copy
from nki_dist.isa import tensor_scalar as _tensor_scalar
from nki_dist.isa import tensor_tensor as _tensor_tensor
from nki_dist.isa.spec import current_tracer
from nki_dist.language import emit
from nki_dist.language.tensor import NkiTensor
from nki_dist.program import psum

COMPARISONS = frozenset(
    {"equal", "not_equal", "less", "less_equal", "greater", "greater_equal"}
    | {"logical_and", "logical_or", "logical_xor", "logical_not"}
)


def no_blocks(what: str, *operands: Any) -> None:
    """Refuse a tensor with block dimensions."""
    for x in operands:
        if isinstance(x, BlockTile):
            raise NkiValidationError(
                f"{what} of a tensor with block dimensions {x.tiles.shape}; index the blocks, "
                "which are separate tiles",
                code="beta1-blocks",
                numbers={"blocks": x.tiles.shape},
            )


# ---- operations ---------------------------------------------------------------------------------

Reduced = Callable[[Sequence[Any]], tuple]


def apply(
    name: str,
    build: Callable[..., NkiTensor],
    operands: Sequence[Any],
    mask: Any = None,
    reduced: Reduced | None = None,
) -> Any:
    """A new tile made by `build` from the operands' access patterns.

    Args:
        name: of the function, for messages.
        operands: tiles and numbers.
        mask: of the operands' broadcast shape.
        reduced: from sizes (or a box) of the operands to those of the result; the same by default.
    """
    no_blocks(f"nl.{name}", *operands)
    if mask is None:
        return Tile(build(*(x.resolve() if isinstance(x, Tile) else x for x in operands)))
    shape = common(operands)
    box = region(mask, shape)
    if box is None:
        return apply(name, build, operands)
    if is_empty(box):
        return untouched(operands, shape if reduced is None else tuple(reduced(shape)))
    result = build(*(taken(x, box) for x in operands))
    if reduced is not None:
        shape, box = tuple(reduced(shape)), tuple(reduced(box))
    while len(shape) < 2:
        shape, box = (*shape, 1), (*box, (0, 1))
    return widened(result, shape, box)


def binary(function: str, x: Any, y: Any, dtype: Any = None, mask: Any = None) -> Any:
    """`x op y` on tiles and numbers."""
    if dtype is None and function in COMPARISONS:
        dtype = bool_
    no_blocks(f"nl.{function}", x, y)
    if not isinstance(x, Tile) and not isinstance(y, Tile):
        message = f"nl.{function}({x!r}, {y!r}); one of them must be a tile"
        raise NkiValidationError(message, code="operand-kind")
    x, y = (_number(function, v) for v in (x, y))
    if dtype is None and not function.startswith("bitwise") and not function.endswith("shift"):
        dtype = promoted(of_operand(x), of_operand(y))
    return apply(function, lambda a, b: emit.binary(function, a, b, dtype), (x, y), mask)


def _number(function: str, value: Any) -> Any:
    if isinstance(value, (Tile, *emit.NUMBERS)):
        return value
    raise NkiValidationError(
        f"nl.{function} of {value!r} of type {type(value).__name__}; allowed: tiles and numbers "
        "(an index expression becomes a tile with nisa.iota)",
        code="operand-kind",
    )


# ---- writing ------------------------------------------------------------------------------------


def in_sbuf(x: NkiTensor) -> NkiTensor:
    """The tile itself, or a copy of it if it is in PSUM."""
    return emit.copy(x, None) if x.buffer is psum else x


def move(dst: NkiTensor, src: NkiTensor) -> None:
    """Copy to a tile on chip."""
    if src.storage.region.on_chip:
        tensor_copy(dst, src)
    else:
        dma_copy(dst, src)


def written(tile: Any) -> None:
    """Announce that an instruction is about to write a tile."""
    if isinstance(tile, Tile):
        tile.unshare()
        writing(tile.access)


def writing(view: NkiTensor) -> NkiTensor:
    """Announce a write to an existing tensor."""
    state().before_write(view.storage)
    if view.buffer is psum:
        state().preloaded.add(view.storage)
    return view


def assign(dst: Any, value: Any) -> None:
    """`tensor[...] = value`."""
    no_blocks("assignment", dst, value)
    if isinstance(value, emit.NUMBERS):
        _fill(dst, value)
        return
    if not isinstance(value, Tile):
        raise NkiValidationError(
            f"a tile is assigned {value!r} of type {type(value).__name__}; allowed: a tile or a "
            "number",
            code="operand-kind",
        )
    if not dst.on_chip:
        raise NkiValidationError(
            f"assignment to {dst.access.storage.label}; tensors in HBM are written with nl.store",
            code="memory-kind",
            hint="",
        )
    if value.access.same_elements(dst.access):
        return  # the end of `tensor[...] += x`
    kept = value.mask
    if kept is None or value.shape != dst.shape:
        _assign_whole(dst, value)
    elif not is_empty(kept):
        move(writing(dst.resolve(kept)), fitted(value, dst.shape, kept))


def _assign_whole(dst: Tile, value: Tile) -> None:
    """Write every element of a tile on chip, by the instruction that made the value if possible."""
    target = dst.resolve()
    source = fitted(value, target.shape)
    if source is value.access:
        state().before_write(target.storage)
        if retarget(target, source):
            value.borrow(target)
            return
    move(writing(target), source)


def _fill(dst: Tile, number: Any) -> None:
    if not dst.on_chip:
        store(dst, number)
        return
    target = dst.resolve()
    state().before_write(target.storage)
    if target.buffer is psum and number != 0:
        state().preloaded.add(target.storage)
    try:
        memset(target, _typed(number, target))
    except NkiValidationError:  # a partition where engines can't start
        if target.buffer is psum:
            raise
        source = emit.new(target.shape, target.dtype)
        memset(source, _typed(number, target))
        dma_copy(target, source)


def _typed(number: Any, view: NkiTensor) -> Any:
    """A Python number of the tile's kind."""
    if view.dtype.is_integer and float(number).is_integer():
        return int(number)
    return float(number) if view.dtype.is_float else number


def fitted(value: Tile, shape: tuple[int, ...], box: Box | None = None) -> NkiTensor:
    """A value in the shape it is assigned to: equal, the same elements, or repeated."""
    if value.shape == shape:
        return value.resolve(box)
    view = value.resolve()
    if view.size == prod(shape):
        if box is None:
            return view
        return cut(view.reshape(shape), box)
    return cut(Tile(view).broadcast_to(shape).access, box)


def in_place(function: str, dst: Any, value: Any) -> Any:
    """`dst op= value`: the destination keeps its dtype."""
    no_blocks(f"nl.{function} in place", dst, value)
    kept = getattr(value, "mask", None)
    if is_empty(kept):
        return dst
    dst.unshare()
    box = kept if kept is not None and value.shape == dst.shape else None
    target = dst.resolve(box)
    state().before_write(target.storage)
    if isinstance(value, emit.NUMBERS):
        _tensor_scalar(target, target, function, value)
        return dst
    source = fitted(value, dst.shape, box)
    if function == "add" and target.buffer is psum and target.storage.first < 0:
        move(writing(target), source)  # PSUM starts to accumulate from nothing
        return dst
    _tensor_tensor(target, target, in_sbuf(source) if target.buffer is psum else source, function)
    state().starting.add(id(current_tracer().block[-1]))
    writing(target)
    return dst


# ---- transfers ----------------------------------------------------------------------------------


def load(src: Any, mask: Any = None, dtype: Any = None) -> Tile:
    """A new SBUF tile with the contents of an HBM tensor."""
    if not isinstance(src, Tile):
        message = f"nl.load of {src!r}; allowed: a tensor in HBM or a view of one"
        raise NkiValidationError(message, code="memory-kind")
    shape = src.shape if len(src.shape) > 1 else (*src.shape, 1)
    kept = region(mask, src.shape)
    tile = emit.new(shape, src.dtype if dtype is None else dtype)
    if kept is None:
        dma_copy(tile, src.resolve())
        return Tile(tile)
    wide = kept if len(kept) > 1 else (*kept, (0, 1))
    if not is_empty(kept):
        dma_copy(cut(tile, wide), src.resolve(kept))
    return Tile(tile, mask=wide)


def store(dst: Any, value: Any, mask: Any = None) -> None:
    """Copy a tile or a number to an HBM tensor."""
    no_blocks("nl.store", value)
    if not isinstance(dst, Tile) or dst.on_chip:
        message = f"nl.store into {dst!r}; allowed: a tensor in HBM or a view of one"
        raise NkiValidationError(message, code="memory-kind")
    if isinstance(value, emit.NUMBERS):
        value = _constant(dst, value)
    if not isinstance(value, Tile):
        message = f"nl.store of {value!r}; allowed: a tile or a number"
        raise NkiValidationError(message, code="operand-kind")
    kept = region(mask, dst.shape)
    _check_shapes(dst, value)
    state().before_write(dst.access.storage)
    if not is_empty(kept):
        dma_copy(dst.resolve(kept), in_sbuf(fitted(value, dst.shape, kept)))


def _check_shapes(dst: Tile, value: Tile) -> None:
    """Refuse to store a tile whose shape the destination can't take."""
    have, want = value.shape, dst.shape
    if prod(have) == prod(want):
        return
    more = len(want) - len(have)
    sizes = (have[0], *(1,) * more, *have[1:])
    if more >= 0 and all(n in (1, m) for n, m in zip(sizes, want)):
        return
    advice = "say what part of it is meant"
    if len(have) == len(want):
        both = [min(n, m) for n, m in zip(have, want)]
        part = ", ".join(f"0:{n}" for n in both)
        places = [side for side, shape in (("dst", want), ("value", have)) if [*shape] != both]
        advice = "to store a part, write " + " and ".join(f"{side}[{part}]" for side in places)
    raise NkiValidationError(
        f"nl.store of a tile of shape {have} into shape {want} of {dst.access.storage.label}; the "
        f"shapes must be equal, or have equally many elements, or the tile's sizes be 1: {advice}",
        code="shape-broadcast",
        numbers={"got": have, "allowed": want},
    )


def _constant(dst: Tile, number: Any) -> Tile:
    """A tile that fills an HBM view, repeating one row where it is long."""
    tile = emit.new((1, 1), dst.dtype)
    memset(tile, _typed(number, tile))
    return Tile(tile.ap([[0, n] for n in dst.shape]))


def widened(result: NkiTensor, shape: tuple[int, ...], box: Box | None) -> Tile:
    """A result that fills a box of a tile."""
    if box is None:
        return Tile(result)
    full = emit.new(shape, result.dtype, result.buffer)
    part = cut(full, box)
    if not retarget(part, result):
        move(part, result)
    return Tile(full, mask=box)
