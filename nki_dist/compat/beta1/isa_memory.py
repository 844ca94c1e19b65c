"""Instructions of Beta 1 that move, generate or multiply tiles.

Follows: `nki.isa` of the NKI 0.1 documentation (SDK 2.26).
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

from nki_dist import dtypes
from nki_dist import isa as current
from nki_dist.compat.beta1 import lower, regions
from nki_dist.compat.beta1.allocation import allocate
from nki_dist.compat.beta1.functions import operator_name, refused
from nki_dist.compat.beta1.index import Index
from nki_dist.compat.beta1.mask import Mask
from nki_dist.compat.beta1.select import cut
from nki_dist.compat.beta1.state import state
from nki_dist.compat.beta1.tile import Tile
from nki_dist.dtypes import float32
from nki_dist.errors import NkiValidationError
from nki_dist.isa import dge_mode, engine, oob_mode
from nki_dist.isa.spec import current_tracer
from nki_dist.language import emit
from nki_dist.language.tensor import NkiTensor
from nki_dist.program import psum

_ENGINE = engine.unknown
_DGE = dge_mode.unknown
_ERROR = oob_mode.error


# ---- the Tensor engine --------------------------------------------------------------------------


def nc_matmul(
    stationary, moving, *, is_stationary_onezero=False, is_moving_onezero=False,
    is_transpose=False, tile_position=(), tile_size=(), mask=None, perf_mode="none", **hints,
):  # fmt: skip
    """stationary.T @ moving, a new float32 tile in PSUM.

    A mask may bound the contraction (axis 0) and free axes of the operand that has the mask's size
    where the other hasn't. Free axes are also bounded by subscripts: `stationary[i_f < 64]`.
    """
    double = str(getattr(perf_mode, "name", perf_mode)).startswith("double_row")
    halves = 2 if double else 1
    rows, columns = (prod(x.shape[1:]) // halves for x in (stationary, moving))
    whole = rows, columns
    holds = mask.truth() if isinstance(mask, Mask) else mask
    if holds is not None and not holds:
        return regions.untouched([stationary, moving], whole, float32, psum)
    left, right = contracted(stationary, moving, mask)
    part = left.free_size // halves, right.free_size // halves
    # NeuronCore-v2 multiplies whatever the hint says, and products are float32; later ones move.
    moves = is_transpose and current_tracer().arch.generation >= 3
    dst = _product_tile(rows, columns, left.dtype if moves else float32, tuple(tile_position))
    current.nc_matmul(
        dst if part == whole else dst[0 : part[0], 0 : part[1]], left, right,
        is_stationary_onezero, is_moving_onezero, is_transpose,
        tile_position=tile_position, tile_size=tile_size,
        perf_mode="double_row" if double else "none",
    )  # fmt: skip
    if part == whole:
        return Tile(dst)
    return Tile(dst, mask=((0, part[0]), (0, part[1])))


def contracted(stationary: Any, moving: Any, mask: Any) -> tuple[NkiTensor, NkiTensor]:
    """The parts of a matmul's operands that take part."""
    left, right = (
        _readable(x.part() if hasattr(x, "part") else x.resolve()) for x in (stationary, moving)
    )
    over = _bounded(left, right, mask)
    box = regions.region(mask, over.shape)
    if box is None:
        return left, right
    free = box[1:] != regions.whole(over.shape)[1:]
    if regions.is_empty(box) or (free and left.shape[1:] == right.shape[1:]):
        raise NkiValidationError(
            "nisa.nc_matmul: a mask may bound the contraction (axis 0), and axis 1 where only one "
            f"operand has its size; here stationary is {left.shape}, moving {right.shape}. Bound "
            "free axes by subscripts, stationary[i_f < 64] and moving[i_f < 256]",
            code="mask-unsupported",
            numbers={"stationary": left.shape, "moving": right.shape},
        )
    boxes = [box if x is over else (box[0], *regions.whole(x.shape)[1:]) for x in (left, right)]
    return cut(left, boxes[0]), cut(right, boxes[1])


