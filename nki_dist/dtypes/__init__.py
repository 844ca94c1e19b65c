"""Data types of NKI: their names, storage, ranges and rounding, and conversions between them.

See `dtype` (the types) and `casts` (who converts, by `rounding` and `tables`). A new type is a
constant of `dtype`, a branch of `casts`, a pattern of `poison`, and a name in `npy` and
`frameworks`.
"""

# ruff: noqa: F401, F403 -- what is imported here is exported

from types import ModuleType as _ModuleType

from nki_dist.dtypes.dtype import *
from nki_dist.dtypes.dtype import ALL, WIDE, find, float64, of, of_numpy

__all__ = [
    name
    for name, value in list(globals().items())
    if not name.startswith("_") and not isinstance(value, _ModuleType)
]


def __dir__() -> list[str]:
    """The interface, without the modules that it is made in."""
    return sorted(__all__)
