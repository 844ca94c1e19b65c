"""Loops on the device: nl.dynamic_range and `while register` become functions.

A body is moved only if it means the same there: nothing leaves it (`break`, `return`), and no name
that it binds is seen outside of it. Anything else is a person's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst
from libcst import matchers
from libcst.metadata import PositionProvider

from nki_dist.migrate.names import Names, dotted
from nki_dist.migrate.report import Finding, Migrated

_LEAVING = (cst.Return, cst.Break, cst.Continue, cst.Yield, cst.Await, cst.Global, cst.Nonlocal)


class _Used(cst.CSTVisitor):
    """Names, those that are bound, and whether control leaves."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.bound: set[str] = set()
        self.leaves = False

    def visit_Name(self, node: cst.Name) -> None:
        self.counts[node.value] = self.counts.get(node.value, 0) + 1

    def visit_AssignTarget(self, node: Any) -> None:
        self.bound |= _names_in(node.target)

    visit_AnnAssign = visit_AugAssign = visit_NamedExpr = visit_For = visit_AssignTarget

    def visit_WithItem(self, node: cst.WithItem) -> None:
        if node.asname is not None:
            self.bound |= _names_in(node.asname.name)

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.bound.add(node.name.value)

    def on_visit(self, node: cst.CSTNode) -> bool:
        self.leaves |= isinstance(node, _LEAVING)
        return super().on_visit(node)


def _names_in(target: cst.CSTNode) -> set[str]:
    if isinstance(target, cst.Name):
        return {target.value}
    if isinstance(target, (cst.Tuple, cst.List)):
        return set().union(*(_names_in(e.value) for e in target.elements))
    return set()  # an element or attribute of what exists already


def _used(node: cst.CSTNode) -> _Used:
    found = _Used()
    node.visit(found)
    return found


class Loops(cst.CSTTransformer):
    """One walk over a module; inner loops come first."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, names: Names, done: Migrated) -> None:
        super().__init__()
        self.names, self.done = names, done
        self.functions: list[tuple[_Used, set[str]]] = []

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.functions.append((_used(node), _registers(node, self.names)))

    def leave_FunctionDef(self, original: cst.FunctionDef, updated: cst.FunctionDef) -> Any:
        self.functions.pop()
        return updated

    def visit_Module(self, node: cst.Module) -> None:
        self.functions.append((_used(node), _registers(node, self.names)))

    def leave_For(self, original: cst.For, updated: cst.For) -> Any:
        call = original.iter
        if not isinstance(call, cst.Call) or self.names.full(call.func) != "nl.dynamic_range":
            return updated
        plain = [a.value for a in call.args if a.keyword is None and not a.star]
        why = self._kept(original, {dotted(original.target) or ""})
        if not isinstance(original.target, cst.Name):
            why = "the loop variable isn't a name"
        if len(plain) != len(call.args) or not 1 <= len(plain) <= 3:
            why = "nl.dynamic_range has arguments by name"
        if why:
            return self._undecided(original, updated, "nl.fori_loop", why)
        first, last = (cst.Integer("0"), plain[0]) if len(plain) == 1 else (plain[0], plain[1])
        name = self._name()
        args = [first, last, cst.Name(name), *plain[2:]]
        self._noted("fori-loop", original, "nl.dynamic_range is nl.fori_loop")
        assert isinstance(original.target, cst.Name)
        return self._function(updated, name, original.target, "fori_loop", args, [])

    def leave_While(self, original: cst.While, updated: cst.While) -> Any:
        if not isinstance(original.test, cst.Name):
            return updated
        register = original.test.value
        if register not in self.functions[-1][1]:
            return updated
        if register in _used(original.body).bound:
            return self._undecided(original, updated, "nl.while_loop", f"{register} is bound again")
        why = self._kept(original, set())
        if why:
            return self._undecided(original, updated, "nl.while_loop", why)
        name = self._name()
        self._noted("while-loop", original, "while on a register is nl.while_loop")
        end = [cst.parse_statement(f"return {register}")]
        args = [original.test, cst.Name(name)]
        return self._function(updated, name, original.test, "while_loop", args, end)

    def _function(
        self,
        loop: cst.For | cst.While,
        name: str,
        parameter: cst.Name,
        function: str,
        args: Sequence[cst.BaseExpression],
        end: list[Any],
    ) -> Any:
        body = loop.body
        if isinstance(body, cst.SimpleStatementSuite):
            body = cst.IndentedBlock([cst.SimpleStatementLine(body.body)])
        body = body.with_changes(body=[*body.body, *end])
        defined = cst.FunctionDef(
            name=cst.Name(name),
            params=cst.Parameters(params=[cst.Param(cst.Name(parameter.value))]),
            body=body,
            leading_lines=loop.leading_lines,
        )
        text = cst.Module([]).code_for_node
        call = f"{self.names.local('nl') or 'nl'}.{function}({', '.join(map(text, args))})"
        line = cst.parse_statement(call).with_changes(leading_lines=[cst.EmptyLine(indent=False)])
        return cst.FlattenSentinel([defined, line])

    def _kept(self, loop: cst.For | cst.While, own: set[str]) -> str:
        """Why a body can't be moved into a function; "" if it can."""
        inside, around = _used(loop), self.functions[-1][0]
        if loop.orelse is not None:
            return "it has an else"
        if inside.leaves:
            return "control leaves the body"
        for name in sorted(inside.bound | own):
            if inside.counts.get(name, 0) != around.counts.get(name, 0):
                return f"{name} is bound in it and also used outside"
        return ""

    def _name(self) -> str:
        counts = self.functions[-1][0].counts
        names = ["body", *(f"body_{n}" for n in range(2, 1000))]
        name = next(n for n in names if n not in counts)
        for used, _ in self.functions:
            used.counts.setdefault(name, 1)
        return name

    def _noted(self, rule: str, node: cst.CSTNode, message: str) -> None:
        line = int(self.get_metadata(PositionProvider, node).start.line)
        self.done.changes.append(Finding(rule, line, message))

    def _undecided(self, node: cst.CSTNode, updated: Any, function: str, why: str) -> Any:
        line = int(self.get_metadata(PositionProvider, node).start.line)
        self.done.decisions.append(Finding("loop", line, f"write it with {function}: {why}"))
        return updated


def _registers(node: cst.CSTNode, names: Names) -> set[str]:
    found: set[str] = set()
    for one in matchers.findall(node, matchers.Assign(value=matchers.Call())):
        assert isinstance(one, cst.Assign) and isinstance(one.value, cst.Call)
        if names.full(one.value.func) == "nisa.register_alloc":
            found |= set().union(*(_names_in(target.target) for target in one.targets))
    return found
