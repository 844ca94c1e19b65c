"""`nki.compiler.psum` of Beta 1: where tensors go in PSUM, in banks, partitions and bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nki_dist.compat.beta1.allocation import Placement, modulo


def alloc(func: Callable[..., Any]) -> Placement:
    """Place each block by `func(block, partitions, bytes) -> (bank, start_partition, byte)`."""
    return Placement("psum", func)


def mod_alloc(
    *,
    base_bank,
    base_addr=0,
    base_partition=0,
    num_bank_tiles=(),
    num_par_tiles=(),
    num_free_tiles=(),
) -> Placement:
    """Place blocks in turn on `num_bank_tiles` banks from `base_bank`."""

    def place(block, partitions, size):
        return (
            modulo(base_bank, num_bank_tiles, 1, block),
            modulo(base_partition, num_par_tiles, partitions, block),
            modulo(base_addr, num_free_tiles, size, block),
        )

    return Placement("psum", place)


def auto_alloc() -> Placement:
    """Leave it to the allocator, as `buffer=nl.psum` does."""
    return Placement("psum", None)
