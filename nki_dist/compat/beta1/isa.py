"""`neuronxcc.nki.isa` (`nisa`) of Beta 1: instructions return new tiles and take `mask=`.

Each allocates its result (SBUF; PSUM for the Tensor engine) and emits the instruction of the same
name. `dtype` is that of the result, by default that of the data. Custom operators and the dynamic
tensor copies, which have no counterpart, are refused.

Follows: `nki.isa` of the NKI 0.1 documentation (SDK 2.26).
"""

# ruff: noqa: F401 -- enumerations are exported

from __future__ import annotations

from typing import Any

from nki_dist import isa as current
from nki_dist.compat.beta1 import lower, regions
from nki_dist.compat.beta1.functions import reduced
from nki_dist.compat.beta1.isa_memory import (
    affine_select,
    builtin_custom_op,
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
    tensor_copy_predicated,
)
from nki_dist.compat.beta1.ops import operator_name
from nki_dist.compat.beta1.promotion import promoted
from nki_dist.compat.beta1.tile import Tile
from nki_dist.dtypes import float32, uint32
from nki_dist.errors import NkiValidationError
from nki_dist.isa import (
    dge_mode,
    dma_engine,
    engine,
    get_nc_version,
    gpsimd_engine,
    nc_version,
    oob_mode,
    reduce_cmd,
    scalar_engine,
    tensor_engine,
    unknown_engine,
    vector_engine,
)
from nki_dist.language import emit

fp32 = float32
_ENGINE = engine.unknown
_IDLE = reduce_cmd.idle
_RESET_REDUCE = reduce_cmd.reset_reduce


def _like(data: Any, dtype: Any) -> Any:
    return emit.new(data.shape, data.dtype if dtype is None else dtype)


def _result(name: str, tiles: dict[str, Any], mask: Any, dtype: Any, **attributes: Any) -> Any:
    """An instruction whose result is like its first tile."""
    lower.written(tiles.get("reduce_res"))

    def build(*operands):
        dst = _like(operands[0], dtype)
        getattr(current, name)(dst=dst, **dict(zip(tiles, operands)), **_named(attributes))
        return dst

    return lower.apply(name, build, tuple(tiles.values()), mask)


def _named(attributes: dict[str, Any]) -> dict[str, Any]:
    """Attributes of an instruction, operators by their names."""
    return {
        key: operator_name(value) if key.rstrip("01").endswith("op") else value
        for key, value in attributes.items()
    }


# ---- element by element -------------------------------------------------------------------------


def activation(
    op, data, *, bias=None, scale=1.0, reduce_op=None, reduce_res=None, reduce_cmd=_IDLE,
    mask=None, dtype=None, **hints,
):  # fmt: skip
    """op(data * scale + bias), with an optional row reduction into `reduce_res`."""
    lower.written(reduce_res)

    def build(d, b, s, res):
        dst = _like(d, dtype)
        current.activation(
            dst, operator_name(op), d, bias=_vector(b), scale=_vector(s),
            reduce_op=operator_name(reduce_op), reduce_res=res, reduce_cmd=reduce_cmd,
        )  # fmt: skip
        return dst

    return lower.apply("activation", build, (data, bias, scale, reduce_res), mask)


def _vector(x: Any) -> Any:
    """A per-partition operand in float32."""
    if hasattr(x, "storage") and x.dtype is not float32:
        return emit.copy(x, float32)
    return x


def activation_reduce(
    op, data, *, reduce_op, reduce_res, bias=None, scale=1.0, mask=None, dtype=None, **hints
):
    """op(data * scale + bias), and its row reduction in `reduce_res`."""
    return activation(
        op, data, bias=bias, scale=scale, reduce_op=reduce_op, reduce_res=reduce_res,
        reduce_cmd=_RESET_REDUCE, mask=mask, dtype=dtype,
    )  # fmt: skip


def tensor_copy(src, *, mask=None, dtype=None, engine=_ENGINE, **hints):
    """A copy of a tile."""
    return _result("tensor_copy", {"src": src}, mask, dtype, engine=engine)


def reciprocal(data, *, dtype=None, mask=None, **hints):
    """1 / data."""
    return lower.apply("reciprocal", lambda d: emit.reciprocal(d, dtype), (data,), mask)


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


