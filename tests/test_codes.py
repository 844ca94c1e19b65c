"""Codes of errors: every place that raises has one, and the list changes only on purpose.

`tests/data/codes.txt` holds all codes that were ever published. A new code gets a line there; lines
are never taken away: a code that is no longer raised goes to RETIRED.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import nki_dist
from nki_dist import codes, errors
from nki_dist.program.uncollected import uncollected

sys.path.insert(0, str(Path(__file__).parents[1] / "docs"))

from codes_page import page as codes_page

PACKAGE = Path(nki_dist.__file__).parent
PUBLISHED = Path(__file__).parent / "data" / "codes.txt"

KINDS = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, errors.Diagnostic)
}
# What these are doesn't say which mistake was made; whoever makes one says it with code=.
FLOORS = {
    name
    for name, kind in KINDS.items()
    if kind.default_code
    in (
        "error",
        "warning",
        "compile",
        "invalid",
        "launch",
        "out-of-memory",
        "out-of-bounds",
        "unwritten",
        "mismatch",
        "compiler-may-reject",
    )
}
# Made with the code of another error (`as_warning`), or by notes that were read (`noted`).
COPIES = {("errors.py", "as_warning"), ("compiler/notes.py", "noted")}


@dataclass(frozen=True)
class Site:
    """A call that makes an error, or calls a function that makes one with a code it is given."""

    file: str
    line: int
    called: str
    code: ast.expr | None
    maker: str | None  # the function around it, if that has a parameter `code`

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}: {self.called}"


def _name(function: ast.expr) -> str:
    return getattr(function, "id", None) or getattr(function, "attr", "")


def _functions(tree: ast.AST) -> Iterator[tuple[ast.AST, ast.FunctionDef | None]]:
    """Every node with the innermost function around it."""
    stack: list[tuple[ast.AST, ast.FunctionDef | None]] = [(tree, None)]
    while stack:
        node, function = stack.pop()
        yield node, function
        inner = node if isinstance(node, ast.FunctionDef) else function
        stack += [(child, inner) for child in ast.iter_child_nodes(node)]


def _takes_code(function: ast.FunctionDef) -> bool:
    """Whether a function makes errors for others: elsewhere `code` is Python's, by position."""
    return any(a.arg == "code" for a in function.args.kwonlyargs)


def _sites() -> Iterator[Site]:
    nodes = {
        str(path.relative_to(PACKAGE)): list(_functions(ast.parse(path.read_text())))
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    makers = {
        node.name
        for found in nodes.values()
        for node, _ in found
        if isinstance(node, ast.FunctionDef) and _takes_code(node) and node.name != "__init__"
    }
    for file, found in nodes.items():
        called = {*KINDS, *makers, *_aliases(node for node, _ in found)}
        for node, function in found:
            if not isinstance(node, ast.Call) or _name(node.func) not in called:
                continue
            if function is not None and (file, function.name) in COPIES:
                continue
            given = [k.value for k in node.keywords if k.arg == "code"]
            maker = function.name if function is not None and _takes_code(function) else None
            code = given[0] if given else None
            yield Site(file, node.lineno, _name(node.func), code, maker)


def _aliases(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Variables that hold classes of errors: `kind = ThisError if strict else ThatWarning`."""
    for node in nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.IfExp)):
            chosen = node.value
            names = [chosen.body, chosen.orelse] if isinstance(chosen, ast.IfExp) else [chosen]
            if any(isinstance(n, ast.Name) and n.id in KINDS for n in names):
                yield from (_name(target) for target in node.targets)


@pytest.fixture(scope="module")
def sites() -> list[Site]:
    """All of the package: finding them takes seconds, so whoever only lists tests doesn't."""
    with uncollected():  # a million nodes
        return list(_sites())


def _literals(code: ast.expr) -> list[str]:
    """The codes that an expression can be; empty if it isn't made of literals."""
    if isinstance(code, ast.Constant):
        return [code.value]
    if isinstance(code, ast.IfExp):
        return [*_literals(code.body), *_literals(code.orelse)]
    return []


def test_places_that_raise_are_found(sites):
    assert len(sites) > 500
    assert {"NkiValidationError", "LaunchError", "refuse", "limited"} <= {s.called for s in sites}


def test_a_place_without_code_raises_what_means_one_mistake(sites):
    without = [site for site in sites if site.code is None]
    assert [s.where for s in without if s.called not in KINDS] == [], "these need code=..."
    many = [s.where for s in without if s.called in FLOORS]
    assert many == [], "these mean many mistakes; give code=..."


def test_codes_at_places_that_raise_are_known(sites):
    for site in sites:
        if site.code is None:
            continue
        if site.maker is not None and _name(site.code) == "code":
            continue  # hands on what its caller gave, and that is a place of this list
        found = _literals(site.code)
        assert found, f"{site.where}: the code isn't written out"
        assert set(found) <= set(codes.CODES), f"{site.where}: unknown code {found}"


def test_every_code_is_used(sites):
    used = {code for site in sites if site.code is not None for code in _literals(site.code)}
    used |= {kind.default_code for kind in KINDS.values()}
    assert set(codes.CODES) - used == set()


def test_codes_are_published_once_and_stay():
    published = PUBLISHED.read_text().split()
    assert published == sorted(set(published))
    assert {*codes.CODES, *codes.RETIRED} == set(published)
    assert not {*codes.CODES} & {*codes.RETIRED}
    assert set(codes.RETIRED.values()) <= set(codes.CODES)
    assert sum(map(len, codes.SECTIONS.values())) == len(codes.CODES)


@pytest.mark.parametrize("code", codes.CODES.values(), ids=lambda c: c.name)
def test_what_a_code_says(code):
    assert re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", code.name)
    assert code.title.endswith(".") and code.hint.endswith((".", ")", "`"))
    for aws in (*code.aws, *(c for more in code.aws_of.values() for c in more)):
        assert re.fullmatch(r"NCC_E[A-Z]{3}\d{3}", aws)
    assert all(title.startswith(("nisa.", "nl.")) for title in code.aws_of)


def test_the_page_is_current():
    page = Path(__file__).parents[1] / "docs" / "codes.md"
    assert page.read_text() == codes_page(), f"run: python docs/codes_page.py > {page}"
    for code in codes.CODES.values():
        assert f"\n| `{code.name}` | {code.title} |" in page.read_text()
