"""Instructions of Beta 1, which return their result: the tile that each one needs.

Shapes, dtypes and memories are those that Beta 1 gives results. An argument that isn't listed here
leaves the call to a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Result:
    """The tile that an instruction writes.

    Attributes:
        data: the argument whose shape and dtype it has, and its place.
        place: of that argument if it has no name.
        parameters: all positional parameters, in Beta 1's order.
        shape: with {data} for the argument.
        where: memory.
    """

    parameters: str
    data: str
    shape: str = "{data}.shape"
    where: str = "sbuf"

    @property
    def names(self) -> list[str]:
        """The parameters that may be given by place."""
        return self.parameters.split()


_COLUMN: Final = "({data}.shape[0], 1)"
RESULTS: Final[Mapping[str, Result]] = {
    "activation": Result("op data", "data"),
    "activation_reduce": Result("op data", "data"),
    "tensor_copy": Result("src", "src"),
    "reciprocal": Result("data", "data"),
    "tensor_scalar": Result("data op0 operand0 reverse0 op1 operand1 reverse1", "data"),
    "scalar_tensor_tensor": Result("", "data"),
    "tensor_scalar_reduce": Result("", "data"),
    "tensor_tensor_scan": Result("data0 data1 initial op0 op1 reverse0 reverse1", "data0"),
    "tensor_reduce": Result("op data axis", "data", _COLUMN),
    "nc_transpose": Result("data", "data", "({data}.shape[1], {data}.shape[0])", "psum"),
    "max8": Result("", "src", "({data}.shape[0], 8)"),
    "bn_stats": Result("data", "data", "({data}.shape[0], 6)"),
    "bn_aggr": Result("data", "data", "({data}.shape[0], 2)"),
}
# Arguments that 0.6 has, too, by the same name and with the same meaning.
_KEPT: Final = (
    "op data bias scale reduce_op reduce_res reduce_cmd src engine op0 operand0 reverse0 op1"
    " operand1 reverse1 data0 data1 initial axis negate name"
)
KEPT: Final = frozenset(_KEPT.split())
VECTORS: Final = frozenset({"bias", "scale"})  # of activations: Beta 1 converts them to float32
CREATIONS: Final = frozenset({"ndarray", "zeros", "ones", "full"})
