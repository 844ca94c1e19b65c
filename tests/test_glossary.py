"""The glossary against the code: places that exist and use the word, and words that are gone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "nki_dist"
ROW = re.compile(r"\| ([a-z][a-z -]*) \| (.+) \| `([\w/]+\.py)`: `(\w+)` \|")

# What was said here only, and the field's word instead; of modules, classes and functions.
RETIRED = {
    "alike": "equal",
    "around": "wrap",
    "asked": "query",
    "bell": "doorbell",
    "folded": "representative, run lengths",
    "held": "checked",
    "kept": "pool, cache",
    "known": "cache",
    "lifeline": "watchdog",
    "made": "result",
    "meeting": "rendezvous",
    "meetings": "rendezvous",
    "own": "per-core, local",
    "post": "mailbox",
    "price": "cost",
    "prices": "cost",
    "room": "capacity",
    "rooms": "capacity",
    "stuck": "deadlock",
    "wanted": "expected",
}


def rows() -> list[tuple[str, ...]]:
    lines = (ROOT / "docs" / "glossary.md").read_text().splitlines()
    table = [line for line in lines if line.startswith("| ")][1:]
    found = [ROW.fullmatch(line) for line in table]
    assert all(found), [line for line, row in zip(table, found) if not row]
    return [row.groups() for row in found if row]


def defined(tree: ast.AST) -> set[str]:
    """Names of classes, functions, parameters, variables and attributes."""
    found = set()
    for n in ast.walk(tree):
        if isinstance(n, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            found.add(n.name)
        elif isinstance(n, ast.arg):
            found.add(n.arg)
        elif isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Store):
            found.add(n.id if isinstance(n, ast.Name) else n.attr)
    return found


def plain(text: str) -> str:
    return re.sub(r"[\s_-]+", "", text).lower()


def retired_in(name: str) -> set[str]:
    return RETIRED.keys() & re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower().split("_")


def test_words_are_in_order_and_once() -> None:
    words = [row[0] for row in rows()]
    assert words == sorted(set(words)) and 30 < len(words) <= 60


@pytest.mark.parametrize(("word", "told", "file", "name"), rows())
def test_places_exist_and_use_the_word(word: str, told: str, file: str, name: str) -> None:
    text = (PACKAGE / file).read_text()
    assert name in defined(ast.parse(text)), f"{file} has no {name}"
    assert plain(word) in plain(text), f"{file} doesn't say {word}"


def test_no_row_defines_a_retired_word() -> None:
    assert not {row[0] for row in rows()} & RETIRED.keys()


def test_retired_words_name_nothing_public() -> None:
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        names = [path.stem, *(part for part in path.relative_to(PACKAGE).parts[:-1])]
        for n in ast.walk(ast.parse(path.read_text())):
            if isinstance(n, ast.ClassDef) or (
                isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)) and n.name[0] != "_"
            ):
                names.append(n.name)
        found += [
            f"{path.relative_to(ROOT)}: {name}; say {RETIRED[word]}"
            for name in names
            for word in retired_in(name)
        ]
    assert found == []


def test_parts_of_names_are_found() -> None:
    assert retired_in("check_known") == {"known"} and retired_in("OwnRay") == {"own"}
    assert not retired_in("unknown") and not retired_in("postponed")
