"""Cost rules that several instructions share.

Sources: "Cost" of the per-instruction documentation of SDK 2.26 and the Vector engine performance
modes of the Trainium2 architecture guide.
"""

from __future__ import annotations

from nki_dist.arch import Arch
from nki_dist.program import Access

ISSUE = 64  # cycles between two instructions of one engine, at least


def copy_cycles(engine: str, dst: Access, src: Access, arch: Arch) -> float:
    """tensor_copy and tensor_scalar: N cycles, N/2 or N/4 in the Vector engine's fast modes."""
    n = dst.free_size
    sides = (dst, src)
    if engine != "vector" or arch.generation < 3 or any(a.dtype.bits != 16 for a in sides):
        return max(ISSUE, n)
    in_psum = sum(a.region.value == "psum" for a in sides)
    packed = all(a.strides[-1] == 1 or a.shape[-1] == 1 for a in sides)
    if in_psum == 0 and packed:
        return max(ISSUE, n / 4)
    if (in_psum == 0 and not packed) or (in_psum == 1 and packed):
        return max(ISSUE, n / 2)
    return max(ISSUE, n)
