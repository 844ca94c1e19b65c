"""How a walk describes classes, instances, containers, arrays and wrappers.

Invariant: an object is described by all of its state or not at all. State is the instance's
`__dict__`, its slots and the content of the built-in container or number it derives from; a class
whose instances have room for more (memory that an extension module manages) is refused.

Classes of this package may define `__nki_fingerprint__()`, returning plain values (tuples, text,
numbers, functions) that stand for the object; that is how objects with caches or locks take part.
"""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import hashlib
import logging
import os
import re
import sys
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from nki_dist.compiler.fingerprint_guards import MISSING
from nki_dist.dtypes import DType

if TYPE_CHECKING:
    from nki_dist.compiler.fingerprint_walk import Walk


class Unprovable(Exception):
    """Something a kernel reads can't be described; never leaves the fingerprinter."""


class Layout(NamedTuple):
    """Where instances of a class keep their state."""

    content: type
    slots: tuple[Any, ...]
    has_dict: bool


_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: created while running, as class statements do
_CONTENTS: Final = (
    *(object, list, tuple, dict, set, frozenset, int, float, complex, str, bytes),
    *(collections.OrderedDict, collections.defaultdict, collections.deque, types.SimpleNamespace),
)
_BARE: Final = (object, types.SimpleNamespace)  # nothing beside `__dict__` and slots
# Documentation, annotations and bookkeeping: no code reads them to decide what to compute, and
# some are created on first use, which would look like a change.
_CLASS_NOISE: Final = frozenset(
    (
        *("__dict__", "__weakref__", "__doc__", "__annotations__", "__annotate__"),
        *("__annotate_func__", "__module__", "__annotations_cache__", "__abstractmethods__"),
        *("_abc_impl", "__static_attributes__", "__firstlineno__", "__orig_bases__"),
        *("__parameters__", "_member_map_", "_value2member_map_", "_member_names_"),
        *("_unhashable_values_", "_unhashable_values_map_", "_hashable_values_"),
    )
)
_NAMED_BY_TEXT: Final = frozenset({("torch", "dtype")})
_MEMBER_NOISE: Final = frozenset({"_name_", "__objclass__", "_sort_order_"})
_POINTER: Final = 8


def layout_of(cls: type) -> Layout | None:
    """Where instances of `cls` keep their state; None when some of it is out of sight."""
    slots: list[Any] = []
    kind: Any = cls
    while kind not in _CONTENTS:
        base = kind.__base__
        if base is None or not kind.__flags__ & _HEAP_TYPE:
            return None
        own = [each for each in vars(kind).values() if type(each) is types.MemberDescriptorType]
        offsets = (kind.__dictoffset__, kind.__weakrefoffset__)
        before = (base.__dictoffset__, base.__weakrefoffset__)
        room = len(own) + sum(new != old for new, old in zip(offsets, before, strict=True))
        if kind.__basicsize__ - base.__basicsize__ > _POINTER * room:
            return None
        slots += own
        kind = base
    return Layout(kind, tuple(slots), cls.__dictoffset__ != 0)


def describe_constant(walk: Walk, value: Any) -> None:
    """Enum members, data types and NumPy scalars, which are immutable."""
    if isinstance(value, enum.Enum):
        walk.say("member", value.name)
        if value.name is None or value.name not in type(value).__members__:
            walk.refer(value.value)  # a combination of flags has no name of its own
        walk.refer_object(type(value))
    elif isinstance(value, DType):
        walk.say("nki dtype", value.name)
    elif isinstance(value, np.dtype):
        walk.say("dtype", str(value), value.str)
    else:
        if value.dtype.hasobject:
            raise Unprovable("a NumPy scalar that holds Python objects")
        walk.say("scalar", str(value.dtype), value.tobytes())


def describe(walk: Walk, value: Any) -> None:
    """Say everything there is to say about one object; raises Unprovable."""
    handler = _HANDLERS.get(type(value))
    hook = getattr(type(value), "__nki_fingerprint__", None)
    if handler is not None:
        walk.say(type(value).__name__)
        handler(walk, value)
    elif isinstance(value, type):
        _class(walk, value)
    elif hook is not None:
        walk.refer(type(value))
        walk.refer(walk.guards.equality(hook, value))
    elif (type(value).__module__, type(value).__name__) in _NAMED_BY_TEXT:
        walk.say(type(value).__module__, repr(value))
    elif type(value).__module__ in ("typing", "typing_extensions"):
        walk.say("typing", repr(value))
    elif not _installed_callable(walk, value):
        _instance(walk, value)


