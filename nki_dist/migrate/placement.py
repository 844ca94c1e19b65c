"""Replaces Beta 1's allocation functions by memories, and drops hints to its compiler.

`buffer=` of Beta 1 could be an allocation function, which gives each block of a tensor its address.
Blocks that share an address share capacity and nothing else, and `address=` of nl.ndarray may be
left out, so no value depends on it: a tensor is in the memory of its function, and the compiler
places it. Addresses of functions can't be kept in general: they count up while a kernel is traced,
and today's kernels are traced more often than once.

Follows: "NKI Direct Allocation Developer Guide" of SDK 2.26 and "Improved allocation API" of
nki/migration/index.rst.
"""

from __future__ import annotations

from typing import Any, Final

import libcst as cst

from nki_dist.migrate.names import Names, memory_of

HINTS: Final = frozenset(
    f"nki.compiler.{name}"
    for name in ("skip_middle_end_transformations", "enable_stack_allocator", "force_auto_alloc")
)


def is_hint(decorator: cst.BaseExpression, names: Names) -> bool:
    """Whether a decorator only told AWS's old compiler how to go about it."""
    made = decorator.func if isinstance(decorator, cst.Call) else decorator
    return names.full(made) in HINTS


def is_second_name(node: cst.Assign, names: Names) -> bool:
    """Whether an assignment only gives an allocation function another name."""
    targets = all(isinstance(target.target, cst.Name) for target in node.targets)
    return targets and memory_of(names.full(node.value)) != ""


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
