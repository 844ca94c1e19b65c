"""Memory that was freed, but that the C library keeps for what is allocated next.

Results of large launches are as large as what they replace, and freed in pieces between others
that live on, so hundreds of mebibytes may be kept that nobody uses when stacks need as much.
"""

from __future__ import annotations

import ctypes

from nki_dist.tricks import uses


def give_back() -> bool:
    """Give whole pages of freed memory back to the system; whether there were any.

    False as well where the C library can't (malloc_trim(3) is of glibc).
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    return uses("give-back") and trim is not None and bool(trim(ctypes.c_size_t(0)))
