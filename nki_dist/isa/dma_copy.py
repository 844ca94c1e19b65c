"""nisa.dma_copy: moves data between any two memories, with gather and scatter of rows."""

from __future__ import annotations

import numpy as np

from nki_dist.dtypes import DType
from nki_dist.errors import invalid
from nki_dist.isa import gather as g
from nki_dist.isa.checks import check_priority, refuse_packed, require_generation
from nki_dist.isa.effects import Effects, copies, elementwise
from nki_dist.isa.enums import dge_mode, engine, oob_mode
from nki_dist.isa.kit import Array, Kit
from nki_dist.isa.operands import SBUF_OR_HBM, Choice, Number, read, refuse_wide, write
from nki_dist.isa.spec import Access, Arch, Cost, Instruction, instruction, todays_kernel
from nki_dist.isa.transfers import paired
from nki_dist.ops.function import conversion, copy, function
from nki_dist.ops.operation import Operation, op, reshaped


@instruction(
    engines="dma",
    effects=Effects(elementwise("src"), partial=False, bits=copies("dst src"), state=None),
)
def dma_copy(
    dst=write(SBUF_OR_HBM, wide=True),
    src=read(SBUF_OR_HBM, wide=True),
    priority=Number(integer=True, optional=True).default(None),
    oob_mode=Choice(oob_mode).default(oob_mode.error),
    dge_mode=Choice(dge_mode).default(dge_mode.unknown),
    engine=Choice(engine, (engine.unknown, engine.sync, engine.scalar)).default(engine.unknown),
    name=None,
):
    """`dst = src` by DMA, between SBUF and HBM in any combination.

    Args:
        dst, src: tensors with the same total number of elements, matched in row-major order. One
            of them may carry a run-time index (`.ap(vector_offset=)`, `.ap(scalar_offset=)`,
            `.select(register)`, `nl.ds`).
        priority: 0 (highest) to 3, NeuronCore-v4 only.
        oob_mode: `error` raises OutOfBoundsError where a run-time index leads outside the tensor,
            `skip` drops the rows outside and moves the others. A row is a run along the last
            dimension of both; one that is partly outside is outside. See isa.transfers.
        dge_mode: who writes the descriptors; changes time, not values.
        engine: sync or scalar, the queue of a `hwdge` transfer.

    Equal dtypes are copied bit by bit; others convert through float32.
    """
    return locals()


@dma_copy.check
def _sizes(i: Instruction, arch: Arch) -> None:
    if i["dst"].size != i["src"].size:
        raise invalid(
            f"dst has {i['dst'].size} elements (shape {i['dst'].shape}), src {i['src'].size} "
            f"(shape {i['src'].shape}); dma_copy needs as many in both",
            code="size-mismatch",
            hint=_part(i["dst"].shape, i["src"].shape),
            dst=i["dst"].size,
            src=i["src"].size,
        )
    if i["dst"].dtype is not i["src"].dtype:
        for name in ("dst", "src"):
            if i[name].dtype.bits == 64:
                refuse_wide(name, i[name])  # DMA converts through float32
            refuse_packed(name, i[name], "DMA doesn't convert packed types")


def _part(dst: tuple[int, ...], src: tuple[int, ...]) -> str | None:
    """What to write where the smaller of two shapes with equally many dimensions is meant."""
    if len(dst) != len(src):
        return None
    both = [min(n, m) for n, m in zip(dst, src)]
    part = ", ".join(f"0:{n}" for n in both)
    places = [side for side, shape in (("dst", dst), ("src", src)) if [*shape] != both]
    return "to copy a part, write " + " and ".join(f"{side}[{part}]" for side in places)


@dma_copy.check
def _modes(i: Instruction, arch: Arch) -> None:
    check_priority(i, arch)
    if i["dge_mode"] is dge_mode.hwdge:
        require_generation(arch, 3, "dge_mode.hwdge")
    dst, src = i["dst"].dtype, i["src"].dtype
    if i["dge_mode"] is dge_mode.hwdge and dst is not src and todays_kernel():
        raise invalid(
            f"dst has dtype {dst}, src {src}; with dge_mode.hwdge they must be equal, because the "
            "hardware moves bytes",
            code="dtype-mismatch",
            hint="view one as the other with .view(), or let dge_mode.swdge convert",
            dst=dst,
            src=src,
        )
    if i["engine"] is not engine.unknown and i["dge_mode"] is not dge_mode.hwdge:
        message = f"engine={i['engine'].name} is only for dge_mode.hwdge, got {i['dge_mode'].name}"
        raise invalid(message, code="argument-combination")


