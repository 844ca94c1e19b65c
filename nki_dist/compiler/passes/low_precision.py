"""Which tensors `NKI_PRECISE_FP=0` keeps in float32.

All tensors of a 16-bit or 8-bit float type, and tfloat32, except those whose bits mean something
else besides their value:

- one that is also accessed as another type (`.view(dtype)`, `.ap(dtype=)`);
- what bits move to or from such a tensor (copies of equal types, transposes, gathers, exchanges
  with other cores), and what is looked up in it: these keep one type, all or none. Tensors in HBM
  are one for all cores of a rank, and all ranks run the same programs, so everybody agrees;
- arguments that are only read and constants, if bits don't have to move from them: what they were
  given converts without loss wherever it is copied to.

Scales of MX types and packed types aren't tensors of low precision in this sense.

Follows: AWS Neuron SDK, `nki/guides/nki_simulator.rst`, "Precise Floating-Point Mode".
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from typing import Final

from nki_dist.dtypes import (
    DType,
    bfloat16,
    float8_e4m3,
    float8_e4m3fn,
    float8_e5m2,
    float16,
    float32,
    tfloat32,
)
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import Access, Instruction, Program, Storage, instructions
from nki_dist.program.walk import accesses, index_tensors, operands, returned

LOW: Final = frozenset({float16, bfloat16, tfloat32, float8_e4m3, float8_e4m3fn, float8_e5m2})
FLOATS: Final = LOW | {float32}

Key = tuple[Hashable, ...]


def key_of(core: int, storage: Storage) -> Key:
    """Equal for what is one tensor on all cores."""
    if storage.role == "local":
        return (core, storage.number)
    return (storage.role, storage.index)


def float32_storages(programs: Sequence[Program]) -> frozenset[Key]:
    """Keys of the storages of a launch that hold float32 in place of their own type."""
    groups = _grouped(programs, LOW, copies=True)
    low, written = set(), set()
    for program in programs:
        for s in program.storages:
            key = key_of(program.core, s)
            if s.dtype in LOW:
                low.add(key)
            if s.written or s.role not in ("input", "constant"):
                written.add(key)
    refused = groups.refused()
    return frozenset(
        key for key in low if key not in refused and (key in written or key in groups.moved)
    )


def widened_storages(programs: Sequence[Program]) -> frozenset[Key]:
    """Keys of the float storages of a launch whose bits mean nothing else than their value, and
    which bits don't move to or from others: they could all hold a wider type. Copies convert."""
    refused = _grouped(programs, FLOATS, copies=False).refused()
    found = {key_of(p.core, s) for p in programs for s in p.storages if s.dtype in FLOATS}
    return frozenset(found - refused)


def _grouped(programs: Sequence[Program], types: Collection[DType], copies: bool) -> _Groups:
    groups = _Groups(types, copies)
    for program in programs:
        for i in instructions(program.body):
            groups.add(program.core, i)
        for _, a in returned(program.outputs):
            groups.seen(program.core, a)
    return groups


class _Groups:
    """Storages that keep one type: a forest in which each tree is a group.

    Args:
        types: of the storages that are looked at.
        copies: whether copies of equal types move bits, or convert like those of others.

    Attributes:
        moved: keys of storages that bits move out of or into, other than by a copy.
    """

    def __init__(self, types: Collection[DType], copies: bool) -> None:
        self._types, self._copies = types, copies
        self.moved: set[Key] = set()
        self._parent: dict[Key, Key] = {}
        self._other: set[Key] = set()  # also accessed as another type

    def add(self, core: int, i: Instruction) -> None:
        """What an instruction asks of the storages of its operands."""
        found = accesses(i)
        for a in (*found, *index_tensors(found)):
            self.seen(core, a)
        bits = INSTRUCTIONS[i.opcode].effects.bits
        if bits is None or not bits.when(i) or (bits.converts and not self._copies):
            return
        if bits.pads(i):
            self._other.update(key_of(core, i[name].storage) for name in bits.names)
        for equal in _by_type(i, bits.names or i.args, self._types):
            keys: list[Key] = [key_of(core, a.storage) for a in equal]
            if not bits.converts:
                self.moved.update(keys)
            # What one core sends another receives, in whichever of its tensors.
            self._join([("exchanged", equal[0].dtype), *keys] if bits.exchanged else keys)

    def seen(self, core: int, a: Access) -> None:
        """Note an access."""
        if a.dtype is not a.storage.dtype:
            self._other.add(key_of(core, a.storage))

    def refused(self) -> set[Key]:
        """All keys whose group has a storage that is also accessed as another type."""
        roots = {self._root(key) for key in self._other}
        return self._other | {key for key in list(self._parent) if self._root(key) in roots}

    def _root(self, key: Key) -> Key:
        parent = self._parent
        while parent.setdefault(key, key) != key:
            parent[key] = parent[parent[key]]
            key = parent[key]
        return key

    def _join(self, keys: Sequence[Key]) -> None:
        root = self._root(keys[0])
        for key in keys[1:]:
            self._parent[self._root(key)] = root


def _by_type(
    i: Instruction, names: Collection[str], types: Collection[DType]
) -> Iterator[list[Access]]:
    """Operands of these types among these parameters, those of one type together."""
    by_type: dict[object, list[Access]] = {}
    for name, a in operands(i.args):
        if name in names and a.dtype in types:
            by_type.setdefault(a.dtype, []).append(a)
    yield from by_type.values()
