"""`NkiTensor`: a tensor and its views, as access patterns over a storage.

A view never copies; it is offset, shape and strides (in elements), a dtype that may reinterpret the
storage's, and at most one dynamic part. Dimension 0 of an on-chip tensor is the partition
dimension: it can't be moved, merged or broadcast. `.ap` addresses the storage itself: its offset is
added to the view's own base offset (API stub of 0.6; the older deep-dive says absolute, which is
the same for whole tensors).

Follows nki.language.NkiTensor of the NKI 0.6 documentation.
"""

from __future__ import annotations

import sys
from math import prod
from typing import Any

import numpy as np

from nki_dist import dtypes
from nki_dist.dtypes import DType
from nki_dist.errors import invalid
from nki_dist.isa.spec import current_tracer, tracing
from nki_dist.language.indexing import Indexing, ds
from nki_dist.language.layout import rescale, rescaled
from nki_dist.language.no_value import NoValue
from nki_dist.language.presence import may_be_absent, may_be_left_out
from nki_dist.language.vector_offset import check_vector_offset
from nki_dist.program import Dynamic, MemoryRegion, Storage, VirtualRegister, sbuf
from nki_dist.program.memory import region_of
from nki_dist.program.storage import contiguous_strides


def make(
    storage: Storage,
    offset: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    dtype: DType,
    dynamic: Dynamic | None = None,
) -> NkiTensor:
    """A view, without the checks of the public constructor."""
    view = _new(NkiTensor)
    view.storage = storage
    view.offset = offset
    view.shape = shape
    view.strides = strides
    view.dtype = dtype
    view.dynamic = dynamic
    return view


