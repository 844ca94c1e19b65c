"""nisa.exponential: exp(x - max) on the Vector engine, with running sums of rows."""

from __future__ import annotations

import numpy as np

from nki_dist.arch import Arch
from nki_dist.dtypes import (
    bfloat16,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    int8,
    int16,
    int32,
    tfloat32,
    uint8,
    uint16,
    uint32,
)
from nki_dist.errors import NkiValidationError
from nki_dist.isa import broadcast as b
from nki_dist.isa.accumulate import accumulate, check_dtype, check_initial, check_result, read_out
from nki_dist.isa.activations import ACTIVATIONS
from nki_dist.isa.alu import ALU
from nki_dist.isa.checks import same_tile, scalar_or_column
from nki_dist.isa.effects import Effects, State, elementwise
from nki_dist.isa.enums import reduce_cmd
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import Choice, read, write
from nki_dist.isa.rows import column, flat_rows
from nki_dist.isa.spec import Cost, instruction
from nki_dist.isa.timing_rules import issue_cycles
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Access, Instruction

_FLOATS = (float8_e4m3, float8_e5m2, float16, bfloat16, float32)
_INTEGERS = (int8, int16, int32, uint8, uint16)
_COMMANDS = (
    reduce_cmd.idle,
    reduce_cmd.reset_reduce,
    reduce_cmd.reduce,
    reduce_cmd.load_reduce,
)


@instruction(
    engines="vector",
    effects=Effects(elementwise("src max_value"), partial=False, bits=None, state=State.SUMS),
    min_generation=4,
)
def exponential(
    dst=write(dtypes=(*_FLOATS, tfloat32, *_INTEGERS), indirect=16),
    src=read(dtypes=(*_FLOATS, *_INTEGERS, uint32), indirect=16),
    max_value=read(scalar=True).default(0.0),
    reduce_res=write(dtypes=(*_FLOATS, tfloat32), optional=True).default(None),
    reduce_cmd=Choice(reduce_cmd, _COMMANDS).default(reduce_cmd.idle),
    reduce_init=read(scalar=True).default(0.0),
    name=None,
):
    """`dst = exp(src - max_value)`, and optionally the sum of each row of that.

    Args:
        dst, src: tiles of up to 4 dimensions with the same partitions and elements per partition.
        max_value: a number or a (P, 1) float32 tile.
        reduce_res: (P, 1) float tile that receives the Vector engine's accumulator registers.
        reduce_cmd: idle, reset_reduce, reduce or load_reduce (start from reduce_init).
        reduce_init: a number or a (P, 1) float32 tile; 0 unless load_reduce.

    Computed in float32; sums are of values before their rounding to `dst.dtype`. With idle the
    registers keep their values; the documentation leaves that open.

    Raises:
        NkiValidationError: platform, shapes, dtypes or reduction don't fit.
    """
    return locals()


@exponential.check
def _check(i: Instruction, arch: Arch) -> None:
    same_tile(dst=i["dst"], src=i["src"])
    for n in ("dst", "src"):
        if len(i[n].shape) > 4:
            raise NkiValidationError(
                f"{n} has {len(i[n].shape)} dimensions; allowed: up to 4",
                code="shape-rank",
                numbers={"got": len(i[n].shape), "most": 4},
            )
    partitions = i["src"].shape[0]
    scalar_or_column("max_value", i["max_value"], partitions)
    check_dtype("max_value", i["max_value"], float32)
    check_result("reduce_res", i["reduce_res"], partitions)
    check_initial("reduce_init", i["reduce_init"], i["reduce_cmd"], partitions, unset=0)


@exponential.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    src, cmd, shift = i["src"], i["reduce_cmd"], i["max_value"]
    loads = cmd is reduce_cmd.load_reduce
    initial, load = column(kit, i["reduce_init"] if loads else 0)
    if not isinstance(shift, Access) and shift == 0:
        shift = None
    out, arrays, around = kit.elementwise(i["dst"], [src, *b.tiles(shift)], float32)
    x, ops = arrays[0], [*load]
    if shift is not None:
        ops.append(op(np.subtract, x, b.pick(shift, iter(arrays[1:])), out))
        x = out
    ops.append(op(ACTIVATIONS["exp"].f32, x, out))
    if cmd is not reduce_cmd.idle:
        rows, copied = flat_rows(kit, out)
        ops += [*copied, *accumulate(kit, "vector", src, rows, ALU["add"], cmd, initial)]
    result = i["reduce_res"]
    read = [] if result is None else read_out(kit, "vector", src, result)
    return [*around(*ops), *read]


@exponential.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    return Cost(cycles=issue_cycles(i["dst"].free_size / 4, arch), flops=2 * i["dst"].size)
