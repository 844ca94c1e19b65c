"""Which instructions that wait for other cores can keep for each other what they find out."""

from __future__ import annotations

from typing import Any

from nki_dist.program import Access, Instruction


def equal_arguments(i: Instruction) -> Any:
    """Equal for instructions of one kind that have the same arguments."""
    return i.opcode, tuple([(name, _equal(value)) for name, value in i.args.items()])


def _equal(value: Any) -> Any:
    """Equal for equal arguments; of what isn't known to be plain, only to itself."""
    if isinstance(value, (list, tuple)):
        return tuple([_equal(v) for v in value])
    if isinstance(value, Access) and value.dynamic is None:
        return (value.storage.number, value.offset, value.shape, value.strides, id(value.dtype))
    if value is None or isinstance(value, (int, str)):
        return type(value), value
    return id(value)