def _installed_callable(walk: Walk, value: Any) -> bool:
    """Functions that extension modules make of types of their own (NumPy's dispatchers)."""
    path = getattr(value, "__qualname__", None)
    names = walk.knowledge.installed.names(value) if isinstance(path, str) else None
    if names is None:
        return False
    walk.check(*names)
    walk.say("installed", *names)
    return True


# Classes and instances -----------------------------------------------------------------------


def _class(walk: Walk, cls: type) -> None:
    if not cls.__flags__ & _HEAP_TYPE:
        walk.check(cls.__module__, cls.__qualname__)
        walk.say("installed", cls.__module__, cls.__qualname__)
        return
    names = walk.knowledge.installed.names(cls)
    if names is not None:
        walk.check(*names)
        walk.say("installed", *names)
        return
    walk.say("class", cls.__module__, cls.__qualname__)
    walk.refer_object(type(cls))
    walk.refer(walk.guards.identity(_resolution_order, cls))
    for name, value in walk.guards.mapping(vars(cls)):
        if name in _CLASS_NOISE or isinstance(value, enum.Enum):
            continue
        walk.tokens.append(name)
        walk.refer(value)
    if issubclass(cls, enum.Enum):
        for name, member in cls.__members__.items():
            walk.say("member", name)
            pairs = walk.guards.mapping(vars(member))
            walk.refer_items(tuple(pair for pair in pairs if pair[0] not in _MEMBER_NOISE))


def _resolution_order(cls: type) -> tuple[type, ...]:
    return cls.__mro__


def _instance(walk: Walk, value: Any) -> None:
    cls = type(value)
    walk.refer_object(walk.guards.identity(type, value))
    wrapped = _wrapped_function(walk, value)
    if wrapped is not None:
        walk.refer(wrapped)
        _plain_options(walk, value)
        return
    layout = walk.knowledge.layout(cls)
    if layout is None:
        raise Unprovable(f"state of a {cls.__module__}.{cls.__qualname__} object is out of sight")
    _content(walk, value, layout.content)
    if layout.has_dict:
        walk.refer_items(walk.guards.mapping(walk.guards.identity(_attributes, value)))
    for slot in layout.slots:
        held = walk.guards.identity(functools.partial(_slot, slot), value)
        walk.say("slot", slot.__name__, held is MISSING)
        if held is not MISSING:
            walk.refer(held)


def _attributes(value: Any) -> dict[str, Any]:
    return object.__getattribute__(value, "__dict__")


def _slot(descriptor: Any, value: Any) -> Any:
    try:
        return descriptor.__get__(value)
    except AttributeError:
        return MISSING


def _wrapped_function(walk: Walk, value: Any) -> Any:
    """The function inside a compiled-function object of an installed library (a nested jit)."""
    if walk.knowledge.installed.names(type(value)) is None:
        return None
    try:
        held = _attributes(value)
    except AttributeError:  # there are none, or they are elsewhere, as those of threading.local
        return None
    for name in ("__wrapped__", "fn"):
        if isinstance(held.get(name), types.FunctionType):
            return held[name]
    return None


def _plain_options(walk: Walk, value: Any) -> None:
    """Options of a compiled-function object; its caches (objects of other types) don't count."""
    pairs = walk.guards.mapping(_attributes(value))
    plain = (bool, int, float, str, bytes, tuple, enum.Enum, type(None))
    walk.refer_items(tuple(pair for pair in pairs if isinstance(pair[1], plain)))


def _content(walk: Walk, value: Any, content: type) -> None:
    """What the built-in part of an object holds."""
    if content in _BARE:
        return
    walk.say(content.__name__)
    if content in (list, set, collections.deque):
        items = walk.guards.sequence(value)
        walk.say("items", len(items))
        for each in items:
            walk.refer(each)
        if content is collections.deque:
            walk.refer(value.maxlen)
    elif issubclass(content, dict):
        walk.refer_items(walk.guards.mapping(value))
        if content is collections.defaultdict:
            walk.refer(walk.guards.identity(_default_factory, value))
    else:
        walk.refer(_EXACT[content](value))


def _default_factory(value: Any) -> Any:
    return value.default_factory


# Reading through the base type's own method: a subclass may have its own idea of iteration.
_EXACT: Final[dict[type, Callable[[Any], Any]]] = {
    tuple: lambda value: tuple(tuple.__iter__(value)),
    frozenset: lambda value: frozenset(frozenset.__iter__(value)),
    int: int.__int__,
    float: float.__float__,
    complex: lambda value: complex(value.real, value.imag),
    str: str.__str__,
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
}


