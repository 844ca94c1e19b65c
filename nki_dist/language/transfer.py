"""nl.load, nl.store, nl.load_transpose2d, nl.gather_flattened and nl.device_print."""

from __future__ import annotations

from typing import Any

from nki_dist.dtypes import uint32
from nki_dist.isa.described import advice, described
from nki_dist.isa.device_print import device_print as _print
from nki_dist.isa.dma_copy import dma_copy
from nki_dist.isa.dma_transpose import dma_transpose
from nki_dist.isa.gathers import nc_n_gather
from nki_dist.isa.spec import current_tracer
from nki_dist.language import emit
from nki_dist.language.creation import ndarray
from nki_dist.language.tensor import NkiTensor
from nki_dist.program import sbuf

__tracebackhide__ = True  # asks pytest to end tracebacks in the caller


def load(src, dtype=None):
    """A new SBUF tile with the contents of an HBM tensor; dimension 0 becomes the partitions.

    Args:
        src: HBM tensor or view, at most 128 rows.
        dtype: of the tile, `src.dtype` by default.
    """
    _check_tensor("load", src)
    _check_rows("load", src)
    tile = emit.new(src.shape, src.dtype if dtype is None else dtype)
    dma_copy(tile, src)
    return tile


def _check_tensor(function: str, src: Any) -> None:
    if not isinstance(src, NkiTensor):
        raise emit.refuse(
            function,
            f"src is {described(src)}; allowed: a tensor in HBM{advice(src)}",
            code="memory-kind",
            hint="" if advice(src) else "pass an array as this argument of the kernel",
        )
    if 0 in src.shape:
        message = f"src is empty: shape {src.shape} of {src.storage.label}"
        raise emit.refuse(function, message, code="shape-empty", got=src.shape)


def _check_rows(function: str, src: NkiTensor) -> None:
    most = current_tracer().arch.partitions
    if src.shape[0] > most:
        message = (
            f"src has {src.shape[0]} rows (shape {src.shape} of {src.storage.label}), a tile at "
            f"most {most} partitions: load {most} rows at a time, such as x[start:start + {most}]"
        )
        raise emit.refuse(function, message, code="partition-limit", got=src.shape[0], most=most)


def store(dst, value):
    """Copy an SBUF tile to an HBM tensor."""
    tensors = isinstance(dst, NkiTensor) and isinstance(value, NkiTensor)
    if tensors and dst.buffer.on_chip and value.buffer.is_hbm:
        raise emit.refuse(
            "store",
            f"dst is {dst.storage.label} and value is {value.storage.label}; nl.store(dst, value) "
            "goes from a tile to HBM",
            code="memory-kind",
            hint="were they swapped? nl.load goes the other way",
        )
    dma_copy(dst, value)


def load_transpose2d(src, dtype=None):
    """A new SBUF tile (N, M) with the transpose of an HBM tensor (M, N), N at most 128."""
    _check_tensor("load_transpose2d", src)
    if len(src.shape) != 2:
        message = f"src has shape {src.shape}; allowed: 2 dimensions"
        raise emit.refuse(
            "load_transpose2d", message, code="shape-rank", got=len(src.shape), allowed=2
        )
    tile = ndarray(src.shape[::-1], src.dtype, sbuf)
    dma_transpose(tile, src)
    return emit.converted(tile, dtype)


def gather_flattened(data, indices, axis=0, dtype=None):
    """Elements of `data` by their number within each partition, free dimensions flattened.

    Args:
        data: tile (P, ...) in SBUF.
        indices: tile (P, ...) of integers in SBUF; its shape is the result's.
        axis: only 0 has a documented meaning: each partition gathers from itself.
    """
    data = emit.tile("gather_flattened", "data", data)
    indices = emit.tile("gather_flattened", "indices", indices)
    if axis != 0:
        message = f"axis={axis!r}; allowed: 0"
        raise emit.refuse("gather_flattened", message, code="axis", got=axis, allowed=0)
    if not indices.dtype.is_integer:
        message = f"indices have dtype {indices.dtype}; allowed: integer types"
        raise emit.refuse("gather_flattened", message, code="dtype-operand", got=indices.dtype)
    result = emit.new(indices.shape, data.dtype)
    nc_n_gather(result, data, emit.converted(indices, uint32))
    return emit.converted(result, dtype)


def device_print(print_prefix, tensor):
    """Show a tensor's value, with a prefix, when the kernel runs.

    Printed on the driver's stdout with the core's number. With NEURON_RT_DEBUG_OUTPUT_DIR set, also
    saved as `<dir>/<prefix>/core_<logical core>/<iteration>/tensor.npy`, as
    `nki_dist/runtime/printing.py` describes.
    """
    _print(print_prefix, tensor)
