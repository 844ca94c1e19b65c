"""Comparisons, bit operators and logic on tiles, also operators (`op=nl.less`).

Comparisons and logic give 1 or 0 in the dtype of the input tile unless `dtype` says otherwise. Bit
operators take integers only and never convert them.

Follows: `nki/api/nki/language/__init__.py`.
"""

from __future__ import annotations

from nki_dist.language import emit
from nki_dist.language.tokens import token


@token("equal")
def equal(x, y, dtype=None):
    """1 where x == y, else 0."""
    return emit.public_binary("equal", x, y, dtype)


@token("not_equal")
def not_equal(x, y, dtype=None):
    """1 where x != y, else 0."""
    return emit.public_binary("not_equal", x, y, dtype)


@token("less")
def less(x, y, dtype=None):
    """1 where x < y, else 0."""
    return emit.public_binary("less", x, y, dtype)


@token("less_equal")
def less_equal(x, y, dtype=None):
    """1 where x <= y, else 0."""
    return emit.public_binary("less_equal", x, y, dtype)


@token("greater")
def greater(x, y, dtype=None):
    """1 where x > y, else 0."""
    return emit.public_binary("greater", x, y, dtype)


@token("greater_equal")
def greater_equal(x, y, dtype=None):
    """1 where x >= y, else 0."""
    return emit.public_binary("greater_equal", x, y, dtype)


@token("bitwise_and")
def bitwise_and(x, y, dtype=None):
    """Bits set in both x and y."""
    return emit.public_binary("bitwise_and", x, y, dtype)


@token("bitwise_or")
def bitwise_or(x, y, dtype=None):
    """Bits set in x or y."""
    return emit.public_binary("bitwise_or", x, y, dtype)


@token("bitwise_xor")
def bitwise_xor(x, y, dtype=None):
    """Bits set in one of x and y."""
    return emit.public_binary("bitwise_xor", x, y, dtype)


@token("left_shift")
def left_shift(x, y, dtype=None):
    """x shifted left by y bits."""
    return emit.public_binary("left_shift", x, y, dtype)


@token("right_shift")
def right_shift(x, y, dtype=None):
    """x shifted right by y bits; zeros come in."""
    return emit.public_binary("right_shift", x, y, dtype)


@token("logical_and")
def logical_and(x, y, dtype=None):
    """1 where x and y are nonzero, else 0."""
    return emit.public_binary("logical_and", x, y, dtype)


@token("logical_or")
def logical_or(x, y, dtype=None):
    """1 where x or y is nonzero, else 0."""
    return emit.public_binary("logical_or", x, y, dtype)


@token("logical_xor")
def logical_xor(x, y, dtype=None):
    """1 where exactly one of x and y is nonzero, else 0."""
    return emit.public_binary("logical_xor", x, y, dtype)


@token("invert")
def invert(x, dtype=None):
    """Every bit of x flipped."""
    return emit.invert(x, dtype)


@token("logical_not")
def logical_not(x, dtype=None):
    """1 where x is 0, else 0."""
    return emit.with_number("logical_xor", x, 1.0, False, dtype)
