"""nisa.max8, nc_find_index8 and nc_match_replace8: the 8 largest of a row, 8 places, 8 others."""

from __future__ import annotations

import numpy as np

from nki_dist.dtypes import uint16, uint32
from nki_dist.isa import broadcast as b
from nki_dist.isa.checks import (
    dimensions,
    free_size,
    free_up_to,
    same_partitions,
    same_tile,
    unpacked,
)
from nki_dist.isa.effects import (
    OPTIMISTIC,
    Effects,
    Mask,
    MaskOf,
    Results,
    flattened,
    moves,
    of_one,
    passes_on,
    tile_of,
    union,
)
from nki_dist.isa.kit import Array, Kit, last_writes
from nki_dist.isa.operands import Number, read, write
from nki_dist.isa.rows import load_rows, private_rows
from nki_dist.isa.spec import Access, Instruction, Operation, instruction, op
from nki_dist.isa.timing_rules import per_element
from nki_dist.ops.arrays import cast
from nki_dist.ops.function import copy, function

EIGHT = 8


@of_one
def _largest(i: Instruction, m: np.ndarray) -> Mask:
    """Every result depends on the whole row."""
    return union(flattened(m), 1)[:, None].repeat(EIGHT, axis=1)


@instruction(
    engines="vector",
    effects=Effects(_largest("src"), partial=False, bits=moves("dst src"), state=None),
    checks=[
        same_partitions("dst src"),
        dimensions("src", 3),
        free_up_to("src", "max8_max", EIGHT),
        free_size("dst", EIGHT, "exactly 8"),
        unpacked("dst src"),
    ],
    cost=per_element("src"),
)
def max8(dst=write(), src=read(), name=None):
    """The 8 largest values of each partition, largest first.

    Args:
        dst: tile (P, 8).
        src: tile of up to 3 dimensions with 8 to 16384 elements per partition.

    Equal values count as often as they occur. Compared as float32; NaN comes after everything
    else, which the documentation leaves open.

    Raises:
        NkiValidationError: shapes or dtypes don't fit.
    """
    return locals()


@max8.meaning
def _max8_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    values, load = private_rows(kit, i["src"])
    result = kit.scratch((values.shape[0], EIGHT))
    return [load, op(_largest_of, values, result), kit.save(i["dst"], result)]


@function(reads="values", writes="values result", name="eight largest")
def _largest_of(values: np.ndarray, result: np.ndarray) -> None:
    """Of each row, the largest first."""
    # NaN sorts last, so it has to be the descending order that is sorted.
    np.negative(values, values)
    if values.shape[1] > EIGHT:
        values.partition(EIGHT - 1, axis=1)
    np.copyto(result, values[:, :EIGHT])
    result.sort(axis=1)
    np.negative(result, result)


INDEX_DTYPES = (uint16, uint32)


