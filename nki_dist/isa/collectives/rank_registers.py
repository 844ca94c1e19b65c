"""ncc.rank_id and ...current_processing_rank_id: ranks as registers, known only at run time.

A program is the same on every rank, so which one runs it is asked when it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from nki_dist.forks import cached_property
from nki_dist.isa.checks import within
from nki_dist.isa.collectives import roles as r
from nki_dist.isa.described import wrong_value
from nki_dist.isa.effects import NOTHING_ELSE
from nki_dist.isa.operands import Integer, Number, Register
from nki_dist.isa.registers import set_register
from nki_dist.isa.spec import DOCS, Kit, current_tracer, instruction
from nki_dist.isa.timing_rules import fixed
from nki_dist.ops.function import function
from nki_dist.ops.operation import Operation, RegisterNumber, op
from nki_dist.program import Instruction, VirtualRegister


@instruction(
    engines="sync",
    effects=NOTHING_ELSE,
    namespace="ncc",
    documented=f"{DOCS}nki.collectives.rank_id",
    cost=fixed("register_cycles"),
)
def read_rank_id(dst=Register("w", rank=True)):
    """Register `dst` becomes the rank; `rank_id` emits it."""
    return locals()


@read_rank_id.meaning
def _rank(i: Instruction, kit: Kit) -> list[Operation]:
    return [op(set_register, kit.registers, kit.rank, RegisterNumber(i["dst"].number))]


@instruction(
    engines="sync",
    effects=NOTHING_ELSE,
    namespace="ncc",
    documented=f"{DOCS}nki.collectives.collective_permute_implicit_current_processing_rank_id",
    checks=[within("channel_id", 0, r.MAX_CHANNELS - 1)],
    cost=fixed("register_cycles"),
)
def read_ring_rank_id(
    dst=Register("w", rank=True),
    iteration_id=Integer(
        "an int from 0, or a register", 0, refused=partial(wrong_value, code="rank-form")
    ),
    replica_group=r.GROUPS,
    channel_id=Number(integer=True),
):
    """Register `dst` becomes the rank whose data is processed in a ring's iteration."""
    return locals()


@dataclass(repr=False)
class Rings:
    """Places of ranks in their groups, found out once for all ranks of a process."""

    groups: Sequence[Sequence[int]]

    def __hash__(self) -> int:
        return hash(len(self.groups))

    def __repr__(self) -> str:
        return f"Rings({self.groups})"

    @cached_property
    def places(self) -> dict[int, tuple[int, Sequence[int]]]:
        """By rank, its place in its group and the group."""
        return {r: (n, group) for group in self.groups for n, r in enumerate(group)}


@read_ring_rank_id.meaning
def _ring_rank(i: Instruction, kit: Kit) -> list[Operation]:
    iteration = i["iteration_id"]
    if isinstance(iteration, VirtualRegister):
        iteration = RegisterNumber(iteration.number)
    dst, rings = RegisterNumber(i["dst"].number), Rings(i["replica_group"])
    return [op(_behind, kit.registers, rings, kit.rank, iteration, dst)]


@function(reads="iteration", writes="dst", name="rank in ring")
def _behind(registers: list[int], rings: Rings, rank: int, iteration: int, dst: int) -> None:
    """A register becomes the rank so many places before the own one in its group."""
    position, group = rings.places[rank]
    steps = registers[iteration] if isinstance(iteration, RegisterNumber) else iteration
    registers[dst] = group[(position - steps) % len(group)]


def rank_id(name=None):
    """The rank that runs the program, as a register."""
    register = current_tracer().register()
    read_rank_id(register)
    return register


def collective_permute_implicit_current_processing_rank_id(
    iteration_id, replica_group, channel_id=0, name=None
):
    """The rank whose data a rank holds in iteration `iteration_id` of a ring, as a register.

    Args:
        iteration_id: 0 gives the own rank, 1 the preceding rank of the group, and so on; an int or
            a register.
        replica_group: ReplicaGroup of the ring.
        channel_id: 0 to 3; all channels go round in the same direction.
    """
    register = current_tracer().register()
    read_ring_rank_id(register, iteration_id, replica_group, channel_id)
    return register
