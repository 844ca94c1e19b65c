"""Views of a tensor that are known when a kernel is traced: slices, reshapes, permutations.

A view never copies. Dimension 0 of an on-chip tensor is the partition dimension: it can't be moved,
split, merged or repeated. Neither can dimension 0 of a view that a vector offset indexes.

Follows nki.language.NkiTensor of the NKI 0.6 documentation.
"""

from __future__ import annotations

from math import prod
from typing import Any, TypeVar

from nki_dist.codes.picture import outside
from nki_dist.errors import OutOfBoundsError, invalid
from nki_dist.language.layout import Dims, infer
from nki_dist.language.rearrange import rearrange
from nki_dist.ops.place import follow, reshaped_strides
from nki_dist.program import Access, Dynamic
from nki_dist.program.storage import contiguous_strides

Self = TypeVar("Self", bound="Views")


class Views(Access):
    """An access pattern with the view methods of `NkiTensor`; a view has the same class."""

    __slots__ = ()

    def _moved(self: Self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]) -> Self:
        """Another pattern over the same storage, without checks of its extent."""
        self._keep_indirect("another shape", offset, shape)
        view = object.__new__(type(self))
        view.storage = self.storage
        view.offset = offset
        view.shape = shape
        view.strides = strides
        view.dtype = self.dtype
        view.dynamic = self.dynamic
        return view

    def is_contiguous(self) -> bool:
        """True if the view covers its storage row-major; on chip, within each partition."""
        first = 1 if self.region.on_chip else 0
        return follow(self.shape[first:], self.strides[first:], 1)

    def get_pattern(self) -> list[list[int]]:
        """`[[stride, count], ...]`, as `.ap` takes it."""
        return [[s, n] for s, n in zip(self.strides, self.shape, strict=True)]

    def _title(self) -> str:
        """How messages call it: the storage, and what the view has made of it."""
        label = self.storage.label
        if self.shape == self.storage.shape:
            return label
        return f"a view of shape {self.shape} of {label}"

    def _outside(self, what: str, dim: int, start: int, stop: int) -> OutOfBoundsError:
        """The error for what was asked of a dimension and lies, also in part, outside it."""
        n = self.shape[dim]
        return OutOfBoundsError(
            f"{what} on dimension {dim} of size {n} of {self._title()}; it has the elements "
            f"0 to {n - 1}",
            code="index-range",
            numbers={"size": n, "dim": dim},
            picture=outside(self._title(), self.shape, dim, [(start, stop)]),
        )

    def _guard(self, dim: int, moved: bool) -> None:
        if moved and dim == 0 and self.dynamic is not None and self.dynamic.kind == "vector":
            message = "dimension 0 of this view is addressed by a vector offset and can't be sliced"
            raise invalid(message, code="vector-offset")

    def _keep_indirect(self, what: str, offset: int, shape: tuple[int, ...]) -> None:
        """Which columns an `.indirect()` view has is known at run time only."""
        if self.dynamic is None or self.dynamic.kind != "tensor":
            return
        if (offset, shape) != (self.offset, self.shape):
            message = f"{what} of an .indirect() view of shape {self.shape}; take the view last"
            raise invalid(message, code="indirect-view", shape=self.shape)

    def _no_dynamic_partition(self, dim: int) -> None:
        if dim == 0 and self.storage.region.on_chip:
            message = (
                f"a run-time index on the partition dimension (0) of {self.storage.label}; "
                "only free dimensions of on-chip tensors can be selected at run time"
            )
            raise invalid(message, code="partition-dimension")

    def _dim(self, dim: int, keep_partition: str = "") -> int:
        if not -len(self.shape) <= dim < len(self.shape):
            message = f"dimension {dim} of a tensor with shape {self.shape}"
            raise invalid(message, code="axis", got=dim, most=len(self.shape) - 1)
        dim %= len(self.shape)
        if dim == 0 and keep_partition:
            self._keep_partition(keep_partition)
        return dim

    def _keep_partition(self, what: str) -> None:
        if self.storage.region.on_chip:
            raise invalid(
                f"{what} would change dimension 0, the partition dimension of {self.storage.label}",
                code="partition-dimension",
            )
        if self.dynamic is not None and self.dynamic.kind == "vector":
            message = f"{what} would change dimension 0, which a vector offset indexes"
            raise invalid(message, code="vector-offset")

    def _partition_step(self, step: int, itemsize: int) -> int:
        """An on-chip pattern's first stride: a whole number of the storage's partitions.

        Published kernels also count in rows of the view that `.ap` is called on, when that is a
        part of the storage's columns; as an address this would be in the midst of a partition.
        """
        of_storage = prod(self.storage.shape[1:]) * self.storage.dtype.itemsize
        of_view = prod(self.shape[1:]) * self.dtype.itemsize
        size = step * itemsize
        if size % of_storage == 0 or of_view == 0 or size % of_view:
            return step
        return size // of_view * of_storage // itemsize

    def _replaced(self: Self, dim: int, end: int, shape: Dims, strides: Dims) -> Self:
        """Other dimensions in the place of those from `dim` to before `end`."""
        return self._moved(
            self.offset,
            (*self.shape[:dim], *shape, *self.shape[end:]),
            (*self.strides[:dim], *strides, *self.strides[end:]),
        )

    def permute(self: Self, dims: tuple[int, ...]) -> Self:
        """Dimensions in another order; dimension 0 of an on-chip tensor stays."""
        dims = tuple(dims)
        if sorted(dims) != list(range(len(self.shape))):
            message = f"{dims} is no permutation of {len(self.shape)} dimensions"
            raise invalid(message, code="view-dims", got=dims)
        if dims and dims[0] != 0:
            self._keep_partition(f"permute({dims})")
        shape = tuple([self.shape[d] for d in dims])
        return self._replaced(0, len(dims), shape, tuple([self.strides[d] for d in dims]))

    def broadcast(self: Self, dim: int, size: int) -> Self:
        """Repeat a dimension of size 1 `size` times, without copying."""
        dim = self._dim(dim, "broadcast")
        if self.shape[dim] != 1:
            message = f"broadcast of dimension {dim}, which has size {self.shape[dim]}; must be 1"
            raise invalid(message, code="view-dims", got=self.shape[dim], allowed=1)
        return self._replaced(dim, dim + 1, (size,), (0,))

    def expand_dim(self: Self, dim: int) -> Self:
        """Insert a dimension of size 1 at `dim`."""
        if not 0 <= dim <= len(self.shape):
            message = f"expand_dim({dim}) of a tensor with shape {self.shape}"
            raise invalid(message, code="view-dims", got=dim, most=len(self.shape))
        if dim == 0:
            self._keep_partition("expand_dim(0)")
        below = self.strides[dim] * self.shape[dim] if dim < len(self.shape) else 1
        return self._replaced(dim, dim, (1,), (below,))

    def squeeze_dim(self: Self, dim: int) -> Self:
        """Remove a dimension of size 1."""
        dim = self._dim(dim, "squeeze_dim")
        if self.shape[dim] != 1:
            message = f"squeeze_dim({dim}): the dimension has size {self.shape[dim]}; must be 1"
            raise invalid(message, code="view-dims", got=self.shape[dim], allowed=1)
        return self._replaced(dim, dim + 1, (), ())

    def reshape_dim(self: Self, dim: int, shape: tuple[int, ...]) -> Self:
        """Split one dimension into several; one size may be -1."""
        dim = self._dim(dim)
        sizes = infer(tuple(shape), self.shape[dim])
        if dim == 0 and prod(sizes[1:]) != 1:
            self._keep_partition(f"reshape_dim(0, {shape})")
        strides = tuple([n * self.strides[dim] for n in contiguous_strides(sizes)])
        return self._replaced(dim, dim + 1, sizes, strides)

    def flatten_dims(self: Self, start_dim: int, end_dim: int) -> Self:
        """Merge dimensions `start_dim..end_dim` (inclusive), which must be contiguous."""
        start_dim, end_dim = self._dim(start_dim), self._dim(end_dim)
        if start_dim > end_dim:
            raise invalid(f"flatten_dims({start_dim}, {end_dim}): empty range", code="view-dims")
        if start_dim == 0 and end_dim > 0:
            self._keep_partition("flatten_dims(0, ...)")
        sizes = self.shape[start_dim : end_dim + 1]
        merged = reshaped_strides(sizes, self.strides[start_dim : end_dim + 1], (prod(sizes),), 1)
        if merged is None:
            message = (
                f"dimensions {start_dim}..{end_dim} of shape {self.shape}, strides {self.strides} "
                "aren't contiguous and can't be merged into one"
            )
            raise invalid(message, code="view-layout", shape=self.shape, strides=self.strides)
        return self._replaced(start_dim, end_dim + 1, (prod(sizes),), merged)

    def reshape(self: Self, shape: Any, *more: int) -> Self:
        """Another shape over the same elements in the same order, where strides allow it."""
        sizes = (shape, *more) if hasattr(shape, "__index__") else tuple(shape)
        if -1 not in sizes and prod(sizes) != prod(self.shape):
            message = (
                f"reshape({sizes}) of {self._title()}: {prod(sizes)} elements, it has "
                f"{prod(self.shape)}"
            )
            raise invalid(message, code="reshape", got=prod(sizes), allowed=prod(self.shape))
        sizes = infer(sizes, prod(self.shape))
        fixed = self.storage.region.on_chip or (
            self.dynamic is not None and self.dynamic.kind == "vector"
        )
        if fixed and sizes and self.shape and sizes[0] != self.shape[0]:
            self._keep_partition(f"reshape({sizes})")
        if fixed:
            free = reshaped_strides(self.shape[1:], self.strides[1:], sizes[1:], 1)
            strides = None if free is None else (self.strides[0], *free)
        else:
            strides = reshaped_strides(self.shape, self.strides, sizes, 1)
        if strides is None:
            message = (
                f"a view of shape {self.shape} and strides {self.strides} can't be reshaped to "
                f"{sizes} without a copy"
            )
            raise invalid(
                message, code="view-layout", shape=self.shape, strides=self.strides, wanted=sizes
            )
        return self._moved(self.offset, sizes, strides)

    def rearrange(
        self: Self,
        src_pattern: tuple,
        dst_pattern: tuple,
        fixed_sizes: dict[str, int] | None = None,
    ) -> Self:
        """Split, reorder and merge named dimensions, as einops does.

        Patterns are tuples of names and tuples of names: `("b", ("h", "w"))`.
        """
        return rearrange(self, src_pattern, dst_pattern, fixed_sizes or {})

    def slice(self: Self, dim: int, start: int, end: int, step: int = 1) -> Self:
        """Elements `start, start+step, ...` below `end` of one dimension."""
        dim = self._dim(dim)
        if start < 0 or end > self.shape[dim]:
            raise self._outside(f"slice({dim}, {start}, {end}, {step})", dim, start, end)
        if start >= end or step < 1:
            message = (
                f"slice({dim}, {start}, {end}, {step}) of {self._title()}; needs start < end and "
                "step >= 1"
            )
            raise invalid(
                message, code="slice-range", start=start, end=end, step=step, size=self.shape[dim]
            )
        self._guard(dim, True)
        stride = self.strides[dim]
        size = -(-(end - start) // step)
        view = self._replaced(dim, dim + 1, (size,), (stride * step,))
        view.offset += start * stride
        return view

    def indirect(self: Self, index: Self, num_elem: int | None = None) -> Self:
        """Columns chosen at run time by `index` (tensor indirection, NeuronCore-v4).

        Args:
            index: SBUF tile (P, K) of integers, P equal to this tensor's partitions: numbers of
                columns, free dimensions flattened. Offset n is `index[n % G, n // G]`, G being 32
                for the Tensor engine and 16 for the others.
            num_elem: how many offsets to use; as many as index has elements by default.
        """
        if not self.storage.region.on_chip:
            raise invalid(
                f".indirect() of {self.storage.label}; HBM is indexed by .ap(vector_offset=...)",
                code="indirect-view",
            )
        if self.dynamic is not None:
            raise invalid("this view already has a run-time index", code="dynamic-twice")
        if index.shape[0] != self.shape[0]:
            raise invalid(
                f"index has {index.shape[0]} partitions, the tensor {self.shape[0]}; must be equal",
                code="partition-mismatch",
                index=index.shape[0],
                tensor=self.shape[0],
            )
        count = index.size if num_elem is None else num_elem
        if not 0 < count <= index.size:
            message = f"num_elem={count} of {index.size} offsets"
            raise invalid(message, code="indirect-index", got=count, least=1, most=index.size)
        flat = reshaped_strides(self.shape[1:], self.strides[1:], (self.free_size,), 1)
        if flat is None:
            message = (
                f".indirect() of a view of shape {self.shape} and strides {self.strides}, whose "
                "free dimensions can't be flattened"
            )
            raise invalid(message, code="view-layout", shape=self.shape, strides=self.strides)
        view = self._moved(self.offset, (self.shape[0], count), (self.strides[0], 0))
        view.dynamic = Dynamic("tensor", index, flat[0], self.free_size, 1)
        return view
