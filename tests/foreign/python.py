"""Python that functions of kernels are written in: constructs of those that led to an instruction.

The names of `nl` that they use, and the syntax that AWS's compiler is known or reported to judge,
or that older rules of ours judged.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from nki_dist.compiler.compiled import Compiled

SYNTAX: dict[type[ast.AST], str] = {
    ast.ListComp: "list comprehension",
    ast.GeneratorExp: "generator expression",
    ast.DictComp: "dict comprehension",
    ast.SetComp: "set comprehension",
    ast.Raise: "raise",
    ast.Assert: "assert",
    ast.Try: "try",
    ast.With: "with",
    ast.While: "while",
    ast.Lambda: "lambda",
    ast.JoinedStr: "f-string",
    ast.IfExp: "conditional expression",
    ast.NamedExpr: "walrus",
    ast.Starred: "star expression",
    ast.AugAssign: "augmented assignment",
    ast.AnnAssign: "annotated assignment",
    ast.Dict: "dict",
    ast.Set: "set",
    ast.Break: "break",
    ast.Continue: "continue",
    ast.Match: "match",
    ast.Is: "is",
    ast.IsNot: "is not",
    ast.In: "in",
    ast.NotIn: "not in",
    ast.Global: "global",
    ast.Delete: "del",
    ast.MatMult: "matrix product",
    ast.FloorDiv: "floor division",
    ast.Pow: "power",
}


def of(compiled: Compiled) -> dict[str, str]:
    """The constructs in the source of what led to an instruction, with their lines."""
    found: dict[str, str] = {}
    wanted = {
        (file, function)
        for program in compiled.programs
        for file, line, _ in program.locations
        if "nki_dist/" not in file and "bench/real_kernels/" not in file
        for function in _functions(file)
        if function.lineno <= line <= (function.end_lineno or line)
    }
    for file, function in sorted(wanted, key=lambda each: (each[0], each[1].lineno)):
        for text, line in _constructs(function):
            found.setdefault(text, f"{file}:{line}")
    return found


@cache
def _functions(file: str) -> tuple[ast.FunctionDef, ...]:
    try:
        tree = ast.parse(Path(file).read_text())
    except (OSError, SyntaxError, ValueError):
        return ()
    return tuple(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef))


@cache
def _constructs(function: ast.FunctionDef) -> tuple[tuple[str, int], ...]:
    return tuple(_found(function))


def _found(function: ast.FunctionDef) -> Iterator[tuple[str, int]]:
    if function.args.kwonlyargs:
        yield "python: keyword-only parameters", function.lineno
    if function.args.vararg or function.args.kwarg:
        yield "python: star parameters", function.lineno
    for node in ast.walk(function):
        line = getattr(node, "lineno", function.lineno)
        if (text := SYNTAX.get(type(node))) is not None:
            yield f"python: {text}", line
        elif isinstance(node, ast.FunctionDef) and node is not function:
            yield "python: function inside a function", line
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in ("nl", "nisa", "ncc", "nki"):
                yield f"{node.value.id}.{node.attr}", line
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in BUILTINS:
                yield f"python: {node.func.id}()", line
        elif isinstance(node, (ast.For, ast.Assign)):
            yield from _targets(node)


BUILTINS = frozenset(dir(builtins))


def _targets(node: ast.For | ast.Assign) -> Iterator[tuple[str, int]]:
    for target in [node.target] if isinstance(node, ast.For) else node.targets:
        if isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(node, ast.For):
                yield "python: several loop variables", node.lineno
            elif any(isinstance(e, ast.Subscript) for e in target.elts):
                yield "python: unpacking into subscripts", node.lineno
            else:
                yield "python: unpacking", node.lineno
