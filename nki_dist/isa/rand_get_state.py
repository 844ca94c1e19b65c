"""nisa.rand_get_state: reads the state of an engine's random generators."""

from __future__ import annotations

from nki_dist.arch import Arch
from nki_dist.dtypes import uint32
from nki_dist.isa.checks import not_in_psum
from nki_dist.isa.effects import CLEAN, Effects, State
from nki_dist.isa.enums import engine
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import write
from nki_dist.isa.rand_set_state import check_state
from nki_dist.isa.randomness import APPROXIMATE, WORDS, lanes, states
from nki_dist.isa.spec import Cost, instruction
from nki_dist.ops.function import copy
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Instruction


@instruction(
    engines="gpsimd vector",
    effects=Effects(CLEAN, partial=False, bits=None, state=State.RANDOM),
    min_generation=3,
    exactness=APPROXIMATE,
)
def rand_get_state(dst=write(dtypes=(uint32,)), engine=engine.gpsimd, name=None):
    """Each lane's random state becomes that partition's words; what rand_set_state takes back.

    Args:
        dst: (P, 6) uint32 tile in SBUF for gpsimd, (P, 24) in SBUF or PSUM for vector.
        engine: gpsimd (default), or vector (NeuronCore-v4 on).

    Raises:
        NkiValidationError: shape, dtype, memory or engine don't fit.
    """
    return locals()


@rand_get_state.check
def _check(i: Instruction, arch: Arch) -> None:
    not_in_psum(i.engine, dst=i["dst"])
    check_state("dst", i["dst"], i.engine, arch)


@rand_get_state.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst = i["dst"]
    words = states(kit, i.engine)[:, lanes(dst, kit)]
    into = kit.view(dst).reshape(len(words[0]), -1, WORDS)
    return [op(copy, into, words.transpose(1, 2, 0))]


@rand_get_state.cost
def _cost(i: Instruction, arch: Arch) -> Cost:
    return Cost(cycles=arch.min_issue_cycles, known=False)
