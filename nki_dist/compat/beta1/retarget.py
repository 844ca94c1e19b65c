"""Makes the last instruction write where its result is assigned, instead of copying it there.

Only when that can't be told from a copy: the result's storage was touched by that instruction and
no other, the dtypes are equal (so that nothing is rounded differently), and the instruction doesn't
read the destination's storage except the very elements it writes.
"""

from __future__ import annotations

from typing import Any

from nki_dist.compat.beta1.state import state
from nki_dist.errors import NkiError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.spec import current_tracer
from nki_dist.language.tensor import NkiTensor
from nki_dist.program import Instruction, psum


def maker(result: NkiTensor) -> Instruction | None:
    """The last instruction, if it alone made a result and nothing else has used it."""
    tracer = current_tracer()
    last = tracer.block[-1] if tracer.block else None
    if not isinstance(last, Instruction):
        return None
    written = last.args.get("dst")
    storage = result.storage
    whole = storage.shape == result.shape and result.offset == 0
    if not isinstance(written, NkiTensor) or written.storage is not storage or not whole:
        return None
    if not _equal_views(written, result):
        return None
    if storage.first != last.ordinal or storage.role != "local":
        return None
    return None if storage in state().preloaded else last


def _equal_views(a: NkiTensor, b: NkiTensor) -> bool:
    """Whether two views of one storage have each element at the same place, in the same dtype."""
    steps = zip(a.shape, a.strides, b.strides)
    return a.shape == b.shape and a.dtype is b.dtype and all(n == 1 or s == t for n, s, t in steps)


def retarget(dst: NkiTensor, result: NkiTensor) -> bool:
    """Let the instruction that made `result` write `dst`; False if it has to be copied."""
    last = maker(result)
    if last is None or dst.dtype is not result.dtype or dst.shape != result.shape:
        return False
    if not _independent(last, dst, result) or dst.dynamic is not None:
        return False
    args = dict(last.args)
    args["dst"] = dst
    if last.opcode == "nc_matmul" and args["accumulate"] is None:
        args["accumulate"] = False  # a result that is assigned replaces
    if not _rewritten(last, args, result):
        return False
    if dst.buffer is psum and last.opcode != "nc_matmul":
        state().preloaded.add(dst.storage)
    return True


def _independent(last: Instruction, dst: NkiTensor, result: NkiTensor) -> bool:
    spec = INSTRUCTIONS[last.opcode]
    touched = [
        *spec.reads(last),
        *(a for a in spec.writes(last) if a.storage is not result.storage),
    ]
    return all(
        a.storage is not dst.storage or (a.shape == dst.shape and a.same_elements(dst))
        for a in touched
    )


def _rewritten(last: Instruction, args: dict[str, Any], result: NkiTensor) -> bool:
    tracer = current_tracer()
    spec = INSTRUCTIONS[last.opcode]
    before, kind = last.args, last.kind
    try:
        args["dst"] = spec.roles["dst"].accept("dst", args["dst"])
        last.change(args)
        spec.verify(last, tracer.arch)
    except NkiError:
        last.args, last.kind = before, kind
        return False
    tracer.rewritten(last, result.storage)
    return True
