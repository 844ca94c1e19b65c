"""Linking: a program becomes functions without arguments, bound to the memories of one core.

Everything that doesn't change between launches is settled here: views, conversions, scratch space.
For addresses that are known at run time only, see `runtime.addressed`; for programs that several
cores of the process run, `runtime.template`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from nki_dist.compiler.passes.accumulate import mask_view
from nki_dist.compiler.passes.conflicts import ordering
from nki_dist.errors import NkiError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.indirection import is_indirect
from nki_dist.isa.kit import Kit
from nki_dist.ops.calls import Step, chain, nothing
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
from nki_dist.runtime.addressed import Elsewhere, Moving, Variants
from nki_dist.runtime.addresses import parts, run_time_arguments
from nki_dist.runtime.calls import begun_sooner, call_of
from nki_dist.runtime.chains import Chain
from nki_dist.runtime.facts import Facts, FactTable, Places
from nki_dist.runtime.forms import Forms
from nki_dist.runtime.host_memory import typed
from nki_dist.runtime.indirect import has_indirection, link_indirect
from nki_dist.runtime.linked import Linked, LinkedLoop, Rendezvous, Segment
from nki_dist.runtime.merged import Merged, find_groups
from nki_dist.runtime.recipe import Birth, Notes, Own, Recipe
from nki_dist.runtime.recorder import Recorder
from nki_dist.runtime.running import Running, by_instruction, in_chain
from nki_dist.runtime.template import Moves, Template

# Between two looks at the clock and at whether the run has been ended from outside:
SEGMENT = 1000  # steps, and
SEGMENT_ELEMENTS = 16 << 20  # elements of their operands: tenths of a second


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
        self._forms = Forms() if template is None else template.forms
        self._alike = alike
        self._places = Places(kit.bytes_of)
        self._steps: dict[tuple[Any, ...], Step] = {}  # by kind and places
        self._moves = Moves()
        self._made: dict[int, dict[Any, Any]] = {}  # by exchanges that have the same arguments
        self._notes: Notes | None = None  # for the recipe
        self.recorder = Recorder(kit)
        self._merged: Merged | None = None
        self._single: dict[int, tuple[Chain, Running]] = {}  # by ordinal
        self._watched = frozenset(program.facts.get("watched", ()))
        self.masks: dict[int, np.ndarray] = {}
        for number in program.facts.get("runtime_psum", ()):
            storage = program.storages[number]
            self.masks[number] = np.zeros(storage.nbytes // 2, bool)
        kit.accumulating = partial(_mask, self.masks)  # not of self: a cycle is freed late
        self._births: dict[int, list[int]] = {}  # by ordinal, which storages are born

    def link(self) -> Linked:
        shared = self.template if self._alike else None
        with uncollected():
            self.find_chains()
            if shared is not None and shared.recipe is not None:
                return shared.recipe.follow(self)
            self._find_births()
            if shared is None:
                return self._block(self.program.body)
            self._notes = Notes()
            linked = self._block(self.program.body)
            shared.recipe = Recipe(linked, self._notes, self.kit)
            self._notes = None
            return linked

    def _find_births(self) -> None:
        program = self.program
        wanted = program.facts.get("poison")
        wanted = None if wanted is None else frozenset(wanted)
        for s in program.storages:
            if s.role == "local" and s.first >= 0 and (wanted is None or s.number in wanted):
                self._births.setdefault(s.first, []).append(s.number)
        for number in self.masks:
            first = program.storages[number].first
            if number not in self._births.setdefault(first, []):
                self._births[first].append(number)

    def find_chains(self) -> None:
        """Merge matmuls that are one product."""
        shared = self.template
        if shared is None:
            groups = partial(find_groups, self.program, self.kit.arch, self.facts)
        elif shared.multiplies:
            groups = partial(getattr, shared, "groups")
        else:
            return
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
                    steps.append(self.birth(number))
                    segment.instructions.append(item)
            if waits:
                linked.append(self.rendezvous(item))
                segment = None
                continue
            try:
                steps.append(self._instruction(item, facts))
            except (NkiError, MemoryError) as error:
                placed = self._placed(error, item)
                raise placed from placed.__cause__
            segment.instructions.append(item)
        return linked

    def _placed(self, error: NkiError | MemoryError, i: Instruction) -> NkiError:
        """What only a world of ranks, or of two cores, can't do; or scratch memory is missing."""
        return typed(error).at(
            location=self.program.where(i.location),
            core=self.kit.slot.name,
            instruction=INSTRUCTIONS[i.opcode].title,
        )

    def step_of(self, i: Instruction) -> Step:
        """The step of an instruction that waits for nobody."""
        try:
            return self._instruction(i, self.facts.of(i))
        except (NkiError, MemoryError) as error:
            placed = self._placed(error, i)
            raise placed from placed.__cause__

    def rendezvous(self, i: Instruction) -> Rendezvous:
        """An instruction that may wait for others."""
        return Rendezvous(self.start_of(i), i, ordering(self.program, i))

    def start_of(self, i: Instruction) -> Callable[[], Any]:
        """What begins it."""
        self.kit.begin(waits=True)
        try:
            return self.exchange(i)
        except (NkiError, MemoryError) as error:
            placed = self._placed(error, i)
            raise placed from placed.__cause__

    def _born_outside(self, loop: Loop) -> Segment:
        """Births of storages that a loop touches first but that live across its iterations."""
        segment = Segment([], [])
        for i in instructions(loop.body):
            waiting = self._births.get(i.ordinal, [])
            for number in [n for n in waiting if n < loop.outside]:
                waiting.remove(number)
                segment.steps.append(self.birth(number))
                segment.instructions.append(i)
        return segment

    def birth(self, number: int) -> Step:
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

        if self._notes is not None:
            self._notes.add(birth, Birth(number))
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
            step = self._addressed(i, facts)
        elif self._alike and facts.operands is not None and not (self.masks or self._single):
            step = self._repeated(i, facts.operands)
        else:
            linked = self._linked(i)
            step = begun_sooner(linked)
            if self._notes is not None and not facts.indirect:
                call = call_of(i, linked, self.kit)
                self._notes.add(step, Own(facts) if call is None else call)
        return self.recorder.around(i, step, self.addressed) if i.ordinal in self._watched else step

    def _repeated(self, i: Instruction, operands: tuple[str, ...]) -> Step:
        """The step of an instruction, which may be that of an earlier one.

        A step does the same with the same operands each time it runs, whether or not it is for
        another instruction that it does so.
        """
        key = self._places.of(i, operands)
        step = self._steps.get(key)
        if step is None:
            step = self._moves.step(i, operands, self.kit)
            if step is None:
                step = self._linked(i)
                if self.kit.named:
                    return step
                self._moves.learn(i, operands, step, self.kit)
            call = None if self._notes is None else call_of(i, step, self.kit)
            step = self._steps[key] = begun_sooner(step)
            if self._notes is not None:
                self._notes.add(step, call)
        return step

    def _linked(self, i: Instruction) -> Step:
        kit, shared = self.kit, self.template
        kit.begin()
        if shared is None or i.kind is not None:
            return self.linked(i)
        kit.known = shared.known(i.ordinal)
        try:
            return self.linked(i)
        finally:
            kit.known = None

    def own(self, i: Instruction, facts: Facts) -> Step:
        """The step of an instruction that shares it with no other."""
        kit, shared = self.kit, self.template
        try:
            if shared is None or self.masks:
                return self._linked(i)
            kit.begin()
            kit.known = shared.known(i.ordinal)
            return kit.step(facts.spec.lower(i, kit))
        except (NkiError, MemoryError) as error:
            placed = self._placed(error, i)
            raise placed from placed.__cause__
        finally:
            kit.known = None

    def _addressed(self, i: Instruction, facts: Facts) -> Step:
        """The step of an instruction with run-time addresses; see runtime.addressed."""
        if self.template is None:
            return Variants(i, self, partial(self._moving, i, facts) if self._alike else None).run
        found = self._moving(i, facts)
        if found is None:
            return Variants(i, self).run
        step = found.of(i, self.kit, Elsewhere(self).run)
        if self._notes is not None:
            self._notes.add(step, found)
        return step

    def _moving(self, i: Instruction, facts: Facts) -> Moving | None:
        """What it does wherever its operands lie, if that is as simple."""
        if not self._alike or self.masks or facts.indirect or i.ordinal in self._single:
            return None
        return self._forms.of(i, facts.dynamic, self)

    def linked(self, i: Instruction) -> Step:
        """The step of an instruction whose scalar run-time offsets are known."""
        if has_indirection(i):
            step = link_indirect(i, self.kit, self.masks)
        else:
            step = self.kit.step(INSTRUCTIONS[i.opcode].lower(i, self.kit))
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
        spec, shared, kit = INSTRUCTIONS[i.opcode], self.template, self.kit
        if shared is None:
            if not run_time_arguments(i):
                return spec.link_exchange(i, kit)
        elif not self.facts.of(i).dynamic:
            like = shared.like(i)
            kit.known, kit.made = shared.known(like), self._made.setdefault(like, {})
            try:
                return spec.link_exchange(i, kit)
            finally:
                kit.known = kit.made = None

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

    def addressed(self, i: Instruction) -> list[Instruction]:
        """What runs now: the instruction itself, or those parts of it that are inside.

        These are exactly the rows that are moved; with `oob_mode.skip` there may be none.

        Raises:
            OutOfBoundsError: an index is out of bounds, and not to be skipped.
        """
        return parts(i, self.value)


def _mask(masks: Mapping[int, np.ndarray], a: Access) -> np.ndarray:
    """Which elements of a PSUM tile hold what matmuls left, as the access sees them."""
    return mask_view(masks[a.storage.number], a)
