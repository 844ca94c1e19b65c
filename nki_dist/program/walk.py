"""Going through what a program holds: tensors of operands, and of what it returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from nki_dist.program.access import Access
from nki_dist.program.instruction import Instruction


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


def accesses(i: Instruction) -> list[Access]:
    """Tensor operands of an instruction, lists opened; asked of each several times."""
    found: list[Access] = []
    for value in i.args.values():
        if isinstance(value, Access):
            found.append(value)
        elif value.__class__ is list or value.__class__ is tuple:
            found += tensors(value)
    return found


def run_time_arguments(i: Instruction) -> list[Access]:
    """Operands with one run-time address."""
    return [a for a in accesses(i) if a.dynamic is not None and a.dynamic.kind == "scalar"]


def index_tensors(found: Iterable[Access]) -> list[Access]:
    """The tensors that hold run-time addresses of these."""
    moved = (a.dynamic.source for a in found if a.dynamic is not None)
    return [source for source in moved if isinstance(source, Access)]


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
