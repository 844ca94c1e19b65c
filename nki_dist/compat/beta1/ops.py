"""Names of operators that Beta 1 kernels give as NumPy or `nl` functions."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

SYNONYMS = MappingProxyType(
    {
        "amax": "maximum",
        "max": "maximum",
        "amin": "minimum",
        "min": "minimum",
        "sum": "add",
        "prod": "multiply",
        "true_divide": "divide",
        "absolute": "abs",
        "negative": "negative",
    }
)


def operator_name(op: Any) -> Any:
    """The name of an operator as instructions know it; None stays None."""
    if op is None:
        return None
    name = getattr(op, "nki_op", None) or getattr(op, "__name__", op)
    return SYNONYMS.get(name, name)
