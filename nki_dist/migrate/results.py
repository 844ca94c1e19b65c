"""Rewrites instructions of a Beta 1 kernel as statements before the one they were in.

They returned their result; now each needs a tile. Shapes, dtypes and memories are those that Beta 1
gave results. An argument that isn't known here leaves the call to a person.
"""

from __future__ import annotations

import ast
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

from nki_dist import isa
from nki_dist.language import older
from nki_dist.language.older import ARITHMETIC, DTYPES, VECTORS
from nki_dist.migrate.subscripts import parsed
from nki_dist.migrate.values import (
    Blocks,
    Dtype,
    Environment,
    Index,
    Mask,
    Other,
    Tensor,
    Undecided,
    Value,
)

Valued = tuple[ast.expr, Value]
# Instructions that gave back a tile, and the operand that it is like.
RESULTS: Final = {**older.RESULTS, "activation_reduce": "data", "tensor_reduce": "data"} | {
    "nc_transpose": "data"
}
_FLAGS: Final = ("is_stationary_onezero", "is_moving_onezero", "is_transpose")


class Instructions(ABC):
    """Instructions; expressions are evaluated by a class that inherits this one.

    Args:
        env: what is known of names.
        full: the full name of a function.
        nl, nisa: how the module writes them.
        fresh: makes a name that the function doesn't have.
        memory: of an allocation function, or a function of the module that returns one's result.
    """

    def __init__(
        self,
        env: Environment,
        full: Callable[[ast.AST], str],
        nl: str,
        nisa: str,
        fresh: Callable[[str], str],
        memory: Callable[[str], str],
    ) -> None:
        self.memory = memory
        self.env, self.full, self.nl, self.nisa, self.fresh = env, full, nl, nisa, fresh
        self.before: list[str] = []
        self.rules: set[str] = set()

    @abstractmethod
    def value(self, node: ast.expr) -> Valued:
        """An expression of `nki`, and what is known of it."""

    @abstractmethod
    def subscript(self, node: ast.Subscript, mask: Mask | None) -> Valued:
        """A view, cut to what a mask leaves."""

    @abstractmethod
    def binary(
        self, function: str, left: Valued, right: Valued, dtype: ast.expr | None = None
    ) -> Valued:
        """`x op y` of tiles and numbers."""

    def tensor(self, node: ast.expr, what: str) -> tuple[ast.expr, Tensor]:
        """The same, of an expression that has to be a tensor.

        Raises:
            Undecided: it isn't; says that `what` isn't known.
        """
        made, value = self.value(node)
        if not isinstance(value, Tensor):
            raise Undecided(what)
        return made, value

    def dtype(self, node: ast.expr) -> str:
        """A dtype by the name that the language has for it, where it has one."""
        known = self.env.get(node.id) if isinstance(node, ast.Name) else None
        if isinstance(known, Dtype):
            return known.text
        space, _, last = self.full(node).rpartition(".")
        if space in ("numpy", "nl", "ml_dtypes") and last in DTYPES:
            return f"{self.nl}.{last}"
        return ast.unparse(node)

    def note(self, rule: str) -> None:
        """A rule had a part in the statement."""
        self.rules.add(rule)

    def guard(self, condition: str, why: str) -> None:
        """Refuse what the rewritten statement wouldn't compute the same of."""
        line = f"assert {condition}, {why!r}"
        if line not in self.before:
            self.before.append(line)

    def named(self, node: ast.expr) -> str:
        """Text that may be written twice: a call gets a name."""
        if not any(isinstance(n, ast.Call) and self._makes(n) for n in ast.walk(node)):
            return ast.unparse(node)
        name = self.fresh("tile")
        self.before.append(f"{name} = {ast.unparse(node)}")
        return name

    def _makes(self, call: ast.Call) -> bool:
        return not (isinstance(call.func, ast.Attribute) and call.func.attr in ("ap", "ds"))

    # ---- instructions -------------------------------------------------------------------------

    def instruction(self, node: ast.Call, name: str, target: tuple[str, Tensor] | None) -> Valued:
        """An instruction that writes `target`, or a new tile."""
        if name == "nc_matmul":
            return self.matmul(node, target, "False")
        if name == "tensor_tensor":
            return self._tensor_tensor(node)
        if name == "memset":
            return self._memset(node)
        operand = RESULTS.get(name)
        if operand is None:
            raise Undecided(f"nisa.{name}, which returned its result")
        given = self.arguments(node, _parameters(name, operand))
        dtype = given.pop("dtype", None)
        if name == "nc_transpose" and "engine" in given:
            raise Undecided("nisa.nc_transpose on an engine of choice")
        self.note("dst")
        made = {key: self.value(argument) for key, argument in given.items()}
        text = self.named(made[operand][0])
        data = made[operand][1]
        if not isinstance(data, Tensor) or data.where == "hbm":
            raise Undecided(f"what {text} is")
        if name == "nc_transpose":
            text, data = self._in_sbuf(text, data)
        rank = self._check_rank(name, given, data, text)
        arguments = [f"{operand}={text}"]
        for key, (argument, value) in made.items():
            if key != operand:
                arguments.append(f"{key}={self._argument(name, key, argument, value)}")
        kind = ast.unparse(dtype) if dtype is not None else f"{text}.dtype"
        same = self.dtype(dtype) if dtype is not None else data.dtype
        if target is not None and same and same == target[1].dtype:
            self.before.append(f"{self.nisa}.{name}(dst={target[0]}, {', '.join(arguments)})")
            return parsed(target[0]), target[1]
        where = "psum" if name == "nc_transpose" else "sbuf"
        made_tile = self._tile(_shape_of_result(name, text), kind, where)
        self.before.append(f"{self.nisa}.{name}(dst={made_tile}, {', '.join(arguments)})")
        return parsed(made_tile), Tensor(where, same, rank)

    def arguments(self, node: ast.Call, names: str) -> dict[str, ast.expr]:
        """Those of a call by name, without what says nothing.

        Args:
            names: of the parameters in their order; those with a `?` may be left out, those behind
                a `*` are given by name.

        Raises:
            Undecided: there are others, or fewer.
        """
        by_place, _, by_name = names.partition("*")
        order = by_place.replace("?", "").split()
        if len(node.args) > len(order):
            raise Undecided(f"{ast.unparse(node.func)} with {len(node.args)} arguments by place")
        given = {k.arg or "**": k.value for k in node.keywords} | dict(zip(order, node.args))
        given = {k: v for k, v in given.items() if not self._says_nothing(k, v)}
        every = (by_place + by_name).split()
        missing = [name for name in every if name[-1] != "?" and name not in given]
        unknown = sorted(given.keys() - {name.rstrip("?") for name in every})
        if unknown or missing:
            what = f"with {', '.join(unknown)}" if unknown else f"without {', '.join(missing)}"
            raise Undecided(f"{self.full(node.func)} {what}")
        return given

    def _says_nothing(self, key: str, node: ast.expr) -> bool:
        """`mask=None`, or an engine that the compiler chooses."""
        if key == "engine":
            return self.full(node) in ("nisa.unknown_engine", "nisa.engine.unknown")
        return key == "mask" and ast.unparse(node) == "None"

    def _tile(self, shape: str, dtype: str, where: str) -> str:
        name = self.fresh("tile")
        self.before.append(
            f"{name} = {self.nl}.ndarray({shape}, dtype={dtype}, buffer={self.nl}.{where})"
        )
        return name

    def _check_rank(self, name: str, given: dict[str, Any], data: Tensor, text: str) -> int | None:
        if name not in ("tensor_reduce", "nc_transpose"):
            return data.rank
        self._two(text, data)
        if name == "tensor_reduce":
            axis = ast.unparse(given["axis"])
            if axis not in ("1", "(1,)", "[1]", "-1"):
                raise Undecided(f"nisa.tensor_reduce along {axis}")
        return 2

    def _two(self, text: str, value: Tensor) -> None:
        """A tile has to have two dimensions."""
        if value.rank is None:
            self.guard(f"len({text}.shape) == 2", "the result has the shape of a matrix")
        elif value.rank != 2:
            raise Undecided(f"{text} has {value.rank} dimensions")

    def _argument(self, name: str, key: str, node: ast.expr, value: Value) -> str:
        text = ast.unparse(node)
        if isinstance(value, (Index, Mask, Blocks)):
            raise Undecided(f"{key}={text}")
        vector = key in VECTORS and isinstance(value, (Tensor, Other)) and text != "None"
        if name.startswith("activation") and vector:
            if not isinstance(value, Tensor):
                raise Undecided(f"whether {key}={text} is a tile")
            if value.dtype != f"{self.nl}.float32":
                return f"{self.nl}.copy({text}, dtype={self.nl}.float32)"
        return text

    def _in_sbuf(self, text: str, value: Tensor) -> tuple[str, Tensor]:
        """An operand of the Tensor engine."""
        if value.where == "sbuf":
            return text, value
        if value.where != "psum":
            raise Undecided(f"in which memory {text} is")
        name = self.fresh("tile")
        self.before.append(f"{name} = {self.nl}.copy({text})")
        return name, Tensor("sbuf", value.dtype, value.rank)

    def matmul(self, node: ast.Call, target: tuple[str, Tensor] | None, accumulate: str) -> Valued:
        """nisa.nc_matmul, which adds to `target` unless `accumulate` is "False"."""
        given = self.arguments(node, f"stationary moving {'? '.join(_FLAGS)}?")
        flags = {key: ast.unparse(given.pop(key)) for key in _FLAGS if key in given}
        if any(text not in ("True", "False") for text in flags.values()):
            raise Undecided(f"nisa.nc_matmul with {', '.join(flags)} that the text doesn't say")
        self.note("dst")
        operands = []
        for key in ("stationary", "moving"):
            argument, value = self.value(given[key])
            text = self.named(argument)
            if not isinstance(value, Tensor):
                raise Undecided(f"what {text} is")
            self._two(text, value)
            text, value = self._in_sbuf(text, value)
            operands.append(text)
            if flags.get("is_transpose") == "True" and value.dtype != f"{self.nl}.float32":
                why = "a transpose has the dtype of its data, or float32 on NeuronCore-v2"
                self.guard(f"{text}.dtype == {self.nl}.float32", why)
        left, right = operands
        arguments = f"stationary={left}, moving={right}"
        arguments += "".join(f", {key}={text}" for key, text in flags.items())
        fits = target is not None and target[1].where == "psum"
        if target is not None and fits and target[1].dtype == f"{self.nl}.float32":
            more = ", accumulate=False" if accumulate == "False" else ""
            self.before.append(f"{self.nisa}.nc_matmul(dst={target[0]}, {arguments}{more})")
            return parsed(target[0]), target[1]
        return self.product(left, right, arguments)

    def product(self, left: str, right: str, arguments: str = "") -> Valued:
        """A matmul into a new tile."""
        self.note("dst")
        arguments = arguments or f"stationary={left}, moving={right}"
        shape = f"({left}.shape[1], {right}.shape[1])"
        tile = self._tile(shape, f"{self.nl}.float32", "psum")
        self.before.append(f"{self.nisa}.nc_matmul(dst={tile}, {arguments})")
        return parsed(tile), Tensor("psum", f"{self.nl}.float32", 2)

    def _memset(self, node: ast.Call) -> Valued:
        """nisa.memset(shape, value, dtype), a new tile."""
        given = self.arguments(node, "shape value dtype")
        shape = given["shape"]
        if not isinstance(shape, ast.Tuple):
            raise Undecided("nisa.memset of a shape that the text doesn't say")
        self.note("dst")
        tile = self._tile(ast.unparse(shape), ast.unparse(given["dtype"]), "sbuf")
        value = ast.unparse(self.value(given["value"])[0])
        self.before.append(f"{self.nisa}.memset(dst={tile}, value={value})")
        return parsed(tile), Tensor("sbuf", self.dtype(given["dtype"]), len(shape.elts))

    def _tensor_tensor(self, node: ast.Call) -> Valued:
        given = self.arguments(node, "data1 data2 op dtype?")
        space, _, function = self.full(given["op"]).rpartition(".")
        if space != "nl" or function not in ARITHMETIC:
            raise Undecided(f"nisa.tensor_tensor with op={ast.unparse(given['op'])}")
        self.note("dst")
        left, right = self.value(given["data1"]), self.value(given["data2"])
        if not isinstance(left[1], Tensor) or not isinstance(right[1], Tensor):
            raise Undecided("what the operands of nisa.tensor_tensor are")
        return self.binary(function, left, right, given.get("dtype"))


def _parameters(name: str, operand: str) -> str:
    """Of an instruction, but for the tile that it writes: Beta 1's, by name and order."""
    names = [p for p in inspect.signature(getattr(isa, name)).parameters if p != "dst"]
    return " ".join([p if p == operand else f"{p}?" for p in names] + ["dtype?"])


def _shape_of_result(name: str, text: str) -> str:
    """The shape of a result, in terms of the operand that it is like."""
    if name == "nc_transpose":
        return f"({text}.shape[1], {text}.shape[0])"
    columns = older.COLUMNS.get(name, 1 if name == "tensor_reduce" else 0)
    return f"({text}.shape[0], {columns})" if columns else f"{text}.shape"
