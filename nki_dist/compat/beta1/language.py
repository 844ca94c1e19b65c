"""`neuronxcc.nki.language` (`nl`) of Beta 1.

Functions return new tiles and take `mask=`. What is documented but can't be given its meaning here
is refused with a typed error: `all_reduce` (it spans program instances).

Follows: `nki.language` of the NKI 0.1 documentation (SDK 2.26).
"""

# ruff: noqa: F401 -- the names are AWS's, and exported

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_dist import dtypes
from nki_dist import language as current
from nki_dist.compat.beta1 import lower, regions
from nki_dist.compat.beta1.allocation import allocate, par_dim
from nki_dist.compat.beta1.functions import binary, reduction, refused, unary
from nki_dist.compat.beta1.index import arange, mgrid
from nki_dist.compat.beta1.isa_memory import dma_copy, nc_matmul
from nki_dist.compat.beta1.loop_reduce import loop_reduce
from nki_dist.compat.beta1.state import unrolled, unrolled_static
from nki_dist.compat.beta1.tile import Tile
from nki_dist.dtypes import bfloat16, float32, int32, uint8
from nki_dist.isa.device_print import device_print as _print
from nki_dist.language import (
    emit,
    nc,
    num_programs,
    older,
    program_id,
    program_ndim,
    spmd_dim,
    tile_size,
)
from nki_dist.language.tensor import ds
from nki_dist.program.memory import hbm, private_hbm, psum, sbuf, shared_hbm

affine_range = sequential_range = unrolled
static_range = unrolled_static

globals().update(
    {
        **{name: getattr(dtypes, name) for name in older.DTYPES},
        **{name: unary(name) for name in (*older.UNARY, *older.LOGIC_UNARY)},
        **{name: binary(name) for name in (*older.ARITHMETIC, *older.LOGIC)},
        **{name: reduction(name) for name in (*older.REDUCTIONS, *older.OTHER_REDUCTIONS)},
    }
)


@dataclass(frozen=True)
class _Limits:
    """Smallest and largest finite value, as `nl.fp32.min`."""

    min: float
    max: float


def finfo(dtype):
    """The limits of a dtype, `.min` and `.max`."""
    kind = dtypes.of(dtype)
    return _Limits(kind.min, kind.max)


fp32 = finfo(float32)
bfp16 = finfo(bfloat16)


# ---- tensors ------------------------------------------------------------------------------------


def ndarray(shape, dtype, *, buffer=None, name="", **hints):
    """A tensor with undefined contents; see `nl.par_dim` for blocks."""
    return allocate(shape, dtype, buffer, name)


def full(shape, fill_value, dtype, *, buffer=None, name="", **hints):
    """A tensor filled with a number."""
    return allocate(shape, dtype, buffer, name, fill_value)


def zeros(shape, dtype, *, buffer=None, name="", **hints):
    """A tensor of zeros."""
    return allocate(shape, dtype, buffer, name, 0)


def ones(shape, dtype, *, buffer=None, name="", **hints):
    """A tensor of ones."""
    return allocate(shape, dtype, buffer, name, 1)


def empty_like(a, dtype=None, *, buffer=None, name="", **hints):
    """A tensor like another, with undefined contents."""
    lower.no_blocks("nl.empty_like", a)
    return allocate(a.shape, dtype or a.dtype, buffer or a.buffer, name)


def zeros_like(a, dtype=None, *, buffer=None, name="", **hints):
    """A tensor of zeros like another."""
    lower.no_blocks("nl.zeros_like", a)
    return allocate(a.shape, dtype or a.dtype, buffer or a.buffer, name, 0)


def shared_constant(constant, dtype=None, **hints):
    """A tensor in HBM with contents known at compile time."""
    return Tile(current.shared_constant(constant, dtype))


def shared_identity_matrix(n, dtype=uint8, **hints):
    """The (n, n) identity in HBM."""
    return shared_constant(np.eye(int(n), dtype=dtypes.of(dtype).storage), dtype)


def rand(shape, dtype=float32, **hints):
    """A tile of numbers uniform in [0, 1)."""
    return Tile(current.rand(tuple(int(n) for n in shape), dtype))


def random_seed(seed, *, mask=None, **hints):
    """Start the random generator from a (1, 1) tile or a number."""
    if not isinstance(seed, Tile):
        seed = allocate((1, 1), int32, fill=int(seed))
    current.random_seed(seed.resolve())


# ---- transfers ----------------------------------------------------------------------------------


def load(src, *, mask=None, dtype=None, **hints):
    """A new SBUF tile with the contents of an HBM tensor; `mask` limits what is read."""
    return lower.load(src, mask, dtype)


