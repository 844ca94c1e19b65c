"""nisa.exponential: exp(x - max) on the Vector engine, with running sums of rows."""

from __future__ import annotations

from nki_dist import dtypes as d
from nki_dist.dtypes import float32
from nki_dist.isa import broadcast as b
from nki_dist.isa.accumulate import initial_value, one_per_partition, summed
from nki_dist.isa.activations import ACTIVATIONS
from nki_dist.isa.alu import ALU
from nki_dist.isa.checks import dimensions, number_or_column, same_tile, tile_dtype
from nki_dist.isa.effects import Effects, State, elementwise
from nki_dist.isa.enums import reduce_cmd
from nki_dist.isa.operands import Choice, read, write
from nki_dist.isa.spec import Kit, Operation, instruction, op
from nki_dist.isa.timing_rules import per_element
from nki_dist.program import Access, Instruction

_FLOATS = (d.float8_e4m3, d.float8_e5m2, d.float16, d.bfloat16, d.float32)
_INTEGERS = (d.int8, d.int16, d.int32, d.uint8, d.uint16)
_COMMANDS = tuple(cmd for cmd in reduce_cmd if cmd is not reduce_cmd.reset)


@instruction(
    engines="vector",
    effects=Effects(elementwise("src max_value"), partial=False, bits=None, state=State.SUMS),
    min_generation=4,
    checks=[
        same_tile("dst src"),
        dimensions("dst src", 4),
        number_or_column("max_value", "src"),
        tile_dtype("max_value", float32),
        one_per_partition("reduce_res", "src"),
        initial_value("reduce_init", "src", unset=0),
    ],
    cost=per_element("dst", share=1 / 4, flops=2),
)
def exponential(
    dst=write(dtypes=(*_FLOATS, d.tfloat32, *_INTEGERS), indirect=16),
    src=read(dtypes=(*_FLOATS, *_INTEGERS, d.uint32), indirect=16),
    max_value=read(scalar=True).default(0.0),
    reduce_res=write(dtypes=(*_FLOATS, d.tfloat32), optional=True).default(None),
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


@exponential.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    src, shift = i["src"], i["max_value"]
    moved = isinstance(shift, Access) or shift != 0
    stages = [b.Stage(ALU["subtract"], shift)] if moved else []
    work = b.staged(kit, i["dst"], src, *stages)
    work.ops.append(op(ACTIVATIONS["exp"].f32, work.x, work.out))
    return summed(i, kit, src, work, ALU["add"], i["reduce_cmd"], i["reduce_init"])
