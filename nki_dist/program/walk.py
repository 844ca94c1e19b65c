"""Going through what a program holds: the tensors of what it returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nki_dist.program.access import Access


def returned(tree: Any, path: str = "") -> Iterator[tuple[str, Access]]:
    """Tensors of a returned tree, each with its place in it (`[0]`, `['k']`, `.field`)."""
    if isinstance(tree, Access):
        yield path, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from returned(value, f"{path}[{key!r}]")
    elif isinstance(tree, (list, tuple)):
        for n, value in enumerate(tree):
            yield from returned(value, f"{path}[{n}]")
    elif hasattr(tree, "__dict__"):
        for name, value in vars(tree).items():
            yield from returned(value, f"{path}.{name}")
