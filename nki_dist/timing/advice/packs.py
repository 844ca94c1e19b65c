"""Finds tiles of few partitions whose rows could be cut in pieces, and what else that would change.

Another place for rows concerns all that touches a tile, so tiles that meet in an instruction are of
one pack. Rows can be cut in pieces where each element is worked on alone. What mixes elements of a
row (a sum, a scan) or partitions (a transpose, a shuffle, a product that reads a tile) says which
is where, and rules that out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from nki_dist.arch import Arch
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.effects import State
from nki_dist.program import Access, Instruction, instructions
from nki_dist.timing.footprint import joined
from nki_dist.timing.order import OrderGraph

LONG: Final = 64  # elements of a row, which take about as long as an instruction's start


@dataclass
class Pack:
    """Tiles whose rows stay together.

    Attributes:
        longest: elements of the longest access to each tile of few partitions, by storage.
        members: instructions that touch the pack, without those of Tensor.
        rows: partitions of the tile that has most.
        row: elements of the longest row.
        splits: rows can be cut in pieces.
    """

    longest: Mapping[int, int]
    members: list[Instruction] = field(default_factory=list)
    rows: int = 1
    row: int = 0
    splits: bool = True

    def length(self, accesses: Sequence[Access]) -> int:
        """Elements of the longest row among these, or 0 if all their tiles have short ones."""
        long = [a for a in accesses if self.longest.get(a.storage.number, 0) >= LONG]
        return max([a.free_size for a in long], default=0)

    def add(self, i: Instruction, accesses: Sequence[Access]) -> None:
        """The next instruction of the program that touches the pack."""
        on_chip = [a for a in accesses if a.region.on_chip]
        mine = [a for a in on_chip if a.storage.number in self.longest]
        length = self.length(on_chip)
        self.rows = max(self.rows, *(a.storage.partitions for a in mine))
        self.row = max(self.row, length)
        alone = len(mine) == len(on_chip) and _by_element(i, on_chip)
        self.splits &= not length or alone
        if i.engine != "tensor":
            self.members.append(i)


def _by_element(i: Instruction, on_chip: list[Access]) -> bool:
    """Whether elements are worked on alone."""
    spec = INSTRUCTIONS[i.opcode]
    effects = spec.effects
    if not spec.writes(i) or spec.synchronises or effects.state in (State.RANDOM, State.PRINTED):
        return False
    if any(a.dynamic is not None for a in on_chip) or len({a.shape[0] for a in on_chip}) > 1:
        return False
    if i.engine == "dma":
        return effects.copies and len(on_chip) == 1
    return i.engine != "tensor" and effects.by_element


def packs(graph: OrderGraph, arch: Arch) -> list[Pack]:
    """Those of a program that have long rows."""
    program = graph.program
    few = {
        s.number: 0
        for s in program.storages
        if s.region.on_chip and s.partitions <= arch.partitions // 2
    }
    touching: list[tuple[Instruction, list[int]]] = []
    for i in instructions(program.body) if few else ():
        reads, writes = graph.tensors[i.ordinal]
        numbers = []
        for a in (*reads, *writes):
            n = a.storage.number
            if n in few:
                few[n] = max(few[n], a.free_size)
                numbers.append(n)
        if numbers:
            touching.append((i, numbers))
    if max(few.values(), default=0) < LONG:
        return []
    roots = joined(numbers for _, numbers in touching)
    found: dict[int, Pack] = {}
    for i, numbers in touching:
        reads, writes = graph.tensors[i.ordinal]
        found.setdefault(roots[numbers[0]], Pack(few)).add(i, (*reads, *writes))
    return [pack for pack in found.values() if pack.row >= LONG]
