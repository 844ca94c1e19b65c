"""Which matmuls are one product: those that add to one PSUM tile with nothing looking in between.

A chain is what a tile gets from one matmul after the other until an instruction reads or writes any
of its elements. Its sum is formed as one product over the whole contraction. Large chains that have
their moving operands in common are computed as one product, too, with the stationary operands side
by side; see `Group`.

Invariant: what is a chain follows from the instructions in program order up to where it ends, never
from later ones, from memory or from time. So hosts that run an instruction as it is called find the
same chains as those that know the program, and get the same bits. Dynamic loops and instructions
that wait for other cores end every chain: rounds are recorded once on some hosts, and as often as
they run on others.

Not merged: matmuls with an address that is known at run time only, transposes, results that PSUM
rounds (bfloat16), and those of Beta 1's kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final

from nki_dist.arch import Arch
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.tensor_engine import Factors
from nki_dist.linking.blas import column_unit, padded_columns
from nki_dist.linking.facts import FactTable, accesses
from nki_dist.program import Access, Instruction, psum

LONGEST: Final = 4096  # rows of a contraction: bounds the memory that operands are gathered in
OPEN: Final = 8  # chains at a time: PSUM has so many banks
LARGE: Final = 1 << 25  # multiplications of a chain worth a place in a group
WIDEST: Final = 4096  # columns of a group


class Member:
    """One matmul of a chain.

    Attributes:
        at: position of the instruction among those of its core.
        left, right: what its operands held: equal for equal elements that nobody has written since.
        since: position of the last write to the storage of the stationary operand, or None.
    """

    __slots__ = ("at", "factors", "instruction", "left", "right", "since")

    def __init__(
        self, i: Instruction, factors: Factors, written: Mapping[int, int], at: int
    ) -> None:
        self.instruction = i
        self.factors = factors
        self.at = at
        _, a, b, rows = factors
        since = written.get(a.storage.number)
        self.left = _contents(a, rows, since)
        self.right = _contents(b, rows, written.get(b.storage.number))
        self.since = since


class Chain:
    """Matmuls that are one product.

    Attributes:
        members: in program order.
        rows: of the whole contraction.
        mode: what becomes of what dst held before: "replace", "add" or "runtime".
        column: of its group, once it has ended, where its stationary operands begin.
    """

    __slots__ = ("column", "dst", "members", "mode", "rows")

    def __init__(self, member: Member) -> None:
        self.dst = member.factors.dst
        self.members = [member]
        self.rows = member.factors.rows
        self.mode = member.instruction.accumulation
        self.column = 0

    @property
    def width(self) -> int:
        """Columns of its stationary operands."""
        return int(self.dst.shape[0])

    @property
    def large(self) -> bool:
        return self.rows * self.width * self.dst.free_size >= LARGE

    def right(self) -> tuple[Any, ...]:
        return tuple([m.right for m in self.members])


class Group:
    """Chains with the same moving operands, computed when the first of them ends.

    A chain can join if what it multiplies was there by then. Each begins where one of BLAS's blocks
    does (`blas.column_unit`), so its bits don't depend on the group.

    Attributes:
        ends: position of the instruction at which it is computed.
        run: number of the straight run of instructions it is in.
    """

    __slots__ = ("chains", "ends", "run", "width")

    def __init__(self, ends: int, run: int) -> None:
        self.chains: list[Chain] = []
        self.ends = ends
        self.run = run
        self.width = 0

    @property
    def alone(self) -> bool:
        """Whether it is one matmul."""
        return len(self.chains) == len(self.chains[0].members) == 1

    def takes(self, chain: Chain) -> bool:
        if self.width + width_of(chain) > WIDEST:
            return False
        return not [
            m
            for m in chain.members
            if m.at > self.ends and (m.since is None or m.since > self.ends)
        ]

    def add(self, chain: Chain) -> None:
        chain.column = self.width
        self.chains.append(chain)
        self.width += width_of(chain)


class Chains:
    """Finds chains.

    Args:
        arch: the platform.
        ended: called with every chain that ends, and its group.
        beta1: the kernel is one of Beta 1: each matmul is a chain. Products are added there by
            other instructions, and that they are folded into PSUM must not show.
        facts: of the program's instructions, from whoever may have asked.
        grouped: large chains may be one of several; else each is a group.

    Attributes:
        open: chains that haven't ended, the oldest first.
        run: number of the straight run of instructions, which dynamic loops and waiting end.
    """

    def __init__(
        self,
        arch: Arch,
        ended: Callable[[Chain, Group], Any],
        beta1: bool,
        facts: FactTable | None = None,
        grouped: bool = True,
    ) -> None:
        self._grouped = grouped
        self._facts = facts or FactTable()
        self._arch = arch
        self._ended = ended
        self._alone = beta1
        self._written: dict[int, int] = {}  # when last, by number of the storage
        self._groups: dict[tuple[Any, ...], Group] = {}
        self._at = -1
        self.run = 0
        self.open: list[Chain] = []

    def feed(self, i: Instruction) -> Chain | None:
        """The chain that the next instruction belongs to; what it looks at has ended."""
        self._at += 1
        # Others aren't known by their ordinals: hosts that record as they run may count anew.
        facts = None if i.kind is None else self._facts.of(i)
        spec = INSTRUCTIONS[i.opcode] if facts is None else facts.spec
        if spec.synchronises:
            self.end()
        factors = None if spec.factors_of is None else spec.factors_of(i, self._arch)
        if factors is not None and factors.known and 0 not in factors.dst.strides:
            return self._multiplied(i, factors)
        if facts is None or facts.operands is None:
            if self.open:
                self._looked(accesses(i))
            for a in spec.writes(i):
                self._written[a.storage.number] = self._at
            return None
        args = i.args
        if facts.sums and self.open:
            self._looked([args[name] for name in facts.sums])
        for name in facts.written:
            self._written[args[name].storage.number] = self._at
        return None

    def _looked(self, found: Iterable[Access]) -> None:
        for a in found:
            storage = a.storage
            if storage.region is psum:
                same = [c for c in self.open if c.dst.storage is storage]
                if same:
                    self._close([c for c in same if not apart(c.dst, a)])
            source = None if a.dynamic is None else a.dynamic.source
            if isinstance(source, Access) and source.storage.region is psum:
                self._close([c for c in self.open if c.dst.storage is source.storage])

    def _multiplied(self, i: Instruction, factors: Factors) -> Chain:
        member = Member(i, factors, self._written, self._at)
        if i.accumulation != "replace" and not self._alone:
            for chain in self.open:  # no two of them have elements in common
                if chain.dst.same_elements(factors.dst) and chain.rows + factors.rows <= LONGEST:
                    chain.members.append(member)
                    chain.rows += factors.rows
                    return chain
        if self.open:
            self._looked((factors.dst,))
        if len(self.open) == OPEN:
            self._close(self.open[:1])
        self.open.append(Chain(member))
        return self.open[-1]

    def end(self) -> None:
        """End all chains and groups."""
        self._close(list(self.open))
        self._groups.clear()
        self.run += 1

    def _close(self, chains: Collection[Chain]) -> None:
        for chain in chains:
            self.open.remove(chain)
            group = None
            if self._grouped and _has_place(chain):
                key = chain.right()
                group = self._groups.get(key)
                if group is None or not group.takes(chain):
                    group = self._groups[key] = Group(chain.members[-1].at, self.run)
            else:
                group = Group(chain.members[-1].at, self.run)
            group.add(chain)
            self._ended(chain, group)


def _contents(a: Access, rows: int, since: int | None) -> tuple[Any, ...]:
    """What an operand holds that was last written at that position."""
    return a.storage.number, since, a.offset, a.shape, a.strides, id(a.dtype), rows


def _has_place(chain: Chain) -> bool:
    """Whether it may be one of a group."""
    return chain.large and column_unit() is not None


def width_of(chain: Chain) -> int:
    """Columns of its stationary operands, with those that fill up a block of BLAS's.

    So every column gets the bits that it has in the product of a group. And two at least: for one
    column BLAS would take its matrix-vector routine (see isa._matmul.product).
    """
    unit = column_unit() if chain.large else None
    if unit is not None:
        return padded_columns(chain.width, unit)
    return chain.width if len(chain.members) == 1 else max(chain.width, 2)


def apart(a: Access, b: Access) -> bool:
    """Whether two views of PSUM surely have no element in common."""
    if a.storage is not b.storage:
        return True
    if a.dynamic is not None or b.dynamic is not None:
        return False
    if a.offset * a.dtype.itemsize == b.offset * b.dtype.itemsize:
        return False  # their first element, as most who look at a tile look at all of it
    first, second = _box(a), _box(b)
    if first is None or second is None:
        return False
    return any(x[1] <= y[0] or y[1] <= x[0] for x, y in zip(first, second, strict=True))


def _box(a: Access) -> tuple[tuple[int, int], tuple[int, int]] | None:
    """Partitions and bytes of each, half open, of a view that doesn't leave its partitions."""
    row = a.storage.partition_bytes
    if a.strides[0] * a.dtype.itemsize != row or not a.stays_in_row():
        return None
    size = a.dtype.itemsize
    start = a.offset * size
    low, high = Access(a.storage, 0, a.shape[1:], a.strides[1:], a.dtype).span()
    column = start % row
    return (start // row, start // row + a.shape[0]), (column + low, column + high)