def _readable(view: NkiTensor) -> NkiTensor:
    """An operand in SBUF, if the compiler may choose where it is."""
    return lower.in_sbuf(view) if view.storage in state().homeless else view


def _bounded(left: NkiTensor, right: NkiTensor, mask: Any) -> NkiTensor:
    """The operand whose free axis a mask is about: the one of that size, by default moving."""
    size = mask.shape[1:] if isinstance(mask, Mask) else ()
    return left if size == left.shape[1:] != right.shape[1:] else right


def _product_tile(rows: int, columns: int, kind: Any, position: tuple) -> NkiTensor:
    """The result; a tile of the array writes the partitions of its columns."""
    start = int(position[1]) if position else 0
    whole = emit.new((start + rows, columns), kind, psum)
    return whole[start : start + rows, 0:columns] if start else whole


def nc_transpose(data, *, mask=None, dtype=None, engine=_ENGINE, **hints):
    """The tile with partitions and free dimensions swapped: in PSUM, or SBUF on Vector.

    Without `engine` the compiler selects one, and where the result is: a matmul may take it at
    once, which then costs a copy to SBUF.

    Vector transposes blocks of (32, 32), as documented; a larger tile takes one instruction for
    each. That isn't documented, but published kernels were compiled and measured with it.
    """
    view = data.resolve()
    regions.no_mask("nisa.nc_transpose", mask, view.shape)
    shape = (view.free_size, view.shape[0])
    vector = getattr(engine, "name", engine) == "vector"
    if not vector:
        view = lower.in_sbuf(view)
    dst = emit.new(shape, view.dtype, "sbuf" if vector else psum)
    if vector and len(view.shape) == 2:
        _by_blocks(dst, view, engine)
    else:
        current.nc_transpose(dst, view, engine=engine if vector else current.tensor_engine)
    if getattr(engine, "name", engine) in ("unknown", None):
        state().homeless.add(dst.storage)
    if dtype is not None and dtypes.of(dtype) is not view.dtype:
        return Tile(emit.copy(dst, dtype))
    return Tile(dst)


def _by_blocks(dst: NkiTensor, view: NkiTensor, engine: Any) -> None:
    """A transpose on Vector, block by block."""
    size = current_tracer().arch.transpose_vector_max
    rows, columns = view.shape
    for low, left in product(range(0, rows, size), range(0, columns, size)):
        part = slice(low, min(low + size, rows)), slice(left, min(left + size, columns))
        current.nc_transpose(dst[part[::-1]], view[part], engine=engine)


# ---- constants ----------------------------------------------------------------------------------


def memset(shape, value, dtype, *, mask=None, engine=_ENGINE, **hints):
    """A new tile filled with a number."""
    return allocate(shape, dtype, fill=value)


def _affine(name: str, index: Any) -> tuple[list[list[int]], int, int]:
    """(pattern, offset, channel multiplier) of an index expression over a tile."""
    if not isinstance(index, Index):
        raise NkiValidationError(
            f"nisa.{name} of {index!r}; allowed: an affine expression of nl.arange or nl.mgrid",
            code="index-kind",
        )
    pattern = [[s, n] for s, n in zip(index.steps[1:], index.shape[1:])] or [[0, 1]]
    return pattern, index.start, index.steps[0]


def iota(expr, dtype, *, mask=None, **hints):
    """A new tile with the numbers of an index expression."""
    pattern, offset, channel = _affine("iota", expr)
    shape = expr.shape if len(expr.shape) > 1 else (*expr.shape, 1)
    dst = emit.new(shape, dtype)
    current.iota(dst, pattern, offset, channel)
    return Tile(dst)


