"""Bytes of this process as an array that keeps alive what they lie in."""

from __future__ import annotations

from typing import Any


class Alias:
    """What NumPy makes the base of the array (nbytes,) uint8 that it builds of this, by
    `np.asarray`, and of every slice of it.

    Args:
        keep: lives as long as any of these.
    """

    def __init__(self, address: int, nbytes: int, keep: Any, read_only: bool = False) -> None:
        self.keep = keep
        self.__array_interface__ = {
            "version": 3,
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, read_only),
        }
