"""Carries a kernel's instructions out in float64, in memories beside the kernel's own.

Float tensors are replaced by tensors of float64, and where a meaning computes in float32 it is
given float64: so nothing is rounded to a tensor's type or to float32. Offsets and strides count
elements, so they stay as they are. Integers, packed types, and tensors that are looked at as
another type hold what the kernel's own tensors hold.

Doesn't change constants of an instruction: the engines get those as float32.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from nki_dist import arch
from nki_dist.collectives.execute import link as collective
from nki_dist.compiler.widen import Rewrite
from nki_dist.dtypes import DType, float32, float64, tfloat32
from nki_dist.dtypes.casts import converter
from nki_dist.insight.regions import Region, follow
from nki_dist.insight.replay import Place
from nki_dist.isa.core import Core, CoreState, Wires
from nki_dist.isa.kit import Array, Kit, Wrap
from nki_dist.ops.alignment import aligned
from nki_dist.ops.function import Function
from nki_dist.ops.operation import Operation
from nki_dist.program import Access, Storage
from nki_dist.program.pattern import Pattern


class WideKit(Kit):
    """A kit for which float32 is float64.

    Attributes:
        narrow: the kernel's own storages, by those that are float64 in their place.
    """

    narrow: dict[Storage, Storage]

    def accumulating(self, a: Access) -> Array:
        s = self.narrow.get(a.storage, a.storage)
        return super().accumulating(Access(s, a.offset, a.shape, a.strides, s.dtype))

    def accumulators(self, engine: str) -> Array:
        zeros = np.zeros(self.arch.partitions, np.float64)
        return self.state.accumulators.setdefault(engine, zeros)

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
    ) -> tuple[Array, list[Array], Wrap]:
        return super().elementwise(dst, srcs, _wide(compute))


def _wide(dtype: DType) -> DType:
    return float64 if dtype in (float32, tfloat32) else dtype


class Beside:
    """One core, beside a core of a replay.

    Args:
        memory: of all cores, by where the kernel's own is: what the replay never has in use at the
            same time has one place here, too. A float tensor holds at first what that holds then.
        wide: numbers of the tensors that are float64.
        channel: keeps its messages apart from those of the launch.
    """

    def __init__(
        self, place: Place, memory: dict[int, np.ndarray], wide: Collection[int], channel: str
    ) -> None:
        self.place, self.wide = place, wide
        self._memory = memory
        storages = place.program.storages
        self._storages = {s: _in_double(s) for s in storages if s.number in wide}
        self.rewrite = Rewrite(list(self._storages.values()), list(self._storages))
        self.state = CoreState(place.program.registers)
        self.wires = Wires(collective)
        self._connect(place.kit.wires, channel)
        core = Core(place.slot, self.state, self.wires)
        self.kit = WideKit(self._buffer, core, arch.get(place.program.platform))
        self.kit.narrow = {wide: s for s, wide in self._storages.items()}
        self.kit.masks = dict(place.kit.masks)

    def _connect(self, wires: Wires, prefix: str) -> None:
        self.wires.send = lambda to, channel, *rest: wires.send(to, prefix + channel, *rest)
        self.wires.receive = lambda source, channel, *rest: wires.receive(
            source, prefix + channel, *rest
        )

    def _buffer(self, storage: Storage) -> np.ndarray:
        narrow = self.kit.narrow.get(storage, storage)
        narrow_bytes = self.place.kit.bytes_of(narrow)
        found = self._memory.get(narrow_bytes.ctypes.data)
        if found is None or len(found) < storage.nbytes:
            found = self._memory[narrow_bytes.ctypes.data] = aligned(storage.nbytes)
            if storage is not narrow:
                convert = converter(narrow.dtype, float64)
                convert(found.view(np.float64), narrow_bytes.view(narrow.dtype.storage))
        return found[: storage.nbytes]

    # ---- operands -----------------------------------------------------------------------------

    def region(self, r: Region) -> Region:
        """The region of this core that corresponds to one of the kernel's."""
        storage = self._storages.get(r.storage)
        if storage is None:
            return r
        p, size = r.pattern, r.dtype.itemsize
        first, run = (n // size * float64.itemsize for n in (p.first, p.run))
        strides = tuple(n // size * float64.itemsize for n in p.strides)
        return Region(r.key, storage, float64, r.shape, Pattern(first, p.shape, strides, run))

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

    def follow(self, sums: bool) -> None:
        """Have the state that the core itself has.

        Args:
            sums: accumulators, too.
        """
        theirs = self.place.kit.state
        follow(self.state, theirs)
        for engine, array in theirs.accumulators.items() if sums else ():
            self.kit.accumulators(engine)[: len(array)] = array


def _in_double(s: Storage) -> Storage:
    return Storage(
        s.number, s.region, s.shape, float64, s.name, s.role, s.index, s.address, s.location
    )


def in_double(r: Region, bits: np.ndarray) -> np.ndarray:
    """The values of a float region in float64."""
    result = np.empty(bits.shape, np.float64)
    converter(r.dtype, float64)(result, bits.view(r.dtype.storage))
    return result
