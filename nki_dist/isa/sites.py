"""Recognises the calls that a line of a kernel makes again and again, which makes tracing fast.

A pattern is what is cached of all calls of an instruction that differ only in their offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from operator import is_, itemgetter
from typing import Any, Final, NamedTuple, Protocol

from nki_dist.dtypes import DType
from nki_dist.program import Access, MemoryRegion, Storage, sbuf
from nki_dist.program.access import reach

_IMMUTABLE: Final = (type(None), bool, int, float, str, Enum, DType)


class Spec(Protocol):
    """What this asks of an instruction: names of parameters, see isa.spec."""

    tensors: tuple[str, ...]
    written: tuple[str, ...]
    named: tuple[str, ...]
    valued: tuple[str, ...]
    attributes: tuple[str, ...]


class Pattern(NamedTuple):
    """What is known of all calls with one key.

    Attributes:
        engine: that was chosen.
        accepted: attributes that are recorded otherwise than they are given.
        starts: of each tensor, the first and last offset at which it stays within its storage, and
            in the same place; in its elements.
        writes: of each tensor, whether it is written.
        lists: of the accepted attributes, those that each instruction has of its own.
    """

    engine: str
    accepted: dict[str, Any]
    starts: tuple[tuple[int, int], ...]
    writes: tuple[bool, ...]
    lists: tuple[str, ...]

    def accept(self, args: dict[str, Any]) -> None:
        """Make what is recorded of what is given."""
        args.update(self.accepted)
        for name in self.lists:
            args[name] = copied(args[name])


def starts(a: Access) -> tuple[int, int]:
    """First and last offset of such an access in its place; see isa.reach.check_inside."""
    storage, offset, size = a.storage, a.offset, a.dtype.itemsize
    if not (storage.region.is_hbm or storage.region is sbuf):
        return offset, offset
    low, high = reach(a.shape[1:], a.strides[1:])
    over = (a.shape[0] - 1) * a.strides[0] if a.shape else 0
    first, last = -low - min(over, 0), storage.nbytes // size - 1 - high - max(over, 0)
    if storage.region is sbuf:
        row, rest = divmod(storage.partition_bytes, size)
        if rest or not row:
            return offset, offset
        begin = offset // row * row
        first = max(first, begin + max(-low, 0))
        last = min(last, begin + row - 1 - high)
    return first, last


def ints_in(value: Any) -> Any:
    """What lists and tuples of ints hold, however deep; None for everything else."""
    kind = type(value)
    if kind is not list and kind is not tuple:
        return None
    content = [n if type(n) is int else ints_in(n) for n in value]
    return None if None in content else (kind, *content)


def copied(value: Any) -> Any:
    return [*map(copied, value)] if type(value) is list else value


def immutable(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(immutable, value))
    return isinstance(value, _IMMUTABLE)


class Form(NamedTuple):
    """What a tensor operand of a call was, and where such a one may begin.

    `shares`: number of the first operand before it in the same storage, -1 if there is none.
    """

    name: str
    cls: Any  # its class
    region: MemoryRegion
    whole: tuple[int, ...]
    stored: DType
    address: tuple[int, int] | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    shares: int
    first: int
    last: int


class Site(NamedTuple):
    """A call of a line: the next one is most often like it.

    Attributes:
        others: takes what was given for parameters other than these tensors out of arguments.
        values: that: the same objects, or numbers.
        tensors: by parameter.
    """

    spec: Spec
    beta1: bool
    others: Callable[[dict[str, Any]], tuple[Any, ...]]
    values: tuple[Any, ...]
    tensors: tuple[Form, ...]
    pattern: Pattern


def site_of(
    spec: Spec,
    a: dict[str, Any],
    beta1: bool,
    operands: Sequence[Access],
    pattern: Pattern,
) -> Site | None:
    """A call, to compare others with; None if it has lists, which may be changed meanwhile."""
    tensors = [name for name in spec.tensors if isinstance(a[name], Access)]
    names = [name for name in (*spec.tensors, *spec.attributes) if name not in tensors]
    if not all(map(immutable, map(a.__getitem__, spec.valued))):
        return None
    others = itemgetter(*names, *names[:1]) if names else _nothing  # a tuple also of one
    storages = [access.storage for access in operands]
    forms: list[Form] = []
    for name, access, start in zip(tensors, operands, pattern.starts, strict=True):
        storage = access.storage
        first = storages.index(storage)
        if storages.count(storage) > 1:  # where they lie in it counts
            start = (access.offset, access.offset)
        forms.append(
            Form(
                name,
                type(access),
                storage.region,
                storage.shape,
                storage.dtype,
                storage.address,
                access.shape,
                access.strides,
                access.dtype,
                first if first < len(forms) else -1,
                *start,
            )
        )
    return Site(spec, beta1, others, others(a), tuple(forms), pattern)


def _nothing(a: dict[str, Any]) -> tuple[Any, ...]:
    """What an instruction is given that has no attributes."""
    return ()


def _same(given: Any, pattern: Any) -> bool:
    """Whether it is the same object or number: computed numbers are new objects each time."""
    if given is pattern:
        return True
    kind = type(given)
    if (kind is not float and kind is not int) or type(pattern) is not kind or given != pattern:
        return False
    return bool(given) or kind is int or repr(given) == repr(pattern)  # 0.0 isn't -0.0


def repeated(site: Site, a: dict[str, Any]) -> list[Access] | None:
    """The tensors of a call, if it differs from this one only in offsets."""
    others = site.others(a)
    if not all(map(is_, others, site.values)) and not all(map(_same, others, site.values)):
        return None
    operands: list[Access] = []
    storages: list[Storage] = []
    for form in site.tensors:
        name, cls, region, whole, stored, address, shape, strides, dtype, shares, first, last = form
        access: Any = a[name]
        if access.__class__ is not cls or access.dynamic is not None:
            return None
        storage = access.storage
        # Most are the same objects: tuples compare their elements even then.
        if (
            (access.shape is not shape and access.shape != shape)
            or (access.strides is not strides and access.strides != strides)
            or access.dtype is not dtype
            or not first <= access.offset <= last
            or storage.region is not region
            or (storage.shape is not whole and storage.shape != whole)
            or storage.dtype is not stored
        ):
            return None
        placed = storage.address
        if (
            placed is not address
            and placed != address
            and (placed is None or address is None or region is not sbuf or placed[0] != address[0])
        ):
            return None
        if shares < 0:
            if storage in storages:  # the same one: storages are equal to themselves only
                return None
        elif storages[shares] is not storage:
            return None
        operands.append(access)
        storages.append(storage)
    return operands
