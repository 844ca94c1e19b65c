"""Going through what a program holds: tensors of operands, and of what it returns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nki_dist.program.access import Access


def tensors(value: Any) -> Iterator[Access]:
    """The tensors of one operand, lists opened; none if it is something else."""
    if isinstance(value, Access):
        yield value
    elif isinstance(value, (list, tuple)) and value and not _ranks(value):
        for item in value:
            yield from tensors(item)


def _ranks(value: Any) -> bool:
    """Whether a list holds ranks, or groups of them, of which there may be thousands."""
    first = value[0]
    if isinstance(first, (list, tuple)) and first:
        first = first[0]
    return isinstance(first, int)


def operands(args: Mapping[str, Any]) -> Iterator[tuple[str, Access]]:
    """Tensor operands of an instruction by parameter name, lists opened."""
    for name, value in args.items():
        if isinstance(value, Access):
            yield name, value
        elif isinstance(value, (list, tuple)):
            for a in tensors(value):
                yield name, a


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
