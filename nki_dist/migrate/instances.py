"""Grids of program instances, which become loops of the kernel.

Instances of Beta 1 share the tensors in HBM that the kernel makes and nothing else, and one core
runs them in order. So what the kernel does before it touches the chip stays as it is, and all the
rest is in loops over the grid, which is an argument. That is done to kernels that the module itself
launches, with grids that are plainly numbers: elsewhere a program id may be that of a core.

Follows: "NKI Programming Model" of SDK 2.26; nki/migration/index.rst, SPMD launch grid.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import Any, Final

import libcst as cst

from nki_dist.migrate.names import Names, dotted
from nki_dist.migrate.values import Undecided

_NUMBERS: Final = frozenset({"len", "int", "min", "max", "math.ceil", "math.floor"})
_IDS: Final = frozenset({"nl.program_id", "nl.num_programs", "nl.program_ndim"})
_EQUAL: Final = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
_CORES: Final = frozenset({"nl.nc", "nl.spmd_dim"})


class _Launches(cst.CSTVisitor):
    """Brackets behind names of kernels, and what else a module says of grids."""

    def __init__(self, names: Names, kernels: set[str | None]) -> None:
        self.names, self.kernels = names, kernels
        self.found: dict[str, list[Sequence[cst.SubscriptElement]]] = {}
        self.called: set[int] = set()
        self.other: set[str] = set()  # kernels with brackets that aren't launched at once
        self.cores = False
        self.values: dict[str, list[cst.BaseExpression | None]] = {}

    def visit_Call(self, node: cst.Call) -> None:
        self.cores |= self.names.full(node.func) in _CORES
        launched = launch(node, self.names)
        if launched is not None:
            self.called.add(id(launched))

    def visit_Subscript(self, node: cst.Subscript) -> None:
        name = dotted(node.value)
        if name is None or name not in self.kernels:
            return
        if id(node) in self.called:
            self.found.setdefault(name, []).append(node.slice)
        else:
            self.other.add(name)

    def visit_Assign(self, node: cst.Assign) -> None:
        for target in node.targets:
            name = dotted(target.target)
            if name is not None:
                self.values.setdefault(name, []).append(node.value)

    def visit_Param(self, node: cst.Param) -> None:
        self.values.setdefault(node.name.value, []).append(None)


def launch(node: cst.Call, names: Names) -> cst.Subscript | None:
    """The kernel with its grid that a call launches."""
    if isinstance(node.func, cst.Subscript):
        return node.func
    if names.full(node.func) in ("nki.simulate_kernel", "nki.simulate") and node.args:
        first = node.args[0].value
        return first if isinstance(first, cst.Subscript) else None
    return None


def axes_of(module: cst.Module, names: Names, kernels: set[str | None]) -> dict[str, int]:
    """Kernels whose grids become loops, and how many axes their grids have.

    None if they are launched as kernel[0], which was to mean no grid.
    """
    seen = _Launches(names, kernels)
    module.visit(seen)
    if seen.cores:
        return {}
    axes = {}
    for name, grids in seen.found.items():
        if name not in seen.other and all(_none(grid) for grid in grids):
            axes[name] = 0
            continue
        sizes = {len(grid) for grid in grids}
        numbers = all(_numbers(grid, seen) for grid in grids)
        if name not in seen.other and len(sizes) == 1 and numbers:
            (axes[name],) = sizes
    return axes


def _numbers(grid: Sequence[cst.SubscriptElement], seen: _Launches) -> bool:
    """Whether each part of a grid is one number; a single name may also be of a tuple."""
    parts = [part.slice.value for part in grid if isinstance(part.slice, cst.Index)]
    if len(parts) != len(grid) or _none(grid):
        return False
    return len(parts) > 1 or _number(parts[0], seen)


def _none(grid: Sequence[cst.SubscriptElement]) -> bool:
    first = grid[0].slice
    if len(grid) > 1 or not isinstance(first, cst.Index):
        return False
    return isinstance(first.value, cst.Integer) and first.value.value == "0"


def _number(node: cst.BaseExpression | None, seen: _Launches) -> bool:
    if isinstance(node, cst.Name):
        given = seen.values.get(node.value, [None])
        return all(
            v is not node and not isinstance(v, cst.Name) and _number(v, seen) for v in given
        )
    if isinstance(node, cst.Call):
        return dotted(node.func) in _NUMBERS
    if isinstance(node, cst.Subscript):
        return isinstance(node.value, cst.Attribute) and node.value.attr.value == "shape"
    return isinstance(node, (cst.Integer, cst.BinaryOperation))


# ---- kernels ------------------------------------------------------------------------------------


class _Ids(cst.CSTTransformer):
    """Program ids as variables of loops."""

    def __init__(self, names: Names, variables: list[str], grid: str) -> None:
        super().__init__()
        self.names, self.variables, self.grid = names, variables, grid

    def leave_Call(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        full = self.names.full(original.func)
        if full not in _IDS:
            return updated
        if full == "nl.program_ndim":
            return cst.Integer(str(len(self.variables)))
        given = [a.value for a in original.args] or [cst.Integer("0")]
        axis = given[0]
        if len(given) != 1 or not isinstance(axis, cst.Integer):
            raise Undecided(f"{full} of an axis that the text doesn't say")
        if axis.evaluated_value >= len(self.variables):
            raise Undecided(f"{full} of axis {axis.value}, and grids of {len(self.variables)}")
        variable = self.variables[axis.evaluated_value]
        text = variable if full == "nl.program_id" else f"{self.grid}[{axis.value}]"
        return cst.parse_expression(text)


def looped(function: cst.FunctionDef, axes: int, names: Names, full: Any) -> cst.FunctionDef:
    """The kernel with loops over its instances.

    Args:
        axes: of its grids.
        full: the full name of a node of `ast`.

    Raises:
        Undecided: instances share more than tensors in HBM, or return something else.
    """
    tree = ast.parse(cst.Module([function.with_changes(decorators=[])]).code.strip()).body[0]
    assert isinstance(tree, ast.FunctionDef)
    taken = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)}
    taken |= {a.arg for a in ast.walk(tree) if isinstance(a, ast.arg)}
    variables = [f"instance_{axis}" for axis in range(axes)]
    if taken & {"grid", *variables}:
        raise Undecided("the kernel uses the name grid, or those of its instances")
    parameters = function.params
    if parameters.kwonly_params or isinstance(parameters.star_arg, cst.Param):
        raise Undecided("a grid for a kernel with *arguments or arguments by name only")
    if parameters.star_kwarg is not None:
        raise Undecided("a grid for a kernel with **arguments")
    body = function.body
    assert isinstance(body, cst.IndentedBlock)
    statements = _with_comments(body.body)
    assert len(statements) == len(tree.body)
    once = _once(tree, full)
    last = tree.body[-1]
    if (
        not isinstance(last, ast.Return)
        or sum(isinstance(n, ast.Return) for n in ast.walk(tree)) != 1
    ):
        raise Undecided("a kernel of instances that returns elsewhere than at its end")
    inside = [n for n in range(len(tree.body) - 1) if n not in once]
    if _names(last, ast.Load) & set().union(*(_names(tree.body[n], ast.Store) for n in inside)):
        raise Undecided("what an instance returns isn't a tensor that all of them share")
    ids = _Ids(names, variables, "grid")
    rest: Any = [one.visit(ids) for n in inside for one in statements[n]]
    for axis, variable in reversed(list(enumerate(variables))):
        count = cst.parse_expression(f"range(grid[{axis}])")
        rest = [cst.For(cst.Name(variable), count, cst.IndentedBlock(rest))]
    before = [one for n in sorted(once) for one in statements[n]]
    made = [*before, *rest, *statements[-1]]
    default = f"({', '.join(['1'] * axes)}{',' if axes == 1 else ''})"
    given = cst.parse_expression(default)
    grid = cst.Param(cst.Name("grid"), equal=_EQUAL, default=given)
    return function.with_changes(
        body=body.with_changes(body=made),
        params=parameters.with_changes(params=[*parameters.params, grid]),
    )


def _with_comments(body: Sequence[Any]) -> list[list[Any]]:
    """Statements, each with the lines before it that hold comments only."""
    found: list[list[Any]] = [[]]
    for one in body:
        found[-1].append(one)
        if not isinstance(one, cst.EmptyLine):
            found.append([])
    found[-2].extend(found.pop())
    return found


def _once(tree: ast.FunctionDef, full: Any) -> set[int]:
    """Places of statements that all instances may share: they only name numbers and HBM."""
    stored = [_names(s, ast.Store) for s in tree.body]
    once = {n for n, s in enumerate(tree.body[:-1]) if _shared(s, full)}
    parameters = {a.arg for a in tree.args.args}
    while True:
        inside = [n for n in range(len(tree.body) - 1) if n not in once]
        varies = set().union(*(stored[n] for n in inside))
        again = {
            n
            for n in once
            if (_names(tree.body[n], ast.Load) | stored[n]) & varies
            or any(stored[n] & stored[m] for m in once if m != n)
            or (stored[n] & parameters and any(m < n for m in inside))
        }
        if not again:
            break
        once -= again
    for n in inside:
        for node in ast.walk(tree.body[n]):
            if isinstance(node, ast.Attribute) and node.attr.endswith("hbm"):
                raise Undecided("a tensor in HBM that is made where an instance works")
    return once


def _shared(statement: ast.stmt, full: Any) -> bool:
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant)
    if not isinstance(statement, (ast.Assign, ast.Assert)):
        return False
    value = statement.value if isinstance(statement, ast.Assign) else statement.test
    if isinstance(statement, ast.Assign):
        targets = [
            e for t in statement.targets for e in (t.elts if isinstance(t, ast.Tuple) else [t])
        ]
        if not all(isinstance(t, ast.Name) for t in targets):
            return False
        buffers = [k.value for k in getattr(value, "keywords", []) if k.arg == "buffer"]
        if isinstance(value, ast.Call) and full(value.func) == "nl.ndarray" and buffers:
            return bool(full(buffers[0]).endswith("hbm"))
    changing = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp, ast.Lambda)
    for node in ast.walk(value):
        if isinstance(node, changing) and not isinstance(statement, ast.Assert):
            return False
        if isinstance(node, ast.Call) and ast.unparse(node.func) not in _NUMBERS:
            return False
    return True


def _names(node: ast.AST, context: type) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


# ---- launches -----------------------------------------------------------------------------------


class Launches(cst.CSTTransformer):
    """Launches of kernels whose grid became an argument, or is none."""

    def __init__(self, names: Names, axes: Mapping[str, int]) -> None:
        super().__init__()
        self.names, self.axes = names, axes

    def leave_Call(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        target = launch(updated, self.names)
        if target is not None and target is updated.func:
            return self._gridded(updated, target, target.value)
        inner = updated.func
        if isinstance(inner, cst.Call):  # nki.simulate(kernel[grid])(...)
            target = launch(inner, self.names)
            if target is not None and target is not inner.func:
                func = inner.with_changes(args=[inner.args[0].with_changes(value=target.value)])
                return self._gridded(updated, target, func)
        return updated

    def _gridded(
        self, call: cst.Call, target: cst.Subscript, func: cst.BaseExpression
    ) -> cst.BaseExpression:
        axes = self.axes.get(dotted(target.value) or "")
        if axes is None:
            return call
        if not axes:
            return call.with_changes(func=func)
        code = cst.Module([]).code_for_node
        parts = [code(p.slice).strip() for p in target.slice]
        text = f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"
        grid = cst.Arg(cst.parse_expression(text), keyword=cst.Name("grid"), equal=_EQUAL)
        args = list(call.args)
        if args and not isinstance(args[-1].comma, cst.Comma):
            comma = cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
            args[-1] = args[-1].with_changes(comma=comma)
        return call.with_changes(func=func, args=[*args, grid])
