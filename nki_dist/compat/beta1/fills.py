"""Removes zeros in PSUM that a matmul overwrites, and moves other first fills to the first use.

`acc = nl.zeros(..., buffer=nl.psum)` before `acc += nisa.nc_matmul(...)` costs nothing on hardware:
the first matmul is told to replace (`accumulate`), so the zeros are never written. A fill that is
read stays; if it is the first that happens to a tile it moves to where the tile is used next, so
that a tensor with block dimensions that is filled at the top of a kernel isn't alive as a whole.

Invariant: what each instruction reads is the same with and without this.

Follows: `nki.isa.nc_matmul` of the NKI 0.1 documentation; each block of a tensor has "a storage and
a lifetime of its own" in the documentation of block dimensions (SDK 2.26).
"""

from __future__ import annotations

from nki_dist.compat.beta1.recorded import Recorded, zeroes
from nki_dist.compiler.passes.elements import Elements, covers
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Instruction, Storage, psum


def settle_fills(recorded: Recorded) -> bool:
    """Remove the zeros that nobody reads, and move other first fills to the first use."""
    changed = False
    for storage, uses in list(recorded.uses.items()):
        if storage.region is not psum or not recorded.is_local(storage):
            continue
        for at in list(uses):
            i = recorded.items[at]
            if i is None or i.opcode != "memset":
                continue
            if zeroes(i) and _unread(recorded, storage, at, i.args["dst"]):
                recorded.remove(at)
                changed = True
            elif at == recorded.uses[storage][0]:
                changed |= _postponed(recorded, storage, at)
    return changed


def _unread(recorded: Recorded, storage: Storage, at: int, filled: Access) -> bool:
    """Whether every element of a fill is replaced before it is read; matmuls are told to."""
    waiting: Elements | None = None
    if not covers(filled):
        if filled.dynamic is not None:
            return False
        waiting = Elements(storage)
        waiting.units(filled)[...] = True
    replacing: list[Instruction] = []
    for i in recorded.between(storage, at, len(recorded)):
        spec = INSTRUCTIONS[i.opcode]
        for a in spec.reads(i):
            if a.storage is storage and _any(waiting, a):
                return False
        for a in spec.writes(i):
            if a.storage is not storage or not _any(waiting, a):
                continue
            if a.dynamic is not None or spec.effects.partial:
                return False
            if spec.accumulates:
                if i.args["accumulate"] is True or not _every(waiting, a):
                    return False
                replacing.append(i)
            if waiting is None and not covers(a):
                waiting = Elements(storage, True)
            if waiting is not None:
                waiting.units(a)[...] = False
        if waiting is None and any(covers(a) and a.storage is storage for a in spec.writes(i)):
            break
        if waiting is not None and not waiting.mask.any():
            break
    for i in replacing:
        i.change({**i.args, "accumulate": False})
    return True


def _any(waiting: Elements | None, a: Access) -> bool:
    return waiting is None or a.dynamic is not None or bool(waiting.any(a).any())


def _every(waiting: Elements | None, a: Access) -> bool:
    return waiting is None or bool(waiting.any(a).all())


def _postponed(recorded: Recorded, storage: Storage, at: int) -> bool:
    """Move a tile's first fill right before its next use."""
    uses = recorded.uses[storage]
    i = recorded.items[at]
    assert i is not None
    if len(uses) < 2 or i.order_group or uses[1] == at + 1:
        return False
    recorded.postpone(at, uses[1])
    return True
