"""What is known of the values of a Beta 1 kernel from its text.

Sizes, offsets and dtypes are Python expressions as text; two that have the same text are equal as
long as none of their names is bound again, at which `Environment.bind` forgets them.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

FLOATS: Final = frozenset({"float32", "float16", "bfloat16"})


class Undecided(Exception):
    """The text doesn't say what a statement becomes; the message says what is missing."""


@dataclass(frozen=True)
class Other:
    """Nothing is known."""


@dataclass(frozen=True)
class Dtype:
    """A dtype, as it is written in full."""

    text: str


@dataclass(frozen=True)
class Number:
    """A Python number: "int", "float", or "" for either."""

    kind: str = ""


@dataclass(frozen=True)
class Tensor:
    """A tensor, a tile or a view of one.

    Attributes:
        where: "hbm", "sbuf", "psum", or "".
        dtype: text that evaluates to it, or "".
        rank: dimensions, or None.
        kept: what a mask left of it: dimension and length.
    """

    where: str = ""
    dtype: str = ""
    rank: int | None = None
    kept: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True)
class Blocks:
    """A tensor with block dimensions: lists of tiles."""

    tile: Tensor
    depth: int


@dataclass(frozen=True)
class Index:
    """An affine expression of nl.arange or nl.mgrid.

    Attributes:
        sizes: of the dimensions that it is broadcast to.
        terms: dimension to factor.
        start: what is added.
    """

    sizes: tuple[str, ...]
    terms: tuple[tuple[int, str], ...]
    start: str = "0"


@dataclass(frozen=True)
class Indices:
    """What nl.mgrid gives."""

    of: tuple[Index, ...]


@dataclass(frozen=True)
class Mask:
    """Comparisons that all have to hold: an index is less than a bound."""

    terms: tuple[tuple[Index, str], ...]


Value = Other | Dtype | Number | Tensor | Blocks | Index | Indices | Mask
INT: Final = Number("int")


def _int(text: str) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None


def wrapped(text: str) -> str:
    """The text as an operand."""
    node = ast.parse(text, mode="eval").body
    simple = isinstance(node, (ast.Name, ast.Constant, ast.Attribute, ast.Subscript, ast.Call))
    return text if simple else f"({text})"


def plus(a: str, b: str) -> str:
    """a + b, simplified where both are known."""
    m, n = _int(a), _int(b)
    if m is not None and n is not None:
        return str(m + n)
    if m == 0 or n == 0:
        return b if m == 0 else a
    return f"{a} - {str(n)[1:]}" if n is not None and n < 0 else f"{a} + {b}"


def minus(a: str, b: str) -> str:
    """a - b, simplified where both are known."""
    m, n = _int(a), _int(b)
    if m is not None and n is not None:
        return str(m - n)
    return a if n == 0 else f"{a} - {wrapped(b)}"


def times(a: str, b: str) -> str:
    """a * b, simplified where both are known."""
    m, n = _int(a), _int(b)
    if m is not None and n is not None:
        return str(m * n)
    if 0 in (m, n):
        return "0"
    if 1 in (m, n):
        return b if m == 1 else a
    return f"{wrapped(a)} * {wrapped(b)}"


def least(a: str, b: str) -> str:
    """min(a, b), simplified where both are known."""
    m, n = _int(a), _int(b)
    return str(min(m, n)) if m is not None and n is not None else f"min({a}, {b})"


def added(a: Index, b: Index) -> Index:
    """The sum of two index expressions.

    Raises:
        Undecided: they have different numbers of dimensions, or sizes that can't be compared.
    """
    if len(a.sizes) != len(b.sizes):
        raise Undecided("index expressions of different ranks are added")
    sizes = tuple(both(m, n) for m, n in zip(a.sizes, b.sizes))
    terms = dict(a.terms)
    for dim, factor in b.terms:
        terms[dim] = plus(terms[dim], factor) if dim in terms else factor
    return Index(sizes, tuple(sorted(terms.items())), plus(a.start, b.start))


def both(m: str, n: str, equal: list[tuple[str, str]] | None = None) -> str:
    """The size that two dimensions broadcast to; other texts may be equal if a list is given."""
    if m == n or n == "1":
        return m
    if m == "1":
        return n
    if equal is not None and _int(m) is _int(n) is None:
        equal.append((m, n))
        return m
    raise Undecided(f"sizes {m} and {n} of index expressions may differ")


def scaled(a: Index, factor: str) -> Index:
    """The product of an index expression and a number."""
    terms = tuple((dim, times(f, factor)) for dim, f in a.terms)
    return replace(a, terms=terms, start=times(a.start, factor))


def names_in(value: Value) -> set[str]:
    """The names that the texts of a value mention."""
    texts: list[str] = []
    if isinstance(value, Tensor):
        texts = [value.dtype, *(n for _, n in value.kept)]
    elif isinstance(value, Blocks):
        texts = [value.tile.dtype]
    elif isinstance(value, Index):
        texts = [*value.sizes, *(f for _, f in value.terms), value.start]
    elif isinstance(value, Mask):
        found: set[str] = set()
        return found.union(*(names_in(i) | text_names(bound) for i, bound in value.terms))
    return set().union(*(text_names(t) for t in texts if t))


def text_names(text: str) -> set[str]:
    """The names in an expression."""
    return {n.id for n in ast.walk(ast.parse(text, mode="eval")) if isinstance(n, ast.Name)}


def stored_names(node: ast.AST) -> list[str]:
    """The names that a statement binds, once for each place."""
    names = [n for n in ast.walk(node) if isinstance(n, ast.Name)]
    return [n.id for n in names if isinstance(n.ctx, ast.Store)]


def joined(a: Value, b: Value) -> Value:
    """What is known of a value that is one of two."""
    if a == b:
        return a
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        if a.kept != b.kept:
            return Other()
        return Tensor(
            a.where if a.where == b.where else "",
            a.dtype if a.dtype == b.dtype else "",
            a.rank if a.rank == b.rank else None,
            a.kept,
        )
    return Other()


class Environment(dict[str, Value]):
    """Names of a function and what is known of them."""

    def bind(self, name: str, value: Value) -> None:
        """A name gets a value; what mentioned its old one is forgotten."""
        for other, old in list(self.items()):
            if name in names_in(old):
                if isinstance(old, Tensor) and not old.kept:
                    self[other] = replace(old, dtype="")
                else:
                    self[other] = Other()
        if name in names_in(value):  # such as `t = nl.exp(t)`
            value = replace(value, dtype="") if isinstance(value, Tensor) else Other()
        self[name] = value

    def joined(self, other: Mapping[str, Value]) -> Environment:
        """What is known where two ways meet."""
        names = {*self, *other}
        absent = Other()
        return Environment({n: joined(self.get(n, absent), other.get(n, absent)) for n in names})
