"""Changes that Cosmic Ray doesn't make: an argument, an entry of a table, a call or a word.

They are Cosmic Ray's kind of operator: `mutation_positions` names the places of one node of the
syntax tree, `mutate` changes the one with that index.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cosmic_ray.operators.operator import Example, Operator
from parso.python.tree import Keyword

ENGINES: Final = ["dma", "gpsimd", "scalar", "tensor", "vector"]
_WORD: Final = re.compile(r'(.)"([a-z_]\w*)"')
_GIVEN: Final = re.compile(r"(\w+)=(None|True|False|\w+\.\w+)(?=[,)\n])")
_WORDS: Final = re.compile(r'"[a-z_]\w*(?: [a-z_]\w*)+"')


def _span(node: Any) -> tuple[Any, Any]:
    return node.start_pos, node.end_pos


def _leaf_before(node: Any) -> str:
    leaf = node.get_previous_leaf()
    return leaf.value if leaf else ""


def _items(node: Any) -> list[Any]:
    """Parts of a list of things with commas, or the only thing."""
    return [child for child in node.children if child != ","]


class _Listed(Operator):
    """Leaves out one of several things with commas in between."""

    def mutation_positions(self, node: Any) -> Any:
        for item in self.droppable(node):
            yield _span(item)

    def mutate(self, node: Any, index: int) -> Any:
        item = self.droppable(node)[index]
        at = node.children.index(item)
        # With the comma behind it, or the one before it at the end; the only one has neither.
        if node.children[at + 1 : at + 2] == [","]:
            del node.children[at : at + 2]
        else:
            del node.children[at - (node.children[at - 1] == ",") : at + 1]
        return node

    @abstractmethod
    def droppable(self, node: Any) -> list[Any]:
        """Which of them may be missing."""


class DropArgument(_Listed):
    """A keyword argument falls back to its default."""

    def droppable(self, node: Any) -> list[Any]:
        if node.type not in ("arglist", "trailer"):
            return []
        return [c for c in _items(node) if c.type == "argument" and c.children[1] == "="]

    @classmethod
    def examples(cls) -> Any:
        return (Example("f(1, a=2, b=3)", "f(1, b=3)"),)


class DropItem(_Listed):
    """A tuple, list or set has one entry less."""

    def droppable(self, node: Any) -> list[Any]:
        if node.type == "testlist_comp" or (
            node.type == "dictorsetmaker" and ":" not in node.children
        ):
            # Three or more: two are more often a pair than a table. Comprehensions have one.
            items = _items(node)
            return items if len(items) > 2 and len(node.children) > len(items) else []
        return []

    @classmethod
    def examples(cls) -> Any:
        return (Example("x = (1, 2, 3)", "x = ( 2, 3)"),)


class DropRow(Operator):
    """A table has one row less."""

    def mutation_positions(self, node: Any) -> Any:
        for key in self._keys(node):
            yield _span(key)

    def mutate(self, node: Any, index: int) -> Any:
        at = node.children.index(self._keys(node)[index])
        del node.children[at : at + 4]
        return node

    @staticmethod
    def _keys(node: Any) -> list[Any]:
        if node.type != "dictorsetmaker" or "**" in node.children:
            return []
        at = [n for n, child in enumerate(node.children) if child == ":"]
        return [node.children[n - 1] for n in at] if len(at) > 1 else []

    @classmethod
    def examples(cls) -> Any:
        return (Example("x = {1: 2, 3: 4}", "x = { 3: 4}"),)


class DropCall(Operator):
    """A statement that is only a call doesn't happen."""

    def mutation_positions(self, node: Any) -> Any:
        if node.type == "simple_stmt" and node.children[0].type in ("atom_expr", "power"):
            last = node.children[0].children[-1]
            if last.type == "trailer" and last.children[0] == "(":
                yield _span(node.children[0])

    def mutate(self, node: Any, index: int) -> Any:
        call = node.children[0]
        prefix = call.get_first_leaf().prefix
        node.children[0] = Keyword("pass", call.start_pos, prefix)
        return node

    @classmethod
    def examples(cls) -> Any:
        return (Example("check(x)\n", "pass\n"),)


class _Word(Operator):
    """Changes a string."""

    def mutation_positions(self, node: Any) -> Any:
        if node.type == "string" and self.another(node):
            yield _span(node)

    def mutate(self, node: Any, index: int) -> Any:
        node.value = f'"{self.another(node)}"'
        return node

    @abstractmethod
    def another(self, node: Any) -> str:
        """What stands there instead; empty if the string stays."""


class ChangeWord(_Word):
    """A word becomes the next that stands in such a place of the file, or another engine."""

    def another(self, node: Any) -> str:
        before = (_leaf_before(node) + node.prefix)[-1:]
        own = node.value[1:-1]
        found = _WORD.findall(node.get_root_node().get_code())
        words = sorted({word for place, word in found if place == before})
        if own not in words:
            return ""
        words = ENGINES if words == [own] and own in ENGINES else words
        return words[(words.index(own) + 1) % len(words)]

    @classmethod
    def examples(cls) -> Any:
        return (Example('x["a"], x["b"], y("c")', 'x["b"], x["b"], y("c")'),)


class DropWord(_Word):
    """Of several words in quotes, as declarations have them, the last one is missing."""

    def another(self, node: Any) -> str:
        listed = _WORDS.fullmatch(node.value) and _leaf_before(node)[-1:] in ("(", ",", "=")
        return node.value[1:-1].rpartition(" ")[0] if listed else ""

    @classmethod
    def examples(cls) -> Any:
        return (Example('f(a="one two three")', 'f(a="one two")'),)


class TakeOther(Operator):
    """A plain argument becomes what another declaration gives for the same keyword.

    Args:
        given: what is given for each keyword.
    """

    def __init__(self, given: Mapping[str, Sequence[str]]) -> None:
        self._given = given

    def mutation_positions(self, node: Any) -> Any:
        if self._another(node):
            yield _span(node)

    def mutate(self, node: Any, index: int) -> Any:
        keyword, equals, value = node.children
        node.children = [keyword, equals, Keyword(self._another(node), value.start_pos, "")]
        return node

    def _another(self, node: Any) -> str:
        if node.type != "argument" or node.children[1] != "=":
            return ""
        keyword, _, value = node.children
        others = self._given.get(keyword.value, ())
        own = value.get_code()
        return others[(others.index(own) + 1) % len(others)] if own in others else ""

    @classmethod
    def examples(cls) -> Any:
        given = {"given": {"kind": ["A.one", "None"]}}
        return (Example("f(kind=A.one)", "f(kind=None)", operator_args=given),)


def given(texts: Sequence[str]) -> dict[str, list[str]]:
    """What the texts give for keywords, if it differs: None, truths, members of things."""
    found: dict[str, set[str]] = {}
    for text in texts:
        for keyword, value in _GIVEN.findall(text):
            found.setdefault(keyword, set()).add(value)
    return {keyword: sorted(values) for keyword, values in found.items() if len(values) > 1}


OPERATORS: Final = (DropArgument, DropItem, DropRow, DropCall, ChangeWord, DropWord)
