"""Rewrites how Beta 1 kernels make tensors: memories, and block dimensions as lists of tiles."""

from __future__ import annotations

import ast

from nki_dist.migrate.results import Valued
from nki_dist.migrate.subscripts import parsed
from nki_dist.migrate.sums import Sums
from nki_dist.migrate.values import Blocks, Tensor, Undecided


class Creations(Sums):
    """nl.ndarray and its kin."""

    def creation(self, node: ast.Call, name: str, given: dict[str, ast.expr]) -> Valued:
        """A new tensor; one with block dimensions is lists of tiles."""
        if "shape" in given:
            shape: ast.expr = given["shape"]
        elif node.args:
            shape = node.args[0]
        else:
            raise Undecided(f"nl.{name} without a shape")
        for hint in ("name", "lazy_initialization"):  # the tiles of a list can't share a label
            given.pop(hint, None)
        if name in ("ndarray", "zeros", "ones") and len(node.args) == 2:
            given = {"dtype": node.args[1], **given}
        if set(given) - {"shape", "dtype", "buffer", "fill_value"} or "dtype" not in given:
            raise Undecided(f"nl.{name} with other arguments than a shape, dtype= and buffer=")
        buffer = self._memory(given)
        where = {"nl.sbuf": "sbuf", "nl.psum": "psum"}.get(buffer, "hbm")
        if not buffer.startswith("nl.") or (where == "hbm" and not buffer.endswith("hbm")):
            raise Undecided(f"memory {ast.unparse(given['buffer'])}")
        dtype = self.dtype(given["dtype"])
        keywords = [ast.keyword(k.arg, given[k.arg]) for k in node.keywords if k.arg in given]
        node = ast.Call(node.func, node.args, keywords)
        if not isinstance(shape, (ast.Tuple, ast.List)):
            return node, Tensor(where, dtype)
        sizes = list(shape.elts)
        places = [n for n, s in enumerate(sizes) if self._is_par_dim(s)]
        if not places:
            return node, Tensor(where, dtype, len(sizes))
        self.note("par-dim")
        place = places[0]
        par = sizes[place]
        assert isinstance(par, ast.Call)
        inner = ast.Tuple([par.args[0], *sizes[place + 1 :]], ast.Load())
        more = "".join(
            f", {k.arg}={ast.unparse(k.value)}" for k in node.keywords if k.arg != "shape"
        )
        more = "".join(f", {ast.unparse(a)}" for a in node.args[1:]) + more
        text = f"{self.nl}.{name}({ast.unparse(inner)}{more})"
        tile = Tensor(where, dtype, len(sizes) - place)
        for size in reversed(sizes[:place]):
            text = f"[{text} for _ in range({ast.unparse(size)})]"
        return parsed(text), Blocks(tile, place) if place else tile

    def _memory(self, given: dict[str, ast.expr]) -> str:
        """The full name of a new tensor's memory; allocation functions give way to theirs."""
        node = given.get("buffer")
        if node is None:
            return "nl.sbuf"
        if isinstance(node, ast.Call):
            memory = self.memory(self.full(node.func))
            if memory:
                self.note("allocator")
                given["buffer"] = parsed(f"{self.nl}.{memory}")
                return f"nl.{memory}"
        return self.full(node)

    def _is_par_dim(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Call) and self.full(node.func) == "nl.par_dim"
