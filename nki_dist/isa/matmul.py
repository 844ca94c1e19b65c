"""What the matmuls share: operands as float32 matrices, results into PSUM, tiling rules.

Invariant: the product is always formed by one BLAS matrix product, on row-major float32 matrices
whose rows are contiguous, so with one thread its bits depend on values and shapes only, never on
how operands lie in memory. A product that accumulates is formed apart and added once; which matmuls
are one product is the affair of linking (linking.chains).

Not modelled: the order in which the systolic array adds; nothing is published about it, so the
float32 sums may differ from hardware in the last bits.

Follows `nisa.nc_matmul` and the PSUM section of the Trainium architecture guides.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_dist.arch import Arch
from nki_dist.dtypes import float32, tfloat32
from nki_dist.errors import NkiValidationError, invalid
from nki_dist.isa.checks import check_result
from nki_dist.isa.described import wrong_value
from nki_dist.isa.effects import Mask, MaskOf, Results, flattened, passes_on, tile_of, union
from nki_dist.isa.kit import Array, Kit
from nki_dist.isa.tensor_engine import tile_holding, tile_sizes
from nki_dist.isa.tracing import may_reject
from nki_dist.ops.arrays import add_where
from nki_dist.ops.function import copy
from nki_dist.ops.operation import Operation, op
from nki_dist.ops.place import joined
from nki_dist.program import Access, Instruction


def flat(a: Access) -> Access | None:
    """The operand with one free dimension, or None where its strides need two."""
    dims = joined(a.shape[1:], a.strides[1:])
    if len(dims) > 1:
        return None
    size, stride = dims[0] if dims else (1, 1)
    return Access(a.storage, a.offset, (a.shape[0], size), (a.strides[0], stride), a.dtype)


def _rows_contiguous(a: Access | None) -> bool:
    return a is not None and a.strides[1] == 1 and a.shape[1] > 1 and a.strides[0] >= a.shape[1]


def directly(dst: Access) -> Access | None:
    """A float32 destination as rows that BLAS can write to, or None."""
    view = flat(dst)
    return view if dst.dtype is float32 and _rows_contiguous(view) else None


def matrix(a: Access, kit: Kit, rows: int, apart: bool = False) -> tuple[Array, list[Operation]]:
    """An operand as a float32 matrix of `rows` rows, and what fills it.

    Args:
        apart: never a view, for an operand that is the other one too (BLAS would take another
            routine for a matrix times itself).
    """
    view = flat(a)
    plain = a.dtype in (float32, tfloat32) and rows == a.shape[0] and not apart
    if plain and view is not None and _rows_contiguous(view):
        return kit.view(view), []
    array, filled = kit.copied(a)
    return array.reshape(rows, -1), [filled]


def deposit(dst: Access, mode: str, kit: Kit) -> tuple[Array, list[Operation]]:
    """Where to write a result, and what brings it into PSUM.

    Args:
        mode: "replace", "add", or "runtime": add where an earlier matmul left its result.
    """
    view = directly(dst)
    if mode == "replace" and view is not None:
        return kit.view(view), []
    result = kit.scratch((dst.shape[0], dst.free_size))
    return result, deposited(dst, mode, result.reshape(dst.shape), kit)


def deposited(dst: Access, mode: str, shaped: Array, kit: Kit) -> list[Operation]:
    """What brings a float32 product of dst's shape, which it may change, into PSUM."""
    target = kit.view(dst)
    after: list[Operation] = []
    before = target
    if mode != "replace" and dst.dtype is not float32:
        before = kit.scratch(dst.shape)
        after.append(op(kit.convert(dst.dtype, float32), before, target))
    if mode == "add":
        out = target if dst.dtype is float32 else shaped
        after.append(op(np.add, before, shaped, out))
    elif mode == "runtime":
        mask = kit.accumulating(dst)
        after.append(op(add_where, before, shaped, mask, shaped))
    if mode != "add" or dst.dtype is not float32:
        after.append(op(kit.convert(float32, dst.dtype), target, shaped))
    return after


def product(left: Array, right: Array, out: Array, kit: Kit) -> list[Operation]:
    """What makes `out = left.T @ right`.

    A single row or column is computed twice, because BLAS would take its matrix-vector routine,
    whose sums depend on strides.
    """
    (rows, m), n = left.shape, right.shape[1]
    if m > 1 and n > 1:
        return [op(np.matmul, left.T, right, out)]
    wide = [kit.scratch((rows, max(size, 2))) for size in (m, n)]
    whole = kit.scratch((wide[0].shape[1], wide[1].shape[1]))
    return [
        op(copy, wide[0], left),
        op(copy, wide[1], right),
        op(np.matmul, wide[0].T, wide[1], whole),
        op(copy, out, whole[:m, :n]),
    ]


def multiply(
    i: Instruction, kit: Kit, rows: int, operands: tuple[Access, Access]
) -> list[Operation]:
    """`dst (=, +=) stationary.T @ moving` in float32."""
    stationary, moving = operands
    left, steps = matrix(stationary, kit, rows)
    right, more = matrix(moving, kit, rows, apart=moving.same_elements(stationary))
    out, after = deposit(i["dst"], i.accumulation, kit)
    return [*steps, *more, *product(left, right, out, kit), *after]


# ---- constraints -----------------------------------------------------------------------------


