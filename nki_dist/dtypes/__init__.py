"""Data types of NKI: their names, storage, ranges and rounding, and conversions between them.

See `dtype` (the types) and `casts` (who converts, by `rounding` and `tables`). A new type is a
constant of `dtype`, a branch of `casts`, a pattern of `poison`, and a name in `language`, `npy` and
`frameworks`.
"""

# ruff: noqa: F401 -- what is imported here is exported

from types import ModuleType as _ModuleType

from nki_dist.dtypes.dtype import (
    ALL,
    WIDE,
    DType,
    bfloat16,
    bool_,
    find,
    float4_e2m1fn_x4,
    float8_e4m3,
    float8_e4m3fn,
    float8_e4m3fn_x4,
    float8_e5m2,
    float8_e5m2_x4,
    float8_e8m0fnu,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    of,
    of_numpy,
    tfloat32,
    uint8,
    uint16,
    uint32,
    uint64,
)

__all__ = [
    name
    for name, value in list(globals().items())
    if not name.startswith("_") and not isinstance(value, _ModuleType)
]


def __dir__() -> list[str]:
    """The interface, without the modules that it is made in."""
    return sorted(__all__)
