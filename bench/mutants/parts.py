"""Where a file is changed: the part that its area is about, without what nothing could notice."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from bench.mutants.areas import COSTS, DECLARATIONS

Place = tuple[int, int]  # line from 1, column from 0
Span = tuple[Place, Place]


def changeable(text: str, part: str) -> tuple[list[Span], list[Span]]:
    """Spans of a file that belong to the part, and spans within them that stay as they are."""
    tree = ast.parse(text)
    return [_span(node) for node in _parts(tree, part)], list(_fixed(tree))


def within(at: Place, spans: list[Span]) -> bool:
    return any(start <= at < end for start, end in spans)


def _parts(tree: ast.Module, part: str) -> list[ast.AST]:
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    if part == DECLARATIONS:
        declared = [(f, d) for f in functions for d in f.decorator_list if _is(d, "instruction")]
        roles = [role for f, _ in declared for role in f.args.defaults]
        return _with_named(tree, [*roles, *(d for _, d in declared)])
    if part == COSTS:
        costs = [f for f in functions if any(_is(d, "cost") for d in f.decorator_list)]
        return _with_named(tree, costs)
    return list(tree.body)


def _is(decorator: ast.AST, word: str) -> bool:
    """Whether it is `@word(...)` or `@something.word`."""
    return (
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and decorator.func.id == word
    ) or (isinstance(decorator, ast.Attribute) and decorator.attr == word)


def _with_named(tree: ast.Module, roots: list[ast.AST]) -> list[ast.AST]:
    """The roots, and the constants and functions of the file that they need."""
    named = {name: node for node in tree.body for name in _defines(node)}
    seen: list[ast.AST] = []
    todo = list(roots)
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.append(node)
            body = node.body if isinstance(node, ast.FunctionDef) else [node]
            names = {n.id for b in body for n in ast.walk(b) if isinstance(n, ast.Name)}
            todo += [named[name] for name in sorted(names & named.keys())]
    return seen


def _defines(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef):
        return [] if node.decorator_list else [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else []
    targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
    return [target.id for target in targets if isinstance(target, ast.Name)]


def _fixed(tree: ast.Module) -> Iterator[Span]:
    for node in ast.walk(tree):
        if isinstance(node, ast.arg) and node.annotation:
            yield _span(node.annotation)
        elif isinstance(node, ast.FunctionDef) and node.returns:
            yield _span(node.returns)
        elif isinstance(node, ast.arguments) and node.kwonlyargs:
            before = [_span(a)[1] for a in (*node.posonlyargs, *node.args, *node.defaults)]
            first, _ = _span(node.kwonlyargs[0])
            yield max(before, default=(first[0] - 1, 0)), first  # the * between them
        elif isinstance(node, ast.AnnAssign):
            yield _span(node.annotation)
        elif isinstance(node, (ast.Assert, ast.Import, ast.ImportFrom)) or (
            isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        ):
            yield _span(node)


def _span(node: ast.AST) -> Span:
    """Decorators belong to what they decorate."""
    first = min([node, *getattr(node, "decorator_list", [])], key=lambda n: n.lineno)
    return (first.lineno, first.col_offset), (node.end_lineno, node.end_col_offset)
