"""The globals `sbuf`, `psum` and `hbm` of Beta 2 kernels: memories that allocate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nki_dist.language.creation import ndarray
from nki_dist.language.tensor import NkiTensor
from nki_dist.program import MemoryRegion


@dataclass(frozen=True)
class Region:
    """`sbuf.view(dtype, shape)` is `nl.ndarray(shape, dtype, buffer=nl.sbuf)`; `hbm` is shared."""

    name: str

    @property
    def region(self) -> MemoryRegion:
        return MemoryRegion("shared_hbm" if self.name == "hbm" else self.name)

    def view(self, dtype: Any, shape: Any, name: str = "") -> NkiTensor:
        """Allocate a tensor in this memory."""
        return ndarray(shape, dtype, self.region, name)

    def __repr__(self) -> str:
        return f"<memory {self.name}>"
