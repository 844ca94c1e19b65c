"""nisa.dma_transpose: a transpose by DMA into SBUF, also of rows gathered by index."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nki_dist.dtypes import uint32
from nki_dist.errors import invalid
from nki_dist.isa.checks import check_priority, same_dtype
from nki_dist.isa.described import wrong_value
from nki_dist.isa.dma_copy import gather_rows, pieces
from nki_dist.isa.effects import Effects, Mask, moves, of_one
from nki_dist.isa.enums import dge_mode, oob_mode
from nki_dist.isa.gather import chosen_rows, has_vector, refuse_indirection
from nki_dist.isa.operands import HBM, SBUF, Choice, Custom, Number, read, write
from nki_dist.isa.spec import Arch, Cost, Kit, Operation, instruction, op, require_generation
from nki_dist.isa.transfers import Block, cut, permuted
from nki_dist.ops.function import copy
from nki_dist.program import Access, Instruction

AXES: Final[dict[int, tuple[int, ...]]] = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
_HWDGE_ROWS: Final = (1, 2, 4, 8, 16)


def _axes(name: str, value: Any) -> list[int] | None:
    if value is None:
        return None
    try:
        axes = tuple(n.__index__() for n in value)
    except (TypeError, AttributeError):
        raise wrong_value(name, value, "None or a tuple of ints", code="axis", hint="") from None
    if axes not in AXES.values():
        allowed = ", ".join(map(str, AXES.values()))
        raise wrong_value(name, axes, allowed, code="axis", hint="")
    return list(axes)


@of_one
def _transposed(i: Instruction, m: np.ndarray) -> Mask:
    """Elements move as the axes say."""
    return m.transpose(AXES[m.ndim])


@instruction(
    engines="dma",
    effects=Effects(_transposed("src"), partial=False, bits=moves("dst src"), state=None),
)
def dma_transpose(
    dst=write(SBUF),
    src=read(SBUF | HBM),
    axes=Custom(_axes).default(None),
    priority=Number(integer=True, optional=True).default(None),
    dge_mode=Choice(dge_mode).default(dge_mode.unknown),
    oob_mode=Choice(oob_mode).default(oob_mode.error),
    name=None,
):
    """`dst = src` with the first and last dimensions swapped, by DMA.

    Args:
        dst: SBUF tensor of the transposed shape, same dtype as src (2 or 4 bytes).
        src: tensor of 2 to 4 dimensions in SBUF or HBM. In HBM it may carry a vector offset: its
            rows are gathered first (`indices.T.flatten()` in that order), 2-byte types only.
        axes: (1, 0), (2, 1, 0) or (3, 1, 2, 0), what its rank implies anyway.
        priority: 0 (highest) to 3, NeuronCore-v4 only.
        dge_mode: unknown, hwdge (direct, NeuronCore-v3) or swdge (gathered).
        oob_mode: of rows of src that a run-time index leads outside their tensor: `error` raises
            OutOfBoundsError, `skip` leaves their columns of dst alone (isa.transfers).

    Data moves bit by bit.

    Raises:
        NkiValidationError: shapes, dtypes or modes don't fit.
        OutOfBoundsError: at run time, an index is outside the tensor.
    """
    return locals()


@dma_transpose.check
def _shapes(i: Instruction, arch: Arch) -> None:
    dst, src = i["dst"], i["src"]
    refuse_indirection("src", src)
    axes = AXES.get(len(src.shape))
    if axes is None:
        message = f"src has shape {src.shape}; allowed: 2, 3 or 4 dimensions"
        raise invalid(message, code="shape-rank", got=len(src.shape), least=2, most=4)
    if i["axes"] is not None and tuple(i["axes"]) != axes:
        message = (
            f"axes={tuple(i['axes'])} with a src of {len(src.shape)} dimensions; allowed: {axes}"
        )
        raise invalid(message, code="axis", hint="", got=tuple(i["axes"]), allowed=axes)
    expected = tuple(src.shape[d] for d in axes)
    if dst.shape != expected:
        turned = f"src of shape {src.shape} transposed by {axes}"
        message = f"dst has shape {dst.shape}; {turned} is {expected}"
        raise invalid(message, code="shape-mismatch", got=dst.shape, allowed=expected)
    same_dtype("dst src", "a DMA transpose doesn't convert, they must be the same")(i, arch)
    if src.dtype.itemsize not in (2, 4):
        message = (
            f"src has dtype {src.dtype} of {src.dtype.itemsize} byte; a DMA transpose takes types "
            "of 2 or 4 bytes"
        )
        raise invalid(message, code="dtype-width", got=src.dtype.itemsize, allowed=[2, 4])


@dma_transpose.check
def _modes(i: Instruction, arch: Arch) -> None:
    mode, gathered = i["dge_mode"], has_vector(i["src"])
    check_priority(i, arch)
    # `none` is a hint that published kernels give to every DMA of theirs.
    allowed = (dge_mode.unknown, dge_mode.none, dge_mode.swdge if gathered else dge_mode.hwdge)
    if mode not in allowed:
        kind = "a gathered" if gathered else "a direct"
        message = f"dge_mode={mode.name} of {kind} transpose; allowed: " + ", ".join(
            m.name for m in allowed
        )
        raise invalid(message, code="dma-transpose-mode", got=mode.name)
    if mode is dge_mode.hwdge:
        _check_hwdge(i["src"], arch)
    if gathered:
        _check_gather(i["src"], arch)
    elif i["oob_mode"] is oob_mode.skip and i["src"].dynamic is None:
        message = "oob_mode.skip is for a src with a run-time index; this has none"
        raise invalid(message, code="oob-mode")


def _check_hwdge(src: Access, arch: Arch) -> None:
    require_generation(arch, 3, "dge_mode.hwdge")
    _two_bytes(src, "dge_mode.hwdge", arch)
    rows = src.shape[0]
    if len(src.shape) == 2:
        if rows != 16:
            message = f"src has {rows} rows; dge_mode.hwdge takes 16 in two dimensions"
            raise invalid(message, code="dma-transpose-shape", got=rows, allowed=16)
    elif rows not in _HWDGE_ROWS or rows * src.shape[-2] % 16:
        message = (
            f"src has shape {src.shape}; dge_mode.hwdge takes a first dimension of "
            f"{', '.join(map(str, _HWDGE_ROWS))} whose product with the last but one is a multiple "
            "of 16"
        )
        raise invalid(message, code="dma-transpose-shape", got=src.shape)


def _two_bytes(src: Access, what: str, arch: Arch) -> None:
    limit = arch.dma_transpose_last_dim_max
    if src.shape[-1] > limit:
        message = f"src has shape {src.shape}; {what} takes a last dimension of at most {limit}"
        raise invalid(message, code="dma-transpose-shape", got=src.shape, most=limit)
    if src.dtype.itemsize != 2:
        message = f"src has dtype {src.dtype}; {what} takes types of 2 bytes"
        raise invalid(message, code="dtype-width", got=src.dtype.itemsize, allowed=2)


def _check_gather(src: Access, arch: Arch) -> None:
    require_generation(arch, 3, "a gathered DMA transpose")
    _two_bytes(src, "a gathered transpose", arch)
    assert src.dynamic is not None
    index = src.dynamic.source
    rows, (parts, columns) = src.shape[0], (index.shape[0], index.free_size)
    if len(src.shape) == 4 and 1 not in src.shape[1:3]:
        message = (
            f"src has shape {src.shape}; a gathered transpose needs one middle dimension of size 1"
        )
        raise invalid(message, code="dma-transpose-shape", got=src.shape)
    if rows % 16:
        message = f"src has {rows} rows; a gathered transpose takes multiples of 16"
        raise invalid(message, code="dma-transpose-shape", got=rows, multiple=16)
    if index.dtype is not uint32:
        message = f"the indices have dtype {index.dtype}; allowed: uint32"
        raise invalid(message, code="dtype-operand", got=index.dtype, allowed="uint32")
    most = arch.partitions
    if not 16 <= parts <= most or parts % 16 or (columns > 1 and parts != most):
        message = (
            f"the indices have shape {index.shape}; allowed: 16 to {most} partitions in multiples "
            f"of 16, and {most} if there is more than one column"
        )
        raise invalid(message, code="dma-transpose-shape", got=index.shape)
    if parts * columns < rows:
        message = f"src has {rows} rows, the indices (shape {index.shape}) are {parts * columns}"
        raise invalid(message, code="shape-mismatch", got=rows, allowed=parts * columns)


@dma_transpose.rows
def _rows(i: Instruction) -> list[Block]:
    """A row is one of src; its elements go to as many partitions."""
    src, axes = i["src"], AXES[len(i["src"].shape)]
    pair = {"dst": permuted(i["dst"], axes), "src": src}
    if not has_vector(src):
        return [Block(pair, ("src",), {"dst": axes})]
    free = [(0, n) for n in src.shape[1:]]
    boxes = [((n, n + 1), *free) for n in range(src.shape[0])]
    parts = [{name: cut(a, box) for name, a in pair.items()} for box in boxes]
    return [Block(part, ("src",), {"dst": axes}) for part in parts]


@dma_transpose.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst, src = i["dst"], i["src"]
    # All three permutations are their own inverse.
    target = kit.raw(dst).transpose(AXES[len(src.shape)])
    if has_vector(src):
        table, source, choice, _ = chosen_rows(src, kit, i["oob_mode"], columns=True)
        out = target.view(src.dtype.storage)
        return [op(gather_rows, source, table, choice, src.dtype, src.dtype, out)]
    if src.storage is not dst.storage:
        return [op(copy, target, kit.raw(src))]
    middle = kit.scratch(src.shape, src.dtype.raw)
    return [op(copy, middle, kit.raw(src)), op(copy, target, middle)]


@dma_transpose.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    # Slower than a copy of as many bytes by a published factor, so count more bytes.
    src = i["src"]
    figure = f"dma_transpose_{'hbm' if src.region.is_hbm else 'sbuf'}_fraction"
    return Cost(
        dma_bytes=round(src.nbytes / getattr(arch, figure)),
        dma_elements=max(pieces(src), pieces(i["dst"])),
        figures=(figure,),
    )
