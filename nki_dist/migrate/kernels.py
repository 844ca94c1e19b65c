"""Rewrites kernels of Beta 1 for today's NKI, statement by statement.

A function is rewritten as a whole or not at all: statements depend on each other, and half a kernel
would lose what the other half means. What is known at a statement is what holds on every way to it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

from nki_dist.migrate.edits import Edit, Source
from nki_dist.migrate.names import Names
from nki_dist.migrate.report import Finding, Migrated
from nki_dist.migrate.statements import Statements
from nki_dist.migrate.sums import Enclosing, enclosing
from nki_dist.migrate.values import INT, Environment, Number, Other, Tensor, Undecided, stored_names


class Kernels(ast.NodeVisitor):
    """One walk over a module; functions that use nl or nisa are rewritten."""

    def __init__(self, names: Names, source: Source, done: Migrated) -> None:
        self.names, self.source, self.done = names, source, done
        self.visit(source.tree)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if not any(self.names.full(n).startswith(("nl.", "nisa.")) for n in ast.walk(node)):
            return
        walk = _Walk(self.names, self.source, node)
        self.done.decisions.extend(walk.decisions)
        if not walk.decisions:
            self.done.changes.extend(walk.changes)
            self.source.edits.extend(walk.edits)


class _Walk:
    """One function with those inside it."""

    def __init__(self, names: Names, source: Source, node: ast.FunctionDef) -> None:
        self.names, self.source = names, source
        self.taken = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        self.changes: list[Finding] = []
        self.decisions: list[Finding] = []
        self.edits: list[Edit] = []
        self.enclosing: list[Enclosing] = []
        self.function(node, Environment())

    def fresh(self, stem: str) -> str:
        """A name that the function doesn't have."""
        name = next(n for k in range(1, 10**6) if (n := f"{stem}_{k}") not in self.taken)
        self.taken.add(name)
        return name

    def function(self, node: ast.FunctionDef, outer: Environment) -> None:
        """Its body."""
        env = Environment(outer)
        for parameter in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
            value = _parameter(parameter.arg, node, self.names.full)
            env.bind(parameter.arg, value)
            env[parameter.arg] = value  # its dtype is that of the name from here on
        before, self.enclosing = self.enclosing, []
        self.block(node.body, env)
        self.enclosing = before

    def block(self, body: list[ast.stmt], env: Environment) -> None:
        """The statements of a block; `env` is afterwards what holds at its end."""
        if body and self.source.indent(body[0]) is None:
            return  # it is in the line of what it belongs to
        shared = {a.lineno for a, b in pairwise(body) if a.end_lineno == b.lineno}
        made: list[Sequence[str] | None] = []
        for node in body:
            if node.lineno in shared:
                self._undecided(node, "two statements in a line")
            lined = self.source.indent(node) is not None and node.lineno not in shared
            made.append(self.statement(node, env) if lined else None)
        if made and all(lines == [] for lines in made):
            made[-1] = ["pass"]
        for node, lines in zip(body, made):
            if lines is not None:
                self.edits.append(self.source.rewritten(node, lines))

    def statement(self, node: ast.stmt, env: Environment) -> Sequence[str] | None:
        """What takes the place of a statement; None if it, but for what is in it, stays."""
        if isinstance(node, ast.FunctionDef):
            env.bind(node.name, Other())
            self.function(node, env)
        elif isinstance(node, (ast.For, ast.While)):
            self._loop(node, env)
        elif isinstance(node, ast.If):
            one, two = Environment(env), Environment(env)
            with self._inside(node):
                self.block(node.body, one)
                self.block(node.orelse, two)
            env.clear()
            env.update(one.joined(two))
        elif isinstance(node, ast.With):
            self.block(node.body, env)
        else:
            return self._simple(node, env)
        return None

    def _target(self, node: ast.For, env: Environment) -> None:
        called = self.names.full(node.iter.func) if isinstance(node.iter, ast.Call) else ""
        number = called in ("range", "enumerate")
        for name in stored_names(node.target):
            env.bind(name, INT if number and isinstance(node.target, ast.Name) else Other())

    def _loop(self, node: ast.For | ast.While, env: Environment) -> None:
        """A body that runs any number of times: what it assumes has to hold at its end, too."""
        known = Environment(env)
        while True:  # each round knows less
            inner = Environment(known)
            found: tuple[list[Any], ...] = self.changes, self.decisions, self.edits
            before = [len(each) for each in found]
            if isinstance(node, ast.For):
                self._target(node, inner)
            with self._inside(node) as loop:
                self.block(node.body, inner)
            met = known.joined({n: v for n, v in inner.items() if n in known})
            if met == known:
                break
            for each, length in zip(found, before):
                del each[length:]
            known = met
        env.clear()
        env.update(known.joined(inner))
        if loop.ahead:
            at, indent = self.source.lines[self.source.above(node) - 1], self.source.indent(node)
            lines = "".join(f"{indent}{line}{self.source.newline}" for line in loop.ahead)
            self.edits.append(Edit(at, at, lines))

    @contextmanager
    def _inside(self, node: ast.stmt) -> Iterator[Enclosing]:
        """Statements in a loop or condition."""
        self.enclosing.append(enclosing(node))
        yield self.enclosing[-1]
        self.enclosing.pop()

    def _simple(self, node: ast.stmt, env: Environment) -> Sequence[str] | None:
        names = self.names
        nl, nisa = names.local("nl") or "nl", names.local("nisa") or "nisa"
        work = Statements(env, names.full, nl, nisa, self.fresh, names.memory)
        work.enclosing = self.enclosing
        try:
            result = work.statement(node)
        except Undecided as why:
            self._undecided(node, str(why))
            for target in stored_names(node):
                env.bind(target, Other())
            return None
        for rule in sorted(work.rules):
            shown = self.source.line(node.lineno).strip()
            self.changes.append(Finding(rule, node.lineno, shown))
        lines = [*work.before, *([result] if result is not None else [])]
        return None if lines == [ast.unparse(node)] else lines

    def _undecided(self, node: ast.stmt, why: str) -> None:
        self.decisions.append(Finding("undecided", node.lineno, why))


def _parameter(name: str, function: ast.FunctionDef, full: Callable[[ast.AST], str]) -> Any:
    """What the uses of a parameter say of it."""
    default = dict(
        zip(reversed([a.arg for a in function.args.args]), reversed(function.args.defaults))
    ).get(name)
    if isinstance(default, ast.Constant) and type(default.value) in (int, float, bool):
        return Number("float") if type(default.value) is float else Number()
    where, tensor = "", False
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            tensor |= node.value.id == name and node.attr in ("shape", "dtype", "reshape")
        if isinstance(node, ast.Call) and full(node.func) in ("nl.load", "nl.store") and node.args:
            base = node.args[0]
            base = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(base, ast.Name) and base.id == name:
                where, tensor = "hbm", True
    if not tensor:
        return Number() if default is None else Other()
    return Tensor(where, f"{name}.dtype", _rank(name, function))


def _rank(name: str, function: ast.FunctionDef) -> int | None:
    """Dimensions, if its shape is unpacked."""
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Tuple):
            continue
        if ast.unparse(node.value) == f"{name}.shape":
            return len(node.targets[0].elts)
    return None
