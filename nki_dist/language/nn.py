"""`nl.softmax`, `nl.rms_norm`, `nl.where`, `nl.matmul`, `nl.transpose` and shapes of tiles.

Each is the sequence of instructions a kernel would write; intermediate tiles are float32.

Follows: `nki/api/nki/language/__init__.py`.
"""

from __future__ import annotations

from nki_dist.dtypes import float32, uint8
from nki_dist.isa.nc_matmul import nc_matmul
from nki_dist.isa.nc_transpose import nc_transpose
from nki_dist.isa.spec import may_reject
from nki_dist.isa.tensor_copy import tensor_copy, tensor_copy_predicated
from nki_dist.language import emit
from nki_dist.language.creation import full
from nki_dist.language.reductions import max as tile_max
from nki_dist.language.reductions import sum as tile_sum
from nki_dist.language.tensor import NkiTensor
from nki_dist.program import psum


def softmax(x, axis=-1, dtype=None):
    """exp(x) / sum(exp(x)) along the last dimensions `axis`; the maximum is subtracted first."""
    x = emit.tile("softmax", "x", x)
    shifted = emit.binary("subtract", x, tile_max(x, axis, float32, True), float32)
    powers = emit.unary("exp", shifted, float32)
    share = emit.unary("reciprocal", tile_sum(powers, axis, float32, True), float32)
    return emit.binary("multiply", powers, share, x.dtype if dtype is None else dtype)


def rms_norm(x, w, axis, n, epsilon=1e-06, dtype=None, compute_dtype=None):
    """x / sqrt(sum(x * x) / n + epsilon) * w.

    Args:
        x: tile.
        w: tile that broadcasts to `x`.
        axis: the last dimensions, over which squares are summed.
        n: what the sum is divided by.
        compute_dtype: of intermediate tiles, float32 by default.
    """
    x = emit.tile("rms_norm", "x", x)
    compute = float32 if compute_dtype is None else compute_dtype
    total = tile_sum(emit.unary("square", x, compute), axis, compute, True)
    mean = emit.with_number("multiply", total, 1.0 / n, False, compute)
    biased = emit.with_number("add", mean, float(epsilon), False, compute)
    scaled = emit.binary("multiply", x, emit.unary("rsqrt", biased, compute), compute)
    return emit.binary("multiply", scaled, w, x.dtype if dtype is None else dtype)


def where(condition, x, y, dtype=None):
    """`x` where `condition` is nonzero, else `y`; both may be numbers.

    The result has the promoted dtype of the tiles among `x` and `y` (of `condition` if both are
    numbers) unless `dtype` says otherwise, and the shape all three broadcast to.
    """
    condition = emit.tile("where", "condition", condition)
    tiles = [emit.tile("where", n, v) for n, v in (("x", x), ("y", y)) if not _number(v)]
    shape = condition.shape
    for other in tiles:
        shape = emit.common_shape("where", emit.spread(condition, shape), other)
    kind = tiles[0].dtype if tiles else condition.dtype
    kind = emit.promoted(kind, tiles[-1].dtype) if tiles else kind
    kind = kind if dtype is None else dtype
    chosen = emit.with_number("not_equal", emit.spread(condition, shape), 0, False, uint8)
    result = full(shape, y, kind) if _number(y) else emit.copy(emit.spread(y, shape), kind)
    source = x if _number(x) else emit.spread(emit.converted(x, result.dtype), shape)
    tensor_copy_predicated(result, source, chosen)
    return result


def _number(value: object) -> bool:
    return isinstance(value, emit.NUMBERS)


def expand_dims(x, axis):
    """A view of `x` with a dimension of size 1 at `axis`, counted in the result."""
    x = emit.tile("expand_dims", "x", x)
    rank = len(x.shape) + 1
    if not isinstance(axis, int) or not -rank <= axis < rank:
        message = f"axis={axis!r} of a result with {rank} dimensions"
        raise emit.refuse("expand_dims", message, code="axis", got=axis, most=rank - 1)
    return x.expand_dim(axis % rank)


def broadcast_to(x, shape, dtype=None):
    """`x` repeated to `shape`: sizes of each dimension are equal, or 1 in `x`.

    Gives `x` itself if nothing changes, else a new tile in SBUF.
    """
    x = emit.tile("broadcast_to", "x", x)
    shape = tuple(shape)
    if len(shape) != len(x.shape) or any(
        n not in (m, 1) for n, m in zip(x.shape, shape, strict=True)
    ):
        message = (
            f"shape {x.shape} to {shape}; both need the same number of dimensions, and sizes must "
            "be equal or 1 in the tile"
        )
        raise emit.refuse(
            "broadcast_to", message, code="shape-broadcast", got=x.shape, allowed=shape
        )
    if shape == x.shape:
        return emit.converted(x, dtype)
    return emit.copy(emit.spread(x, shape), dtype)


def transpose(x, dtype=None):
    """The 2D tile `x` with partitions and free dimension swapped, in PSUM.

    At most 128 x 128, the limit of nisa.nc_transpose.
    """
    x = emit.tile("transpose", "x", x)
    if len(x.shape) != 2:
        message = f"x has shape {x.shape}; allowed: a tile of 2 dimensions"
        raise emit.refuse("transpose", message, code="shape-rank", got=len(x.shape), allowed=2)
    turned = emit.new(x.shape[::-1], x.dtype, psum)
    nc_transpose(turned, x)
    if dtype is None or turned.dtype == dtype:
        return turned
    result = emit.new(turned.shape, dtype, psum)
    tensor_copy(result, turned)
    return result


def matmul(x, y, transpose_x=False):
    """x @ y in float32, in PSUM; x.T @ y if `transpose_x`, which saves transposing `x` here.

    Args:
        x: tile (M, K), or (K, M) if `transpose_x`; at most 128 x 128, in SBUF.
        y: tile (K, N), at most 128 x 512, in SBUF.
    """
    x, y = emit.tile("matmul", "x", x), emit.tile("matmul", "y", y)
    if len(x.shape) != 2 or len(y.shape) != 2:
        message = f"shapes {x.shape} and {y.shape}; allowed: 2 dimensions each"
        raise emit.refuse(
            "matmul", message, code="shape-rank", first=len(x.shape), second=len(y.shape), allowed=2
        )
    if not transpose_x:
        may_reject(
            "nl.matmul without transpose_x=True; AWS's release notes say that it fails",
            code="language-limit",
            hint="arrange x so that nl.matmul(x, y, transpose_x=True) does it",
        )
    rows, depth = x.shape[::-1] if transpose_x else x.shape
    if depth != y.shape[0]:
        message = (
            f"x contracts {depth} elements and y {y.shape[0]} (shapes {x.shape} and {y.shape}, "
            f"transpose_x={transpose_x}); must be equal"
        )
        raise emit.refuse("matmul", message, code="matmul-contraction", x=depth, y=y.shape[0])
    stationary: NkiTensor = x if transpose_x else emit.copy(transpose(x), None)
    result = emit.new((rows, y.shape[1]), float32, psum)
    nc_matmul(result, stationary, y)
    return result
