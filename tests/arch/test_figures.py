"""Double entry: the tables of nki_dist.arch against `figures.py`, in both directions."""

from __future__ import annotations

import ast
import dataclasses
import re
from collections.abc import Mapping

import pytest

from nki_dist.arch import DOCUMENTS, Arch
from tests.arch.figures import FIGURES, VARIANTS
from tests.arch.platforms import GENERATIONS, PLATFORMS, facts

KINDS = {"": "published", "~": "derived", "=": "fitted", "?": "assumed"}


def words(source: str) -> set[str]:
    return set(re.findall(r"[A-Z]+\d*", source))


def entered(platform: str) -> dict[str, str]:
    """The cells of a platform, by figure."""
    column = GENERATIONS.index(PLATFORMS[platform].name)
    cells = {name: row[column if len(row) > 1 else 0] for name, row in FIGURES.items()}
    return {name: c for name, c in {**cells, **VARIANTS.get(platform, {})}.items() if c != "-"}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_every_figure_was_entered_twice_and_is_the_same(platform):
    found, expected = facts(PLATFORMS[platform]), entered(platform)
    assert found.keys() == expected.keys()
    for name, cell in expected.items():
        text, _, known = cell.partition(" ")
        mark = known[:1] if known[:1] in KINDS else ""
        value, fact = ast.literal_eval(text), found[name]
        assert (type(fact.value), fact.value) == (type(value), value), name
        assert fact.kind == KINDS[mark], name
        assert words(fact.source).issuperset(known.removeprefix(mark).split()), name


@pytest.mark.parametrize("platform", PLATFORMS)
def test_fields_and_keys_are_those_of_the_facts(platform):
    arch = PLATFORMS[platform]
    names = set()
    for f in dataclasses.fields(Arch):
        value = getattr(arch, f.name)
        if f.name not in ("name", "instance", "facts"):
            keyed = isinstance(value, Mapping)
            names |= {f"{f.name}.{key}" for key in value} if keyed else {f.name}
    assert names == facts(arch).keys()


def test_every_document_is_the_source_of_a_figure():
    sources = " ".join(fact.source for arch in PLATFORMS.values() for fact in arch.facts.values())
    assert words(sources) >= {tag for tag, _ in DOCUMENTS}
