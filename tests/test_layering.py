"""Imports go down only, never in a circle, few files know Ray, and few instructions by name.

Looks at every import statement of the package, those inside functions included. Those under
`if TYPE_CHECKING` may go up, but count for circles.

A name imported from a package is the file of that name, or else the `__init__.py`: whoever asks a
package for what it re-exports depends on all that it imports. An `__init__.py` on the way to a
module doesn't count: Python runs it, but nothing of it is wanted.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

import nki_dist
from nki_dist.isa import INSTRUCTIONS
from tests.programs import said

PACKAGE = Path(nki_dist.__file__).parent
NAMES = frozenset(INSTRUCTIONS)

# Lowest first; packages on one line may import each other.
LAYERS = (
    {"codes", "forks", "ranges"},
    {"errors"},
    {"tricks"},
    {"release"},  # below checks, whose fourth question it answers
    {"checks"},
    {"arch", "dtypes"},
    {"ops"},  # what instructions do, as data
    {"program", "topology", "frameworks"},
    {"isa"},
    {"language"},
    {"compiler", "timing", "report"},  # a profile writes its page, which is made of its timeline
    {"collectives"},
    {"hbm"},
    {"linking"},  # programs become operations, which runtime binds to memory
    {"runtime"},
    {"core_actor"},  # cores in other processes
    {"insight"},
    {"launcher"},
    {"migrate"},  # rewrites text; knows no kernel, and only the command knows it
    {
        "cli",
        "compat",
        "pytest_plugin",
        "kernels",
        "testing",
        "bench",
        "__main__",
        "",
    },  # "" is the package itself
)
LEVEL = {package: n for n, packages in enumerate(LAYERS) for package in packages}

RAY_ROOMS = ("core_actor/", "hbm/")


def _files() -> list[str]:
    return sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))


def _package(file: str) -> str:
    first = file.split("/")[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def _typing_only(node: ast.AST) -> bool:
    if not isinstance(node, ast.If):
        return False
    test = node.test
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"


def _imports(node: ast.AST, typing_too: bool = False) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import below a node; `from a import b` gives a.b."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((child.lineno, alias.name) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"relative import in line {child.lineno}"
            yield from ((child.lineno, f"{child.module}.{alias.name}") for alias in child.names)
        elif _typing_only(child) and not typing_too:
            assert isinstance(child, ast.If)
            yield from _imports(ast.Module(child.orelse, []))
        else:
            yield from _imports(child, typing_too)


@cache
def _imports_of(file: str) -> list[tuple[int, str]]:
    return list(_imports(ast.parse((PACKAGE / file).read_text())))


def import_graph(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Which files each file imports; files are named from the package on."""
    return {
        file: {
            _file_of(name, sources)
            for _, name in _imports(ast.parse(text), typing_too=True)
            if name.split(".")[0] == "nki_dist"
        }
        for file, text in sources.items()
    }


def _file_of(name: str, files: Mapping[str, str]) -> str:
    """The file a dotted name is, or is something of."""
    path = "/".join(name.split(".")[1:])
    for file in (f"{path}.py", f"{path}/__init__.py".lstrip("/")):
        if file in files:
            return file
    return _file_of(name.rpartition(".")[0], files)


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of files each of which imports all the others, directly or through others."""
    reached = {file: _reached(file, graph) for file in graph}
    found = {frozenset(g for g in reached[f] if f in reached[g]) for f in graph if f in reached[f]}
    return sorted(map(sorted, found))


def _reached(start: str, graph: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    ahead = [start]
    while ahead:
        new = graph[ahead.pop()] - seen
        seen |= new
        ahead += new
    return seen


def test_every_room_has_a_layer() -> None:
    unknown = {_package(file) for file in _files()} - set(LEVEL)
    assert not unknown, f"give these a layer: {sorted(unknown)}"


@pytest.mark.parametrize("package", sorted({_package(file) for file in _files()}))
def test_imports_go_down(package: str) -> None:
    upward = []
    for file in _files():
        if _package(file) != package:
            continue
        for line, name in _imports_of(file):
            parts = name.split(".")
            if parts[0] != "nki_dist":
                continue
            target = parts[1] if len(parts) > 1 and parts[1] in LEVEL else ""
            if LEVEL.get(target, 0) > LEVEL.get(package, len(LAYERS)):
                upward.append(f"{file}:{line} imports {name}")
    assert not upward, "\n".join(upward)


def test_no_circles_between_files() -> None:
    found = circles(import_graph({file: (PACKAGE / file).read_text() for file in _files()}))
    assert not found, "these import each other: " + "; ".join(map(" ".join, found))


def test_only_core_actor_and_hbm_import_ray() -> None:
    offenders = [
        f"{file}:{line}"
        for file in _files()
        for line, name in _imports_of(file)
        if name.split(".")[0] == "ray" and not file.startswith(RAY_ROOMS)
    ]
    assert not offenders, f"these files import ray: {offenders}"


def test_launches_in_this_process_never_load_ray() -> None:
    program = (
        "import sys, numpy as np, nki_dist as nki, nki_dist.language as nl\n"
        "def copy(x):\n"
        "    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)\n"
        "    nl.store(out, nl.load(x))\n"
        "    return out\n"
        "x = np.ones((3, 2), np.float32)\n"
        "assert nki.simulate(nki.jit(copy))(x).sum() == 6\n"
        "sys.exit('ray' in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_nothing_relies_on_the_test_suite() -> None:
    offenders = [
        f"{file}:{line}"
        for file in _files()
        for line, name in _imports_of(file)
        if name.split(".")[0] in ("tests", "pytest") and _package(file) != "pytest_plugin"
    ]
    assert not offenders, f"these files import tests or pytest: {offenders}"


NAMELESS_ROOMS = (
    "compiler/",
    "timing/",
    "program/",
    "ops/",
    "linking/",
    "runtime/",
    "core_actor/",
    "insight/",
)


def _instructions_named(source: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every string that is the name of an instruction."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and node.value in NAMES:
            yield node.lineno, node.value


def test_who_runs_or_times_programs_knows_no_instruction_by_name() -> None:
    """What they ask is declared in the instruction's own file."""
    offenders = [
        f"{file}:{line} names {name}"
        for file in _files()
        if file.startswith(NAMELESS_ROOMS)
        for line, name in _instructions_named((PACKAGE / file).read_text())
    ]
    assert not offenders, "\n".join(offenders)


def test_a_warm_launch_goes_through_few_files():
    text = said("-m", "bench.rooms", folder=PACKAGE.parent)
    files, switches = map(int, re.findall(r"(\d+) (?:files|switches)", text))
    assert files <= 15 and switches <= 60, "python -m bench.rooms --list names the files"
