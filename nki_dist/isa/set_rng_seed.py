"""nisa.set_rng_seed: seeds the Vector engine's random generators."""

from __future__ import annotations

import numpy as np

from nki_dist.arch import Arch
from nki_dist.errors import NkiValidationError
from nki_dist.isa.effects import CLEAN, Effects, State
from nki_dist.isa.kit import Kit
from nki_dist.isa.operands import read
from nki_dist.isa.randomness import APPROXIMATE, seeded, states
from nki_dist.isa.spec import instruction
from nki_dist.isa.timing_rules import fixed
from nki_dist.ops.function import function
from nki_dist.ops.operation import Operation, op
from nki_dist.program import Instruction


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
        raise NkiValidationError(
            f"src_seeds has shape {seed.shape}; allowed: (1, 1)",
            code="operand-shape",
            numbers={"got": seed.shape, "allowed": (1, 1)},
        )
    if seed.dtype.bits != 32 or seed.dtype.is_mx:
        raise NkiValidationError(
            f"src_seeds has dtype {seed.dtype}; allowed: 32-bit types",
            code="dtype-width",
            numbers={"got": seed.dtype, "allowed": 32},
        )


@set_rng_seed.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    return [op(_seed, kit.raw(i["src_seeds"]).reshape(()), states(kit, "vector"))]


@function(reads="cell", writes="words")
def _seed(cell: np.ndarray, words: np.ndarray) -> None:
    """The Vector engine's generators begin anew."""
    words[...] = seeded("vector", int(cell[()]), words.shape[1])
