"""nisa.nc_find_index8: where 8 given values first occur in each partition."""

from __future__ import annotations

import numpy as np

from nki_dist.dtypes import uint16, uint32
from nki_dist.isa.checks import dimensions, free_size, same_partitions, unpacked
from nki_dist.isa.effects import (
    Effects,
    MaskOf,
    Results,
    flattened,
    moves,
    passes_on,
    tile_of,
    union,
)
from nki_dist.isa.kit import Array, Kit, last_writes
from nki_dist.isa.max8 import EIGHT, row_length
from nki_dist.isa.operands import read, write
from nki_dist.isa.rows import load_rows, private_rows
from nki_dist.isa.spec import instruction
from nki_dist.isa.timing_rules import per_element
from nki_dist.ops.arrays import cast
from nki_dist.ops.function import function
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Access, Instruction

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
        row_length("data"),
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


@function(reads="values wanted", writes="values found", name="find eight")
def find_eight(values: np.ndarray, wanted: np.ndarray, backwards: bool, found: np.ndarray) -> None:
    """Positions of values, each taken out of the search by NaN; all ones where nothing is found.

    Args:
        values: the rows searched (P, N).
        wanted: (P, 8).
        backwards: the last one is looked for first.
        found: uint32 (P, 8).
    """
    lanes = np.arange(len(values))
    for n in reversed(range(EIGHT)) if backwards else range(EIGHT):
        equal = np.equal(values, wanted[:, n : n + 1])
        at = equal.argmax(axis=1)
        hit = equal[lanes, at]
        values[lanes[hit], at[hit]] = np.nan
        found[:, n] = np.where(hit, at, 0xFFFFFFFF)


def save_indices(kit: Kit, a: Access, found: Array) -> Operation:
    """Write positions to an index tile: 16 bits keep all ones all ones."""
    last = last_writes(a) or ()
    return op(cast, kit.view(a)[last], found.reshape(a.shape)[last])


@nc_find_index8.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    values, load = private_rows(kit, i["data"])
    wanted, load_wanted = load_rows(kit, i["vals"])
    wanted = wanted.reshape(-1, EIGHT)
    found = kit.scratch(wanted.shape, np.uint32)
    search = op(find_eight, values, wanted, False, found)
    return [load, *load_wanted, search, save_indices(kit, i["dst"], found)]
