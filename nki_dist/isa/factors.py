"""What a matmul multiplies, for those who make one product of several.

Invariant: `rows` is the length of the contraction, so left is `rows` x M and right `rows` x N once
all their dimensions but the first ones are flattened.
"""

from __future__ import annotations

from typing import NamedTuple

from nki_dist.dtypes import float32
from nki_dist.program import Access


class Factors(NamedTuple):
    """dst (M, N) (+)= left.T @ right, in float32."""

    dst: Access
    left: Access
    right: Access
    rows: int

    @property
    def known(self) -> bool:
        """Every address is known when a program is linked, and dst doesn't round sums."""
        fixed = self.dst.dynamic is self.left.dynamic is self.right.dynamic is None
        return fixed and self.dst.dtype is float32
