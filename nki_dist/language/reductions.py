"""Reductions along free dimensions: `nl.sum(x, axis=1)`, ..., also operators (`op=nl.max`).

`axis` is an int or several; the axes must be the last dimensions of the tile and can't include
dimension 0, the partitions. The result is a tile in SBUF with the dtype of `x` unless `dtype` says
otherwise; a tile has at least two dimensions, so reducing (P, N) gives (P, 1) in any case.

Follows: `nki/api/nki/language/__init__.py`. `var` ignores `keepdims` and keeps them, as documented.
"""

from __future__ import annotations

from nki_dist.dtypes import float32
from nki_dist.language import emit
from nki_dist.language.tokens import token


@token("add")
def sum(x, axis, dtype=None, keepdims=False):
    """Sum along `axis`."""
    return emit.reduce("sum", "add", x, axis, dtype, keepdims)


@token("max")
def max(x, axis, dtype=None, keepdims=False):
    """Maximum along `axis`."""
    return emit.reduce("max", "maximum", x, axis, dtype, keepdims)


@token("min")
def min(x, axis, dtype=None, keepdims=False):
    """Minimum along `axis`."""
    return emit.reduce("min", "minimum", x, axis, dtype, keepdims)


@token("multiply")
def prod(x, axis, dtype=None, keepdims=False):
    """Product along `axis`."""
    return emit.reduce("prod", "multiply", x, axis, dtype, keepdims)


@token("average")
def mean(x, axis, dtype=None, keepdims=False):
    """Mean along `axis`, summed and divided in float32."""
    total = emit.reduce("mean", "add", x, axis, float32, keepdims)
    return emit.with_number("divide", total, emit.count(x, axis), False, dtype or x.dtype)


def var(x, axis, dtype=None, keepdims=False):
    """Variance along `axis`: the mean squared distance from the mean, in two passes in float32."""
    centre = mean(x, axis, float32, True)
    distance = emit.binary("subtract", x, centre, float32)
    squares = emit.binary("multiply", distance, distance, float32)
    return mean(squares, axis, dtype or x.dtype, True)


@token("logical_and")
def all(x, axis, dtype=None):
    """1 where every element along `axis` is nonzero, else 0."""
    return emit.reduce("all", "logical_and", x, axis, dtype, False)
