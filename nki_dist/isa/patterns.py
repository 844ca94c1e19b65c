"""Calls of instructions that differ only in where their operands lie are checked once.

Most instructions of a kernel repeat a few patterns: the same instruction with operands of the same
shapes, strides, types and memories, at other places. What roles and checks say of a call, and which
engine is chosen, depends on a key: the instruction, its attributes, and of every tensor its
storage's memory, shape and dtype, its own shape, strides and dtype and, as far as a check can ask
for it, its place. A call
whose key is known is recorded as the first one was; whether its operands stay within their tensors
is looked at again, with the numbers that the first one left.

Places: in HBM no check but that one asks for the offset; in SBUF the first partition counts; in
PSUM, which has banks, and where operands share a storage, offsets do.

Invariant: a call that is refused or warned of is never learnt, so it takes the long way again and
says the same. Calls with run-time indices, registers, lists of tensors or objects of unknown
classes always take it.

What is kept belongs to the compiling of one kernel; its cores share it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from operator import is_, itemgetter
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

from nki_dist.dtypes import DType
from nki_dist.isa.operands import Choice, Op, Role, Tensor
from nki_dist.program import Access, Instruction, MemoryRegion, sbuf

MOST: Final = 1 << 14
"""Patterns that are kept; a kernel with more repeats few of them."""

_BY_VALUE: Final = frozenset({type(None), bool, int, str})
_IMMUTABLE: Final = (type(None), bool, int, float, str, Enum, DType)


class Parameters(NamedTuple):
    """The parameters of an instruction, by how they are told apart.

    Attributes:
        tensors: with a Tensor role.
        writes: for each of these, whether it is written.
        named: operators and members of enums, which one object stands for.
        valued: all others.
        attributes: `named` and `valued` ones.
    """

    tensors: tuple[str, ...]
    writes: tuple[bool, ...]
    named: tuple[str, ...]
    valued: tuple[str, ...]
    attributes: tuple[str, ...]


def parameters(roles: dict[str, Role], has_engine: bool) -> Parameters:
    """The parameters of an instruction with these roles."""
    operands = {name: role.mode for name, role in roles.items() if isinstance(role, Tensor)}
    named = [name for name, role in roles.items() if isinstance(role, (Choice, Op))]
    named += ["engine"] if has_engine else []
    valued = [name for name in roles if name not in operands and name not in named]
    return Parameters(
        tuple(operands),
        tuple("w" in mode for mode in operands.values()),
        tuple(named),
        tuple(valued),
        (*named, *valued),
    )


class Spec(Protocol):
    """What this asks of an instruction."""

    parameters: Parameters


class Pattern(NamedTuple):
    """What is known of all calls with one key.

    Attributes:
        engine: that was chosen.
        accepted: attributes that are recorded otherwise than they are given.
        starts: of each tensor, the first and last offset at which it stays within its storage, and
            in the same place; in its elements.
        writes: of each tensor, whether it is written.
    """

    engine: str
    accepted: dict[str, Any]
    starts: tuple[tuple[int, int], ...]
    writes: tuple[bool, ...]


class Form(NamedTuple):
    """What a tensor operand of the last call of a line was, and where such a one may begin.

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
    """The last call of a line: the next one is most often like it.

    Attributes:
        others: takes what was given for parameters other than these tensors out of arguments.
        values: that: the same objects.
        tensors: by parameter.
    """

    spec: Spec
    beta1: bool
    others: Callable[[dict[str, Any]], tuple[Any, ...]]
    values: tuple[Any, ...]
    tensors: tuple[Form, ...]
    known: Pattern


Found: TypeAlias = "tuple[Pattern | None, Sequence[Access], Any]"
NOTHING: Final[Found] = (None, (), None)


