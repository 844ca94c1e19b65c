"""Rewrites single expressions of older programs: imports, names, decorators, arguments.

No line is added or removed, so what later rules find is where it was.
"""

from __future__ import annotations

from typing import Any, Final

import libcst as cst
from libcst.metadata import PositionProvider

from nki_dist.language.older import ARITHMETIC, LOGIC, LOGIC_UNARY, OPERATORS, UNARY
from nki_dist.migrate.names import BETA1, Names, dotted, memory_of
from nki_dist.migrate.placement import is_hint, is_second_name
from nki_dist.migrate.report import Finding, Migrated

RANGES: Final = frozenset({"nl.affine_range", "nl.sequential_range", "nl.static_range"})
HINTS: Final = frozenset(
    {"precise_schedule", "multi_buffer", "directives", "name"}
)  # of loops; no value
COMPILER: Final = (
    "sbuf psum skip_middle_end_transformations enable_stack_allocator force_auto_alloc no_reorder"
)
GONE: Final = {
    "nki": ("baremetal", "simulate_kernel", "trace"),
    "nki.language": ("par_dim",),
    "nki.compiler": tuple(COMPILER.split(" ")),
}
_GONE: Final = frozenset(f"nki.compiler.{name}" for name in COMPILER.split(" ")[2:])
FILES: Final = frozenset({"save_neff_name", "save_trace_name", "artifacts_dir"})
OPTIONS: Final = FILES | {"mode", "additional_compile_opt", "working_directory", "profile_nth"}
MEASURES: Final = frozenset({"nki.benchmark", "nki.profile"})
REMOVED: Final = frozenset({"nl.all_reduce", "nl.gather_flattened_dst"})
OPERANDS: Final = frozenset({"op", "op0", "op1", "reduce_op"})
NUMPY: Final = {
    **{name: name for name in (*UNARY, *LOGIC_UNARY, *ARITHMETIC, *LOGIC)},
    **OPERATORS,
}


def with_args(call: cst.Call, args: list[cst.Arg]) -> cst.Call:
    """A call with other arguments; the last has no comma on the same line."""
    if args and isinstance(args[-1].comma, cst.Comma):
        after = args[-1].comma.whitespace_after
        if isinstance(after, cst.SimpleWhitespace):
            args = [*args[:-1], args[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)]
    return call.with_changes(args=args)


