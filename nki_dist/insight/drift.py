"""Where precision is lost: a launch beside itself in float64, line by line.

Before every instruction of a replay the same instruction is carried out twice in float64 (`wide`):

- on what its operands hold in the kernel. What it gives is the exact result of the rounded
  operands; how far the kernel's own result is from that is what the instruction added;
- on what earlier instructions gave in float64, and nothing has ever rounded. How far the exact
  result of the rounded operands is from this is what came in.

Integers, bits and addresses are those of the kernel, on both sides, and don't count. Nor do
elements that aren't finite on one of the sides; they are counted apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nki_dist.compiler.passes.low_precision import key_of as type_key
from nki_dist.compiler.passes.low_precision import widened_storages
from nki_dist.insight.regions import Region, region
from nki_dist.insight.replay import Hooks, Launched, Place, Watch, replay, title
from nki_dist.insight.steps import Printed, plural, table
from nki_dist.insight.wide import Beside, in_double
from nki_dist.isa import INSTRUCTIONS
from nki_dist.linking.indirect import lowered
from nki_dist.program import Instruction, Storage


@dataclass
class DriftLine:
    """What one kernel line did to one tensor, over all cores and rounds.

    Attributes:
        location: "file.py:12".
        instruction: such as "nisa.activation".
        tensor: that was written, and its dtype; tensors without names count as one, called as the
            first of them.
        added: error that the line's instructions added: the root mean square of what they wrote
            minus the exact results of the same operands, relative to that of the exact results.
        came_in: error of those exact results, which the operands brought along, relative to the
            root mean square of the results that nothing has rounded.
        elements: how many elements were written.
        not_finite: how many of them became infinite or NaN although the exact result is finite.
    """

    location: str | None
    instruction: str
    tensor: str
    dtype: str
    added: float = 0.0
    came_in: float = 0.0
    elements: int = 0
    not_finite: int = 0

    def __str__(self) -> str:
        lost = f"  {self.not_finite} not finite" if self.not_finite else ""
        return (
            f"{self.added:>10.2e} {self.came_in:>10.2e}  {self.location} {self.instruction} wrote "
            f"{self.tensor} ({self.dtype}){lost}"
        )


class _Sums:
    """Squares of one line, as they add up."""

    def __init__(self, line: DriftLine) -> None:
        self.line = line
        self.squares = np.zeros(4)

    def add(self, got: np.ndarray, exact: np.ndarray, unrounded: np.ndarray) -> None:
        line = self.line
        line.elements += got.size
        line.not_finite += int((np.isfinite(exact) & ~np.isfinite(got)).sum())
        finite = np.isfinite(got) & np.isfinite(exact)
        both = np.isfinite(exact) & np.isfinite(unrounded)
        pairs = (
            (got[finite] - exact[finite], exact[finite]),
            (exact[both] - unrounded[both], unrounded[both]),
        )
        self.squares += [float(np.sum(x * x)) for pair in pairs for x in pair]
        line.added, line.came_in = (
            float(np.sqrt(error / size)) if size else float(error > 0) and float("inf")
            for error, size in self.squares.reshape(2, 2)
        )


@dataclass(eq=False, repr=False)
class Drift(Printed):
    """How a kernel's rounding adds up; made by `nki.drift` and `World.drift`.

    Attributes:
        outputs: what the kernel returned; of a world, a list with what each rank returned.
        kernel: its name.
        lines: DriftLine objects, the line that added most first.
    """

    outputs: Any
    kernel: str
    lines: list[DriftLine]

    def __str__(self) -> str:
        head = f"relative error in {self.kernel}, line by line:\n     added    came in"
        added = [str(line) for line in self.lines if line.added or line.not_finite]
        exact = len(self.lines) - len(added)
        left = [f"{plural(exact, 'line')} added nothing"] if exact else []
        return "\n".join([head, *([table(added, "")] if added else []), *left])

    def __repr__(self) -> str:
        worst = f", worst at {self.lines[0].location}" if self.lines else ""
        return f"<drift of {self.kernel}: {len(self.lines)} lines{worst}>"


class Shadows(Watch):
    """Carries every instruction out in float64 beside a replay.

    Attributes:
        wide: keys of the tensors that hold float64 there.
        exact, unrounded: memory of the two companions.
    """

    def __init__(self, launched: Launched) -> None:
        each = [widened_storages(compiled.programs) for compiled in set(launched.each)]
        self.wide = frozenset.intersection(*each)
        self.exact: dict[int, np.ndarray] = {}
        self.unrounded: dict[int, np.ndarray] = {}
        self._companions: dict[int, tuple[Beside, Beside]] = {}  # by core
        self._sums: dict[Any, _Sums] = {}
        replay(launched, self)

    def lines(self) -> list[DriftLine]:
        """What was found, what added most first."""
        lines = [sums.line for sums in self._sums.values()]
        return sorted(lines, key=lambda line: (-line.not_finite, -line.added, -line.came_in))

    # ---- instructions ---------------------------------------------------------------------------

    def linking(self, place: Place, i: Instruction) -> Hooks:
        spec, (exact, unrounded) = INSTRUCTIONS[i.opcode], self._of(place)
        counted = [a for a in spec.writes(i) if a.storage.number in exact.wide]
        if not counted and spec.effects.state is None:
            return None, None
        written: list[Region] = []

        def before(number: int) -> None:
            written[:] = [region(place.slot, a, place.kit) for a in counted]
            if spec.synchronises:
                return
            self._take(place, i)
            with np.errstate(all="ignore"):
                for beside in (exact, unrounded):
                    beside.kit.begin()
                    wide = beside.rewrite.instruction(i)
                    beside.kit.step(lowered(wide, beside.kit))()

        def after(number: int) -> None:
            for r in written:
                got = in_double(r, r.get(place.kit))
                self._count(place, i, r, got, exact.values(r), unrounded.values(r))

        return before, after

    def birth(self, place: Place, storage: Storage) -> None:
        for memory in (self.exact, self.unrounded):  # it has new contents
            memory.pop(place.kit.bytes_of(storage).ctypes.data, None)

    def _of(self, place: Place) -> tuple[Beside, Beside]:
        """The companions of a core: exact and unrounded."""
        found = self._companions.get(place.slot.core)
        if found is None:
            core, storages = place.program.core, place.program.storages
            wide = {s.number for s in storages if type_key(core, s) in self.wide}
            exact = Beside(place, self.exact, wide, "exact ")
            unrounded = Beside(place, self.unrounded, wide, "unrounded ")
            found = self._companions[place.slot.core] = exact, unrounded
        return found

    def _take(self, place: Place, i: Instruction) -> None:
        """Give the companions what they are to have of the kernel's own values."""
        spec, (exact, unrounded) = INSTRUCTIONS[i.opcode], self._of(place)
        exact.follow(sums=True)
        unrounded.follow(sums=False)
        for a in (*spec.reads(i), *spec.writes(i)):
            r = region(place.slot, a, place.kit)
            bits = r.get(place.kit)
            exact.take(r, bits)
            if a.storage.number not in exact.wide:
                unrounded.take(r, bits)

    def beside(self, place: Place, i: Instruction) -> Sequence[Callable[[], Any]]:
        """The two, one after the other: when the first is over, all of the rank's cores have come,
        so the second finds in shared memory what the instruction itself will find."""
        spec, (exact, unrounded) = INSTRUCTIONS[i.opcode], self._of(place)
        if not any(a.storage.number in exact.wide for a in spec.writes(i)):
            return ()

        def start(beside: Beside) -> Any:
            self._take(place, i)
            beside.kit.begin(waits=True)
            return spec.link_exchange(beside.rewrite.instruction(i), beside.kit)()

        return [partial(start, unrounded), partial(start, exact)]

    def _count(self, place: Place, i: Instruction, r: Region, *values: np.ndarray) -> None:
        where = place.program.where(i.location)
        s = r.storage
        key = (where, i.opcode, s.name or s.called, r.dtype.name)
        if key not in self._sums:
            line = DriftLine(where, title(i), s.title, r.dtype.name)
            self._sums[key] = _Sums(line)
        self._sums[key].add(*values)


__all__ = ["Drift", "DriftLine", "Shadows"]
