"""Makes tensors of Beta 1: block dimensions (`nl.par_dim`), direct allocation.

A shape may mark its partition dimension with `par_dim`; the dimensions before it count blocks, each
a tile of its own. Without a mark the first dimension is the partition. `buffer` may be an
allocation function (`nki.compiler.sbuf.alloc`, `mod_alloc`, ...) that gives each block's address;
blocks and tensors at one address share nothing but capacity, and reading one after another was
written there is reported.

Follows: `nki.language.ndarray`, `nki.compiler.sbuf` and `nki.compiler.psum` of the NKI 0.1
documentation, "NKI Direct Allocation Developer Guide" (SDK 2.26).
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from nki_dist import dtypes
from nki_dist.arch import Arch, allowed_start_partitions
from nki_dist.compat.beta1 import lower
from nki_dist.compat.beta1.state import state
from nki_dist.compat.beta1.tile import BlockTile, Tile
from nki_dist.errors import NkiValidationError
from nki_dist.isa.spec import current_tracer
from nki_dist.language import creation
from nki_dist.program import MemoryRegion


class par_dim(int):
    """Marks the partition dimension of a shape: `(4, nl.par_dim(128), 512)`."""

    def __new__(cls, value: int) -> par_dim:
        return super().__new__(cls, int(value))

    def __repr__(self) -> str:
        return f"nl.par_dim({int(self)})"


@dataclass(frozen=True)
class Placement:
    """A buffer with an allocation function `(block, partitions, bytes) -> address`.

    Attributes:
        region: "sbuf" or "psum".
        function: gives (partition, byte) in SBUF, (bank, partition, byte) in PSUM; None leaves it
            to the allocator.
    """

    region: str
    function: Callable[..., Any] | None

    def address(self, block: tuple[int, ...], partitions: int, size: int) -> tuple[int, int] | None:
        if self.function is None:
            return None
        given = tuple(int(n) for n in self.function(block, partitions, size))
        numbers = 2 if self.region == "sbuf" else 3
        if len(given) != numbers or min(given) < 0:
            what = "(start_partition, byte_addr)" if numbers == 2 else "(bank, partition, byte)"
            raise NkiValidationError(
                f"the allocation function of {self.region} gave {given} for block {block}; must be "
                f"{what}, none negative",
                code="beta1-allocation",
            )
        partition, byte = given[-2:]
        arch = current_tracer().arch
        _check_start(partition, partitions, arch)
        if numbers == 2:
            return partition, byte
        bank = arch.psum_bank_bytes
        if byte + size > bank or given[0] * bank >= arch.psum_partition_bytes:
            raise NkiValidationError(
                f"block {block} is placed in PSUM bank {given[0]} at byte {byte} with {size} "
                f"bytes; there are {arch.psum_partition_bytes // bank} banks of {bank} bytes, and "
                "a tile can't leave its bank",
                code="psum-bank",
                numbers={"got": byte + size, "most": bank},
            )
        return partition, given[0] * bank + byte


def _check_start(start: int, partitions: int, arch: Arch) -> None:
    allowed = allowed_start_partitions(min(partitions, arch.partitions), arch)
    if start not in allowed:
        raise NkiValidationError(
            f"a tile of {partitions} partitions placed at partition {start}; allowed: "
            + ", ".join(map(str, allowed)),
            code="partition-start",
            numbers={"got": start, "allowed": allowed},
        )


def modulo(base: int, tiles: tuple[int, ...], scale: int, block: tuple[int, ...]) -> int:
    """Where a block lands when tiles are reused in turn: base + (row-major number) * scale."""
    tiles = tuple(tiles) or (1,) * len(block)
    if not block:
        return base  # published kernels give counts for tensors without blocks, too
    if len(tiles) != len(block):
        raise NkiValidationError(
            f"tile counts {tiles} for {len(block)} block dimensions; give one per dimension",
            code="beta1-allocation",
            numbers={"got": len(tiles), "allowed": len(block)},
        )
    number = 0
    for n, count in zip(block, tiles):
        number = number * count + n % count
    return base + number * scale


def in_turn(region: str, *axes: tuple[int, tuple[int, ...]]) -> Placement:
    """Blocks placed in turn: of (bank,) partition and byte, the first and how many there are."""

    def place(block: tuple[int, ...], partitions: int, size: int) -> tuple[int, ...]:
        scales = (1, partitions, size)[-len(axes) :]
        return tuple(modulo(*axis, scale, block) for axis, scale in zip(axes, scales))

    return Placement(region, place)


def split(shape: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(block dimensions, the rest) of a shape."""
    sizes = tuple(shape) if hasattr(shape, "__iter__") else (shape,)
    marks = [n for n, size in enumerate(sizes) if isinstance(size, par_dim)]
    if len(marks) > 1:
        raise NkiValidationError(
            f"shape {sizes} has {len(marks)} partition dimensions; one at most",
            code="beta1-allocation",
            numbers={"got": len(marks), "most": 1},
        )
    at = marks[0] if marks else 0
    plain = tuple(int(n) for n in sizes)
    return plain[:at], plain[at:]


def allocate(
    shape: Any,
    dtype: Any,
    buffer: Any = None,
    name: str = "",
    fill: Any = None,
) -> Any:
    """A tensor; filled with a number unless `fill` is None."""
    called = current_tracer().called(sys._getframe(1))
    blocks, inner = split(shape)
    buffer = MemoryRegion.sbuf if buffer is None else buffer
    place = None
    if isinstance(buffer, Placement):
        place = state().first_placement(current_tracer().locate(), buffer)
    region = place.region if place is not None else buffer
    if MemoryRegion.sbuf != region and MemoryRegion.psum != region:
        whole = creation.ndarray((*blocks, *inner), dtype, region, name)
        whole.storage.called = called
        return filled(Tile(whole), fill)
    inner = inner if len(inner) > 1 else (*inner, 1)
    size = prod(inner[1:]) * dtypes.of(dtype).itemsize
    tiles = np.empty(blocks, object)
    for block in np.ndindex(blocks):
        address = None if place is None else place.address(block, inner[0], size)
        tile = Tile(creation.ndarray(inner, dtype, region, name, address))
        tile.access.storage.called = called
        if blocks:
            state().blocks.add(tile.access.storage)
        tiles[block] = filled(tile, fill)
    return BlockTile(tiles) if blocks else tiles[()]


def filled(tile: Tile, value: Any) -> Tile:
    if value is not None:
        lower.assign(tile, value)
    return tile