def check_sizes(i: Instruction, stationary: int, moving: int, arch: Arch) -> None:
    """Partitions of the inputs; their free sizes against the output's, and its PSUM bank."""
    left, right, dst = i["stationary"].shape[0], i["moving"].shape[0], i["dst"]
    if left != right:
        message = (
            f"stationary has {left} partitions, moving {right}; both are the contraction "
            "dimension and must be equal"
        )
        raise invalid(message, code="matmul-contraction", stationary=left, moving=right)
    check_result(dst, stationary, moving, "stationary and moving make it")
    limit = arch.moving_free_limit(dst.dtype.name)
    if moving > limit:
        message = (
            f"moving has {moving} elements in its free dimensions; at most {limit} on {arch.name} "
            f"with a {dst.dtype} dst"
        )
        raise invalid(message, code="matmul-moving-size", got=moving, most=limit)
    if arch.generation < 4:
        check_bank(dst, arch)


def check_bank(dst: Access, arch: Arch) -> None:
    """A result of the Tensor engine lies within one PSUM bank."""
    if dst.dynamic is not None:
        return
    row = dst.partition_stride
    base = dst.storage.address[1] if dst.storage.address is not None else 0
    low = base + dst.offset % row * dst.dtype.itemsize
    free = Access(dst.storage, 0, dst.shape[1:], dst.strides[1:], dst.dtype)
    high = low + free.span()[1]
    bank = arch.psum_bank_bytes
    if low // bank != (high - 1) // bank:
        message = (
            f"dst covers bytes [{low}, {high}) of its PSUM partitions, more than one bank; a bank "
            f"has {bank} bytes ({bank // dst.dtype.itemsize} elements of {dst.dtype}), and the "
            "Tensor engine writes to one at a time"
        )
        raise invalid(message, code="psum-bank", low=low, high=high, most=bank)


def _no_tile(message: str, **numbers: Any) -> NkiValidationError:
    return NkiValidationError(message, code="tile-position", numbers=numbers)


def pair(name: str, value: Any) -> tuple[int, int] | None:
    """The role of `tile_position` and `tile_size`: two ints, or None for not given."""
    if value is None or (isinstance(value, (tuple, list)) and not value):
        return None
    try:
        first, second = (v.__index__() for v in value)
    except (TypeError, ValueError, AttributeError):
        raise _no_tile(f"{name}={value!r}; allowed: (row, column), two ints", got=value) from None
    return first, second


def accumulate_flag(name: str, value: Any) -> bool | None:
    """The role of `accumulate`: True, False, or None to leave it to the compiler."""
    if value is None:
        return None
    if isinstance(value, (bool, int, np.bool_, np.integer)):
        return bool(value)
    raise wrong_value(name, value, "True, False or None", code="argument-kind")


def check_tiling(i: Instruction, arch: Arch, rows: int, columns: int, row_only: bool) -> None:
    """`tile_position` and `tile_size` name a tile of the array, and the operands fit into it.

    A size that isn't documented takes the smallest tile that holds it, from NeuronCore-v3:
    nki-library's gdn_cte multiplies tiles of (16, 16) on devices.
    """
    position, size = i["tile_position"], i["tile_size"]
    given = f"tile_position={position}, tile_size={size}"
    if (position is None) != (size is None):
        raise _no_tile(f"{given}; give both or neither", position=position, size=size)
    if size is None:
        return
    array = (arch.partitions, arch.stationary_free_max)
    taken = tile_holding(size, arch)
    for n, (name, used) in enumerate((("row", rows), ("column", columns))):
        got, tile, at = size[n], taken[n], position[n]
        allowed = tile_sizes(array[n], arch)
        listed = f"{', '.join(map(str, allowed))} on {arch.name}"
        if not tile or (arch.generation < 3 and tile != got):
            raise _no_tile(f"tile_size {name} {got}; allowed: {listed}", got=got, allowed=allowed)
        if at % tile or not 0 <= at < array[n]:
            rule = f"multiples of the tile's {tile} from 0, below {array[n]}"
            raise _no_tile(f"tile_position {name} {at}; allowed: {rule}", got=at)
        if used > got:
            message = f"the operands use {used} {name}s of the array, tile_size allows {got}"
            raise _no_tile(message, got=used, most=got)
    if taken != size:
        may_reject(
            f"tile_size={size}; documented are {listed}, and the smallest tile of the array that "
            f"holds it is taken, {taken}",
            code="matmul-tile-size",
        )
    if row_only and (size[1] != array[1] or position[1] != 0):
        rule = f"the column size must be {array[1]} and the start column 0"
        message = f"{given}; this mode can't be combined with column tiling: {rule}"
        raise _no_tile(message, position=position, size=size)


# ---- unwritten elements ------------------------------------------------------------------------


@passes_on
def multiplied(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    """dst[m, n] depends on stationary[:, m] and moving[:, n]; a transpose moves single elements."""
    s, m = (mask_of(i.args[name]) for name in sources)
    before = mask_of(i.args["dst"]) if i.accumulation == "add" else None
    partitions, free = tile_of(i)
    if i.args.get("is_transpose") and s is not None and flattened(s).shape == (free, partitions):
        return {"dst": flattened(s).T}
    total = np.zeros((partitions, free), bool) if before is None else flattened(before).copy()
    column = None if s is None else _columns(s, partitions)
    line = None if m is None else _columns(m, free)
    if column is not None:
        total |= column[:, None]
    if line is not None:
        total |= line[None, :]
    return {"dst": total}


def _columns(m: np.ndarray, count: int) -> Mask:
    """Which of `count` columns have a mark in any contracted row (all but the last dimensions)."""
    flat = union(flattened(m), 0)
    if flat.size == count:
        return flat
    if flat.size % count == 0:  # double rows: (partitions, 2, columns)
        return union(flat.reshape(-1, count), 0)
    return None
