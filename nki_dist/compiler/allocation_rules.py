"""What `nl.ndarray` may be asked for: rules that a single allocation can break by itself.

Whether all live tensors fit together is the allocation pass's business.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nki_dist.arch import Arch
from nki_dist.dtypes import DType
from nki_dist.errors import OutOfMemoryError, invalid
from nki_dist.isa.tracing import may_reject
from nki_dist.program import Access, MemoryRegion
from nki_dist.program.storage import contiguous_strides

# Not a figure of the hardware that is published: aws-neuron/neuron-agentic-development says so in
# skills/neuron-nki-writing/SKILL.md.
ADVISED_FREE_MAX: Final = 32767


def allocation_key(shape: Any, dtype: Any, region: Any, address: Any, beta1: bool) -> Any:
    """Equal for allocations that are judged alike; None for those that are judged each time."""
    if type(shape) not in (tuple, list) or (address is not None and type(address) is not tuple):
        return None
    for n in (*shape, *(address or ())):
        if type(n) is not int:
            return None
    return (*shape, id(dtype), id(region), address, beta1)


def sizes_of(shape: Any) -> tuple[int, ...]:
    """The shape as a tuple of positive ints."""
    if isinstance(shape, Access):
        message = (
            f"shape is the tensor {shape.storage.label}; allowed: a tuple of positive ints, such "
            f"as its .shape, {shape.shape}"
        )
        raise invalid(message, code="shape-form", shape=shape.shape)
    if isinstance(shape, (int, np.integer)):
        shape = (shape,)
    try:
        sizes = tuple(n.__index__() for n in shape)
    except (TypeError, AttributeError):
        message = (
            f"shape {shape!r}; allowed: a tuple of positive ints (`/` gives a float, `//` an int)"
        )
        raise invalid(message, code="shape-form", got=shape) from None
    if not sizes or min(sizes) < 1:
        message = f"shape {sizes}; every size must be at least 1"
        raise invalid(message, code="shape-empty", got=sizes, least=1)
    return sizes


def address_of(address: Any) -> tuple[int, int]:
    """A hand-given address as (partition, byte)."""
    try:
        partition, byte = map(int, address)
    except (TypeError, ValueError):
        message = f"address {address!r}; allowed: (partition, byte), two ints"
        raise invalid(message, code="address-form") from None
    return partition, byte


def check_no_hbm_address(address: Any) -> None:
    """Addresses in HBM, which NKI 0.7 has: what they count from isn't said, nor what two tensors at
    one address are.

    Raises:
        NkiValidationError: one is given.
    """
    if isinstance(address, (tuple, list)) and len(address) == 1:
        message = (
            f"address {address!r} in HBM; only tensors in SBUF and PSUM are placed by hand here"
        )
        raise invalid(message, code="address-form", hint="leave address= out")


def check_spelling(dtype: Any, element: DType, buffer: Any) -> None:
    """How NKI 0.3 and later want memory and type to be named.

    Raises:
        NkiValidationError: the memory is a string.
    """
    if isinstance(buffer, str):
        message = (
            f"buffer={buffer!r} is a string; allowed: nl.sbuf, nl.psum, nl.private_hbm (nl.hbm), "
            "nl.shared_hbm"
        )
        raise invalid(message, code="memory-unknown", got=buffer)
    if isinstance(dtype, (type, np.dtype)):
        may_reject(
            f"dtype={getattr(dtype, '__name__', dtype)} isn't one of nl's types; AWS's compiler is "
            "reported to refuse others in kernels",
            code="dtype-of-numpy",
            hint=f"write nl.{element.name}",
        )


def check_on_chip(
    arch: Arch, region: MemoryRegion, shape: tuple[int, ...], dtype: DType, address: Any
) -> None:
    """Partitions, dimensions, size and hand-given address of a tensor in SBUF or PSUM.

    Raises:
        NkiValidationError: the shape or address isn't possible.
        OutOfMemoryError: it can't fit even alone.
    """
    if len(shape) < 2:
        raise invalid(
            f"shape {shape} in {region.value}; on-chip tensors have a partition dimension and at "
            "least one free dimension",
            code="shape-rank",
            hint=f"write {(*shape, 1)} for one element per row, {(1, *shape)} for one row",
            got=len(shape),
            least=2,
        )
    if shape[0] > arch.partitions:
        message = (
            f"{shape[0]} partitions in a {region.value} tensor of shape {shape}; the partition "
            f"dimension (dimension 0) is at most {arch.partitions}: go through longer tensors in "
            f"tiles of at most {arch.partitions} rows, such as x[start:start + {arch.partitions}]"
        )
        raise invalid(message, code="partition-limit", got=shape[0], most=arch.partitions)
    in_psum = region is MemoryRegion.psum
    capacity = arch.psum_partition_bytes if in_psum else arch.sbuf_partition_bytes
    need = contiguous_strides(shape)[0] * dtype.itemsize
    if need > capacity:
        raise OutOfMemoryError(
            f"a {region.value} tensor of shape {shape} and dtype {dtype} needs {need} bytes per "
            f"partition; {region.value} has {capacity} on {arch.name}",
            code="partition-bytes",
            numbers={"got": need, "most": capacity},
        )
    longest = max(shape[1:])
    if longest > ADVISED_FREE_MAX:
        may_reject(
            f"shape {shape} has a free dimension of {longest}; AWS's advice for kernel writers "
            f"says at most {ADVISED_FREE_MAX} in {region.value}",
            code="free-dimension-long",
        )
    if address is not None and in_psum and address[1] % arch.psum_bank_bytes:
        raise invalid(
            f"address {tuple(address)} in psum; a tile starts at the beginning of a bank, byte 0, "
            f"{arch.psum_bank_bytes}, {2 * arch.psum_bank_bytes}, ... of its partitions",
            code="psum-bank",
            hint=f"start it at byte {address[1] // arch.psum_bank_bytes * arch.psum_bank_bytes}",
            got=address[1],
            multiple=arch.psum_bank_bytes,
        )
    if address is not None and address[0] + shape[0] > arch.partitions:
        message = (
            f"address {tuple(address)} puts {shape[0]} partitions beyond partition "
            f"{arch.partitions - 1}"
        )
        raise invalid(
            message, code="address-range", got=address[0] + shape[0], most=arch.partitions
        )
