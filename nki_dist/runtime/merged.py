"""Matmuls of a known program as few and large products: see `chains` for what may be merged.

The operands of a chain are gathered where its matmuls read them, its product is formed at its last
one, and of a group all at once, at the last one of its first chain. So every operand is read no
later than the program reads it, and PSUM is written where nobody has looked since the chain began.

Invariant: the bits are those of `Running`, which forms each chain's sum by itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from nki_dist.dtypes import float32
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa._matmul import directly, matrix, product
from nki_dist.isa.kit import Array, Kit
from nki_dist.ops.calls import Step
from nki_dist.ops.operation import Operation
from nki_dist.program import Access, Block, Instruction, Loop, Program, instructions
from nki_dist.runtime.chains import Chain, Chains, Group
from nki_dist.runtime.facts import FactTable
from nki_dist.runtime.loads import Load, find_loads
from nki_dist.runtime.panels import KEPT, Buffer, Part, assign, joined, lying, provide

Key: TypeAlias = "tuple[Any, ...]"


def find_groups(program: Program, arch: Any, facts: FactTable | None = None) -> list[Group]:
    """All groups of chains, in the order in which they are computed."""
    found: dict[int, Group] = {}

    def ended(chain: Chain, group: Group) -> None:
        found.setdefault(id(group), group)

    chains = Chains(arch, ended, program.beta1, facts)
    breaks = frozenset(program.facts.get("rounds", ()))  # of a debugged launch
    _feed(chains, program.body, breaks)
    chains.end()
    return sorted(found.values(), key=lambda group: group.ends)


def _feed(chains: Chains, block: Block, breaks: Collection[int]) -> None:
    for item in block:
        if isinstance(item, Loop):
            chains.end()
            _feed(chains, item.body, breaks)
            chains.end()
        else:
            if item.ordinal in breaks:
                chains.end()
            chains.feed(item)


def multiplies(i: Instruction) -> bool:
    """Whether it is a matmul."""
    return INSTRUCTIONS[i.opcode].factors_of is not None


class Merged:
    """The steps of a program's matmuls.

    Args:
        program: as it is run.
        kit: of the core that runs it.
        groups: what `find_groups` gives for the program, from whoever may have asked.
    """

    def __init__(
        self,
        program: Program,
        kit: Kit,
        groups: Callable[[], list[Group]] | None = None,
    ) -> None:
        self._kit = kit
        self._memory = kit.panels
        # By ordinal, what links the steps of an instruction, until it is linked: methods that are
        # bound then, as they would keep this object alive, and their arguments.
        self._work: dict[int, list[tuple[Any, ...]]] = {}
        self._ordinals: dict[int, int] = {}  # by position
        self._members: set[int] = set()
        self._last: set[int] = set()
        self._buffers: list[Buffer] = []
        self._kept: dict[int, Buffer] = {}
        self._bytes = 0
        self._loads: dict[int, Load] = {}  # that panels do without, by number of the tile
        self._unmade: set[int] = set()
        if not any(multiplies(i) for i in instructions(program.body)):
            return
        found = find_groups(program, kit.arch) if groups is None else groups()
        self._loads = find_loads(program, found)
        self._unmade = {load.ordinal for load in self._loads.values()}
        # Equal contents have equal numbers: keys are long.
        numbers: dict[Key, int] = {}
        keys = [
            tuple([numbers.setdefault(key, len(numbers)) for key in _keys(group)])
            for group in found
        ]
        self._uses = Counter([number for both in keys for number in both])
        for group, (left, right) in zip(found, keys, strict=True):
            self._group(group, left, right)
        provide(self._memory, assign(self._buffers))

    def has(self, i: Instruction) -> bool:
        """Whether the instruction's step is this object's affair."""
        return i.ordinal in self._members

    def ends(self, i: Instruction) -> bool:
        """Whether it is the one that writes the chain's sum."""
        return i.ordinal in self._last

    def leaves_out(self, i: Instruction) -> bool:
        """Whether the instruction loads what panels are filled with from its source."""
        return i.ordinal in self._unmade

    def step(self, i: Instruction) -> list[Step]:
        """What the instruction does; nothing, if others do it. Asked once of each."""
        work = self._work.pop(i.ordinal, ())
        return [step for link, *arguments in work for step in link(self, *arguments)]

    # ---- what is done where -------------------------------------------------------------------

    def _group(self, group: Group, left_key: int, right_key: int) -> None:
        first = group.chains[0]
        alone = group.alone
        if alone and not self._worth(first, left_key, right_key):
            return
        for chain in group.chains:
            for m in chain.members:
                self._ordinals[m.at] = m.instruction.ordinal
                self._members.add(m.instruction.ordinal)
            self._last.add(chain.members[-1].instruction.ordinal)
        width = group.width
        _, a, b, _ = first.members[0].factors if alone else (None, None, None, 0)
        end, columns = group.ends, first.dst.free_size
        left = self._panel(left_key, a, _left_parts, group, width, end)
        right = self._panel(right_key, b, _right_parts, group, columns, end)
        result = None
        if width > first.width or first.mode != "replace" or not directly(first.dst):
            shape = (width, first.dst.free_size)
            result = Buffer(shape, group.ends, max(c.members[-1].at for c in group.chains))
            self._buffers.append(result)
        self._at(group.ends, Merged._multiplied, first, left, right, result)
        if result is not None:
            for chain in group.chains:
                self._at(chain.members[-1].at, Merged._deposited, chain, result)

    def _worth(self, chain: Chain, *keys: int) -> bool:
        """Whether a single matmul gains by it: by an operand that has to be widened, but once."""
        factors = chain.members[0].factors
        wide = (factors.left.dtype is float32, factors.right.dtype is float32)
        return any(self._uses[key] > 1 and not w for key, w in zip(keys, wide, strict=True))

    def _panel(
        self,
        key: int,
        alone: Access | None,
        parts: Callable[[Group], list[Part]],
        group: Group,
        width: int,
        at: int,
    ) -> Buffer | None:
        """An operand as a panel; None where the only matmul makes of it what it needs.

        Args:
            alone: the operand, if there is only one matmul.
            parts: gives those of the group's panel if it has to be filled.
            width: its columns.
            at: where it is multiplied.
        """
        kept = self._kept.pop(key, None)
        self._uses[key] -= 1
        if kept is None:
            if alone is not None and (not self._uses[key] or directly(alone) is not None):
                return None
            kept = self._gathered(parts(group), width, at, parts is _right_parts)
        kept.end = max(kept.end, at)
        if self._uses[key]:
            self._kept[key] = kept  # the one that was used last comes last
            while self._bytes > KEPT and self._kept:
                self._bytes -= self._kept.pop(next(iter(self._kept))).nbytes
        else:
            self._bytes -= kept.nbytes
        return kept

    def _gathered(self, parts: list[Part], width: int, at: int, right: bool) -> Buffer:
        """A panel of these parts, and the work of filling it.

        Args:
            right: it may lie in an argument. Left ones don't: the two operands of a product mustn't
                be one array, for which BLAS takes another routine.
        """
        for part in parts:
            part.access = self._source(part.access)
        shape = max(p.row + p.rows for p in parts), width
        start = min(p.at for p in parts)
        if right and self._loads and (there := lying(parts, width)) is not None:
            return Buffer(shape, start, at, self._kit.view(there))
        made = Buffer(shape, start, at)
        self._buffers.append(made)
        gaps = _gaps(parts, width)
        for part in joined(parts):
            self._at(part.at, Merged._filled, part, made)
        for column, stop in gaps:
            self._at(at, Merged._cleared, made, column, stop)
        self._bytes += made.nbytes
        return made

    def _source(self, a: Access) -> Access:
        """What a panel takes an operand from: where the tile isn't loaded, from the argument."""
        load = self._loads.get(a.storage.number)
        if load is None:
            return a
        seen = load.seen(a)
        assert seen is not None, "find_loads asked for all operands"
        return seen

    def _at(self, at: int, link: Callable[..., list[Step]], *arguments: Any) -> None:
        self._work.setdefault(self._ordinals[at], []).append((link, *arguments))

    # ---- linked when the instruction's turn comes ---------------------------------------------

    def _filled(self, part: Part, buffer: Buffer) -> list[Step]:
        return [part.fill(buffer.array(self._memory), self._kit)]

    def _cleared(self, buffer: Buffer, column: int, stop: int) -> list[Step]:
        """Columns that fill up blocks: nobody reads what becomes of them."""
        return [partial(buffer.array(self._memory)[:, column:stop].fill, 0)]

    def _multiplied(
        self, chain: Chain, left: Buffer | None, right: Buffer | None, result: Buffer | None
    ) -> list[Step]:
        kit, member = self._kit, chain.members[0].factors
        steps: list[Operation] = []
        arrays: list[Array] = []
        for buffer, a in ((left, member.left), (right, member.right)):
            if buffer is not None:
                arrays.append(buffer.array(self._memory))
                continue
            same = a is member.right and a.same_elements(member.left)
            array, fill = matrix(a, kit, member.rows, apart=same)
            arrays.append(array)
            steps += fill
        if result is None:
            out = directly(chain.dst)
            assert out is not None
            target: np.ndarray = kit.view(out)
        else:
            target = result.array(self._memory)
        return [kit.step([*steps, *product(arrays[0], arrays[1], target, kit)])]

    def _deposited(self, chain: Chain, result: Buffer) -> list[Step]:
        column, dst = chain.column, chain.dst
        part = result.array(self._memory)[column : column + chain.width].reshape(dst.shape)
        return added(self._kit, dst, chain.mode, part)


