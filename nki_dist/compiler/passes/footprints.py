"""Which parameters of an instruction are tensors it reads or writes, looked up once per opcode.

Passes ask this for every instruction of programs with hundreds of thousands of them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.enums import oob_mode
from nki_dist.isa.operands import HBM, Tensor
from nki_dist.program import Instruction
from nki_dist.program.walk import tensors


class Footprint(NamedTuple):
    """Parameter names; a parameter may be in both. `named` ones are tensors of either kind.

    `partial`: it may leave elements of what it writes as they were. `counts`: the one of which some
    rows are read and others written, or "". `sums`: the written ones that may be in PSUM.
    `outside`: some may be in HBM. `accumulates`: it may add to what is there.
    """

    reads: tuple[str, ...]
    writes: tuple[str, ...]
    named: tuple[str, ...]
    partial: bool
    counts: str
    sums: tuple[str, ...]
    outside: bool
    accumulates: bool


class Footprints(dict[str, Footprint]):
    """Footprint by opcode, filled on demand.

    Roles say that matmuls only write their result: whether one adds to it isn't a question of the
    opcode but of the instruction's `accumulation`.
    """

    def __missing__(self, opcode: str) -> Footprint:
        found = self[opcode] = _footprint(opcode)
        return found


@lru_cache(maxsize=1024)
def _footprint(opcode: str) -> Footprint:
    spec = INSTRUCTIONS[opcode]
    operands = {name: role for name, role in spec.roles.items() if isinstance(role, Tensor)}
    return Footprint(
        tuple(n for n, role in operands.items() if "r" in role.mode),
        tuple(n for n, role in operands.items() if "w" in role.mode),
        tuple(operands),
        spec.effects.partial,
        spec.counts,
        tuple(n for n, r in operands.items() if "w" in r.mode and "psum" in r.memories),
        any(r.memories & HBM for r in operands.values()),
        bool(spec.accumulates),
    )


def may_skip(i: Instruction, footprint: Footprint) -> bool:
    """Whether an index outside its tensor leaves part of the destination as it was."""
    if i.kind is not None or i.args.get("oob_mode") is not oob_mode.skip:
        return False  # of a kind all addresses are known
    touched = (a for name in footprint.named for a in tensors(i.args[name]))
    return any(a.dynamic is not None for a in touched)
