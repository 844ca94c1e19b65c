"""Copies tiles of Beta 1 kernels between memories.

Engines read PSUM and SBUF, DMA reads SBUF and HBM; from PSUM to HBM takes two steps.

Follows: `nki.isa.dma_copy` and `nki.isa.tensor_copy` of the NKI 0.1 documentation (SDK 2.26).
"""

from __future__ import annotations

from typing import Any

from nki_dist.errors import NkiValidationError
from nki_dist.isa import dma_copy, tensor_copy
from nki_dist.language import emit
from nki_dist.language.tensor import NkiTensor
from nki_dist.program import psum


def copied(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile with the values of a tile."""
    return emit.copy(x, dtype)


def in_sbuf(x: NkiTensor) -> NkiTensor:
    """The tile itself, or a copy of it if it is in PSUM."""
    return emit.copy(x, None) if x.buffer is psum else x


def move(dst: NkiTensor, src: NkiTensor) -> None:
    """Copy between any two memories."""
    if dst.storage.region.on_chip and src.storage.region.on_chip:
        try:
            tensor_copy(dst, src)
        except NkiValidationError:  # engines start at partitions 0, 32, 64, 96; DMA anywhere
            if psum in (dst.buffer, src.buffer):
                raise
            dma_copy(dst, src)
        return
    if dst.buffer is psum:
        tensor_copy(dst, emit_load(src))
        return
    dma_copy(dst, in_sbuf(src))


def emit_load(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile with the contents of an HBM view."""
    tile = emit.new(src.shape, src.dtype if dtype is None else dtype)
    dma_copy(tile, src)
    return tile
