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

import ast
from typing import Final

from nki_dist.migrate.edits import Edit, Source
from nki_dist.migrate.names import Names, called, memory_of

HINTS_OF_COMPILER: Final = (
    "skip_middle_end_transformations", "enable_stack_allocator", "force_auto_alloc"
)  # fmt: skip


def is_hint(decorator: ast.expr, names: Names) -> bool:
    """Whether a decorator only told AWS's old compiler how to go about it."""
    space, _, last = names.full(called(decorator)).rpartition(".")
    return space == "nki.compiler" and last in HINTS_OF_COMPILER


def is_second_name(node: ast.Assign, names: Names) -> bool:
    """Whether an assignment only gives an allocation function another name."""
    targets = all(isinstance(target, ast.Name) for target in node.targets)
    return targets and memory_of(names.full(node.value)) != ""


def place(names: Names, source: Source) -> None:
    """Allocation functions become memories; second names of them and hints go.

    It is the last walk over a module, as it removes lines.
    """
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and memory_of(names.full(node.func)):
            memory = memory_of(names.full(node.func))
            source.replace(node, f"{names.local('nl') or 'nl'}.{memory}")
        if isinstance(node, ast.Assign) and is_second_name(node, names):
            source.edits.append(source.without(node))
        if isinstance(node, ast.FunctionDef):
            for hint in (d for d in node.decorator_list if is_hint(d, names)):
                start = source.lines[hint.lineno - 1]
                after = source.after(hint.end_lineno)
                source.edits.append(Edit(start, after, ""))
