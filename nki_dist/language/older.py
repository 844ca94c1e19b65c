"""The language of Beta 1 by its names, for who runs its kernels, who rewrites them, and messages.

Follows: `nki.language` of the NKI 0.1 documentation (SDK 2.26), the migration guide of SDK 2.28.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from nki_dist.errors import NoSuchAttribute
from nki_dist.isa.described import absent


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


# Functions that both languages have. Beta 1's also take mask=, and where tiles have other types
# than each other, or than a number, results have other types than today's.
UNARY: Final = _names(
    "abs arctan ceil copy cos erf erf_dx exp floor gelu gelu_apprx_sigmoid gelu_apprx_tanh gelu_dx"
    " log mish negative reciprocal relu rsqrt sigmoid sign silu silu_dx sin softplus sqrt square"
    " tan tanh trunc"
)
ARITHMETIC: Final = _names("add subtract multiply divide maximum minimum power mod")
# Of bits and truth, whose results have types of their own.
LOGIC_UNARY: Final = _names("invert logical_not")
LOGIC: Final = _names(
    "bitwise_and bitwise_or bitwise_xor equal fmod greater greater_equal left_shift less less_equal"
    " logical_and logical_or logical_xor not_equal right_shift"
)
DTYPES: Final = _names(
    "bfloat16 bool_ float8_e4m3 float8_e5m2 float16 float32 int8 int16 int32 tfloat32 uint8 uint16"
    " uint32"
)
REDUCTIONS: Final = _names("sum max min mean prod")
OTHER_REDUCTIONS: Final = _names("all var")

# Operators of instructions by NumPy's name, or by that of a reduction, where `nl` has another.
OPERATORS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "amax": "maximum",
        "max": "maximum",
        "amin": "minimum",
        "min": "minimum",
        "sum": "add",
        "prod": "multiply",
        "true_divide": "divide",
        "absolute": "abs",
    }
)

# Instructions that write `dst=` today and returned their result in Beta 1, with the operand that it
# was like. Other parameters have kept their names and order.
RESULTS: Final[Mapping[str, str]] = MappingProxyType(
    {"tensor_copy": "src", "max8": "src", "tensor_tensor_scan": "data0"}
    | dict.fromkeys(
        _names(
            "activation reciprocal tensor_scalar scalar_tensor_tensor tensor_scalar_reduce dropout"
            " bn_stats bn_aggr"
        ),
        "data",
    )
)
COLUMNS: Final = {"max8": 8, "bn_stats": 6, "bn_aggr": 2}  # per partition of such a result
VECTORS: Final = frozenset({"bias", "scale"})  # of activations: Beta 1 converts them to float32

# What today's language hasn't, and what to write instead.
INSTEAD: Final = {
    "arange": "for a loop write `for i in range(n)`, for a part of a tensor x[start:stop]",
    "mgrid": "for a part of a tensor write x[start:stop, start:stop]",
    "par_dim": "the first dimension of a tensor on chip is the partition dimension: write "
    "nl.ndarray((128, n), ...)",
}


def missing(name: str) -> AttributeError:
    """The error of a name that `nl` hasn't; `hasattr` says False."""
    if name not in INSTEAD:
        return absent("nki_dist.language", name, "dir(nl) lists what there is.")
    return NoSuchAttribute(f"nl has no {name}, which is Beta 1's (neuronxcc.nki); {INSTEAD[name]}")
