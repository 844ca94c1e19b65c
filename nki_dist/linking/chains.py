"""Which matmuls are one product: those that add to one PSUM tile with nothing looking in between.

A chain is what a tile gets from one matmul after the other until an instruction reads or writes any
of its elements. Its sum is formed as one product over the whole contraction.

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
from nki_dist.linking.facts import FactTable
from nki_dist.program import Access, Instruction, psum
from nki_dist.program.walk import accesses, index_tensors

LONGEST: Final = 4096  # rows of a contraction: bounds the memory that operands are gathered in
OPEN: Final = 8  # chains at a time: PSUM has so many banks


class Member:
    """One matmul of a chain.

    Attributes:
        at: position of the instruction among those of its core.
        left, right: what its operands held: equal for equal elements that nobody has written since.
    """

    __slots__ = ("at", "factors", "instruction", "left", "right")

    def __init__(
        self, i: Instruction, factors: Factors, written: Mapping[int, int], at: int
    ) -> None:
        self.instruction = i
        self.factors = factors
        self.at = at
        _, a, b, rows = factors
        self.left = _contents(a, rows, written.get(a.storage.number))
        self.right = _contents(b, rows, written.get(b.storage.number))


class Chain:
    """Matmuls that are one product.

    Attributes:
        members: in program order.
        rows: of the whole contraction.
        mode: what becomes of what dst held before: "replace", "add" or "runtime".
        run: number of the straight run of instructions that it is in.
    """

    __slots__ = ("dst", "members", "mode", "rows", "run")

    def __init__(self, member: Member, run: int) -> None:
        self.dst = member.factors.dst
        self.members = [member]
        self.rows = member.factors.rows
        self.mode = member.instruction.accumulation
        self.run = run

    @property
    def width(self) -> int:
        """Columns of its stationary operands."""
        return int(self.dst.shape[0])

    @property
    def columns(self) -> int:
        """Columns of its product: of several matmuls two at least, as for one column BLAS would
        take its matrix-vector routine (see isa._matmul.product)."""
        return self.width if len(self.members) == 1 else max(self.width, 2)

    @property
    def ends(self) -> int:
        """Position of its last matmul."""
        return self.members[-1].at


class Chains:
    """Finds chains.

    Args:
        arch: the platform.
        ended: called with every chain that ends.
        beta1: the kernel is one of Beta 1: each matmul is a chain. Products are added there by
            other instructions, and that they are folded into PSUM must not show.
        facts: of the program's instructions, from whoever may have asked.

    Attributes:
        open: chains that haven't ended, the oldest first.
        run: number of the straight run of instructions, which dynamic loops and waiting end.
    """

    def __init__(
        self,
        arch: Arch,
        ended: Callable[[Chain], Any],
        beta1: bool,
        facts: FactTable | None = None,
    ) -> None:
        self._facts = facts or FactTable()
        self._arch = arch
        self._ended = ended
        self._alone = beta1
        self._written: dict[int, int] = {}  # when last, by number of the storage
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
        if factors is not None and factors.is_static and 0 not in factors.dst.strides:
            return self._multiplied(i, factors)
        if facts is None:
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
            for index in index_tensors([a]) if a.dynamic is not None else ():
                self._close([c for c in self.open if c.dst.storage is index.storage])

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
        self.open.append(Chain(member, self.run))
        return self.open[-1]

    def end(self) -> None:
        """End all chains."""
        self._close(list(self.open))
        self.run += 1

    def _close(self, chains: Collection[Chain]) -> None:
        for chain in chains:
            self.open.remove(chain)
            self._ended(chain)


def _contents(a: Access, rows: int, since: int | None) -> tuple[Any, ...]:
    """What an operand holds that was last written at that position."""
    return a.storage.number, since, a.offset, a.shape, a.strides, id(a.dtype), rows


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
