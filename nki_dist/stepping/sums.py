"""Which elements of PSUM the next matmul adds to, while a kernel is debugged.

The rule is that of `compiler.passes.accumulate`. That pass has to leave to the run what it can't
know; here every address is known when an instruction runs, so there is nothing to leave: an element
that a matmul wrote last is added to, any other is replaced.
"""

from __future__ import annotations

import numpy as np

from nki_dist.compiler.passes.accumulate import Sums
from nki_dist.isa.indirection import is_indirect
from nki_dist.isa.spec import Spec
from nki_dist.program import Access, Instruction


class LiveSums:
    """Of one core.

    Args:
        masks: where linked instructions find what a matmul adds to, by storage number, if that
            isn't the same for all of its elements.

    Attributes:
        storages: that have been looked at, by number; CoreMemory takes those away that have ended.
    """

    def __init__(self, masks: dict[int, np.ndarray]) -> None:
        self._masks = masks
        self.storages: dict[int, Sums] = {}

    def before(self, spec: Spec, i: Instruction, a: Access) -> None:
        """An instruction is about to be linked that writes to `a` in PSUM."""
        number = a.storage.number
        sums = self.storages.get(number)
        if sums is None:
            if not spec.accumulates:
                return
            sums = self.storages[number] = Sums(a.storage)
        if is_indirect(a):  # which columns is looked up when it runs
            self._masks[number] = sums.whole()
        if not spec.accumulates:
            return
        asked = i.args["accumulate"]
        held = None if is_indirect(a) else sums.read(a)
        if asked is None and held is None:
            self._masks[number] = sums.whole()
            i.accumulation = "runtime"
        else:
            i.accumulation = "add" if (held if asked is None else asked) else "replace"

    def after(self, spec: Spec, a: Access) -> None:
        """It has run."""
        number = a.storage.number
        self._masks.pop(number, None)
        sums = self.storages.get(number)
        if sums is not None and not is_indirect(a):  # those are marked as they are moved
            sums.write(a, bool(spec.accumulates))
