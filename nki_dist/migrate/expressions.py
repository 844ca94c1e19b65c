"""Rewrites expressions of a Beta 1 kernel, and works out what is known of their values.

An instruction in an expression becomes statements before it (`before`), in the order in which
Python would have run them.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import Final

from nki_dist.language.older import DTYPES
from nki_dist.migrate.functions import Functions
from nki_dist.migrate.subscripts import (
    bounded,
    limits,
    of_blocks,
    parsed,
    plain_rank,
    selected,
)
from nki_dist.migrate.values import (
    INT,
    Blocks,
    Dtype,
    Index,
    Indices,
    Mask,
    Number,
    Other,
    Tensor,
    Undecided,
    Value,
    added,
    minus,
    scaled,
)

OPERATORS: Final[dict[type[ast.operator], str]] = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
}
_TILES: Final = (Tensor, Blocks)


class Expressions(Functions):
    """Evaluates expressions; see `Functions` for calls."""

    def value(self, node: ast.expr) -> tuple[ast.expr, Value]:
        """An expression of `nki`, and what is known of it.

        Raises:
            Undecided: it can't be said.
        """
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is not None:
            found: tuple[ast.expr, Value] = method(node)
            return found
        return self._opaque(node)

    def _opaque(self, node: ast.expr) -> tuple[ast.expr, Value]:
        """Anything else: it may not have tiles computed in it."""
        for inner in ast.walk(node):
            if isinstance(inner, ast.Name) and isinstance(
                self.env.get(inner.id), (Index, Indices, Mask)
            ):
                raise Undecided(f"{inner.id} in {ast.unparse(node)}")
            if isinstance(inner, ast.Call) and self.full(inner.func).startswith(("nl.", "nisa.")):
                name = self.full(inner.func)
                if name not in ("nl.ds", "nl.program_id", "nl.num_programs", "nl.par_dim"):
                    raise Undecided(f"{name} in {type(node).__name__}")
        return node, Other()

    def _constant(self, node: ast.Constant) -> tuple[ast.expr, Value]:
        if type(node.value) is int:
            return node, INT
        return node, Number("float") if type(node.value) is float else Other()

    def _name(self, node: ast.Name) -> tuple[ast.expr, Value]:
        return node, self.env.get(node.id, Other())

    def _tuple(self, node: ast.Tuple) -> tuple[ast.expr, Value]:
        elements = [self.value(e) for e in node.elts]
        if any(isinstance(v, (Index, Indices, Mask)) for _, v in elements):
            raise Undecided("index expressions in a tuple")
        return ast.Tuple([e for e, _ in elements], node.ctx), Other()

    def _attribute(self, node: ast.Attribute) -> tuple[ast.expr, Value]:
        if self.full(node).startswith("nl.tile_size."):
            return node, INT
        space, _, last = self.full(node).rpartition(".")
        if space in ("nl", "numpy", "ml_dtypes") and last in DTYPES:
            return node, Dtype(self.dtype(node))
        if node.attr in ("shape", "dtype"):
            base, value = self.value(node.value)
            if isinstance(value, (Blocks, Index, Mask)):
                raise Undecided(f"{node.attr} of {ast.unparse(node.value)}")
            return ast.Attribute(base, node.attr, node.ctx), Other()
        return self._opaque(node)

    # ---- operators ----------------------------------------------------------------------------

    def _unaryop(self, node: ast.UnaryOp) -> tuple[ast.expr, Value]:
        inner, value = self.value(node.operand)
        if isinstance(node.op, ast.USub) and isinstance(value, Tensor):
            return self.binary("multiply", (inner, value), (parsed("-1.0"), Number("float")))
        if isinstance(value, (Tensor, Blocks, Index, Mask)):
            raise Undecided(f"operator of {ast.unparse(node)}")
        return ast.UnaryOp(node.op, inner), value

    def _binop(self, node: ast.BinOp) -> tuple[ast.expr, Value]:
        left, a = self.value(node.left)
        right, b = self.value(node.right)
        if isinstance(a, Mask) and isinstance(b, Mask) and isinstance(node.op, ast.BitAnd):
            return node, Mask(a.terms + b.terms)
        if isinstance(a, Index) or isinstance(b, Index):
            return node, self._affine(node, (left, a), (right, b))
        if isinstance(a, _TILES) or isinstance(b, _TILES):
            function = OPERATORS.get(type(node.op))
            if function is None:
                raise Undecided(f"the operator of {ast.unparse(node)} on a tile")
            return self.binary(function, (left, a), (right, b))
        if isinstance(a, Mask) or isinstance(b, Mask):
            raise Undecided(f"mask {ast.unparse(node)}")
        return ast.BinOp(left, node.op, right), self._kind(node.op, a, b)

    def _kind(self, op: ast.operator, a: Value, b: Value) -> Value:
        if not isinstance(a, Number) or not isinstance(b, Number):
            return Other()
        if isinstance(op, ast.Div) or "float" in (a.kind, b.kind):
            return Number("float")
        return INT if a == b == INT and not isinstance(op, ast.Pow) else Number()

    def _affine(
        self, node: ast.BinOp, left: tuple[ast.expr, Value], right: tuple[ast.expr, Value]
    ) -> Index:
        (x, a), (y, b) = left, right
        if isinstance(node.op, (ast.Add, ast.Sub)):
            sign = "1" if isinstance(node.op, ast.Add) else "-1"
            if isinstance(a, Index) and isinstance(b, Index):
                return added(a, scaled(b, sign))
            if isinstance(a, Index) and self._plain(b):
                one = replace(a, terms=(), start=ast.unparse(y))
                return added(a, scaled(one, sign))
            if isinstance(b, Index) and self._plain(a):
                return added(replace(b, terms=(), start=ast.unparse(x)), scaled(b, sign))
        if isinstance(node.op, ast.Mult):
            if isinstance(a, Index) and self._plain(b):
                return scaled(a, ast.unparse(y))
            if isinstance(b, Index) and self._plain(a):
                return scaled(b, ast.unparse(x))
        raise Undecided(f"{ast.unparse(node)} isn't affine")

    def _plain(self, value: Value) -> bool:
        """Whether it can be taken for an integer; an index expression allows no other."""
        return isinstance(value, (Number, Other))

    def _compare(self, node: ast.Compare) -> tuple[ast.expr, Value]:
        a, (right, b) = self.value(node.left)[1], self.value(node.comparators[0])
        if not any(isinstance(v, (Index, Tensor, Blocks)) for v in (a, b)):
            return self._opaque(node)
        if len(node.ops) == 1 and isinstance(a, Index) and self._plain(b):
            bound = ast.unparse(right)
            if isinstance(node.ops[0], ast.Lt):
                return node, Mask(((a, bound),))
            if isinstance(node.ops[0], ast.GtE):
                return node, Mask(((scaled(a, "-1"), minus("1", bound)),))
        raise Undecided(f"comparison {ast.unparse(node)}")

    # ---- subscripts ---------------------------------------------------------------------------

    def _subscript(self, node: ast.Subscript) -> tuple[ast.expr, Value]:
        return self.subscript(node, None)

    def subscript(self, node: ast.Subscript, mask: Mask | None) -> tuple[ast.expr, Value]:
        """A view, cut to what a mask leaves."""
        if self.full(node.value) == "nl.mgrid":
            return node, self._mgrid(node)
        base, value = self.value(node.value)
        if isinstance(node.value, ast.Attribute) and node.value.attr == "shape":
            return ast.Subscript(base, node.slice, node.ctx), INT
        nodes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if isinstance(value, Index):
            return node, self._placed(value, nodes)
        if isinstance(value, Other) and any(self._is_index(n) for n in nodes):
            value = Tensor()  # nothing else is indexed like that
        if not isinstance(value, (Tensor, Blocks)):
            index = ast.copy_location(self._opaque(node.slice)[0], node.slice)
            return ast.Subscript(base, index, node.ctx), Other()
        keys = [self._key(n) for n in nodes]
        text = ast.unparse(base)
        whole = text.isidentifier()
        if isinstance(value, Blocks):
            whole = True
            text += of_blocks(value, keys, nodes)
            self.note("par-dim")
            nodes, keys, value = nodes[value.depth :], keys[value.depth :], value.tile
            if not nodes:
                return parsed(text), value
        if any(isinstance(k, Index) for k in keys):
            self.note("index")
            indices = [k for k in keys if isinstance(k, Index)]
            for key, one in zip(keys, nodes):
                if isinstance(key, Other) and not isinstance(one, ast.Slice):
                    self._one_number(one)
            left = limits(mask)
            if mask is not None:
                self.note("mask")
            equal: list[tuple[str, str]] = []
            made = selected(text, bounded(keys, left), nodes, equal, whole)
            for m, n in dict.fromkeys(equal):
                self.guard(f"{m} == {n}", "index expressions of one subscript have equal sizes")
            rank = len(indices[0].sizes)
            return parsed(made), Tensor(value.where, value.dtype, rank)
        if mask is not None:
            raise Undecided("a mask and no index expression")
        shown = ", ".join(ast.unparse(n) for n in nodes)
        known = plain_rank(value, nodes, keys)
        return parsed(f"{text}[{shown}]"), Tensor(value.where, value.dtype, known)

    def _one_number(self, node: ast.expr) -> None:
        """Beside index expressions a key is a number; slices would be another dimension."""
        if isinstance(node, (ast.Constant, ast.Call)):
            raise Undecided(f"index expressions and {ast.unparse(node)} in one subscript")
        self.guard(f"isinstance({ast.unparse(node)}, int)", "an index is a number, not a slice")

    def _is_index(self, node: ast.expr) -> bool:
        return not isinstance(node, ast.Slice) and isinstance(self.value(node)[1], Index)

    def _key(self, node: ast.expr) -> Value:
        if isinstance(node, ast.Slice):
            for part in (node.lower, node.upper, node.step):
                if part is not None and isinstance(self.value(part)[1], (Index, Tensor, Blocks)):
                    raise Undecided(f"slice {ast.unparse(node)}")
            return Other()
        value = self.value(node)[1]
        if isinstance(value, (Tensor, Blocks, Indices, Mask)):
            raise Undecided(f"a tensor indexed by {ast.unparse(node)}")
        return value

    def _mgrid(self, node: ast.Subscript) -> Indices:
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        sizes, starts = [], []
        for part in parts:
            if not isinstance(part, ast.Slice) or part.upper is None or part.step is not None:
                raise Undecided(f"{ast.unparse(node)}")
            start = ast.unparse(part.lower) if part.lower is not None else "0"
            starts.append(start)
            sizes.append(minus(ast.unparse(part.upper), start))
        made = [Index(tuple(sizes), ((d, "1"),), s) for d, s in enumerate(starts)]
        return Indices(tuple(made))

    def _placed(self, index: Index, nodes: list[ast.expr]) -> Index:
        """`nl.arange(n)[:, None]`: where an index counts."""
        whole = [isinstance(n, ast.Slice) and n.lower is n.upper is n.step is None for n in nodes]
        none = [isinstance(n, ast.Constant) and n.value is None for n in nodes]
        if len(index.sizes) != 1 or sum(whole) != 1 or sum(none) != len(nodes) - 1:
            raise Undecided("a subscript of an index expression")
        place = whole.index(True)
        sizes = tuple(index.sizes[0] if d == place else "1" for d in range(len(nodes)))
        return Index(sizes, tuple((place, f) for _, f in index.terms), index.start)
