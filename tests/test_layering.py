"""Imports go down only, and only the files that run actors know Ray.

Looks at every import statement of the package, those inside functions included, and ignores those
under `if TYPE_CHECKING`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import nki_dist

PACKAGE = Path(nki_dist.__file__).parent

# Lowest first; rooms on one line may import each other.
LAYERS = (
    {"errors"},
    {"arch", "dtypes"},
    {"program"},
    {"isa", "language"},
    {"compiler", "timing"},
    {"cachekey"},
    {"hbm"},
    {"collectives"},
    {"core_actor"},
    {"frameworks"},
    {"launcher"},
    {
        "cli",
        "compat",
        "pytest_plugin",
        "kernels",
        "bench",
        "__main__",
        "",
    },  # "" is the package itself
)
LEVEL = {room: n for n, rooms in enumerate(LAYERS) for room in rooms}

RAY_ROOMS = ("launcher/", "core_actor/")
RAY_FILES = ("hbm/plasma.py",)


def _files() -> list[str]:
    return sorted(str(path.relative_to(PACKAGE)) for path in PACKAGE.rglob("*.py"))


def _room(file: str) -> str:
    first = file.split("/")[0]
    return "" if first == "__init__.py" else first.removesuffix(".py")


def _typing_only(node: ast.AST) -> bool:
    if not isinstance(node, ast.If):
        return False
    test = node.test
    return getattr(test, "id", getattr(test, "attr", "")) == "TYPE_CHECKING"


def _imports(node: ast.AST) -> Iterator[tuple[int, str]]:
    """(line, dotted name) of every import below a node; `from a import b` gives a.b."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from ((child.lineno, alias.name) for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, f"relative import in line {child.lineno}"
            yield from ((child.lineno, f"{child.module}.{alias.name}") for alias in child.names)
        elif _typing_only(child):
            assert isinstance(child, ast.If)
            yield from _imports(ast.Module(child.orelse, []))
        else:
            yield from _imports(child)


def _imports_of(file: str) -> list[tuple[int, str]]:
    return list(_imports(ast.parse((PACKAGE / file).read_text())))


def test_every_room_has_a_layer() -> None:
    unknown = {_room(file) for file in _files()} - set(LEVEL)
    assert not unknown, f"give these a layer: {sorted(unknown)}"


@pytest.mark.parametrize("room", sorted({_room(file) for file in _files()}))
def test_imports_go_down(room: str) -> None:
    upward = []
    for file in _files():
        if _room(file) != room:
            continue
        for line, name in _imports_of(file):
            parts = name.split(".")
            if parts[0] != "nki_dist":
                continue
            target = parts[1] if len(parts) > 1 and parts[1] in LEVEL else ""
            if LEVEL.get(target, 0) > LEVEL.get(room, len(LAYERS)):
                upward.append(f"{file}:{line} imports {name}")
    assert not upward, "\n".join(upward)


def test_only_actor_and_plasma_files_import_ray() -> None:
    offenders = [
        f"{file}:{line}"
        for file in _files()
        for line, name in _imports_of(file)
        if name.split(".")[0] == "ray" and not file.startswith(RAY_ROOMS) and file not in RAY_FILES
    ]
    assert not offenders, f"these files import ray: {offenders}"


def test_nothing_relies_on_the_test_suite() -> None:
    offenders = [
        f"{file}:{line}"
        for file in _files()
        for line, name in _imports_of(file)
        if name.split(".")[0] in ("tests", "pytest") and _room(file) != "pytest_plugin"
    ]
    assert not offenders, f"these files import tests or pytest: {offenders}"


def test_the_walk_sees_nested_and_skips_typing_imports() -> None:
    source = (
        "import a.b\n"
        "if TYPE_CHECKING:\n    import hidden\nelse:\n    import shown\n"
        "def f():\n    from c import d\n"
    )
    names = [name for _, name in _imports(ast.parse(source))]
    assert names == ["a.b", "shown", "c.d"]
