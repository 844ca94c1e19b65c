"""What authors mistake in one line, as changes of its operands: other tiles, slices and values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from nki_dist.insight.changes import (
    ADDED,
    OTHER,
    PLAIN,
    Change,
    Here,
    Impossible,
    Path,
    entries,
    entry,
    named,
    with_entry,
)
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Instruction, Program, Storage, instructions

NEAR: Final = 6  # tiles that are tried in place of one, those that were made next to it


def operand_changes(
    i: Instruction,
    programs: Sequence[Program],
    rounds: Mapping[int, Sequence[Instruction]],
    spare: Sequence[Storage],
) -> Iterator[Change]:
    """Other operands, from those that a line could have by a slip.

    Args:
        programs: one for each core of a rank.
        rounds: by core of a rank, the line's instructions in the order of the program.
        spare: what `unused` finds.
    """
    several = any(len(found) > 1 for found in rounds.values())
    found = [(path, a) for path, a in entries(i) if _is_operand(i, path, a)]
    for path, a in found:
        yield from _slices(path, a, several)
        yield from _tiles(path, a, programs)
        if several:
            yield from _neighbours(path, rounds)
    yield from _swapped(i, found)
    spec = INSTRUCTIONS[i.opcode]
    for path, a in found:
        if "r" in spec.roles[path[0]].mode and a.dtype.is_float and a.dynamic is None:
            if several:
                yield from _without_stale(path)
            yield from _with_unused(path, a, spare)
            yield from _values(path, a, moves=spec.effects.bits is not None)


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
    yield from _lengths(path, a)


def _lengths(path: Path, a: Access) -> Iterator[Change]:
    for d, n in enumerate(a.shape):
        for size in (n + 1, n - 1):
            if n == 1 or size == 0:
                continue

            def edit(i: Instruction, _: int, d: int = d, by: int = size - n) -> Instruction:
                here = entry(i, path)
                shape = (*here.shape[:d], here.shape[d] + by, *here.shape[d + 1 :])
                return with_entry(i, path, moved(like(here, shape=shape), 0))

            yield Change(f"{named(path)}: {size} in place of {n} in dimension {d}", OTHER, edit)


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


def _neighbours(path: Path, rounds: Mapping[int, Sequence[Instruction]]) -> Iterator[Change]:
    """The operand of the round before or after, such as of the other of two buffers; or of the
    rounds counted from the end."""
    where = {i.ordinal: (line, n) for line in rounds.values() for n, i in enumerate(line)}
    ways: dict[str, Callable[[int, int], int]] = {
        "of the round after": lambda n, count: n + 1,
        "of the round before": lambda n, count: n - 1,
        "of the rounds in reverse order": lambda n, count: count - 1 - n,
    }
    for word, way in ways.items():

        def edit(i: Instruction, _: int, way: Callable[[int, int], int] = way) -> Instruction:
            line, n = where[i.ordinal]
            at = way(n, len(line))
            if not 0 <= at < len(line):
                raise Impossible
            there, here = entry(line[at], path), entry(i, path)
            if there.shape != here.shape or there.dynamic is not None or here.dynamic is not None:
                raise Impossible
            return with_entry(i, path, there)

        yield Change(f"{named(path)} {word}", OTHER, edit)


def _without_stale(path: Path) -> Iterator[Change]:
    """Without what is left of an earlier round, where the round before has filled only a part."""
    lowest = float(np.finfo(np.float32).min)
    for value, word in ((0.0, "0"), (lowest, "the lowest number")):

        def without(values: np.ndarray, here: Here, value: float = value) -> np.ndarray:
            return np.where(here.stale(), value, values)

        what = f"{named(path)}: {word} where an earlier round's values are left"
        yield Change(what, OTHER, operand=(path, without))


def _with_unused(path: Path, a: Access, spare: Sequence[Storage]) -> Iterator[Change]:
    """A tile that was made and that nothing reads was made for something."""
    kinds = {(s.title, s.shape) for s in spare}
    for title, shape in sorted(kinds)[:1]:  # of several it isn't known which is meant
        try:
            np.broadcast_shapes(shape, a.shape)
        except ValueError:
            continue
        for word, function in (("times", np.multiply), ("plus", np.add), ("less", np.subtract)):

            def with_it(values: np.ndarray, here: Here, function: Any = function) -> np.ndarray:
                return np.broadcast_to(function(values, here.unused()), values.shape)

            what = f"{named(path)} {word} {title}, which nothing reads"
            yield Change(what, PLAIN, operand=(path, with_it))


def unused(program: Program) -> list[Storage]:
    """Float tiles that are written and never read."""
    read: set[int] = set()
    for i in instructions(program.body):
        read.update(a.storage.number for a in INSTRUCTIONS[i.opcode].reads(i))
    return [
        s
        for s in program.storages
        if s.role == "local" and s.written and s.dtype.is_float and s.number not in read
    ]


def _swapped(i: Instruction, found: Sequence[tuple[Path, Access]]) -> Iterator[Change]:
    written = INSTRUCTIONS[i.opcode].writes(i)
    reads = [(p, a) for p, a in found if not any(a is w for w in written)]
    for n, (p, a) in enumerate(reads):
        for q, b in reads[n + 1 :]:
            if a.shape == b.shape:

                def edit(i: Instruction, _: int, p: Path = p, q: Path = q) -> Instruction:
                    return with_entry(with_entry(i, p, entry(i, q)), q, entry(i, p))

                yield Change(f"{named(p)} and {named(q)} exchanged", OTHER, edit)


def _values(path: Path, a: Access, moves: bool) -> Iterator[Change]:
    """Values that a step which isn't there would have changed."""
    if len(a.shape) == 2 and a.shape[0] == a.shape[1] > 1:
        yield Change(f"{named(path)} transposed", ADDED, operand=(path, lambda v, _: v.T))
    if moves:
        return
    functions: tuple[tuple[str, Callable[[np.ndarray], np.ndarray]], ...] = (
        ("negated", np.negative),
        ("inverted (1 / x)", lambda v: 1 / v),
        ("squared", np.square),
        ("with its root taken", np.sqrt),
        ("exponentiated", np.exp),
        ("with its logarithm taken", np.log),
        ("all 0", np.zeros_like),
        ("all 1", np.ones_like),
    )
    for what, function in functions:

        def applied(values: np.ndarray, _: Here, function: Any = function) -> np.ndarray:
            return np.asarray(function(values))

        yield Change(f"{named(path)} {what}", ADDED, operand=(path, applied))


__all__ = ["moved", "operand_changes", "unused"]
