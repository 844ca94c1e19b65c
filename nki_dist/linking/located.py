"""Errors of instructions, told where they happened."""

from __future__ import annotations

from typing import Any, NoReturn

from nki_dist.errors import NkiError, OutOfMemoryError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Instruction


def typed(error: NkiError | MemoryError) -> NkiError:
    """An error as users meet it: that NumPy found no room is an OutOfMemoryError, too."""
    if isinstance(error, NkiError):
        return error
    made = OutOfMemoryError(
        f"this machine has no memory left: {error or 'none'}", code="host-memory"
    )
    made.__cause__ = error
    return made


def raise_at(
    error: NkiError | MemoryError, i: Instruction, where: str | None, core: Any = None
) -> NoReturn:
    """Raise an error with the instruction that it is of.

    Args:
        where: its kernel line.
        core: as messages call it; see CoreSlot.name.
    """
    placed = typed(error).at(location=where, core=core, instruction=INSTRUCTIONS[i.opcode].title)
    raise placed from placed.__cause__
