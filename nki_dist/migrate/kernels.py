"""Rewrites kernels of Beta 1 for today's NKI, statement by statement.

A function is rewritten as a whole or not at all: statements depend on each other, and half a kernel
would lose what the other half means. What is known at a statement is what holds on every way to it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import libcst as cst
from libcst.metadata import PositionProvider

from nki_dist.migrate.names import Names, dotted
from nki_dist.migrate.report import Finding, Migrated
from nki_dist.migrate.statements import Statements
from nki_dist.migrate.sums import Enclosing, enclosing
from nki_dist.migrate.values import INT, Environment, Number, Other, Tensor, Undecided


@dataclass
class _Notes:
    """What came of one function."""

    changes: list[Finding] = field(default_factory=list)
    decisions: list[Finding] = field(default_factory=list)


class Kernels(cst.CSTTransformer):
    """One walk over a module; functions that use nl or nisa are rewritten."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, names: Names, done: Migrated) -> None:
        super().__init__()
        self.names, self.done = names, done

    def visit_Module(self, node: cst.Module) -> None:
        self.text = node.code_for_node

    def visit_FunctionDef(self, node: cst.FunctionDef) -> bool:
        return False  # inner functions are part of it

    def leave_FunctionDef(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> Any:
        function = ast.parse(_dedented(self.text(original))).body[0]
        assert isinstance(function, ast.FunctionDef)
        if not any(self._full(n).startswith(("nl.", "nisa.")) for n in ast.walk(function)):
            return updated
        notes = _Notes()
        walk = _Walk(self, notes, {n.id for n in ast.walk(function) if isinstance(n, ast.Name)})
        body = walk.function(original, Environment())
        self.done.decisions.extend(notes.decisions)
        if notes.decisions:
            return updated
        self.done.changes.extend(notes.changes)
        return updated.with_changes(body=body)

    def _full(self, node: ast.AST) -> str:
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return ""
        return self.names.full(cst.parse_expression(ast.unparse(node)))

    def line(self, node: cst.CSTNode) -> int:
        """Where a statement is in the file."""
        return int(self.get_metadata(PositionProvider, node).start.line)


class _Walk:
    """One function with those inside it."""

    def __init__(self, kernels: Kernels, notes: _Notes, taken: set[str]) -> None:
        self.kernels, self.notes, self.taken = kernels, notes, taken
        self.full = kernels._full
        self.enclosing: list[Enclosing] = []

    def fresh(self, stem: str) -> str:
        """A name that the function doesn't have."""
        name = next(n for k in range(1, 10**6) if (n := f"{stem}_{k}") not in self.taken)
        self.taken.add(name)
        return name

    def function(self, node: cst.FunctionDef, outer: Environment) -> Any:
        """The new body."""
        env = Environment(outer)
        tree = ast.parse(_dedented(self.kernels.text(node))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        for parameter in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs):
            value = _parameter(parameter.arg, tree, self.full)
            env.bind(parameter.arg, value)
            env[parameter.arg] = value  # its dtype is that of the name from here on
        before, self.enclosing = self.enclosing, []
        body = self.block(node.body, env)
        self.enclosing = before
        return body

    def block(self, body: Any, env: Environment) -> Any:
        """The new statements of a block; `env` is afterwards what holds at its end."""
        if not isinstance(body, cst.IndentedBlock):
            return body
        made: list[Any] = []
        for statement in body.body:
            made.extend(self.statement(statement, env))
        if not any(not isinstance(s, cst.EmptyLine) for s in made):
            made = [cst.parse_statement("pass")]
        return body.with_changes(body=made)

    def statement(self, node: Any, env: Environment) -> Sequence[Any]:
        """One statement."""
        if isinstance(node, cst.SimpleStatementLine):
            return self._simple(node, env)
        if isinstance(node, cst.FunctionDef):
            env.bind(node.name.value, Other())
            return [node.with_changes(body=self.function(node, env))]
        if isinstance(node, cst.For):
            return self._loop(node, env, lambda inner: self._target(node, inner))
        if isinstance(node, cst.While):
            return self._loop(node, env, lambda inner: None)
        if isinstance(node, cst.If):
            with self._inside(node):
                return [self._if(node, env)]
        if isinstance(node, cst.With):
            return [node.with_changes(body=self.block(node.body, env))]
        self._undecided(node, "a statement of this kind in a kernel")
        return [node]

    def _target(self, node: cst.For, env: Environment) -> None:
        source = ast.parse(self.kernels.text(node.iter).strip(), mode="eval").body
        number = isinstance(source, ast.Call) and self.full(source.func) in ("range", "enumerate")
        for name in _targets(node.target):
            env.bind(name, INT if number and isinstance(node.target, cst.Name) else Other())

    def _loop(self, node: Any, env: Environment, enter: Callable[[Environment], None]) -> list[Any]:
        """A body that runs any number of times: what it assumes has to hold at its end, too."""
        known = Environment(env)
        for _ in range(5):
            inner = Environment(known)
            before = len(self.notes.changes), len(self.notes.decisions)
            enter(inner)
            with self._inside(node) as loop:
                body = self.block(node.body, inner)
            met = known.joined({n: v for n, v in inner.items() if n in known})
            if met == known:
                break
            del self.notes.changes[before[0] :], self.notes.decisions[before[1] :]
            known = met
        else:
            self._undecided(node, "what its variables are at the end")
        env.clear()
        env.update(known.joined(inner))
        ahead = [cst.parse_statement(line) for line in loop.ahead]
        return [*ahead, node.with_changes(body=body)]

    @contextmanager
    def _inside(self, node: cst.CSTNode) -> Iterator[Enclosing]:
        """Statements in a loop or condition."""
        tree = ast.parse(_dedented(self.kernels.text(node))).body[0]
        self.enclosing.append(enclosing(tree))
        yield self.enclosing[-1]
        self.enclosing.pop()

    def _if(self, node: cst.If, env: Environment) -> Any:
        one, two = Environment(env), Environment(env)
        body = self.block(node.body, one)
        orelse: Any = node.orelse
        if isinstance(orelse, cst.If):
            orelse = self._if(orelse, two)
        elif isinstance(orelse, cst.Else):
            orelse = orelse.with_changes(body=self.block(orelse.body, two))
        env.clear()
        env.update(one.joined(two))
        return node.with_changes(body=body, orelse=orelse)

    def _simple(self, node: cst.SimpleStatementLine, env: Environment) -> Sequence[Any]:
        text = self.kernels.text(node.with_changes(leading_lines=[])).strip()
        tree = ast.parse(text).body
        if len(tree) != 1:
            self._undecided(node, "two statements in a line")
            return [node]
        names = self.kernels.names
        nisa = names.local("nisa") or "nisa"
        work = Statements(env, self.full, names.language(), nisa, self.fresh, names.memory)
        work.enclosing = self.enclosing
        try:
            result = work.statement(tree[0])
        except Undecided as why:
            self._undecided(node, str(why))
            for target in _bound(tree[0]):
                env.bind(target, Other())
            return [node]
        for rule in sorted(work.rules):
            line = self.kernels.line(node)
            self.notes.changes.append(Finding(rule, line, text.splitlines()[0]))
        if result is None and not work.before:
            return _comments(node)
        if result == ast.unparse(tree[0]) and not work.before:
            return [node]
        lines = [*work.before, *([result] if result is not None else [])]
        made = [cst.parse_statement(line) for line in lines]
        made[0] = made[0].with_changes(leading_lines=node.leading_lines)
        last = made[-1]
        if isinstance(last, cst.SimpleStatementLine):
            made[-1] = last.with_changes(trailing_whitespace=node.trailing_whitespace)
        return made

    def _undecided(self, node: cst.CSTNode, why: str) -> None:
        self.notes.decisions.append(Finding("undecided", self.kernels.line(node), why))


def _comments(node: cst.SimpleStatementLine) -> list[Any]:
    """What stays of a statement that goes: the comments above it."""
    kept = [line for line in node.leading_lines if line.comment is not None]
    if not kept:
        return []
    return [cst.EmptyLine(comment=line.comment, newline=line.newline) for line in kept]


def _dedented(text: str) -> str:
    lines = text.splitlines()
    while lines and (not lines[0].strip() or lines[0].strip().startswith("#")):
        lines.pop(0)
    margin = len(lines[0]) - len(lines[0].lstrip()) if lines else 0
    if not margin:
        return "\n".join(lines)
    return "\n".join(x[margin:] for x in lines)


def _targets(node: cst.CSTNode) -> set[str]:
    return {n for n in (dotted(x) for x in [node, *node.children]) if n and n.isidentifier()}


def _bound(node: ast.stmt) -> set[str]:
    return {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }


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
