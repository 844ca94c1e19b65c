"""What names of a module mean: `nl.load`, `nki.language.load` and `load` are one function.

Imports are looked at, and second names of allocation functions. A name that is bound again later,
such as a parameter called `nl`, is still taken for the import.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import libcst as cst

BETA1: Final = "neuronxcc.nki"
SHORT: Final[Mapping[str, str]] = {"nki.language": "nl", "nki.isa": "nisa", "nki": "nki"}

_ALLOCATOR: Final = re.compile(r"nki\.compiler\.(sbuf|psum)\.(alloc|mod_alloc|auto_alloc)")


def memory_of(full: str) -> str:
    """ "sbuf" or "psum" for the full name of an allocation function, else ""."""
    found = _ALLOCATOR.fullmatch(full)
    return found[1] if found is not None else ""


def dotted(node: cst.CSTNode | None) -> str | None:
    """The text of a name with dots, else None."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        before = dotted(node.value)
        return None if before is None else f"{before}.{node.attr.value}"
    return None


@dataclass
class Names:
    """The imports of a module.

    Attributes:
        beta1: whether it imports neuronxcc.nki.
        meaning: local name to the full one, which is that of `nki` in modules of Beta 1, too.
        memories: functions of the module, and the memories of the allocations that they return;
            "" for anything else that they return.
    """

    beta1: bool = False
    meaning: dict[str, str] = field(default_factory=dict)
    memories: dict[str, set[str]] = field(default_factory=dict)

    def full(self, node: cst.CSTNode | None) -> str:
        """`nl.load`, `nki.jit` or another full name; "" for what isn't a name."""
        text = dotted(node)
        if text is None:
            return ""
        first, _, rest = text.partition(".")
        name = self.meaning.get(first, first) + ("." + rest if rest else "")
        for long, short in SHORT.items():
            if name.startswith(long + "."):
                return short + name[len(long) :]
        return name

    def memory(self, function: str) -> str:
        """ "sbuf" or "psum" for an allocation function, or one of the module that returns one's."""
        found = self.memories.get(function.rpartition(".")[2], {""})
        return memory_of(function) or (next(iter(found)) if len(found) == 1 else "")

    def language(self) -> str:
        """How this module writes `nl`, or would."""
        return self.local("nl") or "nl"

    def local(self, full: str) -> str | None:
        """How this module writes `nl`, `nisa` or `nki`; None if it doesn't import it."""
        long = {short: long for long, short in SHORT.items()}[full]
        for name, meaning in self.meaning.items():
            if meaning == long:
                return name
        parent, _, last = long.rpartition(".")
        for name, meaning in self.meaning.items():
            if parent and meaning == parent:
                return f"{name}.{last}"
        return None


class _Imports(cst.CSTVisitor):
    def __init__(self) -> None:
        self.names = Names()
        self.open: list[str] = []  # functions that the walk is in

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.open.append(node.name.value)

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        self.open.pop()

    def visit_Return(self, node: cst.Return) -> None:
        called = self.names.full(node.value.func) if isinstance(node.value, cst.Call) else ""
        self.names.memories.setdefault(self.open[-1], set()).add(memory_of(called))

    def visit_Import(self, node: cst.Import) -> None:
        for alias in node.names:
            name = dotted(alias.name) or ""
            if alias.asname is not None:
                self._bind(dotted(alias.asname.name) or "", name)
            else:
                self._bind(name.partition(".")[0], name.partition(".")[0], name)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        module = dotted(node.module) or ""
        if node.relative or isinstance(node.names, cst.ImportStar):
            return
        for alias in node.names:
            name = dotted(alias.name) or ""
            local = dotted(alias.asname.name) if alias.asname is not None else name
            self._bind(local or "", f"{module}.{name}")

    def visit_Assign(self, node: cst.Assign) -> None:
        full = self.names.full(node.value)
        if memory_of(full):
            self.names.meaning.update({dotted(t.target) or "": full for t in node.targets})

    def _bind(self, local: str, meaning: str, module: str = "") -> None:
        seen = module or meaning
        if seen == BETA1 or seen.startswith(BETA1 + "."):
            self.names.beta1 = True
        if meaning == BETA1 or meaning.startswith(BETA1 + "."):
            meaning = "nki" + meaning[len(BETA1) :]
        if meaning.startswith("nki_dist"):
            meaning = "nki" + meaning[len("nki_dist") :]
        self.names.meaning[local] = meaning


def names_of(module: cst.Module) -> Names:
    """What the imports of a module bind."""
    found = _Imports()
    module.visit(found)
    return found.names
