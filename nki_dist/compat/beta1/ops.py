"""Names of operators that Beta 1 kernels give as NumPy or `nl` functions."""

from __future__ import annotations

from typing import Any

from nki_dist.language.older import OPERATORS


def operator_name(op: Any) -> Any:
    """The name of an operator as instructions know it; None stays None."""
    if op is None:
        return None
    name = getattr(op, "nki_op", None) or getattr(op, "__name__", op)
    return OPERATORS.get(name, name)
