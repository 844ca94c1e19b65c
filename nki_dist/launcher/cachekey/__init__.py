"""Tells whether a compiled kernel can be used again: keys, equal only where programs would be.

Where that can't be shown of a kernel there is no key, and it is traced every time.

`walk` follows everything that a kernel can read, `parts` knows what objects are made of, `reads`
what code reads, and `installed` what is taken for granted.
"""

from nki_dist.launcher.cachekey.installed import Unprovable
from nki_dist.launcher.cachekey.walk import Fingerprinter

__all__ = ["Fingerprinter", "Unprovable"]