def store(dst, value, *, mask=None, **hints):
    """Copy a tile or a number to an HBM tensor; `mask` limits what is written."""
    lower.store(dst, value, mask)


def load_transpose2d(src, *, mask=None, dtype=None, **hints):
    """A new SBUF tile with the transpose of a 2-D HBM tensor."""
    regions.no_mask("nl.load_transpose2d", mask, src.shape)
    return Tile(current.load_transpose2d(src.resolve(), dtype))


def device_print(prefix, x, *, mask=None, **hints):
    """Print a tile when the kernel runs."""
    _print(prefix, x.resolve())


# ---- functions with shapes of their own ---------------------------------------------------------


def softmax(x, axis, *, dtype=None, compute_dtype=None, mask=None, **hints):
    """exp(x) / sum(exp(x)) along free dimensions."""
    return lower.apply("softmax", lambda t: current.softmax(t, axis, dtype), (x,), mask)


def rms_norm(x, w, axis, n, epsilon=1e-06, *, dtype=None, compute_dtype=None, mask=None, **hints):
    """x / sqrt(sum(x * x) / n + epsilon) * w."""

    def build(t, weight):
        return current.rms_norm(t, weight, axis, n, epsilon, dtype, compute_dtype)

    return lower.apply("rms_norm", build, (x, w), mask)


def where(condition, x, y, *, dtype=None, mask=None, **hints):
    """`x` where the condition holds, else `y`."""
    return lower.apply(
        "where", lambda c, a, b: current.where(c, a, b, dtype), (condition, x, y), mask
    )


def dropout(x, rate, *, dtype=None, mask=None, **hints):
    """`x` with elements replaced by zero with probability `rate`."""
    return lower.apply("dropout", lambda t, r: current.dropout(t, r, dtype), (x, rate), mask)


def expand_dims(data, axis):
    """A view with one more dimension."""
    return data.expand_dims(axis)


def broadcast_to(src, *, shape, **hints):
    """A tile repeated along dimensions of size 1."""
    return src.broadcast_to(shape)


def transpose(x, *, dtype=None, mask=None, **hints):
    """The 2-D tile with partitions and free dimension swapped, in PSUM."""

    def build(t):
        return current.transpose(lower.in_sbuf(t), dtype)

    return lower.apply("transpose", build, (x,), mask, lambda sizes: tuple(sizes)[::-1])


def matmul(x, y, *, transpose_x=False, mask=None, **hints):
    """x @ y in float32, in PSUM; x.T @ y if `transpose_x`, which also takes operand masks."""
    if transpose_x:
        return nc_matmul(_operand(x, y), _operand(y, x), mask=mask)
    regions.no_mask("nl.matmul without transpose_x", mask, (x.shape[0], y.shape[1]))
    return Tile(current.matmul(_operand(x, y).resolve(), _operand(y, x).resolve()))


def _operand(x: Any, other: Any) -> Any:
    """An operand in SBUF; float32 if the other is, which the Tensor engine asks for."""
    if hasattr(x, "part"):
        return x
    view = lower.in_sbuf(x.resolve())
    return Tile(emit.converted(view, float32 if other.dtype is float32 else None))


def gather_flattened(data, indices, *, mask=None, dtype=None, **hints):
    """Elements of `data` by their number within each partition."""
    return Tile(current.gather_flattened(data.resolve(), indices.resolve(), dtype=dtype))


def static_cast(input_data, dtype):
    """A tile (or NumPy array) converted to another dtype."""
    if isinstance(input_data, Tile):
        return input_data.astype(dtype)
    return np.asarray(input_data).astype(dtypes.of(dtype).dtype)


all_reduce = refused(
    "nl.all_reduce over program instances",
    "return a tensor with one slice per instance and reduce it in another kernel",
)


def atomic_rmw(dst, value, op, *, mask=None, **hints):
    """dst = dst op value in HBM; conflicts between cores are reported, not ordered."""
    dma_copy(dst=dst, src=value, mask=mask, dst_rmw_op=op)


_HELPERS = frozenset([
    "Any", "Tile", "allocate", "annotations", "binary", "current",
    "dataclass", "dma_copy", "dtypes", "emit", "lower", "nc_matmul", "np", "older", "reduction",
    "refused", "regions", "unary", "unrolled", "unrolled_static",
])  # fmt: skip
__all__ = [name for name in globals() if not name.startswith("_") and name not in _HELPERS]


def __dir__() -> list[str]:
    """The interface, without the modules that it is made in."""
    return sorted(__all__)
