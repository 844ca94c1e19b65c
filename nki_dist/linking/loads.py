"""Loads that only products look at: their panels are filled from HBM, and nothing is loaded.

A tile that one DMA fills from an argument, and that nobody but matmuls of panels reads, holds what
the argument holds. So the panels take it from there, and the tile, of which a copy would be made in
order to copy it once more, is never written.

Invariant: a panel holds the same bits. Arguments that a kernel writes don't count, whichever core
does it, nor tiles that are written twice, in part, at a run-time address or through a conversion.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from nki_dist.compiler.passes.elements import covers
from nki_dist.compiler.passes.unwritten import WRITTEN_INPUTS
from nki_dist.isa import INSTRUCTIONS
from nki_dist.linking.chains import Chain
from nki_dist.program import Access, Instruction, Program, instructions, sbuf
from nki_dist.program.walk import accesses, index_tensors

LEAST: Final = 1 << 18  # bytes of a tile: finding out takes a look at every instruction


class Load(NamedTuple):
    """What fills a tile: `dst` is all of the tile, `src` a part of an argument of its shape."""

    ordinal: int
    dst: Access
    src: Access

    def seen(self, a: Access) -> Access | None:
        """The elements of the argument that a view of the tile has; None for views unlike these."""
        (_, row), (down, right) = self.dst.shape, self.src.strides
        if len(a.shape) != 2 or a.dtype is not self.dst.dtype or a.dynamic is not None:
            return None
        lines, rest = divmod(a.strides[0], row)
        first, column = divmod(a.offset, row)
        step = a.strides[1]
        if rest or step < 0 or column + (a.shape[1] - 1) * step >= row:
            return None
        src = self.src
        offset = src.offset + first * down + column * right
        return Access(src.storage, offset, a.shape, (lines * down, step * right), src.dtype)


def find_loads(program: Program, chains: Iterable[Chain]) -> dict[int, Load]:
    """By number of the tile, the loads that needn't be made.

    Args:
        chains: of the program, all of them.
    """
    products: set[int] = set()
    operands: dict[int, list[Access]] = {}
    for chain in chains:
        if len(chain.members) == 1:  # it may read its operands where they are
            continue
        for m in chain.members:
            products.add(m.instruction.ordinal)
            for a in (m.factors.left, m.factors.right):
                if a.storage.role == "local" and a.storage.nbytes >= LEAST:
                    operands.setdefault(a.storage.number, []).append(a)
    if not operands or WRITTEN_INPUTS not in program.facts:
        return {}
    found = _loads(program, products, operands)
    return {
        number: load
        for number, load in found.items()
        if all(load.seen(a) is not None for a in operands[number])
    }


def _loads(
    program: Program, products: set[int], operands: Mapping[int, list[Access]]
) -> dict[int, Load]:
    """Loads of tiles that nothing but these products looks at."""
    candidates = set(operands)
    found: dict[int, Load] = {}
    watched = frozenset(program.facts.get("watched", ()))
    written = frozenset(program.facts[WRITTEN_INPUTS])
    for i in instructions(program.body):
        if i.ordinal in products:
            continue
        for a in _looked_at(i):
            number = a.storage.number
            if number not in candidates:
                continue
            load = None if number in found or i.ordinal in watched else _load(i, a)
            if load is None or load.src.storage.index in written:
                candidates.discard(number)
            else:
                found[number] = load
    return {number: found[number] for number in candidates if number in found}


def _looked_at(i: Instruction) -> list[Access]:
    """All tensors of an instruction, sources of run-time addresses included."""
    found = accesses(i)
    return [*found, *index_tensors(found)]


def _load(i: Instruction, a: Access) -> Load | None:
    """The load that an instruction is, which has `a` among its tensors."""
    effects = INSTRUCTIONS[i.opcode].effects
    if not effects.copies or a is not i.args["dst"]:
        return None
    dst, src = a, i.args[effects.unwritten.sources[0]]
    storage = dst.storage
    plain = (
        storage.region is sbuf
        and storage.first == i.ordinal
        and src.storage.role == "input"
        and src.dynamic is None
        and dst.shape == src.shape == storage.shape
        and len(dst.shape) == 2
        and dst.strides == storage.strides
        and dst.dtype is src.dtype is storage.dtype
        and src.dtype is src.storage.dtype
        and covers(dst)
    )
    return Load(i.ordinal, dst, src) if plain else None
