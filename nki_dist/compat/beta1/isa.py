"""`neuronxcc.nki.isa` (`nisa`) of Beta 1: instructions return new tiles and take `mask=`.

Each allocates its result (SBUF; PSUM for the Tensor engine) and emits the instruction of the same
name. `dtype` is that of the result, by default that of the data. Custom operators and the dynamic
tensor copies, which have no counterpart, are refused.

Follows: `nki.isa` of the NKI 0.1 documentation (SDK 2.26).
"""

# ruff: noqa: F401 -- enumerations are exported

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from nki_dist import isa as current
from nki_dist.compat.beta1 import lower, regions
from nki_dist.compat.beta1.functions import named, operator_name, reduced
from nki_dist.compat.beta1.isa_memory import (
    affine_select,
    dma_copy,
    dma_transpose,
    iota,
    local_gather,
    memset,
    nc_matmul,
    nc_stream_shuffle,
    nc_transpose,
    tensor_copy_dynamic_dst,
    tensor_copy_dynamic_src,
)
from nki_dist.compat.beta1.promotion import promoted
from nki_dist.compat.beta1.tile import Tile
from nki_dist.dtypes import float32, uint32
from nki_dist.language import emit, older

# Enumerations, and what kernels ask of the machine, are today's.
_TODAYS = (
    "dge_mode dma_engine engine get_nc_version gpsimd_engine nc_version oob_mode reduce_cmd"
    " scalar_engine tensor_engine unknown_engine vector_engine"
)
globals().update({name: getattr(current, name) for name in _TODAYS.split()})
fp32 = float32
_ENGINE = current.engine.unknown


def _signature(name: str, *without: str) -> inspect.Signature:
    """Today's parameters, which Beta 1 had by the same names and in the same order."""
    parameters = inspect.signature(getattr(current, name)).parameters
    return inspect.Signature([p for n, p in parameters.items() if n not in (*without, "name")])


def _bound(signature: inspect.Signature, args: Any, given: dict[str, Any]) -> dict[str, Any]:
    """Arguments by name, operators by theirs; hints to the compiler are left out."""
    given = {key: value for key, value in given.items() if key in signature.parameters}
    arguments = signature.bind(*args, **given).arguments
    for name in ("dst", "reduce_res", "dst_idx"):
        lower.written(arguments.get(name))
    return {
        key: operator_name(value) if key.rstrip("01").endswith("op") else value
        for key, value in arguments.items()
    }


def _of(n: int, sizes: Any) -> Any:
    """A size, or the whole of it where a box is asked for."""
    return n if isinstance(sizes[0], int) else (0, n)


def _returning(
    name: str,
    data: str,
    outer: Callable[[Any], tuple] | None = None,
    kind: Any = None,
    rows: str = "",
    **defaults: Any,
) -> Callable[..., Any]:
    """An instruction that allocates its result.

    Args:
        data: the operand whose shape and dtype the result has.
        outer: from sizes (or a box) of the operands to those of the result, if they are others.
        kind: the result's dtype, if not that of `data`.
        rows: operands with 8 elements per partition, which a mask cuts by partitions only.
        defaults: of Beta 1, where today's are others.
    """
    today, signature = getattr(current, name), _signature(name, "dst")

    def function(*args: Any, mask: Any = None, dtype: Any = None, **given: Any) -> Any:
        arguments = _bound(signature, args, defaults | given)

        def build(*operands: Any) -> Any:
            values = dict(zip(arguments, operands))
            if name == "activation":
                values |= {key: _vector(values[key]) for key in older.VECTORS & values.keys()}
            like = values[data]
            shape = like.shape if outer is None else outer(like.shape)
            dst = emit.new(shape, dtype or kind or like.dtype)
            today(dst=dst, **values)
            return dst

        operands = tuple(arguments.values())
        if mask is None or not rows:
            return lower.apply(name, build, operands, mask, outer)
        shape = arguments[data].shape
        box = regions.region(mask, shape) or regions.whole(shape)
        if regions.is_empty(box):
            return regions.untouched(tuple(operands), shape if outer is None else outer(shape))
        boxes = [(box[0], (0, 8)) if key in rows.split() else box for key in arguments]
        result = build(*map(regions.taken, operands, boxes))
        return lower.widened(result, *((shape, box) if outer is None else map(outer, (shape, box))))

    return named(function, today)


