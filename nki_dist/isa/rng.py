"""nisa.rng: random bits."""

from __future__ import annotations

from nki_dist.arch import Arch
from nki_dist.dtypes import int8, int16, int32, uint8, uint16, uint32
from nki_dist.isa.checks import not_in_psum
from nki_dist.isa.effects import CLEAN, Effects, State
from nki_dist.isa.enums import engine
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import write
from nki_dist.isa.randomness import APPROXIMATE, draw
from nki_dist.isa.spec import instruction, require_generation
from nki_dist.isa.timing_rules import per_element
from nki_dist.ops.arrays import cast
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Instruction


@instruction(
    engines="vector gpsimd",
    effects=Effects(CLEAN, partial=False, bits=None, state=State.RANDOM),
    exactness=APPROXIMATE,
    checks=[not_in_psum("dst")],
    cost=per_element("dst", known=False),
)
def rng(
    dst=write(dtypes=(int8, int16, int32, uint8, uint16, uint32)), engine=engine.vector, name=None
):
    """Every element of `dst` becomes random bits: the low bits of a 32-bit random word.

    Args:
        dst: integer tile, in SBUF if the engine is gpsimd.
        engine: vector (default), or gpsimd (NeuronCore-v3 on).

    Raises:
        NkiValidationError: dtype, memory or engine don't fit.
    """
    return locals()


@rng.check
def _check(i: Instruction, arch: Arch) -> None:
    if i.engine == "gpsimd":
        require_generation(arch, 3, "rng on the GpSimd engine")


@rng.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    bits, drawn = draw(kit, i.engine, i["dst"])
    return [drawn, op(cast, kit.raw(i["dst"]), bits.reshape(i["dst"].shape))]
