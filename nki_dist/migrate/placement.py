"""Where tensors lie on the chip: Beta 1's allocation functions, and hints to its compiler.

`buffer=` of Beta 1 could be an allocation function, which gives each block of a tensor its address.
Blocks that share an address share capacity and nothing else, and `address=` of nl.ndarray may be
left out, so no value depends on it: a tensor is in the memory of its function, and the compiler
places it. Addresses of functions can't be kept in general: they count up while a kernel is traced,
and today's kernels are traced more often than once.

Follows: "NKI Direct Allocation Developer Guide" of SDK 2.26 and "Improved allocation API" of
nki/migration/index.rst.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Final

import libcst as cst

from nki_dist.migrate.names import Names, dotted

_ALLOCATOR: Final = re.compile(r"nki\.compiler\.(sbuf|psum)\.(alloc|mod_alloc|auto_alloc)")
HINTS: Final = frozenset(
    f"nki.compiler.{name}"
    for name in ("skip_middle_end_transformations", "enable_stack_allocator", "force_auto_alloc")
)


def memory_of(full: str) -> str:
    """ "sbuf" or "psum" for the full name of an allocation function, else ""."""
    found = _ALLOCATOR.fullmatch(full)
    return found[1] if found is not None else ""


def is_hint(decorator: cst.BaseExpression, names: Names) -> bool:
    """Whether a decorator only told AWS's old compiler how to go about it."""
    made = decorator.func if isinstance(decorator, cst.Call) else decorator
    return names.full(made) in HINTS


def is_second_name(node: cst.Assign, names: Names) -> bool:
    """Whether an assignment only gives an allocation function another name, for good."""
    if not memory_of(names.full(node.value)):
        return False
    targets = [dotted(target.target) or "" for target in node.targets]
    return all(memory_of(names.meaning.get(name, "")) for name in targets)


class _Bound(cst.CSTVisitor):
    """Second names of allocation functions, and how often each name is bound."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.times: Counter[str] = Counter()
        self.second: dict[str, str] = {}

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            name = dotted(target.target) or ""
            self.times[name] += 1
            if memory_of(self.names.full(node.value)):
                self.second[name] = self.names.full(node.value)


class _Memories(cst.CSTVisitor):
    """Functions of the module that give an allocation function's result, whatever they compute."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.open: list[tuple[str, set[str]]] = []
        self.found: dict[str, list[set[str]]] = {}

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.open.append((node.name.value, set()))

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        name, memories = self.open.pop()
        self.found.setdefault(name, []).append(memories)

    def visit_Return(self, node: cst.Return) -> None:
        value = node.value
        called = self.names.full(value.func) if isinstance(value, cst.Call) else ""
        memory = memory_of(called)
        if self.open:
            self.open[-1][1].add(memory)


def know(module: cst.Module, names: Names) -> None:
    """Note in `names` what a module calls its allocation functions."""
    bound = _Bound(names)
    module.visit(bound)
    for name, full in bound.second.items():
        if bound.times[name] == 1 and name.isidentifier():
            names.meaning[name] = full
    memories = _Memories(names)
    module.visit(memories)
    for name, all_of in memories.found.items():
        (first, *others) = all_of
        if not others and len(first) == 1 and "" not in first:
            (names.memories[name],) = first


class Placements(cst.CSTTransformer):
    """Allocation functions become memories; second names of them and hints go.

    It is the last walk over a module, as it may remove lines.
    """

    def __init__(self, names: Names) -> None:
        super().__init__()
        self.names = names

    def leave_Call(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        memory = memory_of(self.names.full(original.func))
        if not memory:
            return updated
        return cst.parse_expression(f"{self.names.language()}.{memory}")

    def leave_Decorator(self, original: cst.Decorator, updated: cst.Decorator) -> Any:
        if is_hint(original.decorator, self.names):
            return cst.RemoveFromParent()
        return updated

    def leave_SimpleStatementLine(
        self, original: cst.SimpleStatementLine, updated: cst.SimpleStatementLine
    ) -> Any:
        (first, *others) = original.body
        if others or not isinstance(first, cst.Assign):
            return updated
        if is_second_name(first, self.names):
            return cst.RemoveFromParent()
        return updated
