"""`nki.compiler.psum` of Beta 1: where tensors go in PSUM, in banks, partitions and bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nki_dist.compat.beta1.allocation import Placement, in_turn


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
    partitions, bytes_ = (base_partition, num_par_tiles), (base_addr, num_free_tiles)
    return in_turn("psum", (base_bank, num_bank_tiles), partitions, bytes_)


def auto_alloc() -> Placement:
    """Leave it to the allocator, as `buffer=nl.psum` does."""
    return Placement("psum", None)
