"""What kernels of a checkout contradict in rules about Python source, found by reading alone.

Covers kernels that nobody launches, and branches that no launch takes. A kernel is a decorated
function, or one that calls instructions; with it goes what it calls and can be found by its name:
a function of the module, or of one it is imported from, a class, a method of `self`. Kernels of
Beta 1 (`neuronxcc.nki`) are left out, as the rules don't judge them.

The rules are the compiler's own (`nki_dist.compiler.source_rules`), and two of those about
signatures and arguments that can be read.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bench.real_kernels.summary import LAUNCHERS
from nki_dist.compiler.source_rules import findings

NUMPY_TYPES = frozenset(
    ("float32", "float16", "int32", "uint32", "int16", "uint16", "int8", "uint8", "bool_")
)


class Broken(NamedTuple):
    """A line of a kernel that breaks a rule."""

    code: str
    file: str
    line: int
    function: str


@dataclass
class Module:
    """One file.

    Attributes:
        functions: by name; methods as `Class.name`.
        imported: name -> (end of the module's dotted name, name there; "" for a module itself).
    """

    file: str
    beta1: bool
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    imported: dict[str, tuple[str, str]] = field(default_factory=dict)


def broken(checkout: Path, patterns: Iterable[str], beta1: str) -> tuple[list[Broken], int]:
    """What is found in a checkout, and how many functions were read."""
    modules = _modules(checkout, patterns, beta1)
    by_end: dict[str, list[Module]] = {}
    for module in modules:
        by_end.setdefault(Path(module.file).stem, []).append(module)
    reached: dict[tuple[str, str], tuple[Module, ast.FunctionDef]] = {}
    waiting = [
        (m, name)
        for m in modules
        if not m.beta1
        for name, function in m.functions.items()
        if _is_kernel(function)
    ]
    while waiting:
        module, name = waiting.pop()
        if (module.file, name) in reached or module.beta1:
            continue
        function = module.functions[name]
        reached[module.file, name] = (module, function)
        waiting += _called(module, name, function, by_end)
    found: list[Broken] = []
    for module, function in reached.values():
        judged = ((line, told.code) for line, told in findings(function))
        for line, code in [*judged, *_arguments(function)]:
            found.append(Broken(code, module.file, line, function.name))
    return sorted(set(found)), len(reached)


def _modules(checkout: Path, patterns: Iterable[str], beta1: str) -> list[Module]:
    found = []
    for path in sorted({p for pattern in patterns for p in checkout.glob(pattern)}):
        text = path.read_text(errors="replace")
        try:
            tree = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        file = str(path.relative_to(checkout))
        module = Module(file, "neuronxcc" in text or beta1 in file)
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                module.functions[node.name] = node
            elif isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, ast.FunctionDef):
                        module.functions[f"{node.name}.{inner.name}"] = inner
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                end = (node.module or "").rpartition(".")[2]
                for alias in node.names:
                    module.imported[alias.asname or alias.name] = (end, alias.name)
            elif isinstance(node, ast.Import):
                for alias in node.names:
                    end = alias.name.rpartition(".")[2]
                    module.imported[alias.asname or end] = (end, "")
        found.append(module)
    return found


def _is_kernel(function: ast.FunctionDef) -> bool:
    if any(_launches(d) for d in function.decorator_list):
        return True
    return any(
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "nisa"
        for node in ast.walk(function)
    )


def _launches(decorator: ast.expr) -> bool:
    node: Any = decorator.func if isinstance(decorator, ast.Call) else decorator
    return (node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")) in LAUNCHERS


def _called(
    module: Module, name: str, function: ast.FunctionDef, by_end: dict[str, list[Module]]
) -> Iterator[tuple[Module, str]]:
    owner = name.partition(".")[0] if "." in name else ""
    for node in ast.walk(function):
        if not isinstance(node, ast.Call):
            continue
        target = node.func
        if isinstance(target, ast.Name):
            yield from _named(module, target.id, by_end)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            held = target.value.id
            if held == "self" and f"{owner}.{target.attr}" in module.functions:
                yield module, f"{owner}.{target.attr}"
            elif held in module.imported and not module.imported[held][1]:
                for other in by_end.get(module.imported[held][0], ()):
                    yield from _named(other, target.attr, {})


def _named(module: Module, name: str, by_end: dict[str, list[Module]]) -> Iterator[Any]:
    """A function of a module, all methods of a class of it, or what it imports by this name."""
    if name in module.functions:
        yield module, name
    for key in module.functions:
        if key.startswith(f"{name}."):
            yield module, key
    if name in module.imported:
        end, there = module.imported[name]
        for other in by_end.get(end, ()):
            yield from _named(other, there or name, {})


def _arguments(function: ast.FunctionDef) -> Iterator[tuple[int, str]]:
    if function.args.kwonlyargs and any(map(_launches, function.decorator_list)):
        yield function.lineno, "python-keyword-only"
    for node in ast.walk(function):
        if isinstance(node, ast.Call) and _of(node.func, "nl"):
            for keyword in node.keywords:
                value: Any = keyword.value
                if keyword.arg == "dtype" and _of(value, "np") and value.attr in NUMPY_TYPES:
                    yield value.lineno, "dtype-of-numpy"


def _of(node: Any, module: str) -> bool:
    """Whether it is `module.name`."""
    return isinstance(node, ast.Attribute) and getattr(node.value, "id", "") == module
