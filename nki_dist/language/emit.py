"""What functions on tiles share: result tiles, broadcasting, the choice of instruction.

`nl` functions emit the same instructions a kernel could; nothing is computed here. Results are new
tiles in SBUF. A tile repeats along a free dimension of size 1 without a copy; along the partition
dimension it takes a DMA, because an engine reads each partition's own memory.

Errors carry the function's name and the kernel's line.
"""

from __future__ import annotations

from math import prod
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from nki_dist import dtypes
from nki_dist.dtypes import DType, float32
from nki_dist.errors import NkiValidationError, invalid
from nki_dist.isa.activation import activation
from nki_dist.isa.activations import MATH
from nki_dist.isa.alu import ALU
from nki_dist.isa.described import advice, described
from nki_dist.isa.dma_copy import dma_copy
from nki_dist.isa.spec import current_tracer, may_reject
from nki_dist.isa.tensor_copy import tensor_copy
from nki_dist.isa.tensor_reductions import tensor_reduce
from nki_dist.isa.tensor_scalar import tensor_scalar
from nki_dist.isa.tensor_tensor import tensor_tensor
from nki_dist.isa.unary import language_math, reciprocal
from nki_dist.language.creation import ndarray
from nki_dist.language.tensor import NkiTensor
from nki_dist.program import psum, sbuf

__tracebackhide__ = True  # asks pytest to end tracebacks in the caller

NUMBERS = (int, float, np.number, np.bool_)
_INSTRUCTIONS: Final = MappingProxyType({"copy": tensor_copy, "reciprocal": reciprocal})


def refuse(function: str, text: str, *, code: str, **more: Any) -> NkiValidationError:
    """The error to raise for a wrong argument of `nl.<function>`."""
    current_tracer()  # outside of a kernel, that is what is wrong
    return invalid(text, code=code, **more).at(instruction=f"nl.{function}")


def tile(function: str, name: str, value: Any) -> NkiTensor:
    """`value`, which must be a tile on chip."""
    if isinstance(value, NkiTensor) and value.buffer.on_chip:
        return value
    if isinstance(value, NkiTensor):
        got = f"in {value.buffer.value}: {value.storage.label}"
    else:
        got = described(value)
    message = f"{name} is {got}; allowed: a tile in SBUF or PSUM (see nl.load){advice(value)}"
    raise refuse(function, message, code="operand-kind")


def new(shape: Any, dtype: Any, buffer: Any = sbuf) -> NkiTensor:
    """A result tile; a tile has at least two dimensions."""
    shape = tuple(shape)
    return ndarray(shape if len(shape) > 1 else (*shape, 1), dtype, buffer)


def promoted(a: DType, b: DType) -> DType:
    """The dtype of an operation on tiles of two dtypes: floats win, then the wider one.

    Different types of one kind and width (float16 and bfloat16, int32 and uint32) give float32 or
    the signed one: no value range of either is lost without the kernel asking for it.
    """
    if a is b:
        return a
    if a.is_integer != b.is_integer:
        return b if a.is_integer else a
    if a.bits != b.bits:
        return a if a.bits > b.bits else b
    if a.is_integer:
        return a if a.name.startswith("int") else b
    return float32


# ---- broadcasting -------------------------------------------------------------------------------


def common_shape(function: str, a: NkiTensor, b: NkiTensor) -> tuple[int, ...]:
    """The shape two tiles broadcast to.

    Dimension 0 is matched with dimension 0; a tile with fewer dimensions gets ones after it.
    """
    rank = max(len(a.shape), len(b.shape))
    left, right = _raised(a, rank).shape, _raised(b, rank).shape
    if any(m != n and 1 not in (m, n) for m, n in zip(left, right, strict=True)):
        message = (
            f"shapes {a.shape} and {b.shape} don't broadcast: sizes of each dimension must be "
            "equal, or one of them 1"
        )
        raise refuse(function, message, code="shape-broadcast", first=a.shape, second=b.shape)
    return tuple(n if m == 1 else m for m, n in zip(left, right, strict=True))


def _raised(x: NkiTensor, rank: int) -> NkiTensor:
    while len(x.shape) < rank:
        x = x.expand_dim(1)
    return x


def spread(x: NkiTensor, shape: tuple[int, ...]) -> NkiTensor:
    """`x` repeated to `shape`: a view, or a copy where partitions have to be filled."""
    x = _raised(x, len(shape))
    if x.shape[0] != shape[0]:
        x = _over_partitions(x, shape[0])
    for dim in range(1, len(shape)):
        if x.shape[dim] != shape[dim]:
            x = x.broadcast(dim, shape[dim])
    return x


def _over_partitions(x: NkiTensor, partitions: int) -> NkiTensor:
    if x.buffer is psum:
        x = copy(x, None)
    filled = new((partitions, *x.shape[1:]), x.dtype)
    pattern = x.get_pattern()
    dma_copy(filled, x.ap([[0, partitions], *pattern[1:]]))
    return filled


# ---- instructions -------------------------------------------------------------------------------