def _vector(x: Any) -> Any:
    """A per-partition operand in float32."""
    if hasattr(x, "storage") and x.dtype is not float32:
        return emit.copy(x, float32)
    return x


def _in_place(name: str) -> Callable[..., Any]:
    """An instruction that already took `dst` in Beta 1; returns `dst`."""
    today, signature = getattr(current, name), _signature(name)

    def function(*args: Any, mask: Any = None, dtype: Any = None, **given: Any) -> Any:
        arguments = _bound(signature, args, given)
        tiles = [x for x in arguments.values() if isinstance(x, Tile)]
        regions.no_mask(f"nisa.{name}", mask, regions.common(tiles))
        today(**{key: regions.taken(x, None) for key, x in arguments.items()})
        return arguments["dst"]

    return named(function, today)


def _columns(n: int) -> Callable[[Any], tuple]:
    """So many elements per partition."""
    return lambda sizes: (sizes[0], _of(n, sizes))


_OUTER = {name: _columns(n) for name, n in older.COLUMNS.items()}
globals().update(
    {name: _returning(name, data, _OUTER.get(name)) for name, data in older.RESULTS.items()}
)
range_select = _returning(
    "range_select", "on_true_tile", reduce_cmd=current.reduce_cmd.idle, on_false_value=float32.min
)
nc_find_index8 = _returning("nc_find_index8", "data", _columns(8), uint32, rows="vals")
nc_match_replace8 = _returning("nc_match_replace8", "data", rows="vals dst_idx")
tensor_partition_reduce = _returning(
    "tensor_partition_reduce", "data", lambda sizes: (_of(1, sizes), *sizes[1:])
)
sequence_bounds = _returning(
    "sequence_bounds", "segment_ids", lambda sizes: (sizes[0], _of(2, sizes), *sizes[1:])
)
select_reduce = _in_place("select_reduce")
tensor_scalar_cumulative = _in_place("tensor_scalar_cumulative")
tensor_copy_predicated = _in_place("tensor_copy_predicated")


def activation_reduce(*args, **given):
    """op(data * scale + bias), and its row reduction in `reduce_res`."""
    return globals()["activation"](*args, reduce_cmd=current.reduce_cmd.reset_reduce, **given)


def tensor_tensor(data1, data2, op, *, dtype=None, mask=None, engine=_ENGINE, **hints):
    """data1 op data2."""

    def build(a, b):
        kind = promoted(a.dtype, b.dtype) if dtype is None else dtype
        shape = emit.common_shape("tensor_tensor", a, b)
        dst = emit.new(shape, kind)
        left, right = emit.spread(a, shape), emit.spread(b, shape)
        current.tensor_tensor(dst, left, right, operator_name(op), engine=engine)
        return dst

    return lower.apply("tensor_tensor", build, (data1, data2), mask)


def tensor_reduce(op, data, axis, *, mask=None, dtype=None, negate=False, keepdims=False, **hints):
    """op over free dimensions."""

    def build(view, axes):
        dst = emit.new(view.shape[: axes[0]], view.dtype if dtype is None else dtype)
        current.tensor_reduce(dst, operator_name(op), view, axes, negate=negate)
        return dst

    return reduced("tensor_reduce", data, axis, keepdims, mask, build)


_HELPERS = frozenset([
    "Any", "Callable", "Tile", "annotations", "current", "emit", "float32", "inspect", "lower",
    "named", "older", "operator_name", "promoted", "reduced", "regions", "uint32",
])  # fmt: skip
__all__ = [name for name in globals() if not name.startswith("_") and name not in _HELPERS]


def __dir__() -> list[str]:
    """The interface, without the modules that it is made in."""
    return sorted(__all__)
