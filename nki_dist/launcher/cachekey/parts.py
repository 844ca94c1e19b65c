"""What objects are made of: the parts that decide everything code can learn from an object.

Invariant: `readings_of` leads to all of an object's state, or refuses. State is the instance's
`__dict__`, its slots and the content of the built-in container or number it derives from; a class
whose instances have room for more (memory that an extension module manages) is refused. Nothing
here follows parts to their own parts.
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
import typing
from collections.abc import Callable, MutableMapping
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np

from nki_dist.launcher.cachekey.installed import Unprovable, installed_name, refuse_impure


class Missing:
    """Stands for what an empty slot or cell holds, and for names that don't exist."""


class Proof(enum.Enum):
    """How to see later that an object still has the parts it had."""

    same = "they are the same objects"
    text = "they are made anew each time, and read the same"
    none = "they can't change"


class Reading(NamedTuple):
    """One look at an object: what kind of parts it shows, and how to get them."""

    label: str
    read: Callable[[Any], tuple[Any, ...]]
    proof: Proof = Proof.same


_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: created while running, as class statements do
_POINTER: Final = 8
# Documentation, annotations and bookkeeping: no code reads them to decide what to compute, and
# some are created on first use, which would look like a change.
_CLASS_NOISE: Final = frozenset(
    (
        *("__dict__", "__weakref__", "__doc__", "__annotations__", "__annotate__"),
        *("__annotate_func__", "__module__", "__annotations_cache__", "__abstractmethods__"),
        *("_abc_impl", "__static_attributes__", "__firstlineno__", "__orig_bases__"),
        *("__parameters__", "__type_params__"),
        *("_member_map_", "_value2member_map_", "_member_names_"),
        *("_unhashable_values_", "_unhashable_values_map_", "_hashable_values_"),
    )
)
# What importing leaves in a module, and warnings.
_MODULE_NOISE: Final = frozenset(
    (
        *("__annotations__", "__builtins__", "__cached__", "__doc__", "__loader__", "__path__"),
        *("__spec__", "__warningregistry__"),
    )
)
_CONTENTS: Final = (
    *(object, list, tuple, dict, set, frozenset, int, float, complex, str, bytes),
    *(collections.OrderedDict, collections.defaultdict, collections.deque, types.SimpleNamespace),
)
_DESCRIPTORS: Final = (
    *(types.MemberDescriptorType, types.GetSetDescriptorType, types.WrapperDescriptorType),
    *(types.MethodDescriptorType, types.ClassMethodDescriptorType),
)
_FIELD_OF_NAMEDTUPLE: Final = type(vars(collections.namedtuple("_", "x"))["x"])
_MEMBER_NOISE: Final = frozenset({"_name_", "__objclass__", "_sort_order_"})


def readings_of(
    value: Any, cache: MutableMapping[type, tuple[Reading, ...]]
) -> tuple[Reading, ...]:
    """The looks that show all there is to `value`, a function or plain value excepted.

    Args:
        cache: what was found out about classes, by class; never holds on to one.

    Raises:
        Unprovable: some of its state is out of sight.
    """
    cls = type(value)
    found = _READINGS.get(cls)
    if found is not None:
        return found
    if isinstance(value, type):
        return _class_readings(value)
    names = installed_name(value)  # such as instructions, and NumPy's dispatchers
    if names is not None:
        return _constant("installed", *names)
    found = cache.get(cls)
    if found is None:
        found = cache[cls] = _instance_readings(cls)
    return found


def _constant(label: str, *parts: Any) -> tuple[Reading, ...]:
    return (Reading(label, lambda _: parts, Proof.none),)


# Classes and instances -----------------------------------------------------------------------


def _class_readings(cls: type) -> tuple[Reading, ...]:
    if not cls.__flags__ & _HEAP_TYPE:
        refuse_impure(cls.__module__, cls.__qualname__)
        return _constant("installed", cls.__module__, cls.__qualname__)
    names = installed_name(cls)
    return _constant("installed", *names) if names else _CLASS