class NkiTensor(Indexing, NoValue):
    """A tensor in SBUF, PSUM or HBM; instructions take it as operand.

    Attributes:
        shape: sizes; dimension 0 of an on-chip tensor counts partitions.
        strides: elements of `dtype` between neighbours of each dimension.
        offset: first element, from the start of the storage.
        dtype: element type (an `nl` dtype).
        buffer: `nl.sbuf`, `nl.psum`, `nl.private_hbm` or `nl.shared_hbm`.
        name: label given at allocation.
        ndim: number of dimensions.
        size: number of elements.
    """

    __slots__ = ()
    __nki_tensor__ = True

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: Any,
        storage: Any,
        buffer: MemoryRegion | str = sbuf,
        name: str = "",
        address: Any = None,
    ) -> None:
        shape = tuple(shape)
        if address is not None:
            raise invalid(
                f"NkiTensor(address={address!r}); allowed: nl.ndarray(address=), which allocates",
                code="address-form",
            )
        if storage is None:
            storage = Storage(-1, region_of(buffer), shape, dtypes.of(dtype), name)
        super().__init__(storage, 0, shape, contiguous_strides(shape), dtypes.of(dtype))

    @property
    def name(self) -> str:
        return self.storage.name

    @property
    def buffer(self) -> MemoryRegion:
        return self.storage.region

    @property
    def data(self) -> NkiTensor:
        """The tensor itself: what instructions take, as `.data` of a grid is (NKI 0.7)."""
        return self

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Any:
        return (self[i] for i in range(self.shape[0]))

    def __bool__(self) -> bool:
        # Published kernels ask `if optional_tensor:`. A single element is more likely meant as its
        # value, unless it is an argument that may be left out.
        frame, given = sys._getframe(1), self.storage.role == "input"
        optional = self.size > 1 or (given and may_be_left_out(self, frame))
        if optional and self.size == prod(self.storage.shape) and may_be_absent(self, frame):
            return True
        message = (
            f"Python can't branch on the tensor {self.storage.label}: its values are only known "
            "when the kernel runs. Select between values with nl.where or nisa.select_reduce, or "
            "load a register and use nl.while_loop"
            + ("; whether an argument was passed is `is not None`" if given else "")
        )
        raise invalid(message, code="branch-on-tensor")

    def __repr__(self) -> str:
        shown = current_tracer().shown(self) if tracing() else ""
        head = f"NkiTensor(shape={self.shape}, dtype={self.dtype}, buffer={self.buffer.value}"
        return f"{head}{shown})"

    def numpy(self) -> np.ndarray[Any, Any]:
        """A copy of its values at this moment, in a debugged kernel (`nki.debug`).

        Elements that nobody has written hold what memory held: NaN of floats, a large number of
        integers. `print(tensor)` tells them apart.

        Returns:
            An array of the view's shape and dtype.

        Raises:
            CompileError: the kernel isn't debugged, so there are no values yet.
            NkiValidationError: the view has a run-time index for every row or column.
        """
        found: np.ndarray[Any, Any] = current_tracer().values(self)
        return found

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if not tracing() or not current_tracer().debugged:
            return self._conversion()
        if copy is False:
            raise ValueError("an array of a tensor's values is always a copy")
        return np.asarray(self.numpy(), dtype)

    def is_indirect(self) -> bool:
        """True if an index known only at run time is part of the address."""
        return self.dynamic is not None

    # ---- indexing -------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> NkiTensor:
        if type(key) is not tuple:
            key = (key,)
        shape = self.shape
        if self.dynamic is None and (plain := self._plain(key)) is not None:
            return make(self.storage, *plain, self.dtype)
        if len(key) != len(shape) or any(k is Ellipsis for k in key):
            key = self._expand(key)
        on_chip = self.storage.region.on_chip
        offset, dynamic = self.offset, None
        sizes: list[int] = []
        strides: list[int] = []
        for d, k in enumerate(key):
            stride = self.strides[d]
            start: Any
            if type(k) is slice:
                size, start, step = self._sliced(k, d)
                sizes.append(size)
                strides.append(stride * step)
            elif type(k) is ds:
                size, start = self._window(k, d)
                sizes.append(size)
                strides.append(stride)
            else:
                size, start = 1, self._index(k, d)
                if on_chip and d == 0:
                    sizes.append(1)
                    strides.append(stride)
            if type(start) is int:
                offset += start * stride
            else:
                dynamic = self._add_dynamic(start, d, shape[d] - size + 1, dynamic)
        while len(sizes) < (2 if on_chip else 1):
            sizes.append(1)
            strides.append(1)
        if self.dynamic is not None:
            self._keep_indirect("an index", offset, tuple(sizes))
            dynamic = dynamic or self.dynamic
        return make(self.storage, offset, tuple(sizes), tuple(strides), self.dtype, dynamic)

    def _window(self, k: ds, d: int) -> tuple[int, Any]:
        """Size of an `nl.ds`, and its start: an int, a register or a tile."""
        n, size = self.shape[d], self._bound(k.size, d)
        if isinstance(k.start, (VirtualRegister, NkiTensor)):
            if not 0 < size <= n:
                raise self._outside(f"{k}", d, 0, size)
            return size, _scalar(k.start)
        start = self._bound(k.start, d)
        # An empty window, like an empty slice, is no mistake.
        if size < 0 or start < 0 or start + size > n:
            raise self._outside(f"{k}", d, start, start + size)
        self._guard(d, size != n)
        return size, start

    def _add_dynamic(
        self, source: Any, dim: int, limit: int, other: Dynamic | None = None
    ) -> Dynamic:
        if self.dynamic is not None or other is not None:
            message = "this view already has a run-time index; a tensor can have only one"
            raise invalid(message, code="dynamic-twice")
        if isinstance(source, VirtualRegister):
            source = source.offset(self.storage.region.on_chip)
        stride = self.strides[dim]
        outer = [s for n, s in zip(self.shape, self.strides) if n > 1 and s > stride]
        within = (self.offset, self.shape[dim], min(outer, default=0))
        return Dynamic("scalar", source, stride, limit, dim, within)

    def __setitem__(self, key: Any, value: Any) -> None:
        current_tracer().assign(self[key], value)

    # ---- run-time indices and reinterpretation ---------------------------------------------

    def select(self, dim: int, index: Any) -> NkiTensor:
        """One element of a dimension, which goes away.

        Args:
            index: an int, or at run time a register or an on-chip tile of one element.
        """
        self._keep_indirect("select", -1, ())
        dim = self._dim(dim)
        n = self.shape[dim]
        shape, strides = list(self.shape), list(self.strides)
        del shape[dim], strides[dim]
        offset, dynamic = self.offset, self.dynamic
        if isinstance(index, (NkiTensor, VirtualRegister)):
            self._no_dynamic_partition(dim)
            dynamic = self._add_dynamic(_scalar(index), dim, n)
        else:
            start = self._bound(index, dim)
            if not 0 <= start < n:
                raise self._outside(f"select({dim}, {index})", dim, start, start + 1)
            self._guard(dim, True)
            offset += start * self.strides[dim]
        if dim == 0 and self.storage.region.on_chip:
            shape.insert(0, 1)
            strides.insert(0, self.strides[0])
        while len(shape) < (2 if self.storage.region.on_chip else 1):
            shape.append(1)
            strides.append(1)
        return make(self.storage, offset, tuple(shape), tuple(strides), self.dtype, dynamic)

    def vector_select(self, dim: int, vector_offset: NkiTensor) -> NkiTensor:
        """Gather: row p of the result is row `vector_offset[p, 0]` of this HBM tensor."""
        if dim != 0:
            message = f"vector_select on dimension {dim}; only 0 can be indexed"
            raise invalid(message, code="vector-offset", got=dim, allowed=0)
        if vector_offset.size != vector_offset.shape[0]:
            message = (
                "vector_select takes an SBUF tile of shape (P, 1), one index per row; got "
                f"{vector_offset.shape}"
            )
            raise invalid(message, code="vector-offset", got=vector_offset.shape)
        dynamic = self._vector(vector_offset, self.strides[0], self.shape[0])
        shape = (vector_offset.shape[0], *self.shape[1:])
        return make(self.storage, self.offset, shape, self.strides, self.dtype, dynamic)

    def _vector(self, index: NkiTensor, stride: int, limit: int) -> Dynamic:
        if self.dynamic is not None:
            raise invalid("this view already has a run-time index", code="dynamic-twice")
        check_vector_offset(self.storage, index)
        return Dynamic("vector", index, stride, limit, 0)

    def ap(
        self,
        pattern: Any,
        offset: int | None = None,
        scalar_offset: Any = None,
        vector_offset: NkiTensor | None = None,
        indirect_dim: int = 0,
        dtype: Any = None,
    ) -> NkiTensor:
        """A view by explicit `[[stride, count], ...]` over the storage.

        Args:
            pattern: strides and counts in elements of `dtype`; a stride of 0 repeats.
            offset: elements added to this view's offset.
            scalar_offset: register or (1, 1) SBUF tile; moves the whole pattern by its value times
                the stride this view has in `indirect_dim`. DMA checks addresses: in HBM the pattern
                may go anywhere within the storage, past the dimension's end, and back if `offset`
                leaves room, as kernels with caches of blocks do; `strict` refuses that. Of on-chip
                tensors only a dimension of one is so: it has its neighbour's stride.
            vector_offset: (P, 1) SBUF tile; row p starts at its value times the stride of
                dimension 0, replacing the pattern's first stride. dma_transpose also takes (P, N),
                read column by column.
            dtype: reinterprets the storage.

        A pattern that leaves the storage is refused when an instruction uses it: kernels make views
        that they then don't need.
        """
        self._keep_indirect("ap", -1, ())
        new = self.dtype if dtype is None else dtypes.of(dtype)
        base = self.offset
        if new.itemsize != self.dtype.itemsize:
            base = rescale(base, self.dtype, new, "offset")
        shape = tuple(int(p[1]) for p in pattern)
        steps = tuple(int(p[0]) for p in pattern)
        if self.storage.region.on_chip and steps and shape[0] > 1:
            steps = (self._partition_step(steps[0], new.itemsize), *steps[1:])
        base += 0 if offset is None else int(offset)
        dynamic = self.dynamic
        if scalar_offset is not None and vector_offset is not None:
            message = "scalar_offset and vector_offset exclude each other"
            raise invalid(message, code="dynamic-twice")
        moved = scalar_offset is not None or vector_offset is not None
        dim = self._dim(indirect_dim) if moved else 0
        if scalar_offset is not None:
            self._no_dynamic_partition(dim)
            dynamic = self._add_dynamic(_scalar(scalar_offset), dim, self.shape[dim])
        elif vector_offset is not None:
            dynamic = self._vector(vector_offset, self.strides[dim], self.shape[dim])
        if dynamic is not None:
            dynamic = rescaled(dynamic, self.dtype, new)
        view = make(self.storage, base, shape, steps, new, dynamic)
        if scalar_offset is not None and (self.shape[dim] == 1 or self.storage.region.is_hbm):
            assert dynamic is not None
            if self.storage.region.is_hbm and tracing() and current_tracer().strict:
                dynamic.extent = dynamic.within
            dynamic.limit, dynamic.within = view.starts(dynamic.stride), None
        return view

    def view(self, dtype: Any) -> NkiTensor:
        """The same bytes as another dtype; the last dimension's size scales."""
        new = dtypes.of(dtype)
        old = self.dtype
        if self.dynamic is not None:
            raise invalid("view(dtype) of a tensor with a run-time index", code="reinterpret")
        if new.itemsize == old.itemsize:
            return make(self.storage, self.offset, self.shape, self.strides, new)
        if self.strides[-1] != 1 and self.shape[-1] != 1:
            raise invalid("view(dtype) needs a contiguous last dimension", code="reinterpret")
        last = self.shape[-1] * old.itemsize
        if last % new.itemsize:
            message = (
                f"{self.shape[-1]} elements of {old} ({last} bytes) aren't a whole number of {new}"
            )
            raise invalid(message, code="reinterpret", got=last)
        strides = [rescale(s, old, new, "stride") for s in self.strides[:-1]]
        offset = rescale(self.offset, old, new, "offset")
        shape = (*self.shape[:-1], last // new.itemsize)
        return make(self.storage, offset, shape, (*strides, 1), new)

    reinterpret_cast = view


_new = NkiTensor.__new__


def _scalar(source: Any) -> Any:
    if isinstance(source, VirtualRegister):
        return source
    if isinstance(source, NkiTensor) and source.size == 1 and source.buffer.on_chip:
        return source
    message = "a scalar offset is a register or a tile of one element in SBUF, got " + (
        f"shape {source.shape}" if isinstance(source, NkiTensor) else repr(source)
    )
    raise invalid(message, code="scalar-offset", got=getattr(source, "shape", None))
