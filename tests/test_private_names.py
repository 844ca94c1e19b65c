"""Tests speak to the package by names that its rooms offer: private ones are counted, and few."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parent
MOST = 14  # and not more again
MAYBE = re.compile(r"[.\"']_[a-zA-Z]|import .*\b_[a-zA-Z]")


def is_private(dotted: str) -> bool:
    return any(re.match("_[a-zA-Z]", part) for part in dotted.split("."))


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """(name here, dotted name) of all that comes from the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "nki_dist":
            yield from ((a.asname or a.name, f"{node.module}.{a.name}") for a in node.names)
        elif isinstance(node, ast.Import):
            ours = [a for a in node.names if a.name.split(".")[0] == "nki_dist"]
            yield from ((a.asname or "nki_dist", a.name) for a in ours)


def mentioned(node: ast.AST) -> str:
    """`a.b._c`, also where it is an attribute that `setattr(a.b, "_c", ...)` names, or a text."""
    if isinstance(node, ast.Attribute):
        return ast.unparse(node)
    if not isinstance(node, ast.Call) or not re.search(
        "(set|del|get)attr$", ast.unparse(node.func)
    ):
        return ""
    texts = [a.value if isinstance(a, ast.Constant) else ast.unparse(a) for a in node.args[:2]]
    whole = isinstance(node.args[0], ast.Constant)
    return str(texts[0]) if whole else ".".join(map(str, texts))


def private_uses(source: str) -> list[str]:
    """Private names of the package's modules and classes that a file imports, reads or sets."""
    tree = ast.parse(source)
    here = {"nki_dist": "nki_dist", **dict(imported(tree))}
    found = [dotted for _, dotted in imported(tree) if is_private(dotted)]
    for text in map(mentioned, ast.walk(tree)):
        first, _, rest = text.partition(".")
        last = rest.rpartition(".")[2]
        if first in here and is_private(last) and last not in ("_replace", "_asdict", "_fields"):
            found.append(f"{here[first]}.{rest}")
    return found


def test_private_names_are_found() -> None:
    head = "import nki_dist as nki\nfrom nki_dist.a import b\nfrom c import d\n"
    for line in (
        "from nki_dist.a import _x",
        "import nki_dist._a.x",
        "b._x(1)",
        "nki.a.b._x = 1",
        "patch.setattr(b, '_x', 1)",
        "patch.setattr(b.C, '_x', 1)",
        "patch.setattr('nki_dist.a._x', 1)",
    ):
        assert len(private_uses(head + line)) == 1, line
    for line in (
        "from nki_dist.a import x",
        "d._x",
        "self._b",
        "b.__doc__",
        "b.x._replace(n=1)",
        "patch.setattr(d, '_x', 1)",
        "patch.setattr(b, 'x', '_y')",
    ):
        assert private_uses(head + line) == [], line


def test_there_are_few() -> None:
    texts = {path.relative_to(TESTS): path.read_text() for path in TESTS.rglob("*.py")}
    found = {str(path): private_uses(text) for path, text in texts.items() if MAYBE.search(text)}
    assert sum(map(len, found.values())) <= MOST, {k: v for k, v in found.items() if v}
