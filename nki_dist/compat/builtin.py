"""The module `builtin` of Beta 2 kernels: the memories their compiler gave them as globals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from nki_dist.language.creation import ndarray
from nki_dist.language.tensor import NkiTensor
from nki_dist.program import MemoryRegion


@dataclass(frozen=True)
class Region:
    """`sbuf.view(dtype, shape)` is `nl.ndarray(shape, dtype, buffer=nl.sbuf)`; `hbm` is shared."""

    name: str

    def view(self, dtype: Any, shape: Any, name: str = "") -> NkiTensor:
        """Allocate a tensor in this memory."""
        region = MemoryRegion("shared_hbm" if self.name == "hbm" else self.name)
        return ndarray(shape, dtype, region, name)

    def __repr__(self) -> str:
        return f"<memory {self.name}>"


sbuf: Final = Region("sbuf")
psum: Final = Region("psum")
hbm: Final = Region("hbm")

__all__ = ["hbm", "psum", "sbuf"]
