"""Tiles that nobody can use any more, found by counting who refers to them.

A loop of Python that makes a tile in every iteration leaves the old ones behind. Where a kernel is
compiled first, their memory is used again after their last use; here the last use isn't known
before Python has dropped every view of a tile. CPython counts references, so that can be asked: of
a tile that only the program refers to, no view is left, and no instruction or `.numpy()` will
touch it.

Why a living tile is never taken for dead: the program's references are counted when they are made
and stay (`detach` gives an instruction accesses of its own, which nobody else holds). Any other
reference, whoever holds it, makes the count larger, and the tile counts as alive. Operands of the
instruction that is about to run are left out, whoever holds them.
"""

from __future__ import annotations

import sys
import sysconfig
from collections import Counter
from typing import Final

from nki_dist.compiler.widen import Rewrite
from nki_dist.program import Instruction, Program, Storage
from nki_dist.program.walk import accesses, index_tensors
from nki_dist.tricks import uses

# Without the global lock, counts are split between threads and say less.
COUNTED: Final = hasattr(sys, "getrefcount") and not sysconfig.get_config_var("Py_GIL_DISABLED")
_TABLE: Final = 3  # the program's table of storages, and two places of `ended` itself


class Lives:
    """Of the storages of one core.

    Args:
        program: that is being recorded.

    Attributes:
        counted: False once something has dropped references that were counted: nothing is found
            then.
    """

    def __init__(self, program: Program) -> None:
        self.counted = COUNTED and uses("references")
        self._storages = program.storages
        self._recorded: Counter[int] = Counter()
        self._copy = Rewrite((), ())

    def detach(self, i: Instruction) -> None:
        """Give an instruction that stays in the program accesses that only it refers to."""
        i.change(self._copy.instruction(i).args)
        found = accesses(i)
        self._recorded.update([a.storage.number for a in (*found, *index_tensors(found))])

    def ended(self, number: int, now: int) -> bool:
        """Whether a storage's life has surely ended.

        Args:
            now: ordinal of the instruction that is about to run.
        """
        storage: Storage = self._storages[number]
        if not self.counted or storage.last >= now:
            return False
        return sys.getrefcount(storage) <= self._recorded[number] + _TABLE
