"""nisa.rand_set_state: sets the state of an engine's random generators, lane by lane."""

from __future__ import annotations

from nki_dist.arch import Arch
from nki_dist.dtypes import uint32
from nki_dist.errors import NkiValidationError
from nki_dist.isa.checks import rule
from nki_dist.isa.effects import CLEAN, Effects, State
from nki_dist.isa.enums import engine
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import SBUF, read
from nki_dist.isa.randomness import APPROXIMATE, GENERATORS, WORDS, lanes, states
from nki_dist.isa.spec import instruction, require_generation
from nki_dist.isa.timing_rules import fixed
from nki_dist.ops.function import copy
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Instruction


@rule
def state_words(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """A 2-D tile with the engine's number of state words per partition."""
    if i.engine == "vector":
        require_generation(arch, 4, "the random state of the Vector engine")
    count = WORDS * GENERATORS[i.engine]
    for name in names:
        if len(i[name].shape) != 2 or i[name].free_size != count:
            raise NkiValidationError(
                f"{name} has shape {i[name].shape}; allowed on {i.engine}: (partitions, {count})",
                code="operand-shape",
                numbers={"got": i[name].shape},
            )


@instruction(
    engines="gpsimd vector",
    effects=Effects(CLEAN, partial=False, bits=None, state=State.RANDOM),
    min_generation=3,
    exactness=APPROXIMATE,
    checks=[state_words("src_seeds")],
    cost=fixed("min_issue_cycles"),
)
def rand_set_state(src_seeds=read(SBUF, dtypes=(uint32,)), engine=engine.gpsimd, name=None):
    """Each partition's words become the random state of that lane.

    Args:
        src_seeds: (P, 6) uint32 tile in SBUF for gpsimd, (P, 24) for vector: six words per
            generator, see isa.randomness.
        engine: gpsimd (default), or vector (NeuronCore-v4 on).

    Raises:
        NkiValidationError: shape, dtype, memory or engine don't fit.
    """
    return locals()


@rand_set_state.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    seeds = kit.view(i["src_seeds"])
    words = seeds.reshape(len(seeds), GENERATORS[i.engine], WORDS)
    held = states(kit, i.engine)[:, lanes(i["src_seeds"], kit)]
    return [op(copy, held, words.transpose(2, 0, 1))]
