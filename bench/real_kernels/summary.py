"""Markdown tables of recorded runs: tests by folder, failures, kernels of a checkout."""

from __future__ import annotations

import ast
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

OUTCOMES = ("passed", "ran", "failed", "timeout", "skipped")
LAUNCHERS = ("jit", "baremetal", "benchmark", "profile", "trace", "simulate")


class KernelFunction(NamedTuple):
    """A function of a checkout that is a kernel."""

    file: str
    name: str
    decorated: bool


def tables(records: Iterable[Path], checkout: Path | None) -> str:
    """All tables, for the last outcome of every test."""
    rows = {}
    for path in records:
        for line in path.read_text().splitlines():
            row = json.loads(line)
            if "test" in row:
                rows[row["file"], row["test"]] = row
    found = list(rows.values())
    text = [*_folders(found), "", *_failures(found)]
    if checkout is not None:
        text += ["", *_kernels(found, checkout.resolve())]
    return "\n".join(text)


def _folders(rows: list[dict[str, Any]]) -> Iterator[str]:
    counts: dict[str, Counter] = defaultdict(Counter)
    for row in rows:
        counts[str(Path(row["file"]).parent)][row["outcome"]] += 1
    counts["total"] = sum(counts.values(), Counter())
    yield "| folder | tests run | " + " | ".join(OUTCOMES) + " |"
    yield "|---|" + "---|" * (1 + len(OUTCOMES))
    for folder, count in counts.items():
        numbers = [count.total(), *(count[outcome] for outcome in OUTCOMES)]
        yield f"| {folder} | " + " | ".join(map(str, numbers)) + " |"


def _failures(rows: list[dict[str, Any]]) -> Iterator[str]:
    for row in rows:
        if row["outcome"] in ("failed", "timeout"):
            reason = row["reason"].splitlines()[0] if row["reason"] else ""
            yield f"- {row['outcome']} {row['file']} {row['test'].split('::')[-1]}: {reason}"


def _kernels(rows: list[dict[str, Any]], checkout: Path) -> Iterator[str]:
    """How many tests each kernel took part in, and in how many all results matched.

    A kernel without a decorator took part where instructions came from its file.
    """
    took_part: dict[tuple[str, str], Counter] = defaultdict(Counter)
    for row in rows:
        names = {tuple(pair) for pair in row["kernels"]}
        for key in names | {(file, "") for file, _ in names}:
            took_part[key][row["outcome"]] += 1
    yield "| file | kernel | tests | matched | differ | no verdict |"
    yield "|---|---|---|---|---|---|"
    for kernel in kernel_functions(checkout):
        name = kernel.name if kernel.decorated else ""
        count = took_part[str(checkout / kernel.file), name]
        failed, unknown = count["failed"], count["ran"] + count["timeout"]
        numbers = (count.total() - count["skipped"], count["passed"], failed, unknown)
        yield f"| {kernel.file} | {kernel.name} | " + " | ".join(map(str, numbers)) + " |"


def kernel_functions(checkout: Path) -> list[KernelFunction]:
    """Decorated functions, and functions that have the name of their file and take tensors."""
    found = []
    folder = next((f for f in ("src/nkilib_src", "nki") if (checkout / f).is_dir()), ".")
    for path in sorted((checkout / folder).glob("**/*.py")):
        file = str(path.relative_to(checkout))
        try:
            tree = ast.parse(path.read_text())
        except SyntaxError:
            found.append(KernelFunction(file, f"{path.stem} (not valid Python)", False))
            continue
        for node in tree.body:
            if isinstance(node, ast.FunctionDef):
                decorated = any(_launches(d) for d in node.decorator_list)
                named = node.name == path.stem and "nki.language" in path.read_text()
                if decorated or named:
                    found.append(KernelFunction(file, node.name, decorated))
    return found


def _launches(decorator: ast.expr) -> bool:
    """Whether it is `nki.jit`, `jit(...)` or one of its kin."""
    if isinstance(decorator, ast.Call):
        decorator = decorator.func
    name = decorator.attr if isinstance(decorator, ast.Attribute) else getattr(decorator, "id", "")
    return name in LAUNCHERS
