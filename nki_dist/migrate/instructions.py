"""Instructions of Beta 1, which return their result: the tile that each one needs.

Shapes, dtypes and memories are those that Beta 1 gives results. An argument that isn't listed here
leaves the call to a person.
"""

from __future__ import annotations

import inspect
from typing import Final

from nki_dist import isa
from nki_dist.language import older

# Instructions that give back a tile, and the operand that it is like.
RESULTS: Final = {**older.RESULTS, "activation_reduce": "data", "tensor_reduce": "data"} | {
    "nc_transpose": "data"
}
CREATIONS: Final = frozenset({"ndarray", "zeros", "ones", "full"})


def parameters(name: str) -> list[str]:
    """Of an instruction, but for the tile that it writes: Beta 1's, by name and order."""
    return [p for p in inspect.signature(getattr(isa, name)).parameters if p != "dst"]


def shape_of_result(name: str, text: str) -> str:
    """The shape of a result, in terms of the operand that it is like."""
    if name == "nc_transpose":
        return f"({text}.shape[1], {text}.shape[0])"
    columns = older.COLUMNS.get(name, 1 if name == "tensor_reduce" else 0)
    return f"({text}.shape[0], {columns})" if columns else f"{text}.shape"
