"""What authors mistake in one line, as changes of its instructions: attributes and what is done.

A change is a slip that can be made in any kernel: a number off by one, another operator, a flag the
wrong way round, an entry too many, an accumulation that should begin anew, a step too many. Nothing
here knows what a kernel computes; `repair` finds out which change makes its results right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.operands import Op
from nki_dist.program import Access, Instruction

# How much a change supposes, the least first: of two that explain the results alike, the one that
# supposes less is named.
PLAIN: Final = 0  # what is written in the line is something else of its kind
OTHER: Final = 1  # it works on something else, or isn't to be done
ADDED: Final = 2  # something is missing that the line doesn't mention

# Operators that are mistaken for each other, or written for each other by a slip.
FAMILIES: Final = (
    frozenset({"add", "subtract"}),
    frozenset({"multiply", "divide"}),
    frozenset({"maximum", "minimum", "max", "min"}),
    frozenset({"less", "less_equal", "greater", "greater_equal"}),
    frozenset({"equal", "not_equal"}),
    frozenset({"sqrt", "rsqrt", "square"}),
    frozenset({"sin", "cos"}),
    frozenset({"exp", "log"}),
    frozenset({"silu", "sigmoid", "gelu", "relu", "gelu_apprx_tanh", "gelu_apprx_sigmoid"}),
)


Edit = Callable[[Instruction, int], "Instruction | None"]
Path = tuple[Any, ...]  # of an entry of the arguments: a name, then places in lists


class Impossible(Exception):
    """A change can't be made to this instruction."""


@dataclass(frozen=True)
class Change:
    """One way in which a line could be meant.

    Attributes:
        what: said to the user.
        supposes: PLAIN, OTHER or ADDED.
        edit: makes of an instruction, and of the round in which the line is carried out, what is
            carried out instead; None for nothing.
    """

    what: str
    supposes: int
    edit: Edit


def entry(i: Instruction, path: Path) -> Any:
    """An entry of the arguments."""
    found: Any = i.args
    for part in path:
        found = found[part]
    return found


def with_entry(i: Instruction, path: Path, value: Any) -> Instruction:
    """The instruction with one entry exchanged."""

    def put(tree: Any, rest: Path) -> Any:
        if not rest:
            return value
        copy = dict(tree) if isinstance(tree, dict) else list(tree)
        copy[rest[0]] = put(tree[rest[0]], rest[1:])
        return copy if isinstance(tree, (dict, list)) else tuple(copy)

    return i.with_args(put(i.args, path))


def named(path: Path) -> str:
    """How a message calls an entry."""
    return str(path[0]) + "".join(f"[{n}]" for n in path[1:])


def entries(i: Instruction) -> Iterator[tuple[Path, Any]]:
    """All entries of the arguments, those of lists one by one."""

    def below(path: Path, value: Any) -> Iterator[tuple[Path, Any]]:
        if isinstance(value, (list, tuple)):
            for n, v in enumerate(value):
                yield from below((*path, n), v)
        else:
            yield path, value

    for name, value in i.args.items():
        yield from below((name,), value)


def attribute_changes(i: Instruction, several: bool) -> Iterator[Change]:
    """Other attributes, from those that a line could have by a slip.

    Args:
        several: the line is carried out in several rounds.
    """
    for path, value in entries(i):
        if isinstance(value, bool):
            yield _exchanged(path, not value)
        elif isinstance(value, int) and not isinstance(value, Enum):
            yield from _numbers(i, path, value, several)
        elif isinstance(value, float) and value:
            yield _exchanged(path, -value)
        elif isinstance(value, str) and isinstance(role := _role(i, path), Op):
            for other in sorted(role.allowed - {value}):
                alike = any({value, other} <= family for family in FAMILIES)
                yield _exchanged(path, other, PLAIN if alike else OTHER)
        elif isinstance(value, Enum):
            for member in type(value):
                if member is not value:
                    yield _exchanged(path, member)
    if i.accumulation in _TURNED:
        yield Change(_ACCUMULATING[_TURNED[i.accumulation]], PLAIN, _accumulating)


def _role(i: Instruction, path: Path) -> Any:
    return INSTRUCTIONS[i.opcode].roles.get(path[0])


def _shown(value: Any) -> str:
    return value.name if isinstance(value, Enum) else repr(value).strip("'")


def _exchanged(path: Path, value: Any, supposes: int = PLAIN) -> Change:
    """One value in place of another in every round."""
    return Change(
        f"{named(path)}={_shown(value)}", supposes, lambda i, n: with_entry(i, path, value)
    )


def _numbers(i: Instruction, path: Path, value: int, several: bool) -> Iterator[Change]:
    """Off by one, of the other sign, off by a tile; or not moving on from round to round."""

    def by(step: int, what: str, rounds: bool = False) -> Change:
        return Change(
            f"{named(path)} {what}",
            PLAIN if abs(step) == 1 and not rounds else OTHER,
            lambda i, n: with_entry(i, path, entry(i, path) + (step * n if rounds else step)),
        )

    yield by(1, "larger by 1")
    yield by(-1, "smaller by 1")
    if value:
        yield Change(
            f"{named(path)}={-value}", PLAIN, lambda i, n: with_entry(i, path, -entry(i, path))
        )
        yield _exchanged(path, 0)
    for size in sizes(i):
        for sign, word in ((1, "larger"), (-1, "smaller")):
            yield by(sign * size, f"{word} by {size}")
            if several:
                yield by(sign * size, f"{word} by {size} in each further round", True)


def sizes(i: Instruction) -> list[int]:
    """Sizes of the dimensions of an instruction's operands, but for 1."""
    found = {n for _, v in entries(i) if isinstance(v, Access) for n in v.shape}
    return sorted(found - {1})


_TURNED: Final = {"replace": "add", "add": "replace"}
_ACCUMULATING: Final = {
    "add": "added to what the tile holds",
    "replace": "not added to what the tile holds",
}


def _accumulating(i: Instruction, n: int) -> Instruction:
    """A matrix product that begins a sum anew if it went on with one, and the other way round."""
    if i.accumulation not in _TURNED:
        raise Impossible
    made = i.with_args(i.args)
    made.accumulation = _TURNED[i.accumulation]
    return made


def left_out(i: Instruction) -> Iterator[Change]:
    """The step isn't done."""
    if not INSTRUCTIONS[i.opcode].synchronises:
        yield Change("not done", OTHER, lambda i, n: None)


__all__ = [
    "ADDED",
    "OTHER",
    "PLAIN",
    "Change",
    "Impossible",
    "attribute_changes",
    "entries",
    "entry",
    "left_out",
    "named",
    "sizes",
    "with_entry",
]
