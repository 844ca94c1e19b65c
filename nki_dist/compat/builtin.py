"""The module `builtin` of Beta 2 kernels: the memories their compiler gave them as globals."""

from __future__ import annotations

from typing import Final

from nki_dist.compat.regions import Region

sbuf: Final = Region("sbuf")
psum: Final = Region("psum")
hbm: Final = Region("hbm")

__all__ = ["hbm", "psum", "sbuf"]
