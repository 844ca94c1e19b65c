"""Operator tokens: what makes `op=nl.add` work.

Every computing function of the language carries the name of its row in `isa.alu` or
`isa.activations` as attribute `nki_op`, which is all that instructions look at. `nl.average`,
`nl.prelu` and `nl.bypass` are operators only: they can't be called on tiles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from nki_dist.errors import invalid

F = TypeVar("F", bound=Callable[..., Any])


def token(name: str) -> Callable[[F], F]:
    """Mark a function as standing for the operator `name` where an instruction takes one."""

    def mark(function: F) -> F:
        function.nki_op = name  # type: ignore[attr-defined]
        return function

    return mark


@dataclass(frozen=True)
class OpToken:
    """An operator that is no function of the language.

    Attributes:
        nki_op: name of the operator.
        used_by: instructions that take it, for the message.
    """

    nki_op: str
    used_by: str

    @property
    def __name__(self) -> str:
        return self.nki_op

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        message = f"nl.{self.nki_op} can't be called on tiles; it is an operator of {self.used_by}"
        raise invalid(message, code="operator-called")

    def __repr__(self) -> str:
        return f"nl.{self.nki_op}"


average: Final = OpToken("average", "nisa.tensor_partition_reduce")
prelu: Final = OpToken("prelu", "nisa.activation and nisa.activate2")
bypass: Final = OpToken("bypass", "instructions with several stages, to skip one")
