"""nisa.dma_compute: sums tensors while DMA moves them, also into gathered or scattered rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_dist.dtypes import DType, float32, float64
from nki_dist.errors import invalid
from nki_dist.isa import gather as g
from nki_dist.isa.alu import DMA_REDUCE
from nki_dist.isa.checks import refuse_packed
from nki_dist.isa.described import wrong_value
from nki_dist.isa.dma_copy import SBUF_OR_HBM, pieces
from nki_dist.isa.effects import Effects, elementwise
from nki_dist.isa.enums import oob_mode
from nki_dist.isa.kit import Array, Kit
from nki_dist.isa.operands import FLAG, Choice, Custom, Op, read, write
from nki_dist.isa.spec import Access, Arch, Cost, Instruction, Operation, instruction, op
from nki_dist.ops.function import conversion, function


def _scales(name: str, value: Any) -> list[float] | None:
    if value is None:
        return None
    try:
        return [float(v) for v in value]
    except (OverflowError, TypeError, ValueError):
        raise wrong_value(name, value, "None or a list of 1.0", code="argument-kind") from None


@instruction(
    engines="dma", effects=Effects(elementwise("srcs"), partial=False, bits=None, state=None)
)
def dma_compute(
    dst=write(SBUF_OR_HBM),
    srcs=read(SBUF_OR_HBM, many=True),
    reduce_op=Op(DMA_REDUCE),
    scales=Custom(_scales).default(None),
    unique_indices=FLAG.default(True),
    oob_mode=Choice(oob_mode).default(oob_mode.error),
    name=None,
):
    """`dst = srcs[0] + srcs[1] + ...`, by DMA.

    Args:
        dst: tensor in SBUF or HBM.
        srcs: 1 to 16 tensors with as many elements as dst, matched in row-major order. With a
            vector offset there are two: `[rows of a table, dst]` adds gathered rows to an SBUF
            tile; `[dst, tile]`, both tables with the same vector offset, adds to scattered rows.
        reduce_op: nl.add.
        scales: None, or 1.0 for each source.
        unique_indices: must be True with a vector offset.
        oob_mode: `error` raises OutOfBoundsError for an index that leads outside the table, `skip`
            drops what is outside. Of an index that chooses several rows, each is looked at by
            itself (isa.transfers).

    Sums are float32 in the order of srcs, rounded once to `dst.dtype`. A row that is scattered to
    twice, in spite of unique_indices, receives both additions, in order.

    Raises:
        NkiValidationError: sizes, scales or the form don't fit.
        OutOfBoundsError: at run time, an index is outside the table.
    """
    return locals()


@dma_compute.check
def _sizes(i: Instruction, arch: Arch) -> None:
    srcs, scales, most = i["srcs"], i["scales"], arch.dma_compute_sources_max
    if not isinstance(srcs, list) or not 1 <= len(srcs) <= most:
        got = len(srcs) if isinstance(srcs, list) else "no list of"
        message = f"srcs has {got} tensors; allowed: a list of 1 to {most}"
        raise invalid(message, code="dma-compute-form", got=got, most=most)
    if not all(isinstance(a, Access) for a in srcs):
        message = f"srcs is {srcs!r}; allowed: a list of tensors, not of lists"
        raise invalid(message, code="dma-compute-form")
    for name, a in [("dst", i["dst"]), *((f"srcs[{n}]", a) for n, a in enumerate(srcs))]:
        g.refuse_indirection(name, a)
        if a.dynamic is not None and a.dynamic.kind == "scalar":
            message = (
                f"{name} has an address known only at run time; dma_compute takes only vector "
                "offsets"
            )
            raise invalid(message, code="vector-offset")
        refuse_packed(name, a, "DMA can't add those")
    for n, a in enumerate(srcs):
        if a.size != i["dst"].size:
            message = (
                f"srcs[{n}] has {a.size} elements (shape {a.shape}), dst {i['dst'].size} (shape "
                f"{i['dst'].shape}); must be equal"
            )
            raise invalid(message, code="size-mismatch", got=a.size, allowed=i["dst"].size)
    if scales is not None and (len(scales) != len(srcs) or any(s != 1.0 for s in scales)):
        message = f"scales={scales} for {len(srcs)} sources; allowed: None, or 1.0 for each"
        raise invalid(message, code="dma-compute-form", got=scales, sources=len(srcs))


@dma_compute.check
def _indirect(i: Instruction, arch: Arch) -> None:
    dst, srcs = i["dst"], i["srcs"]
    indirect = [a for a in srcs if g.has_vector(a)]
    if not indirect and not g.has_vector(dst):
        if i["oob_mode"] is oob_mode.skip:
            raise invalid(
                "oob_mode.skip, and no tensor has a vector offset; only indices can be skipped",
                code="oob-mode",
            )
        return
    if not i["unique_indices"]:
        message = "unique_indices=False with a vector offset; must be True"
        raise invalid(message, code="dma-compute-form")
    if len(srcs) != 2 or len(indirect) != 1:
        message = (
            f"{len(srcs)} sources, {len(indirect)} of them with a vector offset; with a vector "
            "offset there are exactly two sources, one of which has it"
        )
        raise invalid(message, code="dma-compute-form", got=len(srcs), allowed=2)
    table = indirect[0]
    other = srcs[0] if srcs[1] is table else srcs[1]
    g.check_rows("srcs[0]" if table is srcs[0] else "srcs[1]", table)
    if g.has_vector(dst):
        _check_scatter(dst, table, other)
    elif not dst.region.on_chip or not dst.same_elements(other):
        message = (
            f"adding gathered rows: dst must be in SBUF and the other source the same elements; "
            f"dst is {dst.storage.label}, the other source {other.storage.label}"
        )
        raise invalid(message, code="dma-compute-form")


def _check_scatter(dst: Access, table: Access, other: Access) -> None:
    assert dst.dynamic is not None and table.dynamic is not None
    pattern = (dst.storage, dst.offset, dst.shape, dst.strides, dst.dtype)
    same = (table.storage, table.offset, table.shape, table.strides, table.dtype)
    if pattern != same or not dst.dynamic.source.same_elements(table.dynamic.source):
        message = (
            f"adding to scattered rows: the source with a vector offset must be the same as dst, "
            f"offsets included; dst is {dst.storage.label}, that source {table.storage.label}"
        )
        raise invalid(message, code="dma-compute-form")
    if not other.region.on_chip:
        message = f"adding to scattered rows: the data must be in SBUF, it is {other.storage.label}"
        raise invalid(message, code="dma-compute-form")


@dma_compute.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst, srcs = i["dst"], i["srcs"]
    if g.has_vector(dst):
        return _scatter(i, kit)
    if any(g.has_vector(a) for a in srcs):
        return _gather(i, kit)
    total = kit.scratch((dst.size,))
    part = kit.scratch((dst.size,))
    ops = [_widened(srcs[0], total, kit)]
    for a in srcs[1:]:
        if a.dtype is float32:
            shaped = total.reshape(a.shape)
            ops.append(op(np.add, shaped, kit.view(a), shaped))
        else:
            ops += [_widened(a, part, kit), op(np.add, total, part, total)]
    return [*ops, op(kit.convert(float32, dst.dtype), kit.view(dst), total.reshape(dst.shape))]


def _widened(a: Access, into: Array, kit: Kit) -> Operation:
    return op(kit.convert(a.dtype, float32), into.reshape(a.shape), kit.view(a))


def _gather(i: Instruction, kit: Kit) -> list[Operation]:
    dst = i["dst"]
    vector = next(a for a in i["srcs"] if g.has_vector(a))
    table, source, choice, _ = g.chosen_rows(vector, kit, i["oob_mode"])
    total = kit.scratch(dst.shape)
    return [
        _widened(dst, total, kit),
        op(_add_gathered, source, table, choice, vector.dtype, total.reshape(choice.shape)),
        op(kit.convert(float32, dst.dtype), kit.view(dst), total),
    ]


@function(reads="source table rows", writes="rows", raises=True, name="gather add")
def _add_gathered(
    source: np.ndarray, table: np.ndarray, choice: g.Chosen, src: DType, rows: np.ndarray
) -> None:
    """Rows of a table are added to float32 ones."""
    places, valid = choice.read(source)
    fresh = np.empty((len(places), *choice.shape[1:]), rows.dtype)
    conversion(src, _computed(rows))(fresh, table[places])
    if valid is None:
        np.add(rows, fresh, rows)
    else:
        rows[valid] += fresh


def _scatter(i: Instruction, kit: Kit) -> list[Operation]:
    dst = i["dst"]
    data = next(a for a in i["srcs"] if not g.has_vector(a))
    table, source, choice, overlap = g.chosen_rows(dst, kit, i["oob_mode"])
    added = kit.scratch(data.shape)
    rows = added.reshape(choice.shape)
    return [
        _widened(data, added, kit),
        op(_add_scattered, source, rows, choice, overlap, dst.dtype, table),
    ]


@function(reads="source rows table", writes="table", raises=True, name="scatter add")
def _add_scattered(
    source: np.ndarray,
    rows: np.ndarray,
    choice: g.Chosen,
    overlap: bool,
    dst: DType,
    table: np.ndarray,
) -> None:
    """Float32 rows are added to places of a table, one after the other where they may meet."""
    places, valid = choice.read(source)
    widen, narrow = conversion(dst, _computed(rows)), conversion(_computed(rows), dst)
    chosen = rows if valid is None else rows[valid]

    def add(index: np.ndarray, what: np.ndarray) -> None:
        old = np.empty(what.shape, what.dtype)
        widen(old, table[index])
        np.add(old, what, old)
        new = np.empty(what.shape, dst.storage)
        narrow(new, old)
        table[index] = new

    if not overlap and len(set(places.tolist())) == len(places):
        add(places, chosen)
    else:
        for n in range(len(places)):
            add(places[n : n + 1], chosen[n : n + 1])


def _computed(rows: np.ndarray) -> DType:
    """float32, or float64 where values are carried along in double precision."""
    return float64 if rows.dtype == np.float64 else float32


@dma_compute.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    moved = [*i["srcs"], i["dst"]]
    return Cost(
        dma_bytes=round(sum(a.nbytes for a in i["srcs"]) / arch.dma_compute_fraction),
        dma_elements=sum(pieces(a) for a in moved),
        flops=i["dst"].size * (len(i["srcs"]) - 1),
    )
