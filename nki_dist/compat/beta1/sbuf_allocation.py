"""`nki.compiler.sbuf` of Beta 1: where tensors go in SBUF, in partitions and bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nki_dist.compat.beta1.allocation import Placement, in_turn


def alloc(func: Callable[..., Any]) -> Placement:
    """Place each block by `func(block, partitions, bytes) -> (start_partition, byte_addr)`."""
    return Placement("sbuf", func)


def mod_alloc(*, base_addr, base_partition=0, num_par_tiles=(), num_free_tiles=()) -> Placement:
    """Place blocks in turn on `num_par_tiles` x `num_free_tiles` tiles from `base_addr`."""
    return in_turn("sbuf", (base_partition, num_par_tiles), (base_addr, num_free_tiles))


def auto_alloc() -> Placement:
    """Leave it to the allocator, as `buffer=nl.sbuf` does."""
    return Placement("sbuf", None)
