"""nisa.tensor_copy: copies a tile within the on-chip memories."""

from __future__ import annotations

from nki_dist.errors import invalid
from nki_dist.isa.checks import check_unpacked, not_in_psum, same_tile
from nki_dist.isa.dma_copy import move
from nki_dist.isa.effects import Effects, copies, elementwise
from nki_dist.isa.enums import engine
from nki_dist.isa.indirection import is_indirect
from nki_dist.isa.operands import read, write
from nki_dist.isa.spec import Arch, Cost, Instruction, Kit, Operation, instruction
from nki_dist.isa.timing_rules import copy_cycles


@instruction(
    former=("dtype",),
    engines="vector scalar gpsimd",
    effects=Effects(elementwise("src"), partial=False, bits=copies("dst src"), state=None),
    table="",
    checks=[same_tile("dst src"), not_in_psum("dst src")],
)
def tensor_copy(dst=write(indirect=16), src=read(indirect=16), engine=engine.unknown, name=None):
    """`dst = src` within SBUF and PSUM.

    Args:
        dst, src: tiles with the same partitions and elements per partition.
        engine: vector (default), scalar (not on NeuronCore-v2) or gpsimd (not with PSUM).

    Equal dtypes are copied bit by bit; others convert through float32 with one rounding.

    Raises:
        NkiValidationError: element counts or engine don't fit.
    """
    return locals()


@tensor_copy.check
def _check(i: Instruction, arch: Arch) -> None:
    if i.engine == "gpsimd" and (is_indirect(i["dst"]) or is_indirect(i["src"])):
        message = "an .indirect() view with engine=gpsimd; allowed: vector, scalar or unknown"
        raise invalid(message, code="indirect-view")
    if i["dst"].dtype is not i["src"].dtype:
        check_unpacked(i, arch, ("dst", "src"))
    if i.engine == "scalar" and arch.generation < 3:
        message = (
            "the Scalar engine of NeuronCore-v2 has no tensor_copy; use nisa.activation(op=nl.copy)"
        )
        raise invalid(message, code="engine-lacks")


@tensor_copy.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    return move(i["dst"], i["src"], kit, whole=False)


@tensor_copy.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    return Cost(cycles=copy_cycles(i.engine, i["dst"], i["src"], arch))
