"""What the Scalar and Vector engines do with their accumulator registers.

One float32 register per partition; `reduce_cmd` says whether an instruction starts it anew, adds to
it or leaves it alone, and it keeps its value between instructions of the engine.

Choice: the registers of an instruction are those of the partitions of its input tile, counted from
the start of the tensor the tile is cut from, because addresses aren't known to the kernel.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_dist.arch import Arch
from nki_dist.dtypes import float32
from nki_dist.errors import invalid
from nki_dist.isa.alu import AluOp
from nki_dist.isa.broadcast import Staged
from nki_dist.isa.checks import rule, scalar_or_column, tile_dtype
from nki_dist.isa.enums import reduce_cmd
from nki_dist.isa.kit import Array, Kit
from nki_dist.isa.reductions import SUMS, reduce
from nki_dist.isa.rows import column, crowded, flat_rows, scratch_rows
from nki_dist.ops.arrays import fill
from nki_dist.ops.function import copy
from nki_dist.ops.operation import Operation, is_array, op
from nki_dist.program import Access, Instruction

COMMANDS = (reduce_cmd.idle, reduce_cmd.reset, reduce_cmd.reduce, reduce_cmd.reset_reduce)
_REDUCING = (reduce_cmd.reduce, reduce_cmd.reset_reduce, reduce_cmd.load_reduce)


def reduces(cmd: reduce_cmd) -> bool:
    return cmd in _REDUCING


@rule
def initial_value(
    i: Instruction, arch: Arch, names: tuple[str, ...], of: str, unset: Any = None
) -> None:
    """A start value is given with load_reduce and only then, a number or (P, 1) float32 tile.

    `unset` is a number that counts as not given.
    """
    (name,) = names
    value, cmd = i[name], i["reduce_cmd"]
    if cmd is reduce_cmd.load_reduce:
        if value is None:
            raise invalid(f"{name} is None; reduce_cmd.load_reduce needs it", code="reduce-command")
        scalar_or_column(name, value, i[of].shape[0])
        tile_dtype(name, float32)(i, arch)
    elif value is not None and (isinstance(value, Access) or value != unset):
        message = f"{name} is given with reduce_cmd.{cmd.name}; allowed with load_reduce only"
        raise invalid(message, code="reduce-command")


def registers(kit: Kit, engine: str, data: Access) -> Array:
    """The (P,) registers that an instruction on `data` uses."""
    start, count = data.start_partition, data.shape[0]
    if start + count > kit.arch.partitions:  # a hand-made pattern that doesn't follow them
        start = 0
    return kit.accumulators(engine)[start : start + count]


def accumulate(
    kit: Kit,
    engine: str,
    data: Access,
    rows: Array,
    alu: AluOp,
    cmd: reduce_cmd,
    initial: Any = None,
) -> list[Operation]:
    """What brings contiguous rows (P, N) into the registers; nothing if they stay as they are.

    Elements are taken one by one, after what the registers hold, as activate2's documentation and
    the architecture guide ("Pipelined Reduction") write it.

    Args:
        initial: for load_reduce, a number or a (P, 1) float32 array.
    """
    held = registers(kit, engine, data)
    if cmd is reduce_cmd.idle:
        return []
    if cmd is reduce_cmd.reset:
        return [op(fill, held, np.float32(alu.identity or 0))]
    start = initial[:, 0] if is_array(initial) else initial
    if cmd is reduce_cmd.reset_reduce:
        if alu.name not in SUMS or not crowded(rows.shape):
            return [op(reduce, alu.name, rows, held)]
        apart = scratch_rows(kit, rows.shape, np.float32, True)
        return [op(copy, apart, rows), op(reduce, alu.name, apart, held)]
    shape = (rows.shape[0], rows.shape[1] + 1)
    line = scratch_rows(kit, shape, np.float32, alu.name in SUMS)
    first = start if cmd is reduce_cmd.load_reduce else held
    return [
        op(copy, line[:, 0], first),
        op(copy, line[:, 1:], rows),
        op(reduce, alu.name, line, held),
    ]


def summed(
    i: Instruction,
    kit: Kit,
    data: Access,
    work: Staged,
    alu: AluOp,
    cmd: reduce_cmd,
    initial: Any = 0,
) -> list[Operation]:
    """An instruction whose results are reduced before they are rounded.

    The registers are read out last: reduce_res may be part of dst.

    Args:
        work: what makes the results.
        initial: for load_reduce, a number or a (P, 1) tile.
    """
    loads = cmd is reduce_cmd.load_reduce
    first, load = column(kit, initial if loads else 0)
    rows, copied = flat_rows(kit, work.out) if reduces(cmd) else (work.out, [])
    total = accumulate(kit, i.engine, data, rows, alu, cmd, first)
    return [
        *load,
        *work.wrap(*work.ops, *copied, *total),
        *read_out(i, kit, data),
    ]


@rule
def reduction_operator(i: Instruction, arch: Arch, names: tuple[str, ...], allowed: str) -> None:
    """What to reduce with is given where there is something to reduce."""
    (name,) = names
    if reduces(i["reduce_cmd"]) and i[name] is None:
        message = f"reduce_cmd.{i['reduce_cmd'].name} needs {name}; allowed: {allowed}"
        raise invalid(message, code="reduce-command")


def read_out(i: Instruction, kit: Kit, data: Access) -> list[Operation]:
    """What writes the registers to `reduce_res`, if it is given, converted to its type."""
    if i["reduce_res"] is None:
        return []
    held, ops = registers(kit, i.engine, data), []
    if i.args.get("reduce_res_negate", False):
        negated = kit.scratch(held.shape)
        ops.append(op(np.negative, held, negated))
        held = negated
    return [*ops, kit.save(i["reduce_res"], held)]