class Patterns:
    """Known calls, by the line they are made from and by key.

    Attributes are looked up by the identity of their objects first, which in the code of a loop
    are the same ones each time, then by what they are; lists of ints by what they hold.
    """

    def __init__(self) -> None:
        self._sites: dict[int, Site] = {}
        self._last: dict[int, Any] = {}  # the key by line, where the site didn't help
        self._known: dict[Any, Pattern] = {}
        self._attributes: dict[Any, int] = {}
        # Objects stay as long as their identities are looked up.
        self._met: dict[Any, tuple[int, list[Any]]] = {}
        self._named: list[list[Any]] = []

    def find(self, where: int, spec: Spec, a: dict[str, Any], beta1: bool) -> Found:
        """What is known of a call, with its tensors and its key; no key if it can't be learnt.

        Args:
            where: number of the line that makes it, in one trace.
            a: the arguments by parameter.
            beta1: whether the kernel is held to Beta 1's rules.
        """
        site = self._sites.get(where)
        if site is not None and site.spec is spec and site.beta1 is beta1:
            operands = _repeated(site, a)
            if operands is not None:
                return site.known, operands, None
        key, operands = self._key(spec, a, beta1)
        known = None if key is None else self._known.get(key)
        if known is None:
            return None, operands, key
        for access, (first, last) in zip(operands, known.starts):
            if not first <= access.offset <= last:
                return None, operands, key
        if where not in self._sites or self._last.get(where) == key:  # no line of two in turn
            self._note(where, spec, a, beta1, operands, known)
        self._last[where] = key
        return known, operands, key

    def _key(self, spec: Spec, a: dict[str, Any], beta1: bool) -> tuple[Any, list[Access]]:
        """The key of a call, None if it can't be learnt, and its tensors."""
        of = spec.parameters
        operands: list[Access] = []
        objects = (spec, beta1, *map(id, map(a.__getitem__, of.attributes)))
        met = self._met.get(objects)
        number = self._number(spec, a, objects) if met is None else met[0]
        if number < 0:
            return None, operands
        parts: list[Any] = [number]
        for name in of.tensors:
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
        if len(self._met) >= MOST or len(self._attributes) >= MOST:
            return -1  # identities can't be relied upon unless their objects are kept
        of = spec.parameters
        parts: list[Any] = list(objects[: 2 + len(of.named)])
        fixed = True
        for name in of.valued:
            value = a[name]
            kind = type(value)
            if kind is float:
                parts += _number_key(value)
            elif kind in _BY_VALUE:
                parts += (kind, value)
            elif kind in (list, tuple) and all(type(n) is int for n in value):
                parts += (kind, tuple(value))
                fixed = fixed and kind is tuple
            else:
                return -1
        number = self._attributes.setdefault(tuple(parts), len(self._attributes))
        if number == len(self._named):
            self._named.append([a[name] for name in of.named])
        if fixed:
            self._met[objects] = number, [a[name] for name in of.attributes]
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
        of = spec.parameters
        accepted = {
            name: i.args[name]
            for name in of.attributes
            if name in i.args and i.args[name] is not given[name]
        }
        if len(self._known) >= MOST or not all(map(_immutable, accepted.values())):
            return
        self._known[key] = Pattern(
            i.engine,
            accepted,
            tuple(map(_starts, operands)),
            tuple(
                written
                for name, written in zip(of.tensors, of.writes, strict=True)
                if isinstance(given[name], Access)
            ),
        )

    def _note(
        self,
        where: int,
        spec: Spec,
        a: dict[str, Any],
        beta1: bool,
        operands: Sequence[Access],
        known: Pattern,
    ) -> None:
        """Keep a call as the last one of its line."""
        of = spec.parameters
        tensors = [name for name in of.tensors if isinstance(a[name], Access)]
        names = [name for name in (*of.tensors, *of.attributes) if name not in tensors]
        if any(type(a[name]) is list for name in names):  # it may hold something else next time
            return
        others = itemgetter(*names, *names[:1]) if names else _nothing  # a tuple also of one
        storages = [access.storage for access in operands]
        forms: list[Form] = []
        for name, access, start in zip(tensors, operands, known.starts, strict=True):
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
        self._sites[where] = Site(spec, beta1, others, others(a), tuple(forms), known)


def _nothing(a: dict[str, Any]) -> tuple[Any, ...]:
    """What an instruction is given that has no attributes."""
    return ()


def _repeated(site: Site, a: dict[str, Any]) -> list[Access] | None:
    """The tensors of a call that differs from the last one of its line only in offsets."""
    if not all(map(is_, site.others(a), site.values)):
        return None
    operands: list[Access] = []
    for form in site.tensors:
        name, cls, region, whole, stored, address, shape, strides, dtype, shares, first, last = form
        access: Any = a[name]
        if access.__class__ is not cls or access.dynamic is not None:
            return None
        storage = access.storage
        if (
            access.shape != shape
            or access.strides != strides
            or access.dtype is not dtype
            or not first <= access.offset <= last
            or storage.region is not region
            or storage.shape != whole
            or storage.dtype is not stored
        ):
            return None
        placed = storage.address
        if placed != address and (
            placed is None or address is None or region is not sbuf or placed[0] != address[0]
        ):
            return None
        if shares < 0:
            for other in operands:
                if other.storage is storage:
                    return None
        elif operands[shares].storage is not storage:
            return None
        operands.append(access)
    return operands


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


def _starts(a: Access) -> tuple[int, int]:
    """First and last offset of such an access in its place; see isa.reach.check_inside."""
    storage, offset, size = a.storage, a.offset, a.dtype.itemsize
    if not (storage.region.is_hbm or storage.region is sbuf):
        return offset, offset
    low = high = 0
    for n, stride in zip(a.shape[1:], a.strides[1:]):
        if stride >= 0:
            high += (n - 1) * stride
        else:
            low += (n - 1) * stride
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


def _number_key(value: float) -> tuple[Any, Any]:
    """Tells ints from floats, and 0.0 from -0.0, which equal each other."""
    kind = type(value)
    return kind, value if value or kind is int else repr(value)


def _immutable(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_immutable, value))
    return isinstance(value, _IMMUTABLE)