def affine_select(pred, on_true_tile, on_false_value, *, mask=None, dtype=None, **hints):
    """The tile where the predicate, one comparison of index expressions, holds, else a number."""
    if regions.is_empty(regions.region(mask, on_true_tile.shape)):
        return regions.untouched([on_true_tile], on_true_tile.shape)
    regions.no_mask("nisa.affine_select", mask, on_true_tile.shape)
    view = lower.in_sbuf(on_true_tile.resolve())
    if not isinstance(pred, Mask) or len(pred.terms) != 1:
        raise NkiValidationError(
            "nisa.affine_select takes one comparison of affine index expressions as pred, such as "
            "i_p >= i_f",
            code="index-kind",
        )
    (term,) = pred.over(view.shape).terms
    pattern, offset, channel = _affine("affine_select", term.index)
    dst = emit.new(view.shape, view.dtype if dtype is None else dtype)
    current.affine_select(dst, pattern, channel, view, float(on_false_value), term.op, offset)
    return Tile(dst)


# ---- moving -------------------------------------------------------------------------------------


def nc_stream_shuffle(src, dst, shuffle_mask, *, dtype=None, mask=None, **hints):
    """Partitions of src in another order, within groups of 32."""
    lower.written(dst)
    current.nc_stream_shuffle(dst.resolve(), src.resolve(), [int(n) for n in shuffle_mask])
    return dst


def local_gather(src_buffer, index, num_elem_per_idx=1, num_valid_indices=None, *, mask=None):
    """Elements gathered by indices that 16 partitions share."""
    data, rows = src_buffer.resolve(), index.resolve()
    count = 16 * rows.free_size if num_valid_indices is None else int(num_valid_indices)
    tail = (count // 16, 16) if count % 16 == 0 else (count,)
    dst = emit.new((data.shape[0], *tail, int(num_elem_per_idx)), data.dtype)
    current.local_gather(dst, data, rows, int(num_elem_per_idx), num_valid_indices)
    return Tile(dst)


def dma_copy(*, dst, src, mask=None, dst_rmw_op=None, oob_mode=_ERROR, dge_mode=_DGE, **hints):
    """dst = src by DMA; with `dst_rmw_op=np.add`, dst += src."""
    if dst.on_chip:
        lower.written(dst)
    regions.no_mask("nisa.dma_copy", mask, dst.shape)
    target, source = dst.resolve(), src.resolve()
    if dst_rmw_op is None:
        current.dma_copy(target, source, oob_mode=oob_mode, dge_mode=dge_mode)
        return
    if operator_name(dst_rmw_op) != "add":
        message = f"dst_rmw_op={dst_rmw_op!r}; allowed: np.add"
        raise NkiValidationError(message, code="argument-choice")
    current.dma_compute(target, [target, source], "add", oob_mode=oob_mode)


def dma_transpose(
    src, *, axes=None, mask=None, dtype=None, dge_mode=_DGE, oob_mode=_ERROR, **hints
):
    """The tile or tensor transposed by DMA."""
    view = src.resolve()
    rank = len(view.shape)
    order = (
        tuple(axes) if axes is not None else {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}.get(rank)
    )
    if order is None:
        raise NkiValidationError(
            f"nisa.dma_transpose of shape {view.shape}; allowed: 2 to 4 dimensions",
            code="shape-rank",
            numbers={"got": len(view.shape), "least": 2, "most": 4},
        )
    regions.no_mask("nisa.dma_transpose", mask, view.shape)
    dst = emit.new(tuple(view.shape[d] for d in order), view.dtype)
    current.dma_transpose(dst, view, axes=order, dge_mode=dge_mode, oob_mode=oob_mode)
    return Tile(emit.converted(dst, dtype))


# ---- refused ------------------------------------------------------------------------------------

tensor_copy_dynamic_src = refused(
    "nisa.tensor_copy_dynamic_src",
    "gather rows from HBM with nl.load(tensor[index_tile, i_f]), or columns with "
    "nl.gather_flattened",
)
tensor_copy_dynamic_dst = refused(
    "nisa.tensor_copy_dynamic_dst",
    "scatter rows to HBM with nl.store(tensor[index_tile, i_f], value)",
)
