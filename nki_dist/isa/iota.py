"""nisa.iota: writes an affine sequence of integers."""

from __future__ import annotations

import numpy as np

from nki_dist.arch import Arch
from nki_dist.dtypes import float32, int32, uint32
from nki_dist.isa import _pattern
from nki_dist.isa._matmul import flat
from nki_dist.isa._pattern import Affine, check_pattern
from nki_dist.isa.effects import CLEAN, Effects
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import SBUF, Custom, write
from nki_dist.isa.spec import instruction
from nki_dist.isa.timing_rules import on_gpsimd
from nki_dist.ops.function import copy
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Instruction

_EXACT_FLOAT = 2**24


@instruction(
    engines="gpsimd",
    effects=Effects(CLEAN, partial=False, bits=None, state=None),
    cost=on_gpsimd("dst"),
)
def iota(
    dst=write(SBUF),
    pattern=Custom(_pattern.pattern),
    offset=Custom(_pattern.offset).default(0),
    channel_multiplier=Custom(_pattern.int32).default(0),
    name=None,
):
    """`dst[p, w, z, y, x] = offset + p * channel_multiplier + w * step_w + ... + x * step_x`.

    Args:
        dst: SBUF tile (P, ...), free dimensions flattened.
        pattern: up to four [step, count], outermost first; as many values as dst has elements per
            partition.
        offset: a 32-bit integer or a register.
        channel_multiplier: a 32-bit integer.

    Values are 32-bit integers that wrap, converted to `dst.dtype` at the end.

    Raises:
        NkiValidationError: the pattern doesn't fit dst.
    """
    return locals()


@iota.check
def _check(i: Instruction, arch: Arch) -> None:
    check_pattern(i["pattern"], arch, dst=i["dst"])


@iota.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst = i["dst"]
    values = Affine(i["pattern"], i["offset"], dst.shape[0], i["channel_multiplier"])
    view = flat(dst)
    integer = dst.dtype in (int32, uint32)
    small = max(abs(values.low), abs(values.high)) <= _EXACT_FLOAT
    known = values.register is None
    if known and view is not None and (integer or (dst.dtype is float32 and small)):
        number = np.uint32 if integer else np.float32
        row, column = values.parts(number)
        return [op(np.add, row, column, kit.view(view).view(number))]
    whole = kit.scratch((dst.shape[0], dst.free_size), np.int32)
    shaped, target = whole.reshape(dst.shape), kit.view(dst)
    if integer:
        change = op(copy, target.view(np.int32), shaped)
    else:
        change = op(kit.convert(int32, dst.dtype), target, shaped)
    return [*values.fill(whole, kit), change]
