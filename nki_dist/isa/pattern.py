"""What is cached of all calls of an instruction that differ only in their offsets."""

from __future__ import annotations

from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

from nki_dist.dtypes import DType
from nki_dist.program import Access, sbuf
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