def tensor_scalar(
    data, op0, operand0, reverse0=False, op1=None, operand1=None, reverse1=False, *,
    dtype=None, mask=None, engine=_ENGINE, **hints,
):  # fmt: skip
    """(data op0 operand0) op1 operand1; operands are numbers or (P, 1) tiles."""
    tiles = {"data": data, "operand0": operand0, "operand1": operand1}
    return _result(
        "tensor_scalar", tiles, mask, dtype, op0=op0, reverse0=reverse0, op1=op1, reverse1=reverse1,
        engine=engine,
    )  # fmt: skip


def scalar_tensor_tensor(
    *, data, op0, operand0, op1, operand1, reverse0=False, reverse1=False, dtype=None, mask=None,
    **hints,
):  # fmt: skip
    """(data op0 operand0) op1 operand1; operand0 is a number or (P, 1) tile, operand1 a tile."""
    tiles = {"data": data, "operand0": operand0, "operand1": operand1}
    return _result(
        "scalar_tensor_tensor", tiles, mask, dtype, op0=op0, op1=op1, reverse0=reverse0,
        reverse1=reverse1,
    )  # fmt: skip


def tensor_scalar_reduce(
    *, data, op0, operand0, reduce_op, reduce_res, reverse0=False, dtype=None, mask=None, **hints
):
    """data op0 operand0, and its row reduction in `reduce_res`."""
    tiles = {"data": data, "operand0": operand0, "reduce_res": reduce_res}
    return _result(
        "tensor_scalar_reduce", tiles, mask, dtype, op0=op0, reduce_op=reduce_op, reverse0=reverse0
    )


def tensor_tensor_scan(
    data0, data1, initial, op0, op1, reverse0=False, reverse1=False, *, dtype=None, mask=None,
    **hints,
):  # fmt: skip
    """Running (previous op0 data0) op1 data1 along the free dimension."""
    tiles = {"data0": data0, "data1": data1, "initial": initial}
    return _result(
        "tensor_tensor_scan", tiles, mask, dtype, op0=op0, op1=op1, reverse0=reverse0,
        reverse1=reverse1,
    )  # fmt: skip


def dropout(data, prob, *, mask=None, dtype=None, **hints):
    """data with elements replaced by zero with probability `prob`."""
    return _result("dropout", {"data": data, "prob": prob}, mask, dtype)


# ---- selections ---------------------------------------------------------------------------------


def range_select(
    *, on_true_tile, comp_op0, comp_op1, bound0, bound1, reduce_cmd=_IDLE, reduce_res=None,
    reduce_op="maximum", range_start=0, on_false_value=float32.min, mask=None, dtype=None, **hints,
):  # fmt: skip
    """Elements whose column satisfies two comparisons with bounds, else `on_false_value`."""
    tiles = {
        "on_true_tile": on_true_tile, "bound0": bound0, "bound1": bound1, "reduce_res": reduce_res,
    }  # fmt: skip
    return _result(
        "range_select", tiles, mask, dtype, comp_op0=comp_op0, comp_op1=comp_op1,
        reduce_cmd=reduce_cmd, reduce_op=reduce_op, range_start=range_start,
        on_false_value=on_false_value,
    )  # fmt: skip


def _in_place(name: str, mask: Any, dst: Any, tiles: dict[str, Any], **attributes: Any) -> Any:
    """An instruction that already took `dst` in Beta 1; returns `dst`."""
    lower.written(dst)
    lower.written(tiles.get("reduce_res"))
    names = ["dst", *tiles]

    def build(*operands):
        getattr(current, name)(**dict(zip(names, operands)), **_named(attributes))
        return operands[0]

    operands = (dst, *tiles.values())
    if mask is None:
        lower.apply(name, build, operands)
    else:
        box = regions.rectangle(name, mask, regions.common(operands))
        build(*(regions.taken(x, box) for x in operands))
    return dst


def select_reduce(
    *, dst, predicate, on_true, on_false, reduce_res=None, reduce_cmd=_IDLE, reduce_op="maximum",
    reverse_pred=False, mask=None, dtype=None, **hints,
):  # fmt: skip
    """dst = on_true where the predicate holds, else on_false; optionally reduced by row."""
    tiles = {
        "predicate": predicate, "on_true": on_true, "on_false": on_false, "reduce_res": reduce_res,
    }  # fmt: skip
    return _in_place(
        "select_reduce", mask, dst, tiles, reduce_cmd=reduce_cmd, reduce_op=reduce_op,
        reverse_pred=reverse_pred,
    )  # fmt: skip


