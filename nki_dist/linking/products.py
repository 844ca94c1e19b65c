"""Makes few large products of the many small matmuls of a program that add to one tile, a chain.

The operands of a chain are gathered where its matmuls read them, its product is formed at its last
one. So every operand is read no later than the program reads it, and PSUM is written where nobody
has looked since the chain began.

What is always so: a chain is one product. What passes add to it, none of which changes a bit:

    panels   operands stay gathered as long as later chains multiply the same elements
    loads    tiles that nobody but panels reads aren't loaded; see `loads`
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import Any, TypeAlias

from nki_dist.arch import Arch
from nki_dist.dtypes import float32
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.matmul import deposited, directly, matrix, product
from nki_dist.linking.chains import Chain, Chains
from nki_dist.linking.facts import FactTable
from nki_dist.linking.loads import Load, find_loads
from nki_dist.linking.lowering import Lowering
from nki_dist.linking.panels import KEPT, Panel, Part, lying
from nki_dist.ops.operation import Operation
from nki_dist.ops.place import Place
from nki_dist.program import Access, Block, Instruction, Loop, Program, instructions

Key: TypeAlias = "tuple[Any, ...]"


def find_chains(program: Program, arch: Arch, facts: FactTable) -> list[Chain]:
    """All chains, in the order in which they are computed."""
    found: list[Chain] = []
    chains = Chains(arch, found.append, program.beta1, facts)
    breaks = frozenset(program.facts.get("rounds", ()))  # of a debugged launch
    _feed(chains, program.body, breaks)
    chains.end()
    return sorted(found, key=lambda chain: chain.ends)


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
        members: ordinals of the matmuls whose operations are this object's affair.
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
        self.members: set[int] = set()
        self.last: set[int] = set()
        self.panels: list[Panel] = []
        self._cache: dict[int, Panel] = {}
        self._bytes = 0
        self._loads: dict[int, Load] = {}  # that panels do without, by number of the tile
        self.unmade: set[int] = set()
        if not any(multiplies(i) for i in instructions(program.body)):
            return
        chains = find_chains(program, kit.arch, facts)
        if "loads" not in without:
            self._loads = find_loads(program, chains)
            self.unmade = {load.ordinal for load in self._loads.values()}
        # Equal contents have equal numbers: keys are long.
        numbers: dict[Key, int] = {}
        keys = [
            tuple([numbers.setdefault(key, len(numbers)) for key in _keys(chain)])
            for chain in chains
        ]
        self._uses = Counter([number for both in keys for number in both])
        for chain, (left, right) in zip(chains, keys, strict=True):
            self._chain(chain, left, right)

    def operations(self, i: Instruction) -> list[Operation]:
        """What the instruction does; nothing, if others do it."""
        work = self._work.get(i.ordinal, ())
        return [o for make, arguments in work for o in make(self, *arguments)]

    # ---- what is done where -------------------------------------------------------------------

    def _chain(self, chain: Chain, left_key: int, right_key: int) -> None:
        alone, end = len(chain.members) == 1, chain.ends
        if alone and not self._worth(chain, left_key, right_key):
            return
        for m in chain.members:
            self._ordinals[m.at] = m.instruction.ordinal
            self.members.add(m.instruction.ordinal)
        self.last.add(chain.members[-1].instruction.ordinal)
        width, columns = chain.columns, chain.dst.free_size
        left = self._panel(left_key, "left", chain, width)
        right = self._panel(right_key, "right", chain, columns)
        result = None
        if width > chain.width or chain.mode != "replace" or not directly(chain.dst):
            result = self._new((width, columns), end, end)
        self._at(end, Products._multiplied, chain, left, right, result)
        if result is not None:
            self._at(end, Products._deposited, chain, result)

    def _new(self, shape: tuple[int, int], start: int, end: int) -> Panel:
        panel = Panel(len(self.panels), shape, start, end)
        self.panels.append(panel)
        return panel

    def _worth(self, chain: Chain, *keys: int) -> bool:
        """Whether a single matmul gains by it: by an operand that has to be widened, but once."""
        factors = chain.members[0].factors
        wide = (factors.left.dtype is float32, factors.right.dtype is float32)
        several = [self._uses[key] > 1 or key in self._cache for key in keys]
        return self._keep and any(s and not w for s, w in zip(several, wide, strict=True))

    def _panel(self, key: int, side: str, chain: Chain, width: int) -> Panel | None:
        """An operand as a panel; None where the only matmul makes of it what it needs.

        Args:
            side: which operand, "left" or "right".
            width: its columns.
        """
        panel = self._cache.pop(key, None)
        self._uses[key] -= 1
        if panel is None:
            alone = len(chain.members) == 1
            a: Access = getattr(chain.members[0].factors, side)
            if alone and (not self._uses[key] or directly(a) is not None):
                return None
            panel = self._gathered(chain, side, width)
        panel.end = max(panel.end, chain.ends)
        if self._uses[key] and self._keep:
            self._cache[key] = panel  # the one that was used last comes last
            while self._bytes > KEPT and self._cache:
                self._bytes -= self._cache.pop(next(iter(self._cache))).nbytes
        else:
            self._bytes -= panel.nbytes
        return panel

    def _gathered(self, chain: Chain, side: str, width: int) -> Panel:
        """A panel of an operand's parts, and the work of filling it."""
        row, parts = 0, []
        for m in chain.members:
            source = self._source(getattr(m.factors, side))
            parts.append(Part(source, m.factors.rows, row, m.at))
            row += m.factors.rows
        shape, start = (row, width), parts[0].at
        # Left ones don't lie in an argument: BLAS takes another routine where both operands are one
        # array.
        if side == "right" and self._loads and (there := lying(parts, width)) is not None:
            return Panel(-1, shape, start, chain.ends, self._kit.view(there))
        panel = self._new(shape, start, chain.ends)
        for part in parts:
            self._at(part.at, Products._filled, part, panel)
        self._bytes += panel.nbytes
        return panel

    def _source(self, a: Access) -> Access:
        """What a panel takes an operand from: where the tile isn't loaded, from the argument."""
        load = self._loads.get(a.storage.number)
        if load is None:
            return a
        seen = load.seen(a)
        assert seen is not None, "find_loads asked for all operands"
        return seen

    def _at(self, at: int, make: Callable[..., list[Operation]], *arguments: Any) -> None:
        self._work.setdefault(self._ordinals[at], []).append((make, arguments))

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
        whole: Any = result.place
        part = whole[: chain.width].reshape(chain.dst.shape)
        return deposited(chain.dst, chain.mode, part, self._kit)


def _keys(chain: Chain) -> tuple[Key, Key]:
    """What the panels of a chain hold: equal keys, equal contents."""
    left, right = zip(*[(m.left, m.right) for m in chain.members])
    return ("left", chain.run, left), ("right", chain.run, right)
