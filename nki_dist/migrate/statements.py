"""Rewrites simple statements of a Beta 1 kernel: assignments, stores, calls."""

from __future__ import annotations

import ast
from dataclasses import replace

from nki_dist.migrate.expressions import OPERATORS, Expressions
from nki_dist.migrate.results import RESULTS
from nki_dist.migrate.subscripts import limits, parsed
from nki_dist.migrate.values import (
    FLOATS,
    INT,
    Blocks,
    Index,
    Indices,
    Mask,
    Number,
    Other,
    Tensor,
    Undecided,
    Value,
)


class Statements(Expressions):
    """One statement at a time; what comes before it is in `before`."""

    def statement(self, node: ast.stmt) -> str | None:
        """The statement of `nki`; None if nothing is left of it.

        Raises:
            Undecided: it can't be said.
        """
        if isinstance(node, ast.Assign):
            return self._assign(node)
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            return self._named_value(node.target.id, node.value)
        if isinstance(node, ast.AugAssign):
            return self._in_place(node)
        if isinstance(node, ast.Expr):
            return self._expression(node)
        if isinstance(node, ast.Return) and node.value is not None:
            value, kind = self.value(node.value)
            if isinstance(kind, (Index, Indices, Mask, Blocks)):
                raise Undecided("what is returned")
            return f"return {ast.unparse(value)}"
        if isinstance(node, (ast.Assert, ast.Pass, ast.Break, ast.Continue, ast.Return, ast.Raise)):
            return ast.unparse(node)
        if isinstance(node, (ast.Import, ast.ImportFrom, ast.Nonlocal, ast.Global)):
            return ast.unparse(node)
        raise Undecided(f"{type(node).__name__} in a kernel")

    # ---- assignments --------------------------------------------------------------------------

    def _assign(self, node: ast.Assign) -> str | None:
        if len(node.targets) != 1:
            raise Undecided("two targets of one assignment")
        target = node.targets[0]
        if isinstance(target, ast.Name):
            return self._named_value(target.id, node.value)
        if isinstance(target, ast.Tuple):
            return self._unpacked(target, node.value)
        if isinstance(target, ast.Subscript):
            return self._element(target, node.value)
        raise Undecided(f"assignment to {ast.unparse(target)}")

    def _named_value(self, name: str, node: ast.expr) -> str | None:
        made, value = self.value(node)
        if isinstance(value, (Index, Mask)):
            self.note("index")
            self.env.bind(name, value)
            return None
        if isinstance(value, Indices):
            raise Undecided("nl.mgrid under one name")
        if isinstance(value, Tensor) and isinstance(node, ast.Name) and value.where != "hbm":
            raise Undecided("a second name of a tile, which may be a copy")
        text = ast.unparse(made)
        if text.startswith("tile_") and text.isidentifier() and self._rename(text, name):
            self.env.bind(name, value)
            return None
        self.env.bind(name, value)
        if value == Tensor("hbm", "", None):
            self.env[name] = replace(value, dtype=f"{name}.dtype")
        return f"{name} = {text}"

    def _rename(self, tile: str, name: str) -> bool:
        """Let a tile made for this statement have the name that it is assigned to."""
        made = next((n for n, s in enumerate(self.before) if s.startswith(f"{tile} = ")), None)
        if made is None:
            return False
        for statement in self.before[made:]:
            tree = ast.parse(statement)
            if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(tree)):
                return False  # it still means the old value there
        for place in range(made, len(self.before)):
            tree = ast.parse(self.before[place])
            for inner in ast.walk(tree):
                if isinstance(inner, ast.Name) and inner.id == tile:
                    inner.id = name
            self.before[place] = ast.unparse(tree)
        return True

    def _unpacked(self, target: ast.Tuple, node: ast.expr) -> str | None:
        made, value = self.value(node)
        names = [e.id if isinstance(e, ast.Name) else "" for e in target.elts]
        if isinstance(value, Indices):
            if len(names) != len(value.of) or not all(names):
                raise Undecided("nl.mgrid unpacked into something else")
            self.note("index")
            for name, index in zip(names, value.of):
                self.env.bind(name, index)
            return None
        shape = isinstance(made, ast.Attribute) and made.attr == "shape"
        if isinstance(node, ast.Tuple) and len(node.elts) == len(names) and all(names):
            values = [self.value(e)[1] for e in node.elts]
            if any(isinstance(v, (Index, Indices, Mask)) for v in values):
                raise Undecided("index expressions in a tuple")
            for name, one in zip(names, values):
                self.env.bind(name, one if isinstance(one, Number) else Other())
            return ast.unparse(ast.Assign([target], made, lineno=0))
        for name in names:
            self.env.bind(name, INT if shape else Other())
        return ast.unparse(ast.Assign([target], made, lineno=0))

    def _element(self, target: ast.Subscript, node: ast.expr) -> str | None:
        view, place = self.value(target)
        into = ast.unparse(view)
        if isinstance(place, Other):
            made, value = self.value(node)
            if isinstance(value, (Tensor, Index, Mask, Indices)):
                raise Undecided(f"whether {into} is part of a tile")
            return f"{into} = {ast.unparse(made)}"
        if not isinstance(place, Tensor) or place.where not in ("sbuf", "psum"):
            raise Undecided(f"assignment to {into}")
        self.note("dst")
        direct = self._direct(target, into, place, node)
        if direct:
            return None
        if isinstance(node, ast.Call) and self.full(node.func) == "nl.loop_reduce":
            made, value = self.loop_reduce(node, place)
        else:
            made, value = self.value(node)
        if isinstance(value, Number):
            return self._fill(into, place, made, value)
        if not isinstance(value, Tensor) or value.where == "hbm":
            raise Undecided(f"what is assigned to {into}")
        source = ast.unparse(made)
        if value.kept:
            if place.rank is None or place.rank != value.rank:
                raise Undecided("a masked tile is assigned to a view of unknown rank")
            left = dict(value.kept)
            part = ", ".join(f"0:{left[d]}" if d in left else ":" for d in range(place.rank))
            into, source = f"{into}[{part}]", f"{source}[{part}]"
        return f"{self.nisa}.tensor_copy(dst={into}, src={source})"

    def _direct(self, target: ast.Subscript, into: str, place: Tensor, node: ast.expr) -> bool:
        """Let an instruction write the place itself, unless it also reads the tensor."""
        if not isinstance(node, ast.Call):
            return False
        space, _, name = self.full(node.func).rpartition(".")
        if space != "nisa" or (name != "nc_matmul" and name not in RESULTS):
            return False
        base: ast.expr = target
        while isinstance(base, ast.Subscript):
            base = base.value
        read = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
        if isinstance(base, ast.Name) and base.id in read:
            return False
        if name in ("tensor_reduce", "nc_transpose", "max8", "bn_stats", "bn_aggr"):
            return False  # its shape may be another one with as many elements
        made, _ = self.instruction(node, name, (into, place))
        if ast.unparse(made) == into:
            return True
        self.before.append(f"{self.nisa}.tensor_copy(dst={into}, src={ast.unparse(made)})")
        return True

    def _fill(self, into: str, place: Tensor, node: ast.expr, value: Number) -> str:
        floating = place.dtype.rpartition(".")[2] in FLOATS
        if not floating or value.kind not in ("int", "float"):
            raise Undecided(f"the dtype of {into}, which is filled")
        text = ast.unparse(node)
        if value.kind == "int":
            text = f"{text}.0" if text.isdigit() else f"float({text})"
        return f"{self.nisa}.memset(dst={into}, value={text})"

    # ---- += -----------------------------------------------------------------------------------

    def _in_place(self, node: ast.AugAssign) -> str | None:
        view, place = self.value(node.target)
        into = ast.unparse(view)
        function = OPERATORS.get(type(node.op))
        if not isinstance(place, Tensor):
            made, value = self.value(node.value)
            if isinstance(value, (Tensor, Blocks, Index)) or isinstance(place, (Blocks, Index)):
                raise Undecided(f"what {into} is")
            if isinstance(node.target, ast.Name):
                self.env.bind(node.target.id, Other() if place != INT or value != INT else INT)
            operator = ast.unparse(node).replace(ast.unparse(node.target), "", 1).split("=")[0]
            return f"{into} {operator.strip()}= {ast.unparse(made)}"
        if function is None or place.where not in ("sbuf", "psum"):
            raise Undecided(f"the operator on {into}")
        self.note("dst")
        called = self.full(node.value.func) if isinstance(node.value, ast.Call) else ""
        if place.where == "psum":
            matmul = called in ("nisa.nc_matmul", "nl.matmul")
            if not matmul or function != "add" or place.dtype != f"{self.nl}.float32":
                raise Undecided(f"{into}, in PSUM, and something else than a matmul")
            assert isinstance(node.value, ast.Call)
            if called == "nl.matmul":
                left, right = self.operands(node.value)
                arguments = f"dst={into}, stationary={left}, moving={right}"
                self.before.append(f"{self.nisa}.nc_matmul({arguments})")
                return None
            self.matmul(node.value, (into, place), "None")
            return None
        made, value = self.value(node.value)
        if isinstance(value, Number):
            raise Undecided(f"{into} and a number")
        if not isinstance(value, Tensor) or value.kept:
            raise Undecided(f"what is added to {into}")
        source = ast.unparse(made)
        arguments = f"dst={into}, data1={into}, data2={source}, op={self.nl}.{function}"
        return f"{self.nisa}.tensor_tensor({arguments})"

    # ---- calls --------------------------------------------------------------------------------

    def _expression(self, node: ast.Expr) -> str | None:
        call = node.value
        if isinstance(call, ast.Call) and self.full(call.func) == "nl.store":
            return self._store(call)
        if isinstance(call, ast.Call) and self.full(call.func) == "nisa.dma_copy":
            return self._dma_copy(call)
        if isinstance(call, ast.Constant):
            return ast.unparse(node)
        made, _ = self.value(call)
        text = ast.unparse(made)
        return None if text.isidentifier() else text

    def _dma_copy(self, call: ast.Call) -> str:
        given = self.arguments(call, "* dst src")
        views = {key: ast.unparse(self.value(node)[0]) for key, node in given.items()}
        return f"{self.nisa}.dma_copy(dst={views['dst']}, src={views['src']})"

    def _store(self, call: ast.Call) -> str:
        given = self.arguments(call, "dst value mask?")
        mask = self.mask(given.get("mask"))
        target = given["dst"]
        if mask is None:
            into, place = self.value(target)
        elif isinstance(target, ast.Subscript):
            into, place = self.subscript(target, mask)
        else:
            raise Undecided("nl.store to a whole tensor with a mask")
        if not isinstance(place, Tensor) or place.where not in ("hbm", ""):
            raise Undecided(f"what nl.store writes: {ast.unparse(target)}")
        source, value = self._stored(given["value"], mask)
        if value.where == "psum":
            source = f"{self.nl}.copy({source})"
        return f"{self.nl}.store({ast.unparse(into)}, {source})"

    def _stored(self, node: ast.expr, mask: Mask | None) -> tuple[str, Tensor]:
        """What is stored, cut to what a mask of the destination leaves."""
        made, value = self.tensor(node, f"what nl.store is given: {ast.unparse(node)}")
        source = ast.unparse(made)
        left = limits(mask)
        if mask is None:
            return source, value
        self.note("mask")
        keys: list[Value] = []
        if isinstance(node, ast.Subscript):
            nodes = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            keys = [self.value(n)[1] for n in nodes if not isinstance(n, ast.Slice)]
        if any(isinstance(k, Index) for k in keys):
            assert isinstance(node, ast.Subscript)
            ranks = {len(k.sizes) for k in keys if isinstance(k, Index)}
            cut = _bounds(left, ranks.pop())
            return ast.unparse(self.subscript(node, cut)[0]), value
        last = max(left)
        part = ", ".join(f"0:{left[d]}" if d in left else ":" for d in range(last + 1))
        return f"{self.named(parsed(source))}[{part}]", value


def _bounds(left: dict[int, str], rank: int) -> Mask:
    """A mask that leaves so much of each dimension."""
    terms = []
    for dim, size in left.items():
        sizes = tuple(size if d == dim else "1" for d in range(rank))
        terms.append((Index(sizes, ((dim, "1"),)), size))
    return Mask(tuple(terms))
