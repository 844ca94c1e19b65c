"""Values inside a program, as msgpack: what instructions' arguments, outputs and facts hold.

None, bools, ints, floats, texts and bytes are themselves; everything else is a list that starts
with a tag. Sets are written in the order of their encoded elements, so equal programs are equal
bytes. Types are kept exactly: 1, 1.0 and True are three things, and so are tuples and lists.

Invariant: reading makes only the types named here; enumerations and data types are looked up in
tables, never imported.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

import msgpack
import numpy as np

from nki_dist import dtypes
from nki_dist.compiler.wire import malformed, unwritable
from nki_dist.dtypes import DType
from nki_dist.isa import enums
from nki_dist.program import Access, MemoryRegion, VirtualRegister

LIST, TUPLE, DICT, SET, FROZENSET, ENUM, DTYPE, ACCESS, REGISTER, BIG_INT, STRUCTURE = range(11)
HOLES: Final = frozenset({ACCESS, REGISTER})
MAX_DEPTH: Final = 24

ENUMS: Final[Mapping[str, type[Enum]]] = MappingProxyType(
    {
        **{k: v for k, v in vars(enums).items() if isinstance(v, type) and issubclass(v, Enum)},
        "MemoryRegion": MemoryRegion,
    }
)
_DTYPES: Final = MappingProxyType({d.name: d for d in (*dtypes.ALL, *dtypes.WIDE)})
_PLAIN: Final = (type(None), bool, float, str, bytes)


class Structure:
    """Stands for an object of a user's class that a kernel returned.

    Programs are read without running code, so the class itself can't come back; its name and its
    fields do.
    """

    __nki_object__ = True

    def __init__(self, class_name: str, fields: dict[str, Any]) -> None:
        self.class_name = class_name
        self.fields = fields

    def __repr__(self) -> str:
        inside = ", ".join(f"{k}={v!r}" for k, v in self.fields.items())
        return f"{self.class_name}({inside})"


def write_value(
    value: Any, access: Callable[[Access], Any], register: Callable[[int], Any], depth: int = 0
) -> Any:
    """A value as plain msgpack.

    Args:
        access, register: give the entries that stand for a tensor and for a register's number.

    Raises:
        ProgramFormatError: the value is of a type that programs don't hold.
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is int:
        return value if -(1 << 63) <= value < 1 << 64 else [BIG_INT, hex(value)]
    if isinstance(value, Access):
        return [ACCESS, access(value)]
    if isinstance(value, VirtualRegister):
        return [REGISTER, register(value.number)]
    if isinstance(value, Enum):
        if ENUMS.get(kind.__name__) is not kind:
            unwritable(f"{value!r}: programs hold enumerations of nki.isa only")
        return [ENUM, kind.__name__, value.name]
    if isinstance(value, DType):
        return [DTYPE, value.name]
    if isinstance(value, (np.number, np.bool_)):
        return write_value(value.item(), access, register, depth)
    if depth >= MAX_DEPTH:
        unwritable(f"a value is nested deeper than {MAX_DEPTH} levels", most=MAX_DEPTH)
    return _write_container(value, lambda v: write_value(v, access, register, depth + 1))


def _write_container(value: Any, inner: Callable[[Any], Any]) -> list[Any]:
    kind = type(value)
    if isinstance(value, list) or (isinstance(value, tuple) and not hasattr(kind, "_fields")):
        return [LIST if isinstance(value, list) else TUPLE, *map(inner, value)]
    if isinstance(value, dict):
        return [DICT, *map(inner, chain.from_iterable(value.items()))]
    if isinstance(value, (set, frozenset)):
        tag = FROZENSET if kind is frozenset else SET
        return [tag, *sorted(map(inner, value), key=msgpack.packb)]
    name, fields = _structure(value)
    return [STRUCTURE, name, *map(inner, chain.from_iterable(fields))]


def _structure(value: Any) -> tuple[str, Iterable[tuple[str, Any]]]:
    """The name of an object's class, and its fields."""
    kind = type(value)
    if isinstance(value, Structure):
        return value.class_name, value.fields.items()
    if isinstance(value, tuple):
        names = kind._fields
    elif dataclasses.is_dataclass(kind):
        names = [f.name for f in dataclasses.fields(kind)]
    elif getattr(kind, "__nki_object__", False):
        names = vars(value)
    else:
        unwritable(
            f"{value!r} of type {kind.__name__} can't be written down; programs hold numbers, "
            "texts, nki data types and enumerations, tensors, registers, lists, tuples, dicts and "
            "sets"
        )
    return kind.__name__, [(n, getattr(value, n)) for n in names]


def read_value(
    packed: Any, access: Callable[[Any], Any], register: Callable[[Any], Any], depth: int = 0
) -> Any:
    """What `write_value` wrote; `access` and `register` give back tensors and registers.

    Raises:
        ProgramFormatError: `packed` is nothing that `write_value` writes.
    """
    kind = type(packed)
    if kind in _PLAIN or kind is int:
        return packed
    if kind is not list or not packed or type(packed[0]) is not int or depth >= MAX_DEPTH:
        malformed(f"a value of type {kind.__name__} at depth {depth}")
    tag = packed[0]
    if tag in (ACCESS, REGISTER):
        if len(packed) != 2:
            malformed(f"an operand entry with {len(packed)} parts; allowed: 2")
        return (access if tag == ACCESS else register)(packed[1])
    if tag in (ENUM, DTYPE, BIG_INT):
        return _read_name(tag, packed[1:])
    if not LIST <= tag <= STRUCTURE:
        malformed(f"value tag {tag}; allowed: 0 to {STRUCTURE}")
    name: Any = ""
    first = 1
    if tag == STRUCTURE:
        name, first = packed[1] if len(packed) > 1 else None, 2
        if type(name) is not str:
            malformed("a structure without a name")
    items = [read_value(v, access, register, depth + 1) for v in packed[first:]]
    return _container(tag, name, items)


def _container(tag: int, name: str, items: list[Any]) -> Any:
    if tag in (LIST, TUPLE):
        return items if tag == LIST else tuple(items)
    pairs = tag in (DICT, STRUCTURE)
    try:
        if pairs:
            result: Any = dict(zip(items[::2], items[1::2], strict=True))
        else:
            result = set(items) if tag == SET else frozenset(items)
    except (TypeError, ValueError) as error:  # unhashable, or a key without a value
        malformed(f"a dict or set: {error}")
    if len(result) != len(items) // (1 + pairs):
        malformed("a key or set element occurs twice")
    if tag != STRUCTURE:
        return result
    if not all(type(key) is str for key in result):
        malformed(f"a field of structure {name} has no name")
    return Structure(name, result)


def _read_name(tag: int, names: list[Any]) -> Any:
    if any(type(name) is not str for name in names):
        malformed("a name that is no text")
    if len(names) != 1 + (tag == ENUM):
        malformed(f"unknown name {names!r}")
    if tag == DTYPE:
        return data_type(names[0])
    try:
        return ENUMS[names[0]][names[1]] if tag == ENUM else int(names[0], 16)
    except KeyError:
        malformed(f"unknown name {names!r}")
    except ValueError:
        malformed(f"{names[0]!r} is no integer")


def data_type(name: Any) -> DType:
    """The data type of exactly that name."""
    found = _DTYPES.get(name) if type(name) is str else None
    return found if found is not None else malformed(f"data type {name!r}; there is none such")
