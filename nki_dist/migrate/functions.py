"""Rewrites calls of `nl` functions in a Beta 1 kernel, which take masks and promote dtypes."""

from __future__ import annotations

import ast
import re

from nki_dist.language.older import ARITHMETIC, REDUCTIONS, UNARY
from nki_dist.migrate.creations import Creations
from nki_dist.migrate.results import Valued
from nki_dist.migrate.subscripts import limits, parsed, shape_of
from nki_dist.migrate.values import (
    FLOATS,
    INT,
    Blocks,
    Index,
    Mask,
    Number,
    Other,
    Tensor,
    Undecided,
    Value,
    minus,
)

_CREATIONS = frozenset({"ndarray", "zeros", "ones", "full"})
_SCALARS = frozenset({"numpy.float32", "numpy.float64", "numpy.sqrt"})
_SCALAR = re.compile(r"np\.dtype\(np\.float(32|64)\)")


class Functions(Creations):
    """Calls of anything; instructions are those of the base."""

    def _call(self, node: ast.Call) -> Valued:
        name = self.full(node.func)
        space, _, last = name.rpartition(".")
        if any(isinstance(a, ast.Starred) for a in node.args):
            raise Undecided(f"{name} with *arguments")
        if space == "nisa":
            return self.instruction(node, last, None)
        if space == "nl":
            return self._language(node, last)
        if isinstance(node.func, ast.Attribute):
            base, value = self.value(node.func.value)
            if isinstance(value, (Tensor, Blocks)):
                return self._method(node, base, value, node.func.attr)
        args = [self.value(a)[0] for a in node.args]
        keywords = [ast.keyword(k.arg, self.value(k.value)[0]) for k in node.keywords]
        kind: Value = Other()
        if name in ("range", "math.ceil", "len", "int"):
            kind = INT
        if name in ("float", "math.sqrt") or name in _SCALARS:
            kind = Number("float")
        if isinstance(node.func, ast.Attribute) and node.func.attr == "type":
            scalar = ast.unparse(node.func.value)
            kind = Number("float") if _SCALAR.fullmatch(scalar) else kind
        if name in ("min", "max", "abs"):
            kinds = {self.value(a)[1] for a in node.args}
            kind = (
                kinds.pop() if len(kinds) == 1 and isinstance(next(iter(kinds)), Number) else kind
            )
        return ast.Call(node.func, args, keywords), kind

    def _method(self, node: ast.Call, base: ast.expr, value: Value, name: str) -> Valued:
        if not isinstance(value, Tensor) or node.keywords:
            raise Undecided(f"method {name} of a tile")
        arguments = ", ".join(ast.unparse(a) for a in node.args)
        text = ast.unparse(base)
        if name == "broadcast_to":
            self.note("dst")
            made = f"{self.nl}.broadcast_to({text}, {arguments})"
            return parsed(made), Tensor("sbuf", value.dtype)
        if name == "reshape":
            shape = node.args[0] if len(node.args) == 1 else None
            rank = len(shape.elts) if isinstance(shape, (ast.Tuple, ast.List)) else None
            return parsed(f"{text}.reshape({arguments})"), Tensor(value.where, value.dtype, rank)
        raise Undecided(f"method {name} of a tile")

    def transposed(self, text: str, value: Tensor) -> tuple[str, Tensor]:
        """A tile in PSUM with the rows and columns of another."""
        text, value = self._in_sbuf(text, value)
        self._two(text, value)
        return f"{self.nl}.transpose({text})", Tensor("psum", value.dtype, 2)

    # ---- functions ----------------------------------------------------------------------------

    def binary(
        self, function: str, left: Valued, right: Valued, dtype: ast.expr | None = None
    ) -> Valued:
        """`x op y` of tiles and numbers, with Beta 1's dtype."""
        self.note("tile-operator")
        (x, a), (y, b) = left, right
        one, two = self.named(x), self.named(y)
        call = f"{self.nl}.{function}({one}, {two}"
        tiles = [v for v in (a, b) if isinstance(v, Tensor)]
        numbers = [v for v in (a, b) if isinstance(v, Number)]
        if len(tiles) + len(numbers) != 2 or not tiles:
            raise Undecided(f"what the operands of {one} and {two} are")
        rank = tiles[0].rank if len({t.rank for t in tiles}) == 1 else None
        if any(t.where == "hbm" for t in tiles):
            raise Undecided("an operator on a tensor in HBM")
        if dtype is not None:
            made = f"{call}, dtype={ast.unparse(dtype)})"
            return parsed(made), Tensor("sbuf", self.dtype(dtype), rank)
        float32 = f"{self.nl}.float32"
        if numbers:
            if numbers[0].kind == "float":
                return parsed(f"{call}, dtype={float32})"), Tensor("sbuf", float32, rank)
            tile = one if isinstance(a, Tensor) else two
            if numbers[0].kind == "int":
                self._floating(tile, tiles[0])
                return parsed(f"{call})"), Tensor("sbuf", tiles[0].dtype, rank)
            number = two if isinstance(a, Tensor) else one
            self.guard(f"isinstance({number}, (int, float))", "a number, not an array")
            if tiles[0].dtype == float32:
                return parsed(f"{call}, dtype={float32})"), Tensor("sbuf", float32, rank)
            self._floating(tile, tiles[0], f"not isinstance({number}, int) or ")
            kind = f"{tile}.dtype if isinstance({number}, int) else {float32}"
            return parsed(f"{call}, dtype={kind})"), Tensor("sbuf", "", rank)
        if float32 in (tiles[0].dtype, tiles[1].dtype):  # wins over any other
            return parsed(f"{call})"), Tensor("sbuf", float32, rank)
        if tiles[0].dtype != tiles[1].dtype or not tiles[0].dtype:
            self.guard(f"{one}.dtype == {two}.dtype", "say the dtype of the result")
        return parsed(f"{call})"), Tensor("sbuf", tiles[0].dtype, rank)

    def _floating(self, text: str, tile: Tensor, unless: str = "") -> None:
        """An int leaves the dtype of floats; that of integers may become wider."""
        if tile.dtype.rpartition(".")[2] not in FLOATS:
            kinds = ", ".join(f"{self.nl}.{kind}" for kind in sorted(FLOATS))
            self.guard(f"{unless}{text}.dtype in ({kinds})", "an int may make it wider")

    def _language(self, node: ast.Call, name: str) -> Valued:
        kept = [k for k in node.keywords if not self._says_nothing(k.arg or "", k.value)]
        node = ast.copy_location(ast.Call(node.func, node.args, kept), node)
        given = {k.arg or "": k.value for k in node.keywords}
        if name == "arange" and len(node.args) in (1, 2) and not given:
            ends = [ast.unparse(a) for a in node.args]
            start = ends[0] if len(ends) == 2 else "0"
            return node, Index((minus(ends[-1], start),), ((0, "1"),), start)
        if name in _CREATIONS:
            return self.creation(node, name, given)
        if name == "load":
            return self._load(node)
        if name in REDUCTIONS:
            return self._reduction(node, name)
        if name in ARITHMETIC and len(node.args) == 2 and not set(given) - {"dtype"}:
            left, right = self.value(node.args[0]), self.value(node.args[1])
            return self.binary(name, left, right, given.get("dtype"))
        if name in UNARY and len(node.args) == 1 and not set(given) - {"dtype"}:
            argument, value = self.tensor(node.args[0], f"what nl.{name} is given")
            kind = self.dtype(given["dtype"]) if "dtype" in given else value.dtype
            made = ast.Call(node.func, [argument], node.keywords)
            return made, Tensor("sbuf", kind, value.rank)
        if name == "transpose" and len(node.args) == 1 and not given:
            argument, value = self.tensor(node.args[0], "what nl.transpose is given")
            text, value = self.transposed(self.named(argument), value)
            return parsed(text), value
        if name == "matmul":
            return self.product(*self.operands(node))
        if name == "shared_constant" and not set(given) - {"dtype", "constant"}:
            kind = self.dtype(given["dtype"]) if "dtype" in given else ""
            return node, Tensor("hbm", kind)
        if name in ("program_id", "num_programs", "program_ndim"):
            return node, INT
        if name in ("ds", "par_dim", "device_print"):
            return node, Other()
        raise Undecided(f"nl.{name}")

    def operands(self, node: ast.Call) -> tuple[str, str]:
        """What nisa.nc_matmul takes for nl.matmul(x, y): `x` is transposed unless it says so."""
        given = self.arguments(node, "x y transpose_x?")
        turned = ast.unparse(given.pop("transpose_x", ast.Constant(False)))
        if turned not in ("True", "False"):
            raise Undecided(f"nl.matmul with transpose_x={turned}")
        texts, kinds = [], []
        for key in ("x", "y"):
            made, value = self.tensor(given[key], "what nl.matmul multiplies")
            text = self.named(made)
            if key == "x" and turned == "False":
                text, value = self.transposed(text, value)
            text, value = self._in_sbuf(text, value)
            self._two(text, value)
            texts.append(text)
            kinds.append(value.dtype)
        if kinds[0] != kinds[1] or not kinds[0]:
            self.guard(f"{texts[0]}.dtype == {texts[1]}.dtype", "operands have one dtype")
        return texts[0], texts[1]

    def _load(self, node: ast.Call) -> Valued:
        given = self.arguments(node, "src mask? dtype?")
        source = given["src"]
        mask = self.mask(given.get("mask"))
        if mask is None:
            text, value = self.value(source)
            if not isinstance(value, Tensor) or value.where not in ("hbm", ""):
                raise Undecided(f"what nl.load reads: {ast.unparse(source)}")
            kind = self.dtype(given["dtype"]) if "dtype" in given else value.dtype
            more = [ast.keyword("dtype", given["dtype"])] if "dtype" in given else []
            rank = value.rank if value.rank != 1 else 2
            return ast.Call(node.func, [text], more), Tensor("sbuf", kind, rank)
        if not isinstance(source, ast.Subscript):
            raise Undecided("nl.load of a whole tensor with a mask")
        text, value = self.subscript(source, mask)
        shape = self._chosen(source)
        assert isinstance(value, Tensor)
        base = ast.unparse(source.value)
        kind = ast.unparse(given["dtype"]) if "dtype" in given else f"{base}.dtype"
        tile = self._tile(f"({', '.join(shape)})", kind, "sbuf")
        left = limits(mask)
        part = ", ".join(f"0:{left.get(d, n)}" for d, n in enumerate(shape))
        self.before.append(f"{self.nisa}.dma_copy(dst={tile}[{part}], src={ast.unparse(text)})")
        kept = tuple(sorted(left.items()))
        return parsed(tile), Tensor(
            "sbuf", kind if "dtype" in given else value.dtype, len(shape), kept
        )

    def mask(self, node: ast.expr | None) -> Mask | None:
        """The mask of a call."""
        if node is None or ast.unparse(node) == "None":
            return None
        value = self.value(node)[1]
        if not isinstance(value, Mask):
            raise Undecided(f"mask {ast.unparse(node)}")
        return value

    def _chosen(self, node: ast.Subscript) -> list[str]:
        """The shape of what index expressions choose, masks apart."""
        keys = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return shape_of([self.value(key)[1] for key in keys])

    def _reduction(self, node: ast.Call, name: str) -> Valued:
        given = self.arguments(node, "x axis dtype? mask?")
        mask = self.mask(given.get("mask"))
        source, axis = given["x"], given["axis"]
        if mask is not None and isinstance(source, ast.Subscript):
            argument, value = self.subscript(source, mask)
        else:
            argument, value = self.value(source)
        axes = (
            ast.literal_eval(axis) if isinstance(axis, (ast.Tuple, ast.List, ast.Constant)) else 0
        )
        axes = sorted(axes if isinstance(axes, (tuple, list)) else [axes])
        if not isinstance(value, Tensor) or value.rank is None:
            raise Undecided(f"the rank of what nl.{name} is given")
        if not all(isinstance(a, int) and 0 < a < value.rank for a in axes):
            raise Undecided(f"nl.{name} along {ast.unparse(axis)}")
        self.note("tile-operator")
        kept = [d for d in range(value.rank) if d not in axes]
        text = ast.unparse(argument)
        if [*kept, *axes] != list(range(value.rank)):
            text += f".permute({(*kept, *axes)})"
        last = tuple(range(len(kept), value.rank))
        more = f", dtype={ast.unparse(given['dtype'])}" if "dtype" in given else ""
        made = f"{self.nl}.{name}({text}, axis={last}{more})"
        kind = self.dtype(given["dtype"]) if "dtype" in given else value.dtype
        result = Tensor("sbuf", kind, max(len(kept), 2))
        if mask is None:
            return parsed(made), result
        left = limits(mask)
        if set(left) != {0} or not isinstance(source, ast.Subscript):
            raise Undecided(f"nl.{name} with a mask of free dimensions")
        whole = self._chosen(source)[0]
        part = self.named(parsed(made))
        tile = self._tile(f"({whole}, *{part}.shape[1:])", f"{part}.dtype", "sbuf")
        self.before.append(f"{self.nisa}.tensor_copy(dst={tile}[0:{left[0]}], src={part})")
        return parsed(tile), Tensor("sbuf", kind, result.rank, ((0, left[0]),))