def added(kit: Kit, dst: Access, mode: str, part: np.ndarray) -> list[Step]:
    """The steps that bring a product to PSUM; they may change it."""
    target = kit.view(dst)
    if mode == "add":
        return [partial(np.add, target, part, target)]
    steps: list[Step] = []
    if mode == "runtime":
        steps.append(partial(np.add, target, part, part, where=kit.accumulating(dst)))
    return [*steps, partial(np.copyto, target, part)]


def _keys(group: Group) -> tuple[Key, Key]:
    """What the panels of a group hold: equal keys, equal contents."""
    first = group.chains[0]
    left = tuple([tuple([m.left for m in c.members]) for c in group.chains])
    return ("left", group.run, first.large, left), ("right", group.run, first.right())


def _left_parts(group: Group) -> list[Part]:
    """Stationary operands of later chains were there when the first one ended."""
    parts = []
    for chain in group.chains:
        row = 0
        for m in chain.members:
            at = min(m.at, group.ends)
            parts.append(Part(m.factors.left, m.factors.rows, row, chain.column, at))
            row += m.factors.rows
    return parts


def _gaps(parts: list[Part], width: int) -> list[tuple[int, int]]:
    """Columns of a panel that no operand fills, half open."""
    found, at = [], 0
    for part in sorted([p for p in parts if p.row == 0], key=lambda p: p.column):
        if part.column > at:
            found.append((at, part.column))
        at = part.column + part.width
    return [*found, (at, width)] if at < width else found


def _right_parts(group: Group) -> list[Part]:
    """Moving operands, which all chains have in common."""
    row, parts = 0, []
    for m in group.chains[0].members:
        parts.append(Part(m.factors.right, m.factors.rows, row, 0, m.at))
        row += m.factors.rows
    return parts
