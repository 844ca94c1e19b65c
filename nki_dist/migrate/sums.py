"""Rewrites `nl.loop_reduce` of Beta 1, a sum over the rounds of a loop, kept in float32.

What isn't reduced over keeps a sum of its own: they are in a list that is made before the loop. Its
first round appends copies, later ones add to them, and both meet them in the same order.

Follows: `nki.language.loop_reduce` of SDK 2.26, and the loops of nki/migration/index.rst, which are
Python's.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from nki_dist.language.older import OPERATORS
from nki_dist.migrate.results import Instructions, Valued
from nki_dist.migrate.subscripts import parsed
from nki_dist.migrate.values import (
    FLOATS,
    Tensor,
    Undecided,
    minus,
    plus,
    stored_names,
    text_names,
    times,
)

_OPERATORS: Final = ("add", "multiply", "maximum", "minimum")


@dataclass
class Enclosing:
    """A statement that a statement is in.

    Attributes:
        variable: of a loop over a range, else "".
        start, stop: of that range.
        bound: names that get a value inside.
        same: other names of a variable, which every round binds before it uses them.
        ahead: statements that have to come before it.
    """

    variable: str = ""
    start: str = "0"
    stop: str = "0"
    bound: frozenset[str] = frozenset()
    same: dict[str, str] = field(default_factory=dict)
    ahead: list[str] = field(default_factory=list)


def enclosing(node: ast.stmt) -> Enclosing:
    """What is known of a loop or condition."""
    stored = stored_names(node)
    bound = frozenset(stored)
    leaves = any(isinstance(n, (ast.Break, ast.Continue)) for n in ast.walk(node))
    if leaves or not isinstance(node, ast.For) or not isinstance(node.target, ast.Name):
        return Enclosing(bound=bound)
    call = node.iter
    if not isinstance(call, ast.Call) or ast.unparse(call.func) != "range":
        return Enclosing(bound=bound)
    if not 1 <= len(call.args) <= 2 or call.keywords:
        return Enclosing(bound=bound)
    ends = [ast.unparse(a) for a in call.args]
    start = ends[0] if len(ends) == 2 else "0"
    again = stored.count(node.target.id) > 1
    return Enclosing("" if again else node.target.id, start, ends[-1], bound, _same(node))


def _same(loop: ast.For) -> dict[str, str]:
    """`n = i` of a loop, where no other statement of it binds n."""
    names = [n for n in ast.walk(loop) if isinstance(n, ast.Name)]
    names.sort(key=lambda n: (n.lineno, n.col_offset))
    found = {}
    for one in loop.body:
        if not isinstance(one, ast.Assign) or not isinstance(one.value, ast.Name):
            continue
        target, *others = one.targets
        if isinstance(target, ast.Name) and not others:
            uses = [n for n in names if n.id == target.id]
            stored = [n for n in uses if isinstance(n.ctx, ast.Store)]
            if uses[0] is target and len(stored) == 1:
                found[target.id] = one.value.id
    return found


class Sums(Instructions):
    """nl.loop_reduce."""

    enclosing: Sequence[Enclosing] = ()

    def loop_reduce(self, node: ast.Call, place: Tensor) -> Valued:
        """The sum up to this round, which is to be copied to `place`.

        Raises:
            Undecided: the loop isn't around it, some rounds skip it, or dtypes aren't known.
        """
        given = self.arguments(node, "x op loop_indices dtype? name?")
        space, _, last = self.full(given["op"]).rpartition(".")
        operator = OPERATORS.get(last, last) if space in ("numpy", "nl") else ""
        if operator not in _OPERATORS:
            raise Undecided(f"nl.loop_reduce with op={ast.unparse(given['op'])}")
        outer, index, first = self._rounds(given["loop_indices"])
        made, value = self.tensor(given["x"], "what nl.loop_reduce is given")
        text = self.named(made)
        if value.dtype.rpartition(".")[2] not in FLOATS:
            kinds = ", ".join(f"{self.nl}.{kind}" for kind in sorted(FLOATS))
            self.guard(f"{text}.dtype in ({kinds})", "sums of floats are kept in float32")
        dtype = self.dtype(given["dtype"]) if "dtype" in given else value.dtype
        if place.dtype != dtype:
            raise Undecided("nl.loop_reduce of another dtype than what it is assigned to")
        self.note("loop-reduce")
        sums = self.fresh("sums")
        outer.ahead.append(f"{sums} = []")
        total = f"{sums}[{index}]"
        arguments = f"dst={total}, data1={total}, data2={text}, op={self.nl}.{operator}"
        self.before.append(
            f"if {first}:\n    {sums}.append({self.nl}.copy({text}, dtype={self.nl}.float32))\n"
            f"else:\n    {self.nisa}.tensor_tensor({arguments})"
        )
        return parsed(total), Tensor("sbuf", f"{self.nl}.float32", value.rank)

    def _rounds(self, indices: ast.expr) -> tuple[Enclosing, str, str]:
        """The outermost loop that is reduced over, which sum a round adds to, whether it's new."""
        listed = indices.elts if isinstance(indices, (ast.List, ast.Tuple)) else [indices]
        same = {name: of for one in self.enclosing for name, of in one.same.items()}
        names = {same.get(n.id, n.id) for n in listed if isinstance(n, ast.Name)}
        places = [n for n, one in enumerate(self.enclosing) if one.variable in names]
        if len(names) != len(listed) or len(places) != len(names) or not places:
            raise Undecided("nl.loop_reduce over something else than the loops around it")
        inside = self.enclosing[places[0] :]
        if not all(one.variable for one in inside):
            raise Undecided("nl.loop_reduce that not every round of its loop comes to")
        bound = inside[0].bound
        index, first = "0", []
        for one in inside:
            if text_names(f"({one.start}, {one.stop})") & bound:
                raise Undecided("nl.loop_reduce in a loop whose length may change")
            if one.variable in names:
                first.append(f"{one.variable} == {one.start}")
                continue
            index = plus(times(index, minus(one.stop, one.start)), minus(one.variable, one.start))
        return inside[0], index, " and ".join(first)
