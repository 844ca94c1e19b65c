"""What names of a module mean: `nl.load`, `nki.language.load` and `load` are one function.

Imports are looked at, and second names of allocation functions. A name that is bound again later,
such as a parameter called `nl`, is still taken for the import.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Final

BETA1: Final = "neuronxcc.nki"
SHORT: Final[Mapping[str, str]] = {"nki.language": "nl", "nki.isa": "nisa", "nki": "nki"}

_ALLOCATOR: Final = re.compile(r"nki\.compiler\.(sbuf|psum)\.(alloc|mod_alloc|auto_alloc)")


def memory_of(full: str) -> str:
    """ "sbuf" or "psum" for the full name of an allocation function, else ""."""
    found = _ALLOCATOR.fullmatch(full)
    return found[1] if found is not None else ""


def of_beta1(name: str) -> str:
    """The name in `nki` of one in neuronxcc.nki; "" for any other."""
    inside = name == BETA1 or name.startswith(BETA1 + ".")
    return "nki" + name[len(BETA1) :] if inside else ""


def dotted(node: ast.AST | None) -> str:
    """The text of a name with dots, else ""."""
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return before and f"{before}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def called(node: ast.AST | None) -> ast.AST | None:
    """The function of a call; anything else as it is."""
    return node.func if isinstance(node, ast.Call) else node


class Names(ast.NodeVisitor):
    """The imports of a module.

    Attributes:
        beta1: whether it imports neuronxcc.nki.
        meaning: local name to the full one, which is that of `nki` in modules of Beta 1, too.
        memories: functions of the module, and the memories of the allocations that they return;
            "" for anything else that they return.
    """

    def __init__(self, tree: ast.AST) -> None:
        self.beta1 = False
        self.meaning: dict[str, str] = {}
        self.memories: dict[str, set[str]] = {}
        self._function = ""  # that the walk is in
        self.visit(tree)

    def full(self, node: ast.AST | None) -> str:
        """`nl.load`, `nki.jit` or another full name; "" for what isn't a name."""
        first, dot, rest = dotted(node).partition(".")
        name = self.meaning.get(first, first) + dot + rest
        for long, short in SHORT.items():
            if name.startswith(long + "."):
                return short + name[len(long) :]
        return name

    def memory(self, function: str) -> str:
        """ "sbuf" or "psum" for an allocation function, or one of the module that returns one's."""
        found = self.memories.get(function.rpartition(".")[2], {""})
        return memory_of(function) or (next(iter(found)) if len(found) == 1 else "")

    def local(self, full: str) -> str | None:
        """How this module writes `nl`, `nisa` or `nki`; None if it doesn't import it."""
        long = {short: long for long, short in SHORT.items()}[full]
        parent, _, last = long.rpartition(".")
        for whole, more in ((long, ""), (parent, f".{last}")):
            for name, meaning in self.meaning.items():
                if whole and meaning == whole:
                    return name + more
        return None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        outer, self._function = self._function, node.name
        self.generic_visit(node)
        self._function = outer

    def visit_Return(self, node: ast.Return) -> None:
        made = self.full(called(node.value)) if isinstance(node.value, ast.Call) else ""
        self.memories.setdefault(self._function, set()).add(memory_of(made))

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            first = alias.name.partition(".")[0]
            self._bind(alias.asname or first, alias.name if alias.asname else first, alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            if node.level or alias.name == "*":
                continue
            full = f"{node.module}.{alias.name}"
            self._bind(alias.asname or alias.name, full, full)

    def visit_Assign(self, node: ast.Assign) -> None:
        full = self.full(node.value)
        if memory_of(full):
            self.meaning.update({dotted(target): full for target in node.targets})

    def _bind(self, local: str, meaning: str, seen: str) -> None:
        self.beta1 |= of_beta1(seen) != ""
        meaning = of_beta1(meaning) or meaning
        if meaning.startswith("nki_dist"):
            meaning = "nki" + meaning[len("nki_dist") :]
        self.meaning[local] = meaning
