"""A row of the tables of costs, and the tiles that rows are about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import arch
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.spec import Cost
from nki_dist.program.instruction import instructions
from tests.compiler.compiling import compiled

P = 30
SIZE = P * 401  # elements of most tiles
F32, BF16, I32, U32, U16 = nl.float32, nl.bfloat16, nl.int32, nl.uint32, nl.uint16
CMD, ENGINE = nisa.reduce_cmd, nisa.engine


class Row(NamedTuple):
    """What is special about the case, the instruction, and its cost."""

    opcode: str
    case: str
    issue: Callable[[], Any]
    cost: Cost
    platform: str = "trn2"
    cores: int = 1


def sb(*free: int, dtype: Any = F32, rows: int = P, buffer: Any = nl.sbuf) -> Any:
    return nl.ndarray((rows, *free), dtype=dtype, buffer=buffer)


def ps(*free: int, dtype: Any = F32, rows: int = P) -> Any:
    return sb(*free, dtype=dtype, rows=rows, buffer=nl.psum)


def hbm(*shape: int, dtype: Any = F32) -> Any:
    return nl.ndarray(shape, dtype=dtype, buffer=nl.private_hbm)


def cycles(count: float, flops: int = 0, known: bool = True) -> Cost:
    return Cost(cycles=count, flops=flops, known=known)


def started(count: float, flops: int = 0, known: bool = True) -> Cost:
    """Vector and Scalar: 68 cycles to reach the operands come first."""
    return cycles(68 + count, flops, known)


def moves(nbytes: int, pieces: int, **more: Any) -> Cost:
    return Cost(dma_bytes=nbytes, dma_elements=pieces, **more)


def narrow(*free: int, place: Any = sb) -> Callable[[], Any]:
    return lambda: place(*free, dtype=BF16)


def wide(*free: int, place: Any = sb) -> Callable[[], Any]:
    return lambda: place(*free)


def cost_of(
    opcode: str, issue: Callable[[], Any], platform: str = "trn2", cores: int = 1, **figures: Any
) -> Cost:
    """The cost of the last instruction of that kind that `issue` issues."""

    def kernel():
        issue()

    program = compiled(kernel, lnc=cores, platform=platform).programs[0]
    found = [i for i in instructions(program.body) if i.opcode == opcode]
    return INSTRUCTIONS[opcode].cost_of(found[-1], arch.get(platform).with_values(**figures))
