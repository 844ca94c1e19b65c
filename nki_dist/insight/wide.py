"""Instructions carried out in float64, beside the memories of the kernel.

Float tensors are replaced by tensors of float64, and where a meaning computes in float32 it is
given float64: so nothing is rounded to a tensor's type or to float32. Offsets and strides count
elements, so they stay as they are. Integers, packed types, and tensors that are looked at as
another type hold what the kernel's own tensors hold.

Doesn't change constants of an instruction: the engines get those as float32.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from nki_dist import arch
from nki_dist.collectives.execute import link as collective
from nki_dist.compiler.widen import Rewrite
from nki_dist.dtypes import DType, float32, float64, tfloat32
from nki_dist.dtypes.casts import converter
from nki_dist.insight.regions import Region, follow
from nki_dist.insight.replay import Key, Place, key_of
from nki_dist.isa.core import Core, CoreState, Wires
from nki_dist.isa.kit import Around, Array, Kit
from nki_dist.ops.alignment import aligned
from nki_dist.ops.function import Function
from nki_dist.ops.operation import Operation
from nki_dist.program import Access, Instruction, Storage
from nki_dist.program.walk import operands


class WideState(CoreState):
    """A core's state, with accumulators in float64."""

    __slots__ = ()

    def accumulator(self, engine: str, partitions: int) -> np.ndarray:
        array = self.accumulators.get(engine)
        if array is None:
            array = self.accumulators[engine] = np.zeros(partitions, np.float64)
        return array


class WideKit(Kit):
    """A kit for which float32 is float64.

    Args:
        held: gives what `accumulating` does.
    """

    def __init__(self, held: Callable[[Access], Array], *rest: Any) -> None:
        super().__init__(*rest)
        self._held = held

    def accumulating(self, a: Access) -> Array:
        return self._held(a)

    def scratch(self, shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
        dtype = np.dtype(dtype)
        return super().scratch(shape, np.float64 if dtype == np.float32 else dtype)

    def convert(self, src: DType, dst: DType) -> Function:
        return super().convert(_wide(src), _wide(dst))

    def load(self, a: Access, compute: DType = float32) -> tuple[Array, list[Operation]]:
        return super().load(a, _wide(compute))

    def store(
        self, a: Access, compute: DType = float32, avoid: Sequence[Access] = ()
    ) -> tuple[Array, list[Operation]]:
        return super().store(a, _wide(compute), avoid)

    def elementwise(
        self, dst: Access, srcs: Sequence[Access], compute: DType = float32
    ) -> tuple[Array, list[Array], Around]:
        return super().elementwise(dst, srcs, _wide(compute))


def _wide(dtype: DType) -> DType:
    return float64 if dtype in (float32, tfloat32) else dtype


class WideMemory:
    """Memories of all cores in which some tensors are float64.

    Args:
        first: `first(place, storage)`: what such a tensor holds at first, or None for NaN.
    """

    def __init__(
        self,
        first: Callable[[Place, Storage], np.ndarray | None],
    ) -> None:
        self._first = first
        self._buffers: dict[Key, np.ndarray] = {}

    def buffer(self, place: Place, storage: Storage) -> np.ndarray:
        """The bytes of a tensor, made when it is first needed."""
        key = key_of(place.slot, storage)
        found = self._buffers.get(key)
        if found is None:
            found = self._buffers[key] = aligned(storage.nbytes)
            if storage.dtype is float64:
                values = found.view(np.float64)
                first = self._first(place, storage)
                values[...] = np.nan if first is None else first
        return found

    def forget(self, key: Key) -> None:
        """A tensor isn't needed any more."""
        self._buffers.pop(key, None)


class Beside:
    """One core, beside a core of a replay.

    Args:
        channel: keeps its messages apart from those of the launch.
    """

    def __init__(
        self, place: Place, memory: WideMemory, wide: Collection[int], channel: str
    ) -> None:
        self.place = place
        self.memory = memory
        storages = place.program.storages
        self._storages = {s: _in_double(s) for s in storages if s.number in wide}
        self._narrow = {wide: s for s, wide in self._storages.items()}
        self.rewrite = Rewrite(list(self._storages.values()), list(self._storages))
        self.state = WideState(place.program.registers)
        self.wires = Wires(collective)
        self._connect(place.kit.wires, channel)
        core = Core(place.slot, self.state, self.wires)
        self.kit = WideKit(self._accumulating, self._buffer, core, arch.get(place.program.platform))

    def _connect(self, wires: Wires, prefix: str) -> None:
        def send(to: int, channel: str, payload: Any, what: Any, *rest: Any) -> None:
            wires.send(to, prefix + channel, payload, what, *rest)

        def receive(source: int, channel: str, what: Any, *rest: Any) -> Any:
            return wires.receive(source, prefix + channel, what, *rest)

        self.wires.send, self.wires.receive = send, receive

    def _buffer(self, storage: Storage) -> np.ndarray:
        return self.memory.buffer(self.place, storage)

    def _accumulating(self, a: Access) -> Array:
        """As the core itself says of the tensor as it is."""
        s = self._narrow.get(a.storage, a.storage)
        narrow = Access(s, a.offset, a.shape, a.strides, s.dtype)
        return self.place.kit.accumulating(narrow)

    # ---- operands -----------------------------------------------------------------------------

    def region(self, r: Region) -> Region:
        """The region of this core that corresponds to one of the kernel's."""
        storage = self._storages.get(r.storage)
        if storage is None:
            return r
        access = None if r.access is None else self.rewrite.access(r.access)
        rows = None if r.rows is None else r.rows // r.dtype.itemsize * float64.itemsize
        return Region(r.key, storage, float64, access, rows)

    def take(self, r: Region, bits: np.ndarray) -> None:
        """Hold what the kernel's tensor holds."""
        target = self.region(r)
        if target.dtype is r.dtype:
            target.put(self.kit, bits)
            return
        target.put(self.kit, in_double(r, bits).view(np.uint64))

    def values(self, r: Region) -> np.ndarray:
        """Elements of a float64 tensor."""
        return self.region(r).get(self.kit).view(np.float64)

    def follow(self, i: Instruction, sums: bool) -> None:
        """Have the state that the core itself has.

        Args:
            sums: accumulators, too.
        """
        theirs = self.place.kit.state
        follow(self.state, theirs)
        if sums:
            for engine, array in theirs.accumulators.items():
                self.state.accumulator(engine, len(array))[...] = array


def _in_double(s: Storage) -> Storage:
    return Storage(
        s.number, s.region, s.shape, float64, s.name, s.role, s.index, s.address, s.location
    )


def in_double(r: Region, bits: np.ndarray) -> np.ndarray:
    """The values of a float region in float64."""
    made = np.empty(bits.shape, np.float64)
    converter(r.dtype, float64)(made, bits.view(r.dtype.storage))
    return made


def tensors_of(i: Instruction) -> list[Access]:
    """All tensors an instruction has to do with."""
    found = []
    for _, a in operands(i.args):
        found.append(a)
        if a.dynamic is not None and isinstance(a.dynamic.source, Access):
            found.append(a.dynamic.source)
    return found
