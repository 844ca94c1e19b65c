"""Trees of arguments and results: which values are containers, and rebuilding them.

Invariant: `flatten` and `tree_map` visit the same leaves in the same order. Containers are lists,
tuples, namedtuples, dicts, dataclass instances and kernel structs (classes that say
`__nki_object__ = True`); anything else is a leaf. A container or leaf object that occurs twice is
visited once, under its first path, and stays one object in the result; plain values (numbers,
text, None) have no identity and are visited every time.

Rebuilding never runs `__init__` or `__post_init__` of a user's class: those may compute with
the fields, and the leaves have just been replaced by something else.

It doesn't open sets, arrays of objects, or dict keys, and takes this package's own dataclasses
(tensor descriptions, replica groups) for values.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import MemberDescriptorType
from typing import Any, Final

from nki_dist.errors import CompileError, LaunchError

_PACKAGE: Final = __name__.partition(".")[0]
_NO_IDENTITY: Final = (int, float, complex, str, bytes, type(None), enum.Enum)

IsLeaf = Callable[[Any], bool]


@dataclasses.dataclass(frozen=True)
class _Slot:
    """Place of the leaf with this number in a tree definition."""

    number: int


@dataclasses.dataclass(frozen=True)
class TreeDef:
    """The containers of a tree without its leaves."""

    skeleton: Any
    count: int

    def unflatten(self, leaves: Iterable[Any]) -> Any:
        """Put new leaves, in the order of `flatten`, into fresh copies of the containers."""
        values = list(leaves)
        if len(values) != self.count:
            message = f"a tree with {self.count} leaves was given {len(values)} leaves"
            raise LaunchError(
                message, code="tree-leaves", numbers={"got": len(values), "allowed": self.count}
            )
        return tree_map(
            lambda slot: values[slot.number], self.skeleton, lambda v: isinstance(v, _Slot)
        )


def flatten(
    tree: Any, is_leaf: IsLeaf | None = None, root: str = ""
) -> tuple[list[tuple[str, Any]], TreeDef]:
    """Leaves of a tree with their paths, and what is needed to put it together again.

    Args:
        is_leaf: says which values not to open although they look like containers.
        root: what paths start with, such as `"args[0]"`.

    Returns:
        `[(path, leaf), ...]` with paths like `args[0].weights['q'][1]`, and the tree definition.

    Raises:
        CompileError: a container holds itself.
    """
    leaves: list[tuple[str, Any]] = []

    def take(path: str, leaf: Any) -> _Slot:
        leaves.append((path, leaf))
        return _Slot(len(leaves) - 1)

    skeleton = _Mapper(take, is_leaf).map(root, tree)
    return leaves, TreeDef(skeleton, len(leaves))


def tree_map(fn: Callable[[Any], Any], tree: Any, is_leaf: IsLeaf | None = None) -> Any:
    """Copy a tree with every leaf replaced by `fn(leaf)`.

    Raises:
        CompileError: a container holds itself.
    """
    return _Mapper(lambda _, leaf: fn(leaf), is_leaf).map("", tree)


class _Mapper:
    """One traversal: what has been mapped so far, and which containers are being opened now."""

    def __init__(self, fn: Callable[[str, Any], Any], is_leaf: IsLeaf | None) -> None:
        self._fn = fn
        self._is_leaf = is_leaf
        # The originals stay in the tree while the traversal lasts, so their ids aren't reused.
        self._mapped: dict[int, Any] = {}
        self._open: dict[int, str] = {}

    def map(self, path: str, value: Any) -> Any:
        if isinstance(value, _NO_IDENTITY):
            return self._fn(path, value)
        key = id(value)
        if key in self._mapped:
            return self._mapped[key]
        if key in self._open:
            raise CompileError(
                f"kernel arguments and results are trees; the {type(value).__name__} at "
                f"{self._open[key] or 'the top'} holds itself, at {path}",
                code="tree-cycle",
            )
        rebuild = None if self._is_leaf and self._is_leaf(value) else _rebuilder(value)
        if rebuild is None:
            self._mapped[key] = result = self._fn(path, value)
            return result
        self._open[key] = path
        result = rebuild(self, path, value)
        del self._open[key]
        self._mapped[key] = result
        return result


Rebuild = Callable[[_Mapper, str, Any], Any]


def _rebuilder(value: Any) -> Rebuild | None:
    """How to copy a container; None for a leaf."""
    cls = type(value)
    if isinstance(value, list):
        return _list
    if cls is tuple:
        return _tuple
    if isinstance(value, tuple):
        # Other tuple classes (torch.Size, sys.version_info) are values with a meaning of their own.
        return _namedtuple if hasattr(cls, "_fields") else None
    if isinstance(value, dict):
        return _dict
    if isinstance(value, type):
        return None
    if getattr(cls, "__nki_object__", False):
        return _object
    ours = cls.__module__.partition(".")[0] == _PACKAGE
    return _object if dataclasses.is_dataclass(cls) and not ours else None


def _list(mapper: _Mapper, path: str, value: list[Any]) -> list[Any]:
    items = [mapper.map(f"{path}[{n}]", item) for n, item in enumerate(value)]
    if type(value) is list:
        return items
    result = copy.copy(value)  # keeps the attributes of a subclass
    list.__setitem__(result, slice(None), items)
    return result


def _tuple(mapper: _Mapper, path: str, value: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(mapper.map(f"{path}[{n}]", item) for n, item in enumerate(value))


def _namedtuple(mapper: _Mapper, path: str, value: Any) -> Any:
    names: Sequence[str] = type(value)._fields
    items = [mapper.map(f"{path}.{n}", item) for n, item in zip(names, value, strict=True)]
    return tuple.__new__(type(value), items)


def _dict(mapper: _Mapper, path: str, value: dict[Any, Any]) -> dict[Any, Any]:
    items = {key: mapper.map(f"{path}[{key!r}]", item) for key, item in value.items()}
    if type(value) is dict:
        return items
    result = copy.copy(value)  # keeps order, default factory and attributes of a subclass
    for key, item in items.items():
        dict.__setitem__(result, key, item)
    return result


def _object(mapper: _Mapper, path: str, value: Any) -> Any:
    result = object.__new__(type(value))
    for name, item in _attributes(value):
        object.__setattr__(result, name, mapper.map(f"{path}.{name}", item))
    return result


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    """Everything stored in the instance, a dataclass's fields first and in their order."""
    stored: dict[str, Any] = {}
    for cls in type(value).__mro__:
        for name, slot in vars(cls).items():
            if isinstance(slot, MemberDescriptorType):
                try:
                    stored[name] = slot.__get__(value)
                except AttributeError:
                    continue  # a slot that was never set stays unset in the copy
    stored.update(getattr(value, "__dict__", {}))
    for name in getattr(type(value), "__dataclass_fields__", ()):
        if name in stored:
            yield name, stored.pop(name)
    yield from stored.items()