# Everything with a shape of its own ------------------------------------------------------------


def _builtin_function(walk: Walk, value: Any) -> None:
    owner: Any = value.__self__
    if owner is None or isinstance(owner, types.ModuleType):
        module = value.__module__ or (owner.__name__ if owner else None)
        walk.check(module, value.__qualname__)
        walk.say("installed", module, value.__qualname__)
        return
    walk.say("of", value.__name__)
    walk.refer(owner)


def _descriptor(walk: Walk, value: Any) -> None:
    walk.say(value.__objclass__.__module__, value.__objclass__.__qualname__, value.__name__)


def _parts(*names: str) -> Callable[[Walk, Any], None]:
    """A handler for objects that are the sum of a few attributes, which can't be rebound."""

    def handler(walk: Walk, value: Any) -> None:
        for name in names:
            walk.refer(getattr(value, name))

    return handler


def _partial(walk: Walk, value: functools.partial[Any]) -> None:
    for part in (value.func, value.args, value.keywords):
        walk.refer(part)
    walk.refer_items(walk.guards.mapping(vars(value)))


def _memoised(walk: Walk, wrapper: Any) -> None:
    """An lru_cache: as good as what it wraps, unless it holds answers from before a change."""
    if walk.cache_is_older(wrapper):
        raise Unprovable(f"the cache of {wrapper.__qualname__} predates a change")
    walk.refer_items(walk.guards.mapping(vars(wrapper)))


def _tuple_getter(walk: Walk, value: Any) -> None:
    walk.refer(value.__reduce__()[1])  # position and documentation of a namedtuple's field


def _container(walk: Walk, value: Any) -> None:
    _content(walk, value, type(value))


def _bytes_of(array: np.ndarray) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _array_digest(array: np.ndarray) -> tuple[Any, ...]:
    data = hashlib.blake2b(_bytes_of(array), digest_size=20)
    layout = (str(array.dtype), array.shape, array.strides, array.flags.writeable)
    return (*layout, data.digest())


def _array(walk: Walk, array: np.ndarray) -> None:
    if array.dtype.hasobject:
        raise Unprovable("an array of Python objects")
    walk.say(*walk.guards.equality(_array_digest, array))


def _ufunc(walk: Walk, value: np.ufunc) -> None:
    for name in ("numpy", "scipy.special"):
        module = sys.modules.get(name)
        if module is not None and getattr(module, value.__name__, None) is value:
            walk.say(name, value.__name__)
            return
    raise Unprovable(f"ufunc {value.__name__}")


def _logger_state(logger: logging.Logger) -> tuple[Any, ...]:
    return (logger.name, logger.getEffectiveLevel(), logger.disabled)


def _logger(walk: Walk, logger: logging.Logger) -> None:
    walk.say(*walk.guards.equality(_logger_state, logger))


def _environment(walk: Walk, _: Any) -> None:
    walk.environment()


def _text(walk: Walk, value: Any) -> None:
    walk.say(repr(value))


_HANDLERS: Final[dict[type, Callable[[Any, Any], None]]] = {
    types.BuiltinFunctionType: _builtin_function,
    types.MethodWrapperType: _builtin_function,
    types.MethodType: _parts("__func__", "__self__"),
    staticmethod: _parts("__func__"),
    classmethod: _parts("__func__"),
    property: _parts("fget", "fset", "fdel"),
    functools.cached_property: _parts("func", "attrname"),
    functools.partial: _partial,
    type(functools.lru_cache(len)): _memoised,
    type(collections.namedtuple("_Pair", "left").left): _tuple_getter,  # type: ignore[attr-defined]
    slice: _parts("start", "stop", "step"),
    re.Pattern: _parts("pattern", "flags"),
    dataclasses.Field: _parts("name", "default", "default_factory", "init", "compare", "kw_only"),
    np.ndarray: _array,
    np.ufunc: _ufunc,
    logging.Logger: _logger,
    logging.RootLogger: _logger,
    type(os.environ): _environment,
    types.GenericAlias: _text,
    types.UnionType: _text,
    types.MappingProxyType: lambda walk, value: walk.refer_items(walk.guards.mapping(value)),
    **dict.fromkeys(
        (
            types.MemberDescriptorType,
            types.GetSetDescriptorType,
            types.WrapperDescriptorType,
            types.MethodDescriptorType,
            types.ClassMethodDescriptorType,
        ),
        _descriptor,
    ),
    **dict.fromkeys((each for each in _CONTENTS if each not in _BARE), _container),
}
