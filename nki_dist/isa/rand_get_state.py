"""nisa.rand_get_state: reads the state of an engine's random generators."""

from __future__ import annotations

from nki_dist.dtypes import uint32
from nki_dist.isa.checks import not_in_psum
from nki_dist.isa.effects import CLEAN, Effects, State
from nki_dist.isa.enums import engine
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import write
from nki_dist.isa.rand_set_state import state_words
from nki_dist.isa.randomness import APPROXIMATE, WORDS, lanes, states
from nki_dist.isa.spec import instruction
from nki_dist.isa.timing_rules import fixed
from nki_dist.ops.function import copy
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Instruction


@instruction(
    engines="gpsimd vector",
    effects=Effects(CLEAN, partial=False, bits=None, state=State.RANDOM),
    min_generation=3,
    exactness=APPROXIMATE,
    checks=[not_in_psum("dst"), state_words("dst")],
    cost=fixed("min_issue_cycles"),
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


@rand_get_state.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst = i["dst"]
    words = states(kit, i.engine)[:, lanes(dst, kit)]
    into = kit.view(dst).reshape(len(words[0]), -1, WORDS)
    return [op(copy, into, words.transpose(1, 2, 0))]
