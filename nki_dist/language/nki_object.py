"""NKIObject: base class of the structs kernels pass around.

Published kernels declare fields by annotation, as dataclasses, or as plain class attributes, and
leave arguments out; every field therefore has a default of None, and un-annotated attributes count
as fields when a subclass is made a dataclass.
"""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any


class NKIObject:
    """Keyword construction for subclasses that aren't dataclasses; fields default to None."""

    __nki_object__ = True

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        annotations = _annotations(cls)
        for name, value in list(cls.__dict__.items()):
            if not name.startswith("__") and name not in annotations and _is_field(cls, value):
                annotations[name] = Any
        cls.__annotations__ = annotations
        for name in annotations:
            if name not in cls.__dict__:
                setattr(cls, name, None)

    def __init__(self, **kwargs: Any) -> None:
        fields = {n: inspect.getattr_static(type(self), n) for n in _fields(type(self))}
        unknown = [name for name in kwargs if name not in fields]
        if unknown:
            raise TypeError(f"{type(self).__name__}() got an unexpected keyword {unknown[0]!r}")
        for name, default in fields.items():
            if name in kwargs:
                setattr(self, name, kwargs[name])
            elif isinstance(default, FunctionType):  # looked up on the class it would be a method
                setattr(self, name, default)


def _fields(cls: type) -> list[str]:
    return [name for c in reversed(cls.__mro__) for name in _annotations(c)]


def _annotations(cls: type) -> dict[str, Any]:
    """A class's own annotations, without its bases'."""
    return dict(inspect.get_annotations(cls))


def _is_field(cls: type, value: Any) -> bool:
    """Whether an un-annotated attribute is data: not a method, property or nested class.

    Functions and types from elsewhere (`act = nl.gelu`, `dtype = np.float32`) are data. Lists,
    dicts and sets stay shared class attributes, because a dataclass refuses them as defaults.
    """
    if isinstance(value, (property, classmethod, staticmethod, list, dict, set)):
        return False
    if isinstance(value, (FunctionType, type)):
        return not value.__qualname__.startswith(cls.__qualname__ + ".")
    return not hasattr(value, "__get__")
