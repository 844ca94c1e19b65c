"""What a program becomes when it is linked, and the executor runs: functions without arguments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from nki_dist.isa.core import Ordering
from nki_dist.ops.calls import Step
from nki_dist.program import Instruction, Loop


@dataclass
class Segment:
    """Instructions that run one after the other without waiting for anybody.

    Attributes:
        moves: they are known to do no more than move bits, so NumPy has nothing to warn of.
    """

    steps: list[Step]
    instructions: list[Instruction]
    moves: bool = False


@dataclass
class Rendezvous:
    """An instruction that may wait for other cores."""

    start: Callable[[], Any]
    instruction: Instruction
    orders: Ordering


@dataclass
class LinkedLoop:
    loop: Loop
    body: list[Any]


Linked: TypeAlias = "list[Any]"  # of Segment, Rendezvous, LinkedLoop
