"""Rewrites single expressions of older programs: imports, names, decorators, arguments.

No line is added, so what later rules find is where it was.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection
from typing import Any, Final

from nki_dist.language.older import ARITHMETIC, LOGIC, LOGIC_UNARY, OPERATORS, UNARY
from nki_dist.migrate.edits import Edit, Source
from nki_dist.migrate.names import Names, called, dotted, memory_of, of_beta1
from nki_dist.migrate.placement import HINTS_OF_COMPILER, is_hint, is_second_name
from nki_dist.migrate.report import Finding, Migrated

RANGES: Final = frozenset({"nl.affine_range", "nl.sequential_range", "nl.static_range"})
# Of loops; no value.
HINTS: Final = frozenset({"precise_schedule", "multi_buffer", "directives", "name"})
GONE: Final = {
    "nki": ("baremetal", "simulate_kernel", "trace"),
    "nki.language": ("par_dim",),
    "nki.compiler": ("sbuf", "psum", *HINTS_OF_COMPILER, "no_reorder"),
}
_GONE: Final = {f"nki.compiler.{name}" for name in (*HINTS_OF_COMPILER, "no_reorder")}
FILES: Final = frozenset({"save_neff_name", "save_trace_name", "artifacts_dir"})
OPTIONS: Final = FILES | {"mode", "additional_compile_opt", "working_directory", "profile_nth"}
MEASURES: Final = frozenset({"nki.benchmark", "nki.profile"})
REMOVED: Final = frozenset({"nl.all_reduce", "nl.gather_flattened_dst"})
OPERANDS: Final = frozenset({"op", "op0", "op1", "reduce_op"})
NUMPY: Final = {
    **{name: name for name in (*UNARY, *LOGIC_UNARY, *ARITHMETIC, *LOGIC)},
    **OPERATORS,
}


class Calls(ast.NodeVisitor):
    """One walk over a module.

    Args:
        names: of the module.
        source: of the module; it is told what to replace.
        done: where changes and decisions are noted.
        to: "0.6" or "0.7".
    """

    def __init__(self, names: Names, source: Source, done: Migrated, to: str) -> None:
        self.names, self.source, self.done, self.to = names, source, done, to
        self.nki = names.local("nki") or "nki"
        self.other_rules: set[int] = set()  # ids of attributes that another rule looks after
        self.registers: set[str] = set()
        self.kernels = {name for node in ast.walk(source.tree) for name in _kernels_of(node, names)}
        self.visit(source.tree)

    def _changed(self, rule: str, node: Any, message: str) -> None:
        self.done.changes.append(Finding(rule, node.lineno, message))

    def _decide(self, rule: str, node: Any, message: str) -> None:
        self.done.decisions.append(Finding(rule, node.lineno, message))

    # ---- imports ------------------------------------------------------------------------------

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            new = of_beta1(alias.name)
            if new:
                self._changed("import", alias, f"{alias.name} is {new}")
                named = f" as {alias.asname}" if alias.asname not in (None, new) else ""
                self.source.replace(alias, new + named)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module, new = node.module or "", of_beta1(node.module or "")
        names = [alias.name for alias in node.names]
        if module == "neuronxcc" and names == ["nki"]:
            self._changed("import", node, "neuronxcc.nki is nki")
            alias = node.names[0].asname
            self.source.replace(node, f"import nki as {alias}" if alias else "import nki")
        if not new:
            return
        self._changed("import", node, f"{module} is {new}")
        gone = [alias for alias in node.names if alias.name in GONE.get(new, ())]
        if len(gone) == len(names):  # nothing refers to any of them any more
            if new != "nki" or self.names.local("nki") is not None:
                self.source.edits.append(self.source.without(node))
            else:
                self.source.replace(node, "import nki")
            return
        start = self.source.start(node)
        text = self.source.between(start, self.source.end(node))
        at = start + text.index(module)
        self.source.edits.append(Edit(at, at + len(module), new))
        self._without(gone, node.names)

    def _without(self, gone: Collection[Any], listed: list[Any]) -> None:
        """Names or arguments of a list go, with commas between them and those that stay."""
        kept = [node for node in listed if node not in gone]
        for node in gone:
            before = [other for other in kept if self.source.start(other) < self.source.start(node)]
            after = [other for other in kept if other not in before]
            if after:
                edit = Edit(self.source.start(node), self.source.start(after[0]), "")
            else:
                last = self.source.end(before[-1])
                comma = self.source.between(last, self.source.start(node)).index(",")
                edit = Edit(last + comma, self.source.end(node), "")
            self.source.edits.append(edit)

    # ---- names --------------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> None:
        if is_second_name(node, self.names):
            self.other_rules.add(id(node.value))
        if self.names.full(called(node.value)) == "nisa.register_alloc":
            self.registers |= {dotted(target) for target in node.targets}
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if self.to == "0.7" and dotted(node.test) in self.registers:
            self._decide("loop", node, "write it with nl.while_loop, whose body is a function")
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for decorator in node.decorator_list:
            self.other_rules.add(id(called(decorator)))
            if self.names.beta1 and is_hint(decorator, self.names):
                self._changed("hint", decorator, "the compiler has no such option any more")
            full = self.names.full(decorator)
            if full in ("nki.baremetal", "nki.trace"):
                self._changed("baremetal", decorator, f"{full} is nki.jit")
                self.source.replace(decorator, f"{self.nki}.jit")
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        full = self.names.full(node)
        if (memory_of(full) or full in _GONE) and id(node) not in self.other_rules:
            self._decide("removed", node, f"{full} has no successor in {self.to}")
        self.generic_visit(node)

    # ---- calls --------------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> None:
        full = self.names.full(node.func)
        memory = memory_of(full)
        if memory or full == "nki.compiler.no_reorder":  # that one is a loop's hint
            self.other_rules.add(id(node.func))
        self.generic_visit(node)
        target = node.func
        if full in ("nki.simulate_kernel", "nki.simulate") and node.args:
            target = node.args[0]
        if isinstance(target, ast.Subscript) and dotted(target.value) in self.kernels:
            self._grid(node, target)
        if full in RANGES:
            self._range(node, full)
        elif full == "nl.dynamic_range" and self.to == "0.7":
            self._decide("loop", node, "write it with nl.fori_loop, whose body is a function")
        elif full == "nki.simulate_kernel" and node.args:
            self._simulate(node)
        elif full == "nki.jit":
            if any(keyword.arg == "platform_target" for keyword in node.keywords):
                self._decide("platform", node, "set NEURON_PLATFORM_TARGET_OVERRIDE instead")
            else:
                self._options(node, ast.unparse(node.func))
        elif full in ("nki.baremetal", "nki.trace"):
            self._changed("baremetal", node, f"{full} is nki.jit")
            self._options(node, f"{self.nki}.jit")
        elif full in MEASURES and self.names.beta1:
            self._decide("measure", node, f"{full} has no successor in {self.to}")
        elif memory:
            self._changed("allocator", node, f"the compiler places it in nl.{memory}")
        elif full in REMOVED:
            self._decide("removed", node, f"{full} has no successor in {self.to}")
        elif full.startswith("nisa."):
            self._operators(node)

    def _range(self, node: ast.Call, full: str) -> None:
        if self.to == "0.6" and not self.names.beta1:
            return
        keywords = {keyword.arg or "**" for keyword in node.keywords}
        if keywords - HINTS or any(isinstance(arg, ast.Starred) for arg in node.args):
            self._decide("range", node, f"{full} with {', '.join(sorted(keywords))}")
            return
        self._changed("range", node, f"{full} is range")
        self.source.replace(node.func, "range")
        self._without(node.keywords, [*node.args, *node.keywords])

    def _simulate(self, node: ast.Call) -> None:
        self._changed("simulate", node, "nki.simulate_kernel is nki.simulate")
        opened, closed = self.source.end(node.func), self.source.end(node) - 1
        after = self.source.end(node.args[0])
        before = re.match(r"\s*\(\s*", self.source.between(opened, after))
        assert before is not None
        rest = [self.source.start(other) for other in (*node.args[1:], *node.keywords)]
        comma = self.source.between(after, closed).find(",")
        self.source.edits += [
            Edit(self.source.start(node), opened + before.end(), f"{self.nki}.simulate("),
            Edit(after + comma if rest else closed, min(rest, default=closed), ")" + before[0]),
        ]

    def _options(self, node: ast.Call, jit: str) -> None:
        """A decorator without what told the old compiler how to go about it."""
        options = OPTIONS if self.names.beta1 else {"mode"}
        gone = [keyword for keyword in node.keywords if keyword.arg in options]
        given = {keyword.arg or "" for keyword in gone}
        if given:
            self._changed("jit-mode", node, f"nki.jit has no {', '.join(sorted(given))}")
        if given & FILES:
            what = ", ".join(sorted(given & FILES))
            self._decide("measure", node, f"results are the same, but {what} isn't written")
        if not node.args and len(gone) == len(node.keywords):
            self.source.replace(node, jit)
            return
        self.source.replace(node.func, jit)
        self._without(gone, [*node.args, *node.keywords])

    def _operators(self, node: ast.Call) -> None:
        prefix = self.names.local("nl")
        operators = [keyword.value for keyword in node.keywords if keyword.arg in OPERANDS]
        for value in (*node.args[:6], *operators) if prefix is not None else ():
            space, _, name = self.names.full(value).rpartition(".")
            if space == "numpy" and name in NUMPY:
                self._changed("operator", node, f"np.{name} is nl.{NUMPY[name]}")
                self.source.replace(value, f"{prefix}.{NUMPY[name]}")

    def _grid(self, node: ast.Call, target: ast.Subscript) -> None:
        """A launch: the name of a kernel with brackets, called or simulated."""
        if self.names.beta1 and target is node.func and ast.unparse(target.slice) == "0":
            self._changed("baremetal", node, "a grid of 0 is none")
            self.source.replace(target, ast.unparse(target.value))
        elif isinstance(target.slice, ast.Tuple) or self.names.beta1:
            self._decide("instances", node, "let the kernel loop over what the instances did")
        elif self.to == "0.7":
            self._decide("grid", node, "set NEURON_LOGICAL_NC_CONFIG and leave the grid out")


def _kernels_of(node: ast.AST, names: Names) -> list[str]:
    """Names of kernels that a statement binds."""
    if isinstance(node, ast.FunctionDef):
        decorators = [names.full(called(decorator)) for decorator in node.decorator_list]
        return [node.name] if any(full.startswith("nki.") for full in decorators) else []
    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
        jitted = names.full(node.value.func) == "nki.jit"
        return [dotted(target) for target in node.targets] if jitted else []
    if isinstance(node, ast.ImportFrom) and "kernel" in (node.module or ""):
        return [alias.name for alias in node.names]
    return []