@dma_copy.check
def _indirect(i: Instruction, arch: Arch) -> None:
    dst, src = i["dst"], i["src"]
    if dst.dynamic is None and src.dynamic is None:
        return
    if g.has_vector(dst) and g.has_vector(src):
        message = "dst and src both carry a vector offset; only one of them can"
        raise invalid(message, code="vector-offset")
    for name, a in (("dst", dst), ("src", src)):
        g.refuse_indirection(name, a)
        g.check_rows(name, a)


dma_copy.rows(lambda i: paired(i["dst"], i["src"]))


@dma_copy.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst, src = i["dst"], i["src"]
    if g.has_vector(src):
        table, source, choice, _ = g.chosen_rows(src, kit, i["oob_mode"])
        rows = _rows(dst, choice.shape, kit)
        out = kit.view(dst) if rows is None else rows
        return [op(gather_rows, source, table, choice, src.dtype, dst.dtype, out)]
    if g.has_vector(dst):
        table, source, choice, overlap = g.chosen_rows(dst, kit, i["oob_mode"])
        rows, load = kit.copied(src, dst.dtype)
        rows = rows.reshape(choice.shape)
        return [load, op(_scatter, source, rows, choice, overlap, table)]
    return move(dst, src, kit, whole=True)


def move(dst: Access, src: Access, kit: Kit, whole: bool) -> list[Operation]:
    """A copy: bits where dtypes are equal, through float32 otherwise."""
    same = kit.congruent([dst, src], whole)
    if same is None:
        # Dimensions cut across each other: go through a contiguous copy of the source.
        flat = kit.scratch(src.shape, src.dtype.raw)
        source = flat.view(src.dtype.storage).reshape(dst.shape)
        change = op(kit.convert(src.dtype, dst.dtype), kit.view(dst), source)
        return [op(copy, flat, kit.raw(src)), change]
    if dst.dtype is src.dtype:
        return [op(copy, kit.raw(same[0]), kit.raw(same[1]))]
    return [op(kit.convert(src.dtype, dst.dtype), kit.view(same[0]), kit.view(same[1]))]


@function(reads="source table out", writes="out", raises=True, name="gather rows")
def gather_rows(
    source: np.ndarray, table: np.ndarray, choice: g.Chosen, src: DType, dst: DType, out: np.ndarray
) -> None:
    """Rows of a table, as another type; those that are left out stay as they are in `out`."""
    places, valid = choice.read(source)
    convert = conversion(src, dst)
    if valid is None and out.shape == choice.shape:
        convert(out, table[places])
        return
    fresh = np.empty((len(places), *choice.shape[1:]), dst.storage)
    convert(fresh, table[places])
    chosen = slice(None) if valid is None else valid
    if out.shape == choice.shape:
        out[chosen] = fresh
    else:  # its strides can't be seen as rows: change a copy of it
        current = np.ascontiguousarray(out).reshape(choice.shape)
        current[chosen] = fresh
        out[...] = current.reshape(out.shape)


def _rows(a: Access, rows: tuple[int, ...], kit: Kit) -> Array | None:
    """The operand as an array of the gathered shape, if its strides allow it."""
    if a.shape == rows:
        return kit.view(a)
    pattern = Access(a.storage, a.offset, rows, (0,) * len(rows), a.dtype)
    if a.shape[0] != rows[0]:
        return None
    same = kit.congruent([a, pattern])
    if same is None or same[0].shape != same[1].shape:
        return None
    return reshaped(kit.view(same[0]), rows)


@function(reads="source rows table", writes="table", raises=True, name="scatter rows")
def _scatter(
    source: np.ndarray, rows: np.ndarray, choice: g.Chosen, overlap: bool, table: np.ndarray
) -> None:
    """Rows to places of a table, in order."""
    places, valid = choice.read(source)
    g.put_rows(table, places, rows if valid is None else rows[valid], overlap)


@dma_copy.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    """Bytes moved and contiguous pieces on the more scattered side."""
    dst, src = i["dst"], i["src"]
    return Cost(dma_bytes=max(dst.nbytes, src.nbytes), dma_elements=max(pieces(dst), pieces(src)))


def pieces(a: Access) -> int:
    """Contiguous runs of bytes a DMA descriptor list has to name."""
    run = 1
    count = 1
    contiguous = True
    for d in range(len(a.shape) - 1, -1, -1):
        own_row = d == 0 and a.region.on_chip
        if contiguous and not own_row and (a.shape[d] == 1 or a.strides[d] == run):
            run *= a.shape[d]
        else:
            contiguous = False
            count *= a.shape[d]
    return count
