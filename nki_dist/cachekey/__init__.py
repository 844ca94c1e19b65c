"""Keys of compiled kernels: equal only where tracing would give the same program, or none at all.

`walk` follows everything that a kernel can read, `parts` knows what objects are made of, `reads`
what code reads, and `installed` what is taken for granted.
"""

from nki_dist.cachekey.installed import Unprovable
from nki_dist.cachekey.walk import Fingerprinter

__all__ = ["Fingerprinter", "Unprovable"]