def _class_parts(cls: type) -> tuple[Any, ...]:
    parts = [type(cls), cls.__mro__, cls.__module__, cls.__qualname__]
    for name, value in vars(cls).items():
        if name not in _CLASS_NOISE and not isinstance(value, enum.Enum):
            parts += (name, value)
    members: dict[str, Any] = (
        vars(cls).get("_member_map_", {}) if issubclass(cls, enum.Enum) else {}
    )
    for name, member in members.items():
        parts += (cls, name)
        for attribute, value in vars(member).items():
            if attribute not in _MEMBER_NOISE:
                parts += (attribute, value)
    return tuple(parts)


def _instance_readings(cls: type) -> tuple[Reading, ...]:
    """Where instances of a class keep their state."""
    if str(cls) == "<class 'torch.dtype'>":
        return _BY_TEXT
    found = [_WITH_DICT if cls.__dictoffset__ else _BARE]
    *layers, content = _layers(cls)
    for layer in layers:
        if not layer.__flags__ & _HEAP_TYPE or _hidden(layer, len(_descriptors(layer))):
            raise Unprovable(f"state of a {cls.__module__}.{cls.__qualname__} is out of sight")
    if any(map(_descriptors, layers)):
        found.append(_SLOTS)
    return (*found, *_READINGS.get(content, ()))


def _layers(cls: Any) -> list[Any]:
    """A class and its bases, down to the built-in one that the memory of instances starts with."""
    found = [cls]
    while found[-1] not in _CONTENTS:
        found.append(found[-1].__base__)
    return found


def _descriptors(layer: type) -> list[Any]:
    return [each for each in vars(layer).values() if type(each) is types.MemberDescriptorType]


def _hidden(kind: Any, slots: int) -> bool:
    """Whether instances have room for more than slots, a dict and weak references."""
    base = kind.__base__
    offsets = (kind.__dictoffset__, kind.__weakrefoffset__)
    before = (base.__dictoffset__, base.__weakrefoffset__)
    used = slots + sum(new != old for new, old in zip(offsets, before, strict=True))
    return bool(kind.__basicsize__ - base.__basicsize__ > _POINTER * used)


def _with_dict(value: Any) -> tuple[Any, ...]:
    try:
        attributes = object.__getattribute__(value, "__dict__")
    except AttributeError:  # type variables of Python 3.12 have one, and don't show it
        cls = type(value)
        raise Unprovable(
            f"state of a {cls.__module__}.{cls.__qualname__} is out of sight"
        ) from None
    return (type(value), *attributes, *attributes.values())


def _slots(value: Any) -> tuple[Any, ...]:
    # Looked up each time: descriptors would keep their class alive.
    *layers, _ = _layers(type(value))
    return tuple(_slot(each, value) for layer in layers for each in _descriptors(layer))


def _slot(descriptor: Any, value: Any) -> Any:
    try:
        return descriptor.__get__(value)
    except AttributeError:
        return Missing


_BARE: Final = Reading("instance", lambda value: (type(value),))
_WITH_DICT: Final = Reading("instance", _with_dict)
_SLOTS: Final = Reading("slots", _slots)
_CLASS: Final = (Reading("class", _class_parts),)
_BY_TEXT: Final = (_BARE, Reading("text", lambda value: (repr(value),), Proof.none))

# Everything with a shape of its own ------------------------------------------------------------


def _module_parts(module: types.ModuleType) -> tuple[Any, ...]:
    items = [item for item in vars(module).items() if item[0] not in _MODULE_NOISE]
    return (module.__name__, *chain.from_iterable(items))


def dtype_text(dtype: np.dtype) -> str:
    """What tells a data type from all others; metadata isn't shown, so it's refused."""
    if dtype.metadata:
        raise Unprovable("a NumPy data type with metadata")
    for inner, *_ in (*(dtype.fields or {}).values(), *filter(None, [dtype.subdtype])):
        dtype_text(inner)
    return str(dtype)


def _array(array: np.ndarray) -> tuple[Any, ...]:
    if array.dtype.hasobject:
        raise Unprovable("an array of Python objects")
    data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    digest = hashlib.blake2b(data, digest_size=20).digest()
    return (dtype_text(array.dtype), array.shape, array.strides, array.flags.writeable, digest)


def _builtin_function(value: Any) -> tuple[Any, ...]:
    owner: Any = value.__self__
    if owner is not None and not isinstance(owner, types.ModuleType):
        return (value.__name__, owner)
    module = value.__module__ or (owner.__name__ if owner else None)
    refuse_impure(module, value.__qualname__)
    return (module, value.__qualname__, None)


