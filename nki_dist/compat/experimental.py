"""`nki.experimental`: names that have moved to `nki.language`."""

from nki_dist.language.control import fori_loop, while_loop

__all__ = ["fori_loop", "while_loop"]
