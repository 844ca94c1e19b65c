"""Which mutants are tried: a seeded choice, from every area in turn.

A place is where something can be changed, and each is taken once at most: what can be changed in
many ways, such as an operator, isn't tried more often than what can be changed in one. Left out is
what no test could notice: annotations (never evaluated here), assertions (they hold), `__all__` and
imports, and equality that becomes identity, since equal small numbers are the same object.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final, NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

from bench.mutants import operators
from bench.mutants.areas import AREAS, DECLARATIONS, Area, sources
from bench.mutants.parts import Place, changeable, within

# They do nothing, or want to be told names.
_UNUSED: Final = re.compile(r".*/(NoOp|Variable\w+)")
_COMPARISON: Final = re.compile(r".*/ReplaceComparisonOperator_([A-Za-z]+)_([A-Za-z]+)")


class Mutant(NamedTuple):
    """One change of one file.

    Attributes:
        path: of the file, from the root.
        line: where it is.
        operator, occurrence: which change it is; `occurrence` counts the operator's places.
        before, after: the lines that differ, without indentation.
    """

    area: str
    path: str
    line: int
    operator: str
    occurrence: int
    before: str
    after: str


class Changes:
    """What can be changed in a tree, and how: Cosmic Ray's operators and ours."""

    def __init__(self, root: Path) -> None:
        self._root = root
        names = [name for name in operator_names() if not _unused(name)]
        kinds = [get_operator(name) for name in names] + list(operators.OPERATORS)
        self._operators: dict[str, Any] = {kind.__name__: kind() for kind in kinds}
        other = operators.TakeOther(operators.given(list(_declarations(root))))
        self._operators[type(other).__name__] = other

    def choose(self, size: int, seed: int, areas: Sequence[Area] = AREAS) -> list[Mutant]:
        """`size` mutants, or all there are: as many from each area as it has places for."""
        waiting = [self._shuffled(area, seed) for area in areas]
        chosen: list[Mutant] = []
        while waiting and len(chosen) < size:
            mutants = waiting.pop(0)
            mutant = next(mutants, None)
            if mutant is not None:
                chosen.append(mutant)
                waiting.append(mutants)
        return chosen

    def text(self, mutant: Mutant) -> str:
        """The file with the change."""
        original = (self._root / mutant.path).read_text()
        return mutate_code(original, self._operators[mutant.operator], mutant.occurrence)

    def _shuffled(self, area: Area, seed: int) -> Iterator[Mutant]:
        """The area's mutants, one per place, in an order that edits elsewhere don't change."""
        places = []
        for path in sources(area, self._root):
            text = (self._root / path).read_text()
            lines = text.splitlines()
            for at, ways in self._places(text, area.part).items():
                luck = random.Random(f"{seed} {path} {lines[at[0] - 1]} {at[1]}")
                places.append(
                    (luck.random(), path.as_posix(), at, text, luck.sample(ways, len(ways)))
                )
        for _, path, at, text, ways in sorted(places):
            for name, occurrence in ways:
                changed = mutate_code(text, self._operators[name], occurrence)
                if _another_program(text, changed):
                    yield Mutant(area.name, path, at[0], name, occurrence, *_lines(text, changed))
                    break

    def _places(self, text: str, part: str) -> dict[Place, list[tuple[str, int]]]:
        """Where something can be changed, and the ways: (operator, occurrence)."""
        inside, fixed = changeable(text, part)
        found: dict[Place, list[tuple[str, int]]] = {}
        nodes = list(ast_nodes(get_ast(text)))
        for name, operator in self._operators.items():
            spans = [span for node in nodes for span in operator.mutation_positions(node)]
            for occurrence, (at, _) in enumerate(spans):
                if within(at, inside) and not within(at, fixed):
                    found.setdefault(at, []).append((name, occurrence))
        return found


def _declarations(root: Path) -> Iterator[str]:
    """Lines of the declarations of instructions."""
    for area in AREAS:
        for path in sources(area, root) if area.part == DECLARATIONS else ():
            text = (root / path).read_text()
            inside, _ = changeable(text, DECLARATIONS)
            for (start, _), (end, _) in inside:
                yield "\n".join(text.splitlines()[start - 1 : end])


def _unused(name: str) -> bool:
    compared = _COMPARISON.fullmatch(name)
    identity = {kind.startswith("Is") for kind in compared.groups()} if compared else set()
    return len(identity) == 2 or _UNUSED.fullmatch(name) is not None


def _another_program(text: str, changed: str) -> bool:
    try:
        return ast.dump(ast.parse(text)) != ast.dump(ast.parse(changed))
    except SyntaxError:
        return False


def _lines(text: str, changed: str) -> tuple[str, str]:
    old, new = text.splitlines(), changed.splitlines()
    blocks = [b for b in SequenceMatcher(None, old, new, False).get_opcodes() if b[0] != "equal"]
    start, end = blocks[0], blocks[-1]
    sides = old[start[1] : end[2]], new[start[3] : end[4]]
    before, after = (" ".join(" ".join(side).split()) for side in sides)
    return before, after