def public_binary(function: str, x: Any, y: Any, dtype: Any) -> NkiTensor:
    """`binary` as kernels call it: AWS's release notes name forms of it that don't compile."""
    shapes = [v.shape for v in (x, y) if isinstance(v, NkiTensor)]
    if len(shapes) == 2 and shapes[0] != shapes[1]:
        may_reject(
            f"nl.{function} of tiles of shapes {shapes[0]} and {shapes[1]}; AWS's release notes "
            "say that both must have the same shape, and that broadcasting isn't supported yet",
            code="language-limit",
            hint="use nisa.tensor_scalar for a (P, 1) column, or .broadcast() a view",
        )
    if function == "power" and isinstance(y, NUMBERS):
        may_reject(
            f"nl.power with the exponent {y!r}; AWS's release notes say that both must be tiles",
            code="language-limit",
            hint="use nisa.tensor_scalar with op0=nl.power, or multiply",
        )
    return binary(function, x, y, dtype)


def binary(function: str, x: Any, y: Any, dtype: Any) -> NkiTensor:
    """`x op y`; one of them may be a number."""
    if isinstance(y, NUMBERS):
        if isinstance(x, NUMBERS):
            message = f"x={x!r}, y={y!r}; at least one of them must be a tile"
            raise refuse(function, message, code="operand-kind")
        return with_number(function, x, y, False, dtype)
    if isinstance(x, NUMBERS):
        return with_number(function, y, x, True, dtype)
    x, y = tile(function, "x", x), tile(function, "y", y)
    shape = common_shape(function, x, y)
    result = new(shape, promoted(x.dtype, y.dtype) if dtype is None else dtype)
    left, right = spread(x, shape), spread(y, shape)
    if left.buffer is psum and right.buffer is psum:  # an engine reads only one of them there
        right = spread(copy(y, None), shape)
    tensor_tensor(result, left, right, function)
    return result


def with_number(function: str, x: Any, number: Any, reverse: bool, dtype: Any) -> NkiTensor:
    """`x op number`, or `number op x` if `reverse`."""
    x = tile(function, "x", x)
    result = new(x.shape, x.dtype if dtype is None else dtype)
    if ALU[function].kind == "bitvec" and isinstance(number, NUMBERS):
        number = int(number) if float(number).is_integer() else number
    tensor_scalar(result, x, function, number, reverse)
    return result


def unary(function: str, x: Any, dtype: Any) -> NkiTensor:
    """`function(x)`: by its own instruction, by ours if no engine has it, or on Scalar."""
    x = tile(function, "x", x)
    result = new(x.shape, x.dtype if dtype is None else dtype)
    if function in _INSTRUCTIONS:
        _INSTRUCTIONS[function](result, x)
    elif function in MATH:
        language_math(result, function, x)
    else:
        activation(result, function, x)
    return result


def copy(x: Any, dtype: Any) -> NkiTensor:
    """A new tile in SBUF with the values of `x`."""
    return unary("copy", x, dtype)


def converted(x: NkiTensor, dtype: Any) -> NkiTensor:
    """`x` itself if it has that dtype, else a copy that does."""
    return x if dtype is None or dtypes.of(dtype) is x.dtype else copy(x, dtype)


def invert(x: Any, dtype: Any) -> NkiTensor:
    """Every bit of `x` flipped: an exclusive or with all ones."""
    x = tile("invert", "x", x)
    if not x.dtype.is_integer:
        message = f"x has dtype {x.dtype}; allowed: integer types"
        raise refuse("invert", message, code="operator-dtype", got=x.dtype)
    ones = -1 if x.dtype.name.startswith("int") else (1 << x.dtype.bits) - 1
    return with_number("bitwise_xor", x, ones, False, dtype)


# ---- reductions ---------------------------------------------------------------------------------


def axes(function: str, x: NkiTensor, axis: Any) -> tuple[int, ...]:
    """The axes to reduce, checked: the last dimensions of the tile, without the partitions."""
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    rank = len(x.shape)
    if not all(isinstance(a, (int, np.integer)) and -rank <= a < rank for a in given):
        message = f"axis={axis!r} of a tile with {rank} dimensions"
        raise refuse(function, message, code="axis", got=axis, most=rank - 1)
    found = tuple(sorted({int(a) % rank for a in given}))
    if not found or found != tuple(range(rank - len(found), rank)) or found[0] == 0:
        message = (
            f"axis={axis!r} of a tile of shape {x.shape}; allowed: the last free dimensions, such "
            f"as {rank - 1} or {tuple(range(1, rank))} (dimension 0 counts partitions)"
        )
        raise refuse(function, message, code="axis", got=axis)
    return found


def count(x: NkiTensor, axis: Any) -> int:
    """How many elements one result of a reduction comes from."""
    return prod(x.shape[a] for a in axes("mean", x, axis))


def reduce(function: str, op: str, x: Any, axis: Any, dtype: Any, keepdims: bool) -> NkiTensor:
    """`op` over the last dimensions, for `nl.<function>`."""
    x = tile(function, "x", x)
    found = axes(function, x, axis)
    lead = x.shape[: found[0]]
    shape = (*lead, *(1 for _ in found)) if keepdims else lead
    result = new(shape, x.dtype if dtype is None else dtype)
    tensor_reduce(result, op, x, found, keepdims=keepdims)
    return result