def _ufunc(value: np.ufunc) -> tuple[Any, ...]:
    for name in ("numpy", "scipy.special"):
        module = sys.modules.get(name)
        if module is not None and getattr(module, value.__name__, None) is value:
            return (name, value.__name__)
    raise Unprovable(f"ufunc {value.__name__}")


def _dataclass_field(field: Any) -> tuple[Any, ...]:
    """All but the type, which is an annotation; spelt out, because launches look at it again."""
    given = (field.name, field.default, field.default_factory, field.metadata, field._field_type)
    return (*given, field.init, field.repr, field.hash, field.compare, field.kw_only)


def _alias(value: Any) -> tuple[Any, ...]:
    return (value.__origin__, value.__args__, getattr(value, "__unpacked__", False))


def _logger(logger: logging.Logger) -> tuple[Any, ...]:
    return (logger.name, logger.getEffectiveLevel(), logger.disabled)


def _fixed(read: Callable[[Any], tuple[Any, ...]], *kinds: type) -> dict[type, Any]:
    return {kind: (Reading(kind.__name__, read, Proof.none),) for kind in kinds}


# Through the type's own methods: a subclass may have its own idea of iteration.


def _items(kind: Any) -> dict[type, Any]:
    return {kind: (Reading(kind.__name__, lambda value: tuple(kind.__iter__(value))),)}


def _pairs(kind: Any) -> dict[type, Any]:
    return {kind: (Reading(kind.__name__, lambda v: (*kind.keys(v), *kind.values(v))),)}


_READINGS: Final[dict[type, tuple[Reading, ...]]] = {
    **_items(list),
    **_items(set),
    **_items(frozenset),
    **_items(tuple),
    **_pairs(dict),
    **_pairs(collections.OrderedDict),
    **_pairs(types.MappingProxyType),
    collections.deque: (
        Reading("maxlen", lambda value: (value.maxlen,), Proof.none),
        Reading("deque", lambda value: tuple(collections.deque.__iter__(value))),
    ),
    collections.defaultdict: (
        Reading("default", lambda value: (value.default_factory,)),
        Reading("dict", lambda value: (*dict.keys(value), *dict.values(value))),
    ),
    np.ndarray: (Reading("array", _array, Proof.text),),
    type(os.environ): (Reading("environment", lambda value: tuple(value.items()), Proof.text),),
    logging.Logger: (Reading("logger", _logger, Proof.text),),
    logging.RootLogger: (Reading("logger", _logger, Proof.text),),
    types.ModuleType: (Reading("module", _module_parts),),
    dataclasses.Field: (Reading("field", _dataclass_field),),
    functools.cached_property: (Reading("cached", lambda v: (v.func, v.attrname)),),
    functools.partial: (Reading("partial", lambda v: (v.func, v.args, v.keywords, v.__dict__)),),
    **_fixed(lambda value: (int.__int__(value),), int),
    **_fixed(lambda value: (float.__float__(value),), float),
    **_fixed(lambda value: (complex(value.real, value.imag),), complex),
    **_fixed(lambda value: (str.__str__(value),), str),
    **_fixed(lambda value: (bytes.__getitem__(value, slice(None)),), bytes),
    **_fixed(lambda value: (value.start, value.stop, value.step), slice),
    **_fixed(lambda value: (value.pattern, value.flags), re.Pattern),
    **_fixed(lambda value: (value.fget, value.fset, value.fdel), property),
    **_fixed(lambda value: (value.__func__, value.__self__), types.MethodType),
    **_fixed(lambda value: (value.__func__,), staticmethod, classmethod),
    **_fixed(lambda value: (value.__self__, value.__name__), types.MethodWrapperType),
    **_fixed(lambda value: (value.__objclass__, value.__name__), *_DESCRIPTORS),
    **_fixed(lambda value: value.__reduce__()[1], _FIELD_OF_NAMEDTUPLE),
    **_fixed(_alias, types.GenericAlias),
    **_fixed(lambda value: value.__args__, types.UnionType),
    **_fixed(lambda value: (repr(value),), type(NotImplemented), typing.ForwardRef),
    **_fixed(_builtin_function, types.BuiltinFunctionType),
    **_fixed(_ufunc, np.ufunc),
}