def tensor_scalar_cumulative(
    *, src, dst, op0, op1, imm0, imm1=None, reduce_cmd=_RESET_REDUCE, mask=None, dtype=None, **hints
):
    """Running reduction of src op0 imm0 along the free dimension."""
    tiles = {"src": src, "imm0": imm0, "imm1": imm1}
    return _in_place(
        "tensor_scalar_cumulative", mask, dst, tiles, op0=op0, op1=op1, reduce_cmd=reduce_cmd
    )


def max8(*, src, mask=None, dtype=None, **hints):
    """The 8 largest values of each partition, descending."""
    return _by_partition("max8", src, 8, mask, dtype)


def _by_partition(name: str, data: Any, count: int, mask: Any, dtype: Any) -> Any:
    """An instruction that gives `count` elements for each partition."""

    def build(d):
        dst = emit.new((d.shape[0], count), d.dtype if dtype is None else dtype)
        getattr(current, name)(dst, d)
        return dst

    def outer(sizes):
        return (sizes[0], count if isinstance(sizes[0], int) else (0, count))

    return lower.apply(name, build, (data,), mask, outer)


def nc_find_index8(*, data, vals, mask=None, dtype=None, **hints):
    """Where each of 8 values occurs in its partition."""

    def build(d, v):
        dst = emit.new((d.shape[0], 8), uint32 if dtype is None else dtype)
        current.nc_find_index8(dst, d, v)
        return dst

    if mask is None:
        return lower.apply("nc_find_index8", build, (data, vals))
    box = regions.rectangle("nc_find_index8", mask, data.shape) or regions.whole(data.shape)
    found = build(data.resolve(box), regions.taken(vals, (box[0], (0, 8))))
    return lower.widened(found, (data.shape[0], 8), (box[0], (0, 8)))


def nc_match_replace8(*, data, vals, imm, dst_idx=None, mask=None, dtype=None, **hints):
    """data with one occurrence of each of 8 values replaced by `imm`."""
    lower.written(dst_idx)

    def build(d, v, found):
        dst = _like(d, dtype)
        current.nc_match_replace8(dst, d, v, float(imm), found)
        return dst

    if mask is None:
        return lower.apply("nc_match_replace8", build, (data, vals, dst_idx))
    box = regions.rectangle("nc_match_replace8", mask, data.shape) or regions.whole(data.shape)
    rows = (box[0], (0, 8))
    replaced = build(data.resolve(box), regions.taken(vals, rows), regions.taken(dst_idx, rows))
    return lower.widened(replaced, data.shape, box)


# ---- reductions and statistics ------------------------------------------------------------------


def tensor_reduce(op, data, axis, *, mask=None, dtype=None, negate=False, keepdims=False, **hints):
    """op over free dimensions."""

    def build(view, axes):
        dst = emit.new(view.shape[: axes[0]], view.dtype if dtype is None else dtype)
        current.tensor_reduce(dst, operator_name(op), view, axes, negate=negate)
        return dst

    return reduced("tensor_reduce", data, axis, keepdims, mask, build)


def tensor_partition_reduce(op, data, *, mask=None, dtype=None, **hints):
    """op over partitions; the result has one."""

    def build(d):
        dst = emit.new((1, *d.shape[1:]), d.dtype if dtype is None else dtype)
        current.tensor_partition_reduce(dst, operator_name(op), d)
        return dst

    def outer(sizes):
        return (1 if isinstance(sizes[0], int) else (0, 1), *sizes[1:])

    return lower.apply("tensor_partition_reduce", build, (data,), mask, outer)


def bn_stats(data, *, mask=None, dtype=None, **hints):
    """Six statistics of each partition."""
    return _by_partition("bn_stats", data, 6, mask, dtype)


def bn_aggr(data, *, mask=None, dtype=None, **hints):
    """Mean and variance from statistics."""
    return _by_partition("bn_aggr", data, 2, mask, dtype)


def sequence_bounds(*, segment_ids, dtype=None, **hints):
    """For each element, where its segment starts and ends."""

    def build(d):
        dst = emit.new((d.shape[0], 2, *d.shape[1:]), d.dtype if dtype is None else dtype)
        current.sequence_bounds(dst, d)
        return dst

    return lower.apply("sequence_bounds", build, (segment_ids,))


_HELPERS = frozenset([
    "Any", "NkiValidationError", "Tile", "annotations", "current", "emit", "float32", "lower",
    "operator_name", "promoted", "reduced", "regions", "uint32",
])  # fmt: skip
__all__ = [name for name in globals() if not name.startswith("_") and name not in _HELPERS]


def __dir__() -> list[str]:
    """The interface, without the modules that it is made in."""
    return sorted(__all__)
