"""Calls of instructions that differ only in where their operands lie are checked once.

Most instructions of a kernel repeat a few patterns: the same instruction with operands of the same
shapes, strides, types and memories, at other places. What roles and checks say of a call, and which
engine is chosen, depends on a key: the instruction, its attributes, and of every tensor its
storage's memory, shape and dtype, its own shape, strides and dtype and, as far as a check can ask
for it, its place. A call whose key is known is recorded as the first one was; whether its operands
stay within their tensors is looked at again, with the numbers that the first one left.

Places: in HBM no check but that one asks for the offset; in SBUF the first partition counts; in
PSUM, which has banks, and where operands share a storage, offsets do.

Invariant: a call that is refused or warned of is never learnt, so it takes the long way again and
says the same. Calls with run-time indices, registers, lists of tensors or objects of unknown
classes always take it.

What is kept belongs to the compiling of one kernel; its cores share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from nki_dist.isa import sites as s
from nki_dist.isa.sites import Pattern, Site, Spec, immutable, ints_in
from nki_dist.program import Access, Instruction, sbuf

_BY_VALUE: Final = frozenset({type(None), bool, int, str})
SITES: Final = 4  # calls of a line that are looked at: helpers are used for tiles of several shapes
MOST: Final = 1 << 14  # patterns that are kept; a kernel with more repeats few of them

Found: TypeAlias = "tuple[Pattern | None, Sequence[Access], Any]"
NOTHING: Final[Found] = (None, (), None)


class Patterns:
    """Known calls, by the line they are made from and by key.

    Attributes are looked up by the identity of their objects first, which in the code of a loop
    are the same ones each time, then by what they are; lists of ints by what they hold now.
    """

    def __init__(self) -> None:
        self._sites: dict[int, list[Site]] = {}  # by line, the last one first
        self._last: dict[int, Any] = {}  # the key by line, where no site helped
        self._cache: dict[Any, Pattern] = {}
        self._attributes: dict[Any, int] = {}
        # Objects stay as long as their identities are looked up.
        self._objects: dict[Any, tuple[int, list[Any]]] = {}
        self._named: list[list[Any]] = []

    def find(self, where: int, spec: Spec, a: dict[str, Any], beta1: bool) -> Found:
        """What is known of a call, with its tensors and its key; no key if it can't be learnt.

        Args:
            where: number of the line that makes it, in one trace.
            a: the arguments by parameter.
            beta1: whether the kernel is checked against Beta 1's rules.
        """
        sites = self._sites.setdefault(where, [])
        for n, site in enumerate(sites):
            if site.spec is spec and site.beta1 is beta1:
                found = s.repeated(site, a)
                if found is not None:
                    if n:
                        sites.insert(0, sites.pop(n))
                    return site.pattern, found, None
        key, operands = self._key(spec, a, beta1)
        pattern = None if key is None else self._cache.get(key)
        if pattern is None:
            return None, operands, key
        for access, (first, last) in zip(operands, pattern.starts):
            if not first <= access.offset <= last:
                return None, operands, key
        if len(sites) < SITES or self._last.get(where) == key:  # not where more take turns
            newest = s.site_of(spec, a, beta1, operands, pattern)
            if newest is not None:
                sites[:] = newest, *sites[: SITES - 1]
        self._last[where] = key
        return pattern, operands, key

    def _key(self, spec: Spec, a: dict[str, Any], beta1: bool) -> tuple[Any, list[Access]]:
        """The key of a call, None if it can't be learnt, and its tensors."""
        operands: list[Access] = []
        objects = (spec, beta1, *map(id, map(a.__getitem__, spec.attributes)))
        cached = self._objects.get(objects)
        number = self._number(spec, a, objects) if cached is None else cached[0]
        if number < 0:
            return None, operands
        parts: list[Any] = [number]
        for name in spec.tensors:
            value = a[name]
            if isinstance(value, Access):
                place = _place(value)
                if place is None:
                    return None, operands
                storage = value.storage
                parts += (id(storage.region), storage.shape, storage.dtype.name, place)
                parts += (value.dtype.name, value.shape, value.strides)
                for n, other in enumerate(operands):
                    if other.storage is storage:
                        parts += (n, other.offset, value.offset)
                operands.append(value)
            elif value is None:
                parts.append(None)
            elif type(value) is int or type(value) is float:
                parts += _number_key(value)
            else:
                return None, operands
        return tuple(parts), operands

    def _number(self, spec: Spec, a: dict[str, Any], objects: tuple[Any, ...]) -> int:
        """A number for the attributes of a call; -1 if they can't be compared."""
        if len(self._objects) >= MOST or len(self._attributes) >= MOST:
            return -1  # identities can't be relied upon unless their objects are kept
        parts: list[Any] = list(objects[: 2 + len(spec.named)])
        fixed = True
        for name in spec.valued:
            value = a[name]
            kind = type(value)
            if kind is float:
                parts += _number_key(value)
            elif kind in _BY_VALUE:
                parts += (kind, value)
            elif (content := ints_in(value)) is not None:
                parts.append(content)
                fixed = fixed and kind is tuple and all(type(n) is int for n in value)
            else:
                return -1
        number = self._attributes.setdefault(tuple(parts), len(self._attributes))
        if number == len(self._named):
            self._named.append([a[name] for name in spec.named])
        if fixed:
            self._objects[objects] = number, [a[name] for name in spec.attributes]
        return number

    def learn(
        self,
        key: Any,
        spec: Spec,
        given: dict[str, Any],
        i: Instruction,
        operands: Sequence[Access],
    ) -> None:
        """Keep what came of a call that was accepted.

        Args:
            given: the arguments of the call.
            i: what was recorded.
            operands: the tensors among them, in the order of the parameters.
        """
        accepted = {
            name: i.args[name]
            for name in spec.attributes
            if name in i.args and i.args[name] is not given[name]
        }
        plain = all(immutable(v) or ints_in(v) is not None for v in accepted.values())
        if len(self._cache) >= MOST or not plain:
            return
        i.kind = self._cache[key] = Pattern(
            i.engine,
            accepted,
            tuple(map(s.starts, operands)),
            tuple(n in spec.written for n in spec.tensors if isinstance(given[n], Access)),
            tuple(name for name, value in accepted.items() if not immutable(value)),
        )


def _place(a: Access) -> Any:
    """What checks may ask of where an operand lies; None if that can't be told."""
    storage, offset = a.storage, a.offset
    if a.dynamic is not None:
        return None
    if storage.region.is_hbm:
        return 0
    if storage.region is not sbuf:
        return offset, storage.address
    if offset:
        row, rest = divmod(storage.partition_bytes, a.dtype.itemsize)
        if rest or not row:
            return None
        offset //= row
    return offset if storage.address is None else (offset, storage.address[0])


def _number_key(value: float) -> tuple[Any, Any]:
    """Tells ints from floats, and 0.0 from -0.0, which equal each other."""
    kind = type(value)
    return kind, value if value or kind is int else repr(value)
