"""Tiles that nobody can use any more, found by counting who refers to them.

A loop of Python that makes a tile in every iteration leaves the old ones behind. Where a kernel is
compiled first, their memory is used again after their last use; here the last use isn't known
before Python has dropped every view of a tile. CPython counts references, so that can be asked: of
a tile that only the program refers to, no view is left, and no instruction or `.numpy()` will
touch it.

Why a living tile is never taken for dead: the program's references are counted when they are made
and stay (`detached` gives an instruction accesses of its own, which nobody else holds). Any other
reference, whoever holds it, makes the count larger, and the tile counts as alive. Operands of the
instruction that is about to run are left out, whoever holds them.
"""

from __future__ import annotations

import sys
import sysconfig
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from nki_dist.program import Access, Dynamic, Program, Storage

# Without the global lock, counts are split between threads and say less.
COUNTED: Final = hasattr(sys, "getrefcount") and not sysconfig.get_config_var("Py_GIL_DISABLED")
_TABLE: Final = 3  # the program's table of storages, and two places of `ended` itself


class Lives:
    """Of the storages of one core.

    Args:
        program: that is being recorded.

    Attributes:
        known: False once something has dropped references that were counted; nothing is found then.
    """

    def __init__(self, program: Program) -> None:
        self.known = COUNTED
        self._storages = program.storages
        self._recorded: Counter[int] = Counter()
        self._made: list[int] = []

    def detached(self, args: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
        """An instruction's operands as accesses that only the instruction will refer to.

        Args:
            names: of the parameters that are tensors.
        """
        self._made = []
        made = dict(args)
        for name in names:
            value = made[name]
            if value is not None:
                made[name] = self._own(value)
        return made

    def recorded(self) -> None:
        """The instruction whose operands were detached last is in the program, and stays there."""
        for number in self._made:
            self._recorded[number] += 1

    def _own(self, value: Any) -> Any:
        if isinstance(value, Access):
            return self._access(value)
        if type(value) is list:
            return [self._own(v) for v in value]
        return value

    def _access(self, a: Access) -> Access:
        storage, dynamic = a.storage, a.dynamic
        self._made.append(storage.number)
        if dynamic is not None and isinstance(dynamic.source, Access):
            dynamic = self._dynamic(dynamic)
        return Access(storage, a.offset, a.shape, a.strides, a.dtype, dynamic)

    def _dynamic(self, dynamic: Dynamic) -> Dynamic:
        return dynamic.of(self._access(dynamic.source))

    def ended(self, number: int, others: int, now: int) -> bool:
        """Whether a storage's life has surely ended.

        Args:
            others: references that the caller knows of, besides the program's.
            now: ordinal of the instruction that is about to run.
        """
        storage: Storage = self._storages[number]
        if not self.known or storage.last >= now:
            return False
        return sys.getrefcount(storage) <= self._recorded[number] + _TABLE + others
