"""Matmuls of a program as few and large products: see `chains` for which are one product.

The operands of a chain are gathered where its matmuls read them, its product is formed at its last
one, and of a group all at once, at the last one of its first chain. So every operand is read no
later than the program reads it, and PSUM is written where nobody has looked since the chain began.

What is always so: a chain is one product. What passes add to it, none of which changes a bit:

    groups   large chains with common moving operands are computed side by side
    panels   operands stay gathered as long as later chains multiply the same elements
    loads    tiles that nobody but panels reads aren't loaded; see `loads`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, TypeAlias

import numpy as np

from nki_dist.arch import Arch
from nki_dist.dtypes import float32
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa._matmul import directly, matrix, product
from nki_dist.isa.kit import Kit
from nki_dist.linking.chains import Chain, Chains, Group
from nki_dist.linking.facts import FactTable
from nki_dist.linking.loads import Load, find_loads
from nki_dist.linking.lowering import Lowering
from nki_dist.linking.panels import KEPT, Panel, Part, joined, lying
from nki_dist.ops.arrays import add_where
from nki_dist.ops.function import copy
from nki_dist.ops.operation import Operation, op
from nki_dist.ops.place import Place
from nki_dist.program import Access, Block, Instruction, Loop, Program, instructions

Key: TypeAlias = "tuple[Any, ...]"


def find_groups(
    program: Program, arch: Arch, facts: FactTable, grouped: bool = True
) -> list[Group]:
    """All groups of chains, in the order in which they are computed.

    Args:
        grouped: chains may be computed side by side; else each is a group.
    """
    found: dict[int, Group] = {}

    def ended(chain: Chain, group: Group) -> None:
        found.setdefault(id(group), group)

    chains = Chains(arch, ended, program.beta1, facts, grouped)
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


class Products:
    """What a program's matmuls do.

    Args:
        program: as it is run.
        kit: that lowers it.
        facts: of its instructions.
        without: passes that are left out.

    Attributes:
        panels: all of them, by number.
        last: ordinals of matmuls that write a chain's sum.
        unmade: ordinals of loads that needn't be made.
    """

    def __init__(
        self, program: Program, kit: Lowering, facts: FactTable, without: Collection[str] = ()
    ) -> None:
        self._kit = kit
        self._keep = "panels" not in without
        # By ordinal, what makes its operations: functions and arguments. No bound methods, which
        # would make a circle that is freed late.
        self._work: dict[int, list[tuple[Callable[..., list[Operation]], tuple[Any, ...]]]] = {}
        self._ordinals: dict[int, int] = {}  # by position
        self._members: set[int] = set()
        self.last: set[int] = set()
        self.panels: list[Panel] = []
        self._kept: dict[int, Panel] = {}
        self._bytes = 0
        self._loads: dict[int, Load] = {}  # that panels do without, by number of the tile
        self.unmade: set[int] = set()
        if not any(multiplies(i) for i in instructions(program.body)):
            return
        groups = find_groups(program, kit.arch, facts, "groups" not in without)
        if "loads" not in without:
            self._loads = find_loads(program, groups)
            self.unmade = {load.ordinal for load in self._loads.values()}
        # Equal contents have equal numbers: keys are long.
        numbers: dict[Key, int] = {}
        keys = [
            tuple([numbers.setdefault(key, len(numbers)) for key in _keys(group)])
            for group in groups
        ]
        self._uses = Counter([number for both in keys for number in both])
        for group, (left, right) in zip(groups, keys, strict=True):
            self._group(group, left, right)

    def has(self, i: Instruction) -> bool:
        """Whether the instruction's operations are this object's affair."""
        return i.ordinal in self._members

    def operations(self, i: Instruction) -> list[Operation]:
        """What the instruction does; nothing, if others do it."""
        work = self._work.get(i.ordinal, ())
        return [o for made, arguments in work for o in made(self, *arguments)]

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
            self.last.add(chain.members[-1].instruction.ordinal)
        width = group.width
        _, a, b, _ = first.members[0].factors if alone else (None, None, None, 0)
        end, columns = group.ends, first.dst.free_size
        left = self._panel(left_key, a, _left_parts, group, width, end)
        right = self._panel(right_key, b, _right_parts, group, columns, end)
        result = None
        if width > first.width or first.mode != "replace" or not directly(first.dst):
            until = max(c.members[-1].at for c in group.chains)
            result = self._new((width, first.dst.free_size), group.ends, until)
        self._at(group.ends, Products._multiplied, first, left, right, result)
        if result is not None:
            for chain in group.chains:
                self._at(chain.members[-1].at, Products._deposited, chain, result)

    def _new(self, shape: tuple[int, int], start: int, end: int) -> Panel:
        made = Panel(len(self.panels), shape, start, end)
        self.panels.append(made)
        return made

    def _worth(self, chain: Chain, *keys: int) -> bool:
        """Whether a single matmul gains by it: by an operand that has to be widened, but once."""
        factors = chain.members[0].factors
        wide = (factors.left.dtype is float32, factors.right.dtype is float32)
        several = [self._uses[key] > 1 or key in self._kept for key in keys]
        return self._keep and any(s and not w for s, w in zip(several, wide, strict=True))

    def _panel(
        self,
        key: int,
        alone: Access | None,
        parts: Callable[[Group], list[Part]],
        group: Group,
        width: int,
        at: int,
    ) -> Panel | None:
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
        if self._uses[key] and self._keep:
            self._kept[key] = kept  # the one that was used last comes last
            while self._bytes > KEPT and self._kept:
                self._bytes -= self._kept.pop(next(iter(self._kept))).nbytes
        else:
            self._bytes -= kept.nbytes
        return kept

    def _gathered(self, parts: list[Part], width: int, at: int, right: bool) -> Panel:
        """A panel of these parts, and the work of filling it: not the columns that fill up blocks,
        as nobody reads what becomes of them.

        Args:
            right: it may lie in an argument. Left ones don't: the two operands of a product mustn't
                be one array, for which BLAS takes another routine.
        """
        for part in parts:
            part.access = self._source(part.access)
        shape = max(p.row + p.rows for p in parts), width
        start = min(p.at for p in parts)
        if right and self._loads and (there := lying(parts, width)) is not None:
            return Panel(-1, shape, start, at, self._kit.view(there))
        made = self._new(shape, start, at)
        for part in joined(parts):
            self._at(part.at, Products._filled, part, made)
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

    def _at(self, at: int, made: Callable[..., list[Operation]], *arguments: Any) -> None:
        self._work.setdefault(self._ordinals[at], []).append((made, arguments))

    # ---- lowered when the instruction's turn comes ---------------------------------------------

    def _filled(self, part: Part, panel: Panel) -> list[Operation]:
        return [part.fill(panel.place, self._kit)]

    def _multiplied(
        self, chain: Chain, left: Panel | None, right: Panel | None, result: Panel | None
    ) -> list[Operation]:
        kit, member = self._kit, chain.members[0].factors
        ops: list[Operation] = []
        places: list[Place] = []
        for panel, a in ((left, member.left), (right, member.right)):
            if panel is not None:
                places.append(panel.place)
                continue
            same = a is member.right and a.same_elements(member.left)
            place, filled = matrix(a, kit, member.rows, apart=same)
            places.append(place)
            ops += filled
        out = directly(chain.dst)
        target = kit.view(chain.dst if out is None else out) if result is None else result.place
        return [*ops, *product(places[0], places[1], target, kit)]

    def _deposited(self, chain: Chain, result: Panel) -> list[Operation]:
        column, dst = chain.column, chain.dst
        whole: Any = result.place
        part = whole[column : column + chain.width].reshape(dst.shape)
        return added(self._kit, dst, chain.mode, part)


def added(kit: Kit, dst: Access, mode: str, part: Any) -> list[Operation]:
    """What brings a product to PSUM; it may change it."""
    target = kit.view(dst)
    if mode == "add":
        return [op(np.add, target, part, target)]
    summed = [op(add_where, target, part, kit.accumulating(dst), part)] if mode == "runtime" else []
    return [*summed, op(copy, target, part)]


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


def _right_parts(group: Group) -> list[Part]:
    """Moving operands, which all chains have in common."""
    row, parts = 0, []
    for m in group.chains[0].members:
        parts.append(Part(m.factors.right, m.factors.rows, row, 0, m.at))
        row += m.factors.rows
    return parts