@passes_on
def _found(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    """Positions depend on the whole row, and on the values looked for before."""
    data, vals = (mask_of(i.args[name]) for name in sources)
    out = np.zeros(tile_of(i), bool)
    if data is not None:
        out |= union(flattened(data), 1)[:, None]
    if vals is not None:
        out |= np.logical_or.accumulate(flattened(vals), axis=1)
    return {"dst": out}


@instruction(
    engines="vector",
    effects=Effects(_found("data vals"), partial=False, bits=moves("data vals"), state=None),
    checks=[
        same_partitions("dst data vals"),
        dimensions("data vals", 3),
        free_up_to("data", "max8_max", EIGHT),
        free_size("vals dst", EIGHT, "exactly 8"),
        unpacked("data vals"),
    ],
    cost=per_element("data"),
)
def nc_find_index8(dst=write(dtypes=INDEX_DTYPES), data=read(), vals=read(), name=None):
    """Positions of the first occurrences of 8 values in each partition.

    Args:
        dst: tile (P, 8) of uint16 or uint32. A value that doesn't occur gives all ones; the n-th
            repetition of a value in vals gives its n-th occurrence.
        data: tile of up to 3 dimensions with 8 to 16384 elements per partition.
        vals: tile of up to 3 dimensions with 8 elements per partition.

    Compared as float32, so NaN is never found.

    Raises:
        NkiValidationError: shapes or dtypes don't fit.
    """
    return locals()


@function(reads="values sought", writes="values found", name="find eight")
def find_eight(values: np.ndarray, sought: np.ndarray, backwards: bool, found: np.ndarray) -> None:
    """Positions of values, each taken out of the search by NaN; all ones where nothing is found.

    Args:
        values: the rows sought (P, N).
        sought: (P, 8).
        backwards: the last one is looked for first.
        found: uint32 (P, 8).
    """
    lanes = np.arange(len(values))
    for n in reversed(range(EIGHT)) if backwards else range(EIGHT):
        equal = np.equal(values, sought[:, n : n + 1])
        at = equal.argmax(axis=1)
        hit = equal[lanes, at]
        values[lanes[hit], at[hit]] = np.nan
        found[:, n] = np.where(hit, at, 0xFFFFFFFF)


def save_indices(kit: Kit, a: Access, found: Array) -> Operation:
    """Write positions to an index tile: 16 bits keep all ones all ones."""
    last = last_writes(a) or ()
    return op(cast, kit.view(a)[last], found.reshape(a.shape)[last])


def _search(
    i: Instruction, kit: Kit, values: Array, backwards: bool
) -> tuple[Array, list[Operation]]:
    """Where rows that may be overwritten have the 8 of `vals`, and what finds it out."""
    sought, load = load_rows(kit, i["vals"])
    sought = sought.reshape(-1, EIGHT)
    found = kit.scratch(sought.shape, np.uint32)
    return found, [*load, op(find_eight, values, sought, backwards, found)]


@nc_find_index8.meaning
def _nc_find_index8_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    values, load = private_rows(kit, i["data"])
    found, search = _search(i, kit, values, False)
    return [load, *search, save_indices(kit, i["dst"], found)]


@instruction(
    engines="vector",
    effects=Effects(OPTIMISTIC, partial=False, bits=moves("dst data vals"), state=None),
    checks=[
        same_tile("dst data"),
        same_partitions("data vals"),
        free_size("vals", EIGHT, "exactly 8"),
        unpacked("dst data vals"),
        free_up_to("data", "max8_max"),
        same_partitions("data dst_idx"),
        free_size("dst_idx", EIGHT, "exactly 8"),
    ],
    cost=per_element("data"),
)
def nc_match_replace8(
    dst=write(),
    data=read(),
    vals=read(),
    imm=Number(),
    dst_idx=write(dtypes=INDEX_DTYPES, optional=True).default(None),
    name=None,
):
    """`dst = data`, with one occurrence of each of 8 values per partition replaced by `imm`.

    Args:
        dst, data: tiles with the same partitions and up to 16384 elements per partition.
        vals: tile with 8 elements per partition.
        imm: a number.
        dst_idx: (P, 8) tile of uint16 or uint32 for the positions found; all ones where a value
            doesn't occur (not documented; as nisa.nc_find_index8).

    Values are taken from the last to the first, so of equal ones the last gets the first
    occurrence. A position that was replaced isn't found again, even by a value equal to imm.

    Raises:
        NkiValidationError: shapes or dtypes don't fit.
    """
    return locals()


@nc_match_replace8.meaning
def _nc_match_replace8_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    values, load = private_rows(kit, i["data"])
    result = kit.scratch(values.shape)
    found, search = _search(i, kit, values, True)
    ops = [
        load,
        op(copy, result, values),
        *search,
        op(_replace, found, b.single(i["imm"]), result),
        kit.save(i["dst"], result),
    ]
    if i["dst_idx"] is not None:
        ops.append(save_indices(kit, i["dst_idx"], found))
    return ops


@function(reads="found result", writes="result", name="replace found")
def _replace(found: np.ndarray, imm: np.float32, result: np.ndarray) -> None:
    """Another value where something was found."""
    lane, slot = np.nonzero(found < result.shape[1])
    result[lane, found[lane, slot]] = imm
