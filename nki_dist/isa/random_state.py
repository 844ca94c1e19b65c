"""nisa.set_rng_seed, rand_set_state and rand_get_state: where random generators go on from."""

from __future__ import annotations

import numpy as np

from nki_dist.dtypes import uint32
from nki_dist.errors import invalid
from nki_dist.isa.checks import not_in_psum, rule
from nki_dist.isa.effects import CLEAN, Effects, State
from nki_dist.isa.enums import engine
from nki_dist.isa.operands import SBUF, read, write
from nki_dist.isa.randomness import APPROXIMATE, GENERATORS, WORDS, seeded, states
from nki_dist.isa.rows import lanes
from nki_dist.isa.spec import Arch, Instruction, Kit, Operation, instruction, op, require_generation
from nki_dist.isa.timing_rules import fixed
from nki_dist.ops.function import copy, function


@instruction(
    engines="vector",
    effects=Effects(CLEAN, partial=False, bits=None, state=State.RANDOM),
    exactness=APPROXIMATE,
    cost=fixed("min_issue_cycles"),
)
def set_rng_seed(src_seeds=read(), name=None):
    """Start the Vector engine's random sequence that belongs to a seed.

    Args:
        src_seeds: (1, 1) tile of a 32-bit type in SBUF or PSUM; its bits are the seed.

    Raises:
        NkiValidationError: shape or dtype don't fit.
    """
    return locals()


@set_rng_seed.check
def _check(i: Instruction, arch: Arch) -> None:
    seed = i["src_seeds"]
    if seed.size != 1:
        message = f"src_seeds has shape {seed.shape}; allowed: (1, 1)"
        raise invalid(message, code="operand-shape", got=seed.shape, allowed=(1, 1))
    if seed.dtype.bits != 32 or seed.dtype.is_mx:
        message = f"src_seeds has dtype {seed.dtype}; allowed: 32-bit types"
        raise invalid(message, code="dtype-width", got=seed.dtype, allowed=32)


@set_rng_seed.meaning
def _set_rng_seed_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    return [op(_seed, kit.raw(i["src_seeds"]).reshape(()), states(kit, "vector"))]


@function(reads="cell", writes="words")
def _seed(cell: np.ndarray, words: np.ndarray) -> None:
    """The Vector engine's generators begin anew."""
    words[...] = seeded("vector", int(cell[()]), words.shape[1])


@rule
def state_words(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """A 2-D tile with the engine's number of state words per partition."""
    if i.engine == "vector":
        require_generation(arch, 4, "the random state of the Vector engine")
    count = WORDS * GENERATORS[i.engine]
    for name in names:
        if len(i[name].shape) != 2 or i[name].free_size != count:
            message = (
                f"{name} has shape {i[name].shape}; allowed on {i.engine}: (partitions, {count})"
            )
            raise invalid(message, code="operand-shape", got=i[name].shape)


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
def _rand_set_state_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    seeds = kit.view(i["src_seeds"])
    words = seeds.reshape(len(seeds), GENERATORS[i.engine], WORDS)
    held = states(kit, i.engine)[:, lanes(kit, i["src_seeds"])]
    return [op(copy, held, words.transpose(2, 0, 1))]


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
def _rand_get_state_meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst = i["dst"]
    words = states(kit, i.engine)[:, lanes(kit, dst)]
    into = kit.view(dst).reshape(len(words[0]), -1, WORDS)
    return [op(copy, into, words.transpose(1, 2, 0))]
