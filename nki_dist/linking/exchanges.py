"""What instructions that wait for other cores keep, for each other and for other cores."""

from __future__ import annotations

from typing import Any

from nki_dist.program import Access, Instruction


class Exchanges:
    """Those of one program, which several cores of a process may run."""

    def __init__(self) -> None:
        self._caches: dict[int, dict[Any, Any]] = {}
        self._first: dict[Any, int] = {}  # ordinals by arguments
        self._like: dict[int, int] = {}

    def like(self, i: Instruction) -> int:
        """The ordinal of one that has the same arguments; its own, if none is known."""
        found = self._like.get(i.ordinal)
        if found is None:
            arguments = tuple([(name, _equal(value)) for name, value in i.args.items()])
            found = self._first.setdefault((i.opcode, arguments), i.ordinal)
            self._like[i.ordinal] = found
        return found

    def cache(self, ordinal: int) -> dict[Any, Any]:
        """What it keeps for other cores; see isa.kit."""
        return self._caches.setdefault(ordinal, {})


def _equal(value: Any) -> Any:
    """Equal for equal arguments; of what isn't known to be plain, only to itself."""
    if isinstance(value, (list, tuple)):
        return tuple([_equal(v) for v in value])
    if isinstance(value, Access) and value.dynamic is None:
        return (value.storage.number, value.offset, value.shape, value.strides, id(value.dtype))
    if value is None or isinstance(value, (int, str)):
        return type(value), value
    return id(value)