class Calls(cst.CSTTransformer):
    """One walk over a module.

    Args:
        names: of the module.
        done: where changes and decisions are noted.
        to: "0.6" or "0.7".
    """

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, names: Names, done: Migrated, to: str) -> None:
        super().__init__()
        self.names, self.done, self.to = names, done, to
        self.replaced: set[int] = set()  # ids of attributes that another rule looks after
        self.registers: set[str | None] = set()

    def _line(self, node: cst.CSTNode) -> int:
        return int(self.get_metadata(PositionProvider, node).start.line)

    def _changed(self, rule: str, node: cst.CSTNode, message: str) -> None:
        self.done.changes.append(Finding(rule, self._line(node), message))

    def _decide(self, rule: str, node: cst.CSTNode, message: str) -> None:
        self.done.decisions.append(Finding(rule, self._line(node), message))

    # ---- imports ------------------------------------------------------------------------------

    def leave_ImportAlias(self, original: cst.ImportAlias, updated: cst.ImportAlias) -> Any:
        name = dotted(updated.name) or ""
        if name != BETA1 and not name.startswith(BETA1 + "."):
            return updated
        new = "nki" + name[len(BETA1) :]
        self._changed("import", original, f"{name} is {new}")
        as_name = updated.asname
        if as_name is not None and dotted(as_name.name) == new:
            as_name = None
        return updated.with_changes(name=cst.parse_expression(new), asname=as_name)

    def leave_ImportFrom(self, original: cst.ImportFrom, updated: cst.ImportFrom) -> Any:
        module = dotted(updated.module) or ""
        if module == BETA1 or module.startswith(BETA1 + "."):
            new = "nki" + module[len(BETA1) :]
            self._changed("import", original, f"{module} is {new}")
            gone = GONE.get(new, ())
            if gone and not isinstance(updated.names, cst.ImportStar):
                kept = [a for a in updated.names if dotted(a.name) not in gone]
                if len(kept) < len(updated.names):
                    return self._without(updated, kept, new)
            return updated.with_changes(module=cst.parse_expression(new))
        if module != "neuronxcc" or isinstance(updated.names, cst.ImportStar):
            return updated
        if [dotted(alias.name) for alias in updated.names] != ["nki"]:
            return updated
        self._changed("import", original, "neuronxcc.nki is nki")
        alias = updated.names[0].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return cst.Import(names=[alias])

    def _without(self, node: cst.ImportFrom, kept: list[cst.ImportAlias], module: str) -> Any:
        """The import without names that nothing refers to any more."""
        if not kept:
            if module != "nki" or self.names.local("nki") is not None:
                return cst.RemoveFromParent()
            return cst.Import(names=[cst.ImportAlias(cst.Name("nki"))])
        last = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return node.with_changes(module=cst.parse_expression(module), names=[*kept[:-1], last])

    # ---- names --------------------------------------------------------------------------------

    def visit_Call(self, node: cst.Call) -> None:
        full = self.names.full(node.func)
        if memory_of(full) or full == "nki.compiler.no_reorder":  # that one is a loop's hint
            self.replaced.add(id(node.func))

    def visit_Assign(self, node: cst.Assign) -> None:
        if is_second_name(node, self.names):
            self.replaced.add(id(node.value))
        made = node.value.func if isinstance(node.value, cst.Call) else None
        if self.names.full(made) == "nisa.register_alloc":
            self.registers |= {dotted(target.target) for target in node.targets}

    def visit_While(self, node: cst.While) -> None:
        if self.to == "0.7" and dotted(node.test) in self.registers:
            self._decide("loop", node, "write it with nl.while_loop, whose body is a function")

    def visit_Decorator(self, node: cst.Decorator) -> None:
        made = node.decorator
        self.replaced.add(id(made.func if isinstance(made, cst.Call) else made))

    def leave_Attribute(
        self, original: cst.Attribute, updated: cst.Attribute
    ) -> cst.BaseExpression:
        full = self.names.full(original)
        if (memory_of(full) or full in _GONE) and id(original) not in self.replaced:
            self._decide("removed", original, f"{full} has no successor in {self.to}")
        return updated

    # ---- calls --------------------------------------------------------------------------------

    def leave_Call(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        full = self.names.full(original.func)
        if self.names.beta1 and self._grid_of_none(original):
            self._changed("baremetal", original, "a grid of 0 is none")
            return updated.with_changes(func=cst.ensure_type(updated.func, cst.Subscript).value)
        self._grid(original)
        if full in RANGES:
            return self._range(original, updated, full)
        if full == "nl.dynamic_range" and self.to == "0.7":
            self._decide("loop", original, "write it with nl.fori_loop, whose body is a function")
        if full == "nki.simulate_kernel" and updated.args:
            self._changed("simulate", original, "nki.simulate_kernel is nki.simulate")
            kernel = updated.args[0].with_changes(comma=cst.MaybeSentinel.DEFAULT)
            simulate = cst.parse_expression(f"{self.names.local('nki') or 'nki'}.simulate")
            return updated.with_changes(
                func=cst.Call(func=simulate, args=[kernel]), args=updated.args[1:]
            )
        if full == "nki.jit":
            return self._jit(original, updated)
        if full in ("nki.baremetal", "nki.trace"):
            return self._baremetal(original, updated)
        if full in MEASURES and self.names.beta1:
            self._decide("measure", original, f"{full} has no successor in {self.to}")
        memory = memory_of(full)
        if memory:
            self._changed("allocator", original, f"the compiler places it in nl.{memory}")
        if full in REMOVED:
            self._decide("removed", original, f"{full} has no successor in {self.to}")
        if full.startswith("nisa."):
            updated = self._operators(original, updated)
        return updated

    def _range(self, original: cst.Call, updated: cst.Call, full: str) -> cst.Call:
        if self.to == "0.6" and not self.names.beta1:
            return updated
        keywords = {a.keyword.value for a in updated.args if a.keyword is not None}
        if keywords - HINTS or any(a.star for a in updated.args):
            self._decide("range", original, f"{full} with {', '.join(sorted(keywords))}")
            return updated
        self._changed("range", original, f"{full} is range")
        kept = [a for a in updated.args if a.keyword is None]
        return with_args(updated.with_changes(func=cst.Name("range")), kept)

    def _jit(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        if any(
            a.keyword is not None and a.keyword.value == "platform_target" for a in original.args
        ):
            self._decide("platform", original, "set NEURON_PLATFORM_TARGET_OVERRIDE instead")
            return updated
        return self._options(original, updated, updated.func)

    def _baremetal(self, original: cst.Call, updated: cst.Call) -> cst.BaseExpression:
        self._changed("baremetal", original, f"{self.names.full(original.func)} is nki.jit")
        jit = cst.parse_expression(f"{self.names.local('nki') or 'nki'}.jit")
        return self._options(original, updated, jit)

    def _options(
        self, original: cst.Call, updated: cst.Call, jit: cst.BaseExpression
    ) -> cst.BaseExpression:
        """A decorator without what told the old compiler how to go about it."""
        gone = OPTIONS if self.names.beta1 else {"mode"}
        given = {a.keyword.value for a in original.args if a.keyword is not None} & gone
        kept = [a for a in updated.args if a.keyword is None or a.keyword.value not in gone]
        if given:
            self._changed("jit-mode", original, f"nki.jit has no {', '.join(sorted(given))}")
        if given & FILES:
            what = ", ".join(sorted(given & FILES))
            self._decide("measure", original, f"results are the same, but {what} isn't written")
        updated = updated.with_changes(func=jit)
        return with_args(updated, kept) if kept else jit

    def leave_Decorator(self, original: cst.Decorator, updated: cst.Decorator) -> cst.Decorator:
        if self.names.beta1 and is_hint(original.decorator, self.names):
            self._changed("hint", original, "the compiler has no such option any more")
        full = self.names.full(original.decorator)
        if full not in ("nki.baremetal", "nki.trace"):
            return updated
        self._changed("baremetal", original, f"{full} is nki.jit")
        jit = cst.parse_expression(f"{self.names.local('nki') or 'nki'}.jit")
        return updated.with_changes(decorator=jit)

    def _operators(self, original: cst.Call, updated: cst.Call) -> cst.Call:
        prefix = self.names.local("nl")
        if prefix is None:
            return updated
        args = []
        for n, arg in enumerate(updated.args):
            full = self.names.full(arg.value)
            keyword = arg.keyword.value if arg.keyword is not None else ""
            operator = keyword in OPERANDS or (not keyword and n < 6)
            if operator and full.startswith("numpy.") and full[6:] in NUMPY:
                new = NUMPY[full[6:]]
                self._changed("operator", original, f"np.{full[6:]} is nl.{new}")
                arg = arg.with_changes(value=cst.parse_expression(f"{prefix}.{new}"))
            args.append(arg)
        return updated.with_changes(args=args)

    def _grid_of_none(self, original: cst.Call) -> bool:
        """`kernel[0](...)`, which has no grid."""
        target = original.func
        if not isinstance(target, cst.Subscript) or dotted(target.value) not in self.kernels:
            return False
        return cst.Module([]).code_for_node(target).partition("[")[2] == "0]"

    def _grid(self, original: cst.Call) -> None:
        """A launch: the name of a kernel with brackets, called or simulated."""
        target: cst.BaseExpression = original.func
        if self.names.full(target) in ("nki.simulate_kernel", "nki.simulate") and original.args:
            target = original.args[0].value
        if not isinstance(target, cst.Subscript) or dotted(target.value) not in self.kernels:
            return
        if len(target.slice) > 1 or self.names.beta1:
            self._decide("instances", original, "let the kernel loop over what the instances did")
        elif self.to == "0.7":
            self._decide("grid", original, "set NEURON_LOGICAL_NC_CONFIG and leave the grid out")

    def visit_Module(self, node: cst.Module) -> None:
        found = _Kernels(self.names)
        node.visit(found)
        self.kernels = found.found


class _Kernels(cst.CSTVisitor):
    def __init__(self, names: Names) -> None:
        self.names = names
        self.found: set[str | None] = set()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        for decorator in node.decorators:
            made = decorator.decorator
            full = self.names.full(made.func if isinstance(made, cst.Call) else made)
            if full.startswith("nki."):
                self.found.add(node.name.value)

    def visit_Assign(self, node: cst.Assign) -> None:
        value = node.value
        if isinstance(value, cst.Call) and self.names.full(value.func) == "nki.jit":
            self.found.update(dotted(target.target) for target in node.targets)

    def visit_ImportFrom(self, node: cst.ImportFrom) -> None:
        if not isinstance(node.names, cst.ImportStar) and "kernel" in (dotted(node.module) or ""):
            self.found.update(dotted(alias.name) for alias in node.names)
