"""nl.ndarray and its kin: tensors with and without initial contents."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from nki_dist import dtypes
from nki_dist.errors import NkiError, NkiValidationError
from nki_dist.isa.dma_copy import dma_copy
from nki_dist.isa.memset import memset
from nki_dist.isa.spec import current_tracer
from nki_dist.language.tensor import NkiTensor
from nki_dist.program import MemoryRegion, sbuf

__tracebackhide__ = True  # asks pytest to end tracebacks in the caller


class _NdArray:
    """Allocate a tensor; its contents are undefined until written.

    Kernels also use it as annotation: `x: nl.ndarray | None`.

    Args:
        shape: sizes; dimension 0 counts partitions in SBUF and PSUM (at most 128).
        dtype: an `nl` data type.
        buffer: `nl.sbuf`, `nl.psum`, `nl.private_hbm` (`nl.hbm`) or `nl.shared_hbm`.
        name: label for messages.
        address: (partition, byte) to place an on-chip tensor by hand.

    Raises:
        NkiValidationError: shape, dtype, buffer or address aren't possible.
        OutOfMemoryError: it can't fit even alone.
    """

    __name__ = "ndarray"

    def __call__(
        self, shape: Any, dtype: Any, buffer: Any = sbuf, name: str = "", address: Any = None
    ) -> NkiTensor:
        tracer = current_tracer()
        try:
            return tracer.allocate(shape, dtype, buffer, name, address)
        except NkiError as error:
            raise error.at(instruction="nl.ndarray") from None

    def __or__(self, other: Any) -> Any:
        return NkiTensor | other

    def __ror__(self, other: Any) -> Any:
        return other | NkiTensor

    def __repr__(self) -> str:
        return "nl.ndarray"


_NdArray.__call__.__qualname__ = "nl.ndarray"  # how Python calls it in its TypeErrors
ndarray = _NdArray()


def full(shape, fill_value, dtype, buffer=sbuf, name=""):
    """A new tensor filled with `fill_value`."""
    tensor = ndarray(shape, dtype, buffer, name)
    memset(tensor, fill_value)
    return tensor


def zeros(shape, dtype, buffer=sbuf, name=""):
    """A new tensor filled with zeros."""
    return full(shape, 0, dtype, buffer, name)


def ones(shape, dtype, buffer=sbuf, name=""):
    """A new tensor filled with ones."""
    return full(shape, 1, dtype, buffer, name)


def zeros_like(x, dtype=None, buffer=None, name=""):
    """A new tensor of zeros with the shape, dtype and buffer of `x`, unless given otherwise."""
    return full(x.shape, 0, x.dtype if dtype is None else dtype, buffer or x.buffer, name)


def shared_constant(constant, dtype=None):
    """A tensor in shared HBM with contents known at compile time.

    Args:
        constant: a NumPy array, or the path of a `.npy` file, which is read now.
    """
    tracer = current_tracer()
    if isinstance(constant, (str, os.PathLike)):
        path = os.fspath(constant)
        status = os.stat(path)
        tracer.read_file(path, (status.st_mtime, status.st_size))
        constant = np.load(path, allow_pickle=False)
    array = np.asarray(constant)
    try:
        element = dtypes.of(array.dtype if dtype is None else dtype)
    except NkiValidationError as error:
        raise error.at(instruction="nl.shared_constant") from None
    if array.dtype not in (element.dtype, element.storage):
        array = array.astype(element.storage)
    return tracer.constant(array, element)


def shared_identity_matrix(n, dtype=dtypes.uint8, dst=None):
    """An (n, n) identity matrix in SBUF, or copied into `dst`."""
    source = shared_constant(np.eye(n, dtype=dtypes.of(dtype).storage), dtype)
    if dst is None:
        dst = ndarray((n, n), dtype, sbuf, "identity")
    dma_copy(dst, source)
    return dst


def is_hbm(buffer):
    """Whether `buffer` is one of the HBM regions."""
    return bool(getattr(buffer, "is_hbm", False))


def is_sbuf(buffer):
    """Whether `buffer` is SBUF."""
    return buffer == MemoryRegion.sbuf


def is_psum(buffer):
    """Whether `buffer` is PSUM."""
    return buffer == MemoryRegion.psum


def is_on_chip(buffer):
    """Whether `buffer` is SBUF or PSUM."""
    return is_sbuf(buffer) or is_psum(buffer)
