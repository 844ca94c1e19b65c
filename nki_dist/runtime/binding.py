"""Binding: the one place where operations meet arrays, those of one core.

A placed program says which views and which calls there are. Each view becomes an array of the core,
each call a function without arguments, and instructions that do the same share them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from nki_dist.dtypes.scratch import Scratch
from nki_dist.errors import NkiError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.kit import Kit, Workspace
from nki_dist.isa.randomness import seeded
from nki_dist.linking.indirect import lowered
from nki_dist.linking.linked import Late, LinkedExchange, LinkedLoop, Segment
from nki_dist.linking.located import raise_at, typed
from nki_dist.linking.lowering import Slot
from nki_dist.linking.placing import Call, LanedSegment, Placed
from nki_dist.ops.calls import Step, chain
from nki_dist.ops.function import copy
from nki_dist.ops.place import Place, Space
from nki_dist.program import Instruction
from nki_dist.program.uncollected import uncollected
from nki_dist.runtime.lanes import Lanes
from nki_dist.runtime.late import AtRunTime
from nki_dist.runtime.memory import Memory
from nki_dist.runtime.recorder import Recorder

Bound: TypeAlias = "list[Any]"  # of Segment, Lanes, LinkedExchange, LinkedLoop


class Binder:
    """Binds a placed program to one core.

    Args:
        placed: the program.
        memory: of the core.
        kit: of it.
    """

    def __init__(self, placed: Placed, memory: Memory, kit: Kit) -> None:
        self._placed, self._memory, self._kit = placed, memory, kit
        self._program = placed.linked.program
        self._buffers: dict[Space, np.ndarray] = {}
        self.recorder = Recorder(kit, placed.linked.masked)
        self._late = AtRunTime(kit, partial(_single, kit, placed.linked.masked))
        self._watched = frozenset(self._program.facts.get("watched", ()))
        self._core_caches: dict[int, dict[Any, Any]] = {}
        self._table: list[Any] = []
        self._steps: list[Step] = []
        self._lane_tables: dict[int, list[Any]] = {}
        self._lane_steps: dict[tuple[int, int], Step] = {}
        self._lane_buffers: dict[tuple[int, Space], np.ndarray] = {}

    @uncollected()
    def bind(self) -> Bound:
        """What the executor runs."""
        for number in self._placed.linked.masked:
            self._kit.masks[number] = self._bytes(("mask", number)).view(bool)
        self._table = list(map(self._argument, self._placed.arguments))
        table, casts = self._table, self._kit.workspace.casts
        self._steps = [
            chain([self._call(call, table, casts) for call in step.calls])
            for step in self._placed.steps
        ]
        return self._block(self._placed.body)

    def _argument(self, a: Any) -> Any:
        if type(a) is Place:
            return np.ndarray(a.shape, a.dtype, self._bytes(a.space), a.offset, a.strides)
        return self._slot(a) if type(a) is Slot else a

    def _slot(self, slot: Slot) -> Any:
        kit = self._kit
        if slot is Slot.REGISTERS:
            return kit.registers
        return kit.rank if slot is Slot.RANK else kit.wires

    def _bytes(self, space: Space) -> np.ndarray:
        found = self._buffers.get(space)
        if found is None:
            found = self._buffers[space] = self._placed_errors(self._found, space)
        return found

    def _placed_errors(self, found: Callable[..., np.ndarray], *arguments: Any) -> np.ndarray:
        """Memory of a space, the last that is asked for."""
        try:
            return found(*arguments)
        except MemoryError as error:
            i, core = self._placed.greediest(arguments[-1]), self._kit.slot.name
            if i is None:
                raise typed(error).at(core=core) from error
            raise_at(error, i, self._program.where(i.location), core)

    def _found(self, space: Space) -> np.ndarray:
        what, number = space
        if what == "part":
            return self._memory.part(int(number))
        if what == "storage":
            return self._memory.outside(int(number))
        if what == "scratch":
            return self._kit.workspace.bytes(self._placed.scratch)
        if what == "panel":
            return self._kit.workspace.panel(self._placed.panels[int(number)])
        if what == "accumulators":
            sums: np.ndarray = self._kit.accumulators(str(number))
            return sums.view(np.uint8)
        if what == "random":
            partitions = self._kit.arch.partitions
            words: np.ndarray = self._kit.random(
                str(number), partial(seeded, str(number), 0, partitions)
            )
            return words.reshape(-1).view(np.uint8)
        return np.zeros(self._placed.linked.spaces[space], np.uint8)

    @staticmethod
    def _call(call: Call, table: Sequence[Any], casts: Scratch) -> Step:
        function, numbers = call
        arguments = [table[n] for n in numbers]
        if function is copy:
            out, inp = arguments
            if type(inp) is np.ndarray and inp.dtype is out.dtype:  # a call less
                return partial(out.__setitem__, ..., inp)
        return partial(function.within(casts), *arguments)

    def _block(self, block: Sequence[Any]) -> Bound:
        bound: Bound = []
        for item in block:
            if type(item) is Segment:
                bound.append(self._segment(item))
            elif type(item) is LanedSegment:
                bound.append(self._laned(item))
            elif type(item) is LinkedLoop:
                bound.append(LinkedLoop(item.loop, self._block(item.body)))
            else:
                bound.append(self._exchange(item))
        return bound

    def _segment(self, segment: Segment) -> Segment:
        steps = self._steps
        bound = [
            steps[step] if type(step) is int else self._settled(step) for step in segment.steps
        ]
        if self._watched:
            bound = [self._recorded(step, n, segment) for n, step in enumerate(bound)]
        return Segment(bound, segment.instructions, segment.moves and not self._watched)

    def _laned(self, segment: LanedSegment) -> Lanes:
        steps = []
        for w, lane in enumerate(segment.schedule.lanes):
            bound = [(self._in_lane(w, segment.steps[n]), n) for n in lane.nodes]
            steps.append([self._recorded(step, n, segment) for step, n in bound])
        return Lanes(steps, segment.instructions, segment.schedule)

    def _recorded(self, step: Step, n: int, segment: Segment | LanedSegment) -> Step:
        """A step, recorded if its instruction is watched; a birth only has one's name."""
        i = segment.instructions[n]
        if i.ordinal not in self._watched or n in segment.births:
            return step
        return self.recorder.wrapped(i, step, self._late.parts)

    def _in_lane(self, w: int, step: Any) -> Step:
        """A step as a lane has it, with memory of its own where it must."""
        if type(step) is not int:
            return self._settled(step)
        if w == 0:
            return self._steps[step]
        found = self._lane_steps.get((w, step))
        if found is None:
            calls, found = self._placed.steps[step].calls, self._steps[step]
            if self._has_per_lane(calls):
                table, casts = self._lane_table(w), self._workspace(w).casts
                found = chain([self._call(call, table, casts) for call in calls])
            self._lane_steps[w, step] = found
        return found

    def _has_per_lane(self, calls: Sequence[Call]) -> bool:
        """Whether some of it is in memory of which each lane has its own."""
        per_lane, arguments = self._placed.per_lane, self._placed.arguments
        for function, numbers in calls:
            if function.make is not None:
                return True
            for n in numbers:
                a = arguments[n]
                if type(a) is Place and a.space[0] in per_lane:
                    return True
        return False

    def _workspace(self, w: int) -> Workspace:
        return self._kit.workspace.lane(w)

    def _lane_table(self, w: int) -> list[Any]:
        """The arguments as a lane has them."""
        found = self._lane_tables.get(w)
        if found is None:
            per_lane = self._placed.per_lane
            found = self._lane_tables[w] = list(self._table)
            for n, a in enumerate(self._placed.arguments):
                if type(a) is Place and a.space[0] in per_lane:
                    memory = self._placed_errors(self._lane_bytes, w, a.space)
                    found[n] = np.ndarray(a.shape, a.dtype, memory, a.offset, a.strides)
        return found

    def _lane_bytes(self, w: int, space: Space) -> np.ndarray:
        if space[0] == "scratch":
            return self._workspace(w).bytes(self._placed.scratch)
        found = self._lane_buffers.get((w, space))
        if found is None:
            size = self._placed.linked.spaces[space]
            found = self._lane_buffers[w, space] = np.zeros(size, np.uint8)
        return found

    def _settled(self, what: Any) -> Step:
        if type(what) is Late:
            i = what.instruction
            return self._late.step(i, self._placed.sources[i.ordinal])
        arguments = self._table
        calls = []
        for function, numbers, axes in what.calls:
            called = function.within(self._kit.workspace.casts)
            calls.append((called, [arguments[n] for n in numbers], axes))
        return self._late.moving(what, calls)

    # ---- exchanges ------------------------------------------------------------------------------

    def _exchange(self, exchange: LinkedExchange) -> LinkedExchange:
        i = exchange.instruction
        try:
            return LinkedExchange(i, exchange.orders, self._start(i))
        except (NkiError, MemoryError) as error:
            raise_at(error, i, self._program.where(i.location), self._kit.slot.name)

    def _start(self, i: Instruction) -> Callable[[], Any]:
        kit, spec = self._kit, INSTRUCTIONS[i.opcode]
        kit.begin(waits=True)
        if i.ordinal in self._placed.sources:
            return self._late.exchange(i, lambda now: spec.link_exchange(now, kit))
        exchanges = self._placed.exchanges
        like = exchanges.like(i)
        kit.cache, kit.core_cache = exchanges.cache(like), self._core_caches.setdefault(like, {})
        try:
            return spec.link_exchange(i, kit)
        finally:
            kit.cache = kit.core_cache = None


def _single(kit: Kit, masked: Collection[int], i: Instruction) -> Step:
    """The step of an instruction that shares it with no other."""
    return kit.step(lowered(i, kit, masked))
