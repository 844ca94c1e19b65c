"""What authors mistake in one line, as changes of its operands: other tiles and slices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from nki_dist.insight.changes import (
    OTHER,
    Change,
    Impossible,
    Path,
    entries,
    entry,
    named,
    with_entry,
)
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Instruction, Program, Storage

NEAR: Final = 6  # tiles that are tried in place of one, those that were made next to it


def operand_changes(i: Instruction, programs: Sequence[Program], several: bool) -> Iterator[Change]:
    """Other operands, from those that a line could have by a slip.

    Args:
        programs: one for each core of a rank.
        several: the line is carried out in several rounds.
    """
    found = [(path, a) for path, a in entries(i) if _is_operand(i, path, a)]
    for path, a in found:
        yield from _slices(path, a, several)
        yield from _tiles(path, a, programs)


def _is_operand(i: Instruction, path: Path, value: Any) -> bool:
    return isinstance(value, Access) and path[0] in INSTRUCTIONS[i.opcode].tensors


def like(a: Access, **others: Any) -> Access:
    """An access that differs from another in some attributes."""
    parts = {name: getattr(a, name) for name in Access.__slots__}
    return Access(**{**parts, **others})


def moved(a: Access, by: int) -> Access:
    """The same pattern some elements further on.

    Raises:
        Impossible: that is outside of its tensor.
    """
    made = like(a, offset=a.offset + by)
    low, high = made.span()
    outside = low < 0 or high > a.storage.nbytes
    if outside or (a.storage.region.on_chip and not made.stays_in_row()):
        raise Impossible
    return made


def _slices(path: Path, a: Access, several: bool) -> Iterator[Change]:
    """Off by one or by the slice's size along a dimension; not moving on from round to round."""
    own = a.dtype is a.storage.dtype
    units = [(s, n) for s, n in zip(a.strides, a.shape) if s > 0]
    units += [(s, 1) for s in (a.storage.strides if own else ()) if s not in a.strides]
    steps: dict[tuple[int, bool], str] = {}
    for stride, size in units:
        for count in {1, size}:
            for sign, word in ((1, "further on"), (-1, "further back")):
                steps.setdefault((sign * stride * count, False), f"{count} {word}")
                if several:
                    text = f"{count} {word} in each further round"
                    steps.setdefault((sign * stride * count, True), text)
    name, title = named(path), a.storage.title
    for (by, growing), text in steps.items():

        def edit(i: Instruction, n: int, by: int = by, growing: bool = growing) -> Instruction:
            return with_entry(i, path, moved(entry(i, path), by * n if growing else by))

        yield Change(f"{name}: {title} {text} (of {abs(by)} elements)", OTHER, edit)


def _tiles(path: Path, a: Access, programs: Sequence[Program]) -> Iterator[Change]:
    """Another tensor that the instruction could have been given."""
    s = a.storage
    first = programs[0]
    alike = [t for t in first.storages if t.number != s.number and _alike(s, t)]
    alike.sort(key=lambda t: abs(t.number - s.number))
    for other in alike[:NEAR]:
        others = {
            id(p.storages[s.number]): p.storages[other.number]
            for p in programs
            if other.number < len(p.storages)
        }

        def edit(i: Instruction, _: int, others: dict[int, Storage] = others) -> Instruction:
            here = entry(i, path)
            if id(here.storage) not in others:
                raise Impossible
            return with_entry(i, path, like(here, storage=others[id(here.storage)]))

        yield Change(f"{named(path)}: {other.title} in place of {s.title}", OTHER, edit)


def _alike(a: Storage, b: Storage) -> bool:
    return (
        (a.region, a.shape, a.dtype.name, a.role == "input")
        == (b.region, b.shape, b.dtype.name, b.role == "input")
        and b.role in ("local", "input", "shared")
        and (b.written or b.role == "input")
    )


__all__ = ["moved", "operand_changes"]
