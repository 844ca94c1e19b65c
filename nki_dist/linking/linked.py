"""A linked program: what a core does, as data that knows no array, no core and no process.

It can be printed, and bound to the memory of any core; see `runtime.binding`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nki_dist.isa.core import Ordering
from nki_dist.linking.kinds import Kind, Run
from nki_dist.linking.panels import Panel
from nki_dist.ops.place import Space
from nki_dist.program import Instruction, Loop, Program


@dataclass
class Straight:
    """Instructions that run one after the other without waiting for anybody.

    Attributes:
        runs: what each does, by number; of one that is settled at run time a `Late`.
        instructions: as many; a storage's birth has the instruction that touches it first.
        births: places of those.
    """

    runs: list[Any]
    instructions: list[Instruction]
    births: set[int] = field(default_factory=set)


@dataclass(frozen=True)
class Late:
    """An instruction with a run-time address: what it does is settled when its turn comes."""

    instruction: Instruction


@dataclass
class LinkedExchange:
    """An instruction that may wait for other cores."""

    instruction: Instruction
    orders: Ordering


@dataclass
class LinkedLoop:
    """A loop whose rounds are counted at run time."""

    loop: Loop
    body: list[Any]


Block: TypeAlias = "list[Straight | LinkedExchange | LinkedLoop]"


@dataclass(eq=False)
class Linked:
    """See the module's docstring.

    Attributes:
        program: that was linked.
        kinds: by number.
        runs: by number; equal ones have one number.
        body: in program order.
        spaces: bytes of those that aren't storages of the program.
        panels: of the operands of its products.
        masked: PSUM storages of which is recorded what the next matmul finds in their elements.
    """

    program: Program
    kinds: list[Kind]
    runs: list[Run]
    body: Block
    spaces: dict[Space, int]
    panels: list[Panel]
    masked: tuple[int, ...]


__all__ = ["Block", "Late", "Linked", "LinkedExchange", "LinkedLoop", "Straight"]
