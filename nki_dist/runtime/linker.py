"""Linking: a program becomes functions without arguments, bound to the memories of one core.

Everything that doesn't change between launches is settled here: views, conversions, scratch space.
An instruction with a run-time address is linked anew for each address it meets, and what was linked
is kept, because loops come back to the same addresses at every launch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from nki_dist.compiler.passes.accumulate import mask_view
from nki_dist.errors import NkiError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.enums import oob_mode
from nki_dist.isa.indirection import is_indirect
from nki_dist.isa.kit import Kit, Step, chain
from nki_dist.isa.transfers import first_outside, fixed, parts_inside
from nki_dist.program import (
    Access,
    Block,
    Dynamic,
    Instruction,
    Loop,
    Program,
    VirtualRegister,
    instructions,
)
from nki_dist.program.uncollected import uncollected
from nki_dist.runtime.addresses import inside, outside, run_time_arguments
from nki_dist.runtime.chains import Chain
from nki_dist.runtime.facts import Facts, FactTable, Places
from nki_dist.runtime.host_memory import typed
from nki_dist.runtime.indirect import has_indirection, link_indirect
from nki_dist.runtime.merged import Merged, find_groups
from nki_dist.runtime.recorder import Recorder
from nki_dist.runtime.running import Running, by_instruction, in_chain
from nki_dist.runtime.template import Moves, Template

# Between two looks at the clock and at whether the run has been ended from outside:
SEGMENT = 1000  # steps, and
SEGMENT_ELEMENTS = 16 << 20  # elements of their operands: tenths of a second
KEPT_ADDRESSES = 4096  # linked variants kept per instruction with run-time addresses


@dataclass
class Segment:
    """Instructions that run one after the other without waiting for anybody."""

    steps: list[Step]
    instructions: list[Instruction]


@dataclass
class Rendezvous:
    """An instruction that may wait for other cores."""

    start: Callable[[], Any]
    instruction: Instruction
    orders: bool  # the other core of the rank is among them


@dataclass
class LinkedLoop:
    loop: Loop
    body: list[Any]


Linked = list[Any]  # of Segment, Rendezvous, LinkedLoop


class Linker:
    """Links one program. See the module's docstring.

    Args:
        program: of the core.
        kit: of the core.
        template: of the program, if several cores run it.
        alike: instructions that do the same at the same places have one step in common; not for
            those who want to know which of them runs.
    """

    def __init__(
        self,
        program: Program,
        kit: Kit,
        template: Template | None = None,
        alike: bool = False,
    ) -> None:
        self.program = program
        self.kit = kit
        self.template = template
        self.facts = FactTable() if template is None else template.table
        self._alike = alike
        self._places = Places(kit.bytes_of)
        self._steps: dict[tuple[Any, ...], Step] = {}  # by kind and places
        self._moves = Moves()
        self.recorder = Recorder(kit)
        self._merged: Merged | None = None
        self._single: dict[int, tuple[Chain, Running]] = {}  # by ordinal
        self._watched = frozenset(program.facts.get("watched", ()))
        self.masks: dict[int, np.ndarray] = {}
        for number in program.facts.get("runtime_psum", ()):
            storage = program.storages[number]
            self.masks[number] = np.zeros(storage.nbytes // 2, bool)
        kit.accumulating = partial(_mask, self.masks)  # not of self: a cycle is freed late
        self._births: dict[int, list[int]] = {}
        wanted = program.facts.get("poison")
        wanted = None if wanted is None else frozenset(wanted)
        for s in program.storages:
            if s.role == "local" and s.first >= 0 and (wanted is None or s.number in wanted):
                self._births.setdefault(s.first, []).append(s.number)
        for number in self.masks:
            first = program.storages[number].first
            if number not in self._births.setdefault(first, []):
                self._births[first].append(number)

    def link(self) -> Linked:
        with uncollected():
            self.find_chains()
            return self._block(self.program.body)

    def find_chains(self) -> None:
        """Merge matmuls that are one product."""
        shared = self.template
        if shared is None:
            groups = partial(find_groups, self.program, self.kit.arch, self.facts)
        else:
            groups = partial(getattr, shared, "groups")
        self._merged = Merged(self.program, self.kit, groups)

    def watch_chains(self) -> None:
        """Instead, let each matmul do what it says when its turn comes; the last one of a chain
        brings the sum that the product would have been."""
        found = find_groups(self.program, self.kit.arch, self.facts)
        self._single = by_instruction(found, self.kit)

    def _block(self, block: Block) -> Linked:
        linked: Linked = []
        segment: Segment | None = None
        steps: list[Step] = []  # of the segment
        elements = 0
        kinds, births = self.facts.kinds, self._births
        for item in block:
            if isinstance(item, Loop):
                linked.append(self._born_outside(item))
                # A body without instructions goes round, and is looked at, all the same.
                linked.append(LinkedLoop(item, self._block(item.body) or [Segment([], [])]))
                segment = None
                continue
            facts = kinds.get(id(item.kind)) or self.facts.of(item)
            spec = facts.spec
            waits = spec.synchronises
            elements += facts.elements
            if segment is None or waits or elements > SEGMENT_ELEMENTS or len(steps) >= SEGMENT:
                segment, elements = Segment([], []), 0
                steps = segment.steps
                linked.append(segment)
            if item.ordinal in births:
                for number in births.pop(item.ordinal):
                    steps.append(self._birth(number))
                    segment.instructions.append(item)
            try:
                if waits:
                    self.kit.begin(waits=True)
                    step = self.exchange(item)
                else:
                    step = self._instruction(item, facts)
            # What only a world of ranks, or of two cores, can't do; or scratch memory is missing.
            except (NkiError, MemoryError) as error:
                placed = typed(error).at(
                    location=self.program.where(item.location),
                    core=self.kit.slot.name,
                    instruction=spec.title,
                )
                raise placed from placed.__cause__
            if waits:
                linked.append(Rendezvous(step, item, spec.orders(item, self.program.core)))
                segment = None
                continue
            steps.append(step)
            segment.instructions.append(item)
        return linked

    def _born_outside(self, loop: Loop) -> Segment:
        """Births of storages that a loop touches first but that live across its iterations."""
        segment = Segment([], [])
        for i in instructions(loop.body):
            waiting = self._births.get(i.ordinal, [])
            for number in [n for n in waiting if n < loop.outside]:
                waiting.remove(number)
                segment.steps.append(self._birth(number))
                segment.instructions.append(i)
        return segment

    def _birth(self, number: int) -> Step:
        """Fill a storage nobody wrote as its life begins, and forget what was accumulated in it."""
        storage = self.program.storages[number]
        fill = self.kit.raw(
            Access(storage, 0, (storage.nbytes // storage.dtype.itemsize,), (1,), storage.dtype)
        )
        value = storage.dtype.raw.type(self.program.unwritten(storage.dtype))
        mask = self.masks.get(number)

        def birth() -> None:
            fill.fill(value)
            if mask is not None:
                mask.fill(False)

        return birth

    def _instruction(self, i: Instruction, facts: Facts) -> Step:
        merged = self._merged
        if facts.spec.factors_of is not None and merged is not None and merged.has(i):
            self.kit.begin()
            product = chain(merged.step(i))
            return self._with_masks(i, product) if merged.ends(i) else product
        if merged is not None and merged.leaves_out(i):
            return nothing
        if facts.dynamic:
            step: Step = _Relinked(i, facts.dynamic, self).run
        elif self._alike and facts.operands is not None and not (self.masks or self._single):
            step = self._repeated(i, facts, facts.operands)
        else:
            step = self._linked(i, facts)
        return self.recorder.around(i, step, self.addressed) if i.ordinal in self._watched else step

    def _repeated(self, i: Instruction, facts: Facts, operands: tuple[str, ...]) -> Step:
        """The step of an instruction, which may be that of an earlier one.

        A step does the same with the same operands each time it runs, whether or not it is for
        another instruction that it does so.
        """
        key = self._places.of(i, operands)
        step = self._steps.get(key)
        if step is None:
            step = self._moves.step(i, operands, self.kit)
            if step is None:
                step = self._linked(i, facts)
                if self.kit.named:
                    return step
                self._moves.learn(i, operands, step, self.kit)
            self._steps[key] = step
        return step

    def _linked(self, i: Instruction, facts: Facts) -> Step:
        self.kit.begin()
        if self.template is not None and not facts.indirect and i.ordinal not in self._single:
            return self._with_masks(i, self.template.step(i, self.kit, facts.spec.link))
        return self.linked(i)

    def linked(self, i: Instruction) -> Step:
        """The step of an instruction whose scalar run-time offsets are known."""
        if has_indirection(i):
            step = link_indirect(i, self.kit, self.masks)
        else:
            step = INSTRUCTIONS[i.opcode].link(i, self.kit)
        if i.ordinal in self._single:
            step = in_chain(i, step, *self._single[i.ordinal])
        return self._with_masks(i, step)

    def _with_masks(self, i: Instruction, step: Step) -> Step:
        """Record, where matmuls decide at run time, what the next one finds in its elements."""
        if not self.masks:
            return step
        spec = INSTRUCTIONS[i.opcode]
        marks = [
            partial(_mask(self.masks, a).__setitem__, ..., spec.accumulates or False)
            for a in spec.writes(i)
            if a.storage.number in self.masks and not is_indirect(a)
        ]
        return chain([step, *marks]) if marks else step

    def exchange(self, i: Instruction) -> Callable[[], Any]:
        """What begins an instruction that waits for others; see Spec.link_exchange."""
        spec = INSTRUCTIONS[i.opcode]
        if not run_time_arguments(i):
            if self.template is not None:
                self.kit.known = self.template.exchanges.setdefault(i.ordinal, {})
            try:
                return spec.link_exchange(i, self.kit)
            finally:
                self.kit.known = None

        def start() -> Any:
            self.kit.begin(waits=True)
            return spec.link_exchange(self._addressed_exchange(i), self.kit)()

        return start

    def _addressed_exchange(self, i: Instruction) -> Instruction:
        (addressed,) = self.addressed(i)  # no exchange has an oob_mode
        return addressed

    # ---- run-time addresses -----------------------------------------------------------------

    def value(self, dynamic: Dynamic) -> int:
        """The index a run-time access uses now."""
        source = dynamic.source
        if isinstance(source, VirtualRegister):
            return self.kit.state.registers[source.number]
        return int(self.kit.view(source).reshape(())[()])

    def moves_views(self, i: Instruction) -> bool:
        """Whether its step may be what it was elsewhere, with views that begin at other places."""
        if self.template is None or self.masks or i.ordinal in self._single:
            return False
        return not self.facts.of(i).indirect

    def resolve(self, i: Instruction) -> Instruction:
        """The instruction with its scalar run-time offsets filled in."""
        return i.with_args({name: self._resolved(value) for name, value in i.args.items()})

    def _resolved(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._resolved(v) for v in value]
        return fixed(value, self.value) if isinstance(value, Access) else value

    def addressed(self, i: Instruction) -> list[Instruction]:
        """What runs now: the instruction itself, or those parts of it that are inside.

        These are exactly the rows that are moved; with `oob_mode.skip` there may be none.

        Raises:
            OutOfBoundsError: an index is out of bounds, and not to be skipped.
        """
        for a in run_time_arguments(i):
            assert a.dynamic is not None
            index = self.value(a.dynamic)
            if inside(a, index):
                continue
            blocks = INSTRUCTIONS[i.opcode].blocks(i)
            if i.args.get("oob_mode") is oob_mode.skip:
                return parts_inside(i, blocks, self.value)
            raise outside(a, index, first_outside(blocks, self.value))
        return [self.resolve(i)]


def _mask(masks: Mapping[int, np.ndarray], a: Access) -> np.ndarray:
    """Which elements of a PSUM tile hold what matmuls left, as the access sees them."""
    return mask_view(masks[a.storage.number], a)


class _Relinked:
    """An instruction with run-time scalar offsets: linked per set of offsets, results kept."""

    def __init__(self, i: Instruction, dynamic: Sequence[Access], linker: Linker) -> None:
        self.i = i
        self.dynamic = dynamic
        self.plain = linker.moves_views(i)
        self.linker = linker
        self.kept: dict[tuple[int, ...], Step] = {}

    def run(self) -> None:
        linker = self.linker
        key = tuple([linker.value(a.dynamic) for a in self.dynamic])  # type: ignore[arg-type]
        step = self.kept.get(key)
        if step is None:
            step = self._moved(key) if self.plain and self._inside(key) else self._link()
            if len(self.kept) < KEPT_ADDRESSES:
                self.kept[key] = step
        step()

    def _inside(self, key: tuple[int, ...]) -> bool:
        return all(inside(a, index) for a, index in zip(self.dynamic, key))

    def _moved(self, key: tuple[int, ...]) -> Step:
        template = self.linker.template
        assert template is not None
        return template.moved(self.i, key, self.linker.kit, self._link)

    def _link(self) -> Step:
        steps = []
        for part in self.linker.addressed(self.i):
            # Variants outlive each other, so their scratch must not be shared with instructions
            # that were linked for another place; it is never live across instructions, so slots
            # may be.
            self.linker.kit.begin()
            steps.append(self.linker.linked(part))
        return chain(steps) if steps else nothing


def nothing() -> None:
    """A transfer all of whose rows are out of bounds and to be skipped, or one nobody needs."""
