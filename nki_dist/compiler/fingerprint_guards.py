"""Cheap proof that nothing a fingerprint was computed from has changed since.

Invariant: every link that the walk followed is recorded here together with a strong reference to
what it led to. As the old objects are kept alive, "the same object" (`is`) can't be mistaken: when
every link still leads to the same object, the fingerprint is the same. The reverse isn't claimed;
after a change to an equal value the walk is simply repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from operator import is_, itemgetter
from types import CellType, FunctionType
from typing import Any, Final

MISSING: Final = object()


def contents_of(cell: CellType) -> Any:
    """What a closure cell holds, MISSING while it's empty."""
    try:
        return cell.cell_contents
    except ValueError:
        return MISSING


def _function_parts(function: FunctionType) -> tuple[Any, ...]:
    return (
        function.__code__,
        function.__defaults__,
        function.__kwdefaults__,
        function.__dict__,
    )


def _same(new: Iterable[Any], old: Iterable[Any]) -> bool:
    return all(map(is_, new, old))


class Guards:
    """Links recorded by one walk; `hold()` says whether all still lead where they did."""

    def __init__(self) -> None:
        self._present: dict[int, tuple[Mapping[str, Any], dict[str, Any]]] = {}
        self._absent: dict[int, tuple[Mapping[str, Any], set[str]]] = {}
        self._functions: list[tuple[FunctionType, tuple[Any, ...]]] = []
        self._cells: list[tuple[CellType, Any]] = []
        self._sequences: list[tuple[Any, tuple[Any, ...]]] = []
        self._mappings: list[tuple[Mapping[Any, Any], tuple[Any, ...], tuple[Any, ...]]] = []
        self._identities: list[tuple[Callable[[Any], Any], Any, Any]] = []
        self._equalities: list[tuple[Callable[[Any], Any], Any, Any]] = []
        self._lookups: list[tuple[Mapping[str, Any], Callable[[Any], Any], tuple[Any, ...]]] = []

    def read(self, namespace: Mapping[str, Any], name: str) -> Any:
        """Look a name up, and remember the answer (MISSING counts as one)."""
        value = namespace.get(name, MISSING)
        if value is MISSING:
            self._absent.setdefault(id(namespace), (namespace, set()))[1].add(name)
        else:
            self._present.setdefault(id(namespace), (namespace, {}))[1][name] = value
        return value

    def function(self, function: FunctionType) -> None:
        self._functions.append((function, _function_parts(function)))

    def cell(self, cell: CellType) -> Any:
        value = contents_of(cell)
        self._cells.append((cell, value))
        return value

    def sequence(self, values: Any) -> tuple[Any, ...]:
        """Remember the items of a list, set or deque; returns them."""
        items = tuple(values)
        self._sequences.append((values, items))
        return items

    def mapping(self, values: Mapping[Any, Any]) -> tuple[tuple[Any, Any], ...]:
        """Remember keys and values, in order; returns the pairs."""
        keys, held = tuple(values), tuple(values.values())
        self._mappings.append((values, keys, held))
        return tuple(zip(keys, held, strict=True))

    def identity(self, read: Callable[[Any], Any], value: Any) -> Any:
        """Remember which object `read(value)` returns."""
        answer = read(value)
        self._identities.append((read, value, answer))
        return answer

    def equality(self, read: Callable[[Any], Any], value: Any) -> Any:
        """Remember what `read(value)` equals (digests, plain tuples of text and numbers)."""
        answer = read(value)
        self._equalities.append((read, value, answer))
        return answer

    def freeze(self) -> Guards:
        """Prepare for many `hold()` calls; call once, when the walk has ended."""
        for namespace, names in self._present.values():
            wanted = tuple(names)
            # With one name itemgetter returns the bare value, so it's asked twice.
            getter = itemgetter(*wanted) if len(wanted) > 1 else itemgetter(*wanted, *wanted)
            expected = getter(names)
            self._lookups.append((namespace, getter, expected))
        return self

    def hold(self) -> bool:
        """Whether every recorded link is unchanged."""
        try:
            return self._names_hold() and self._objects_hold()
        except (KeyError, AttributeError, RuntimeError):
            # A name or attribute is gone, or a container changed size while it was compared.
            return False

    def _names_hold(self) -> bool:
        for namespace, getter, expected in self._lookups:
            if not _same(getter(namespace), expected):
                return False
        return all(ns.keys().isdisjoint(names) for ns, names in self._absent.values())

    def _objects_hold(self) -> bool:
        for function, (code, defaults, keyword_defaults, attributes) in self._functions:
            if (
                function.__code__ is not code
                or function.__defaults__ is not defaults
                or function.__kwdefaults__ is not keyword_defaults
                or function.__dict__ is not attributes
            ):
                return False
        for cell, content in self._cells:
            if contents_of(cell) is not content:
                return False
        for values, items in self._sequences:
            if len(values) != len(items) or not _same(values, items):
                return False
        for mapping, keys, held in self._mappings:
            if len(mapping) != len(keys):
                return False
            if keys and not (_same(mapping, keys) and _same(mapping.values(), held)):
                return False
        for read, value, answer in self._identities:
            if read(value) is not answer:
                return False
        return all(read(value) == answer for read, value, answer in self._equalities)
