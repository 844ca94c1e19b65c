"""What differs between the programs of the examples."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Example:
    """One instruction.

    Attributes:
        arrays: assignments of the kernel's arguments; in the kernel the names are SBUF tiles.
        body: lines of the kernel; they write the tile `dst`.
        want: lines that compare `out`, or `outs` of all ranks, with NumPy.
        dst, dtype: shape and dtype of `dst`; without a shape the body makes it.
        in_hbm: arguments stay in HBM, and `dst` is made there.
        platform: if the instruction isn't on all.
        cores, ranks: of the launch.
    """

    arrays: str
    body: str
    want: str
    dst: str = "x.shape"
    dtype: str = "x.dtype"
    in_hbm: bool = False
    platform: str = ""
    cores: int = 0
    ranks: int = 0
