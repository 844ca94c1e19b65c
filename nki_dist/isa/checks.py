"""Constraints that several instructions share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from nki_dist.arch import Arch
from nki_dist.errors import NkiValidationError
from nki_dist.program import Access, Instruction
from nki_dist.program.walk import operands

MOST_REPEATED: Final = 1 << 22
"""Elements that an operand may always have, however small the tensor that it repeats."""

LONGEST_ROW: Final = 1 << 18
"""Elements per partition: on every platform, SBUF has at most as many bytes in each."""


def check_repeats(args: Mapping[str, Any]) -> None:
    """An operand repeats its elements (stride 0, strides that overlap) to match another tensor.

    So none has more elements than the largest tensor of the instruction has bytes, and on chip
    none has more in a partition than fit there. Nobody documents a limit; without one, a pattern of
    a few numbers could ask for more work and scratch memory than any machine has.

    Raises:
        NkiValidationError: an operand has more.
    """
    accesses = list(operands(args))
    room = max([a.storage.nbytes for _, a in accesses], default=0)
    for name, a in accesses:
        check_size(name, a, room, "the largest tensor of the instruction")
        if a.region.on_chip and a.free_size > LONGEST_ROW:
            raise NkiValidationError(
                f"{name} has shape {a.shape}, which repeats the elements of {a.storage.label} up "
                f"to {a.free_size} per partition; allowed: {LONGEST_ROW}",
                code="pattern-size",
                numbers={"got": a.free_size, "most": LONGEST_ROW},
            )


def check_size(name: str, a: Access, room: int, of: str) -> None:
    """An access has at most as many elements as `room`, or MOST_REPEATED.

    Args:
        of: what has so many bytes.

    Raises:
        NkiValidationError: it has more.
    """
    if a.size > max(room, MOST_REPEATED):
        raise NkiValidationError(
            f"{name} has shape {a.shape}, which repeats the elements of {a.storage.label} up to "
            f"{a.size}; allowed: {max(room, MOST_REPEATED)} (as many as {of} has bytes, or "
            f"{MOST_REPEATED})",
            code="pattern-size",
            numbers={"got": a.size, "most": max(room, MOST_REPEATED)},
        )


def _spread(operands: dict[str, Access], dim: int, how: str) -> str | None:
    """How a row or column becomes a tile, where one stands where tiles are."""
    shapes = {name: a.shape for name, a in operands.items() if len(a.shape) == 2}
    size = max((shape[dim] for shape in shapes.values()), default=1)
    for name, shape in shapes.items():
        whole = (size, shape[1]) if dim == 0 else (shape[0], size)
        if shape[dim] == 1 and name != "dst" and whole in shapes.values():
            called = operands[name].storage.title
            return f"to use {name} for all, write " + how.format(
                name=called, shape=whole, size=size
            )
    return None


def same_partitions(**operands: Access) -> None:
    """All operands touch the same number of partitions."""
    sizes = {name: a.shape[0] for name, a in operands.items()}
    if len(set(sizes.values())) > 1:
        raise NkiValidationError(
            "operands must have the same number of partitions (dimension 0): got "
            + ", ".join(f"{name} {n}" for name, n in sizes.items()),
            code="partition-mismatch",
            hint=_spread(operands, 0, "nl.broadcast_to({name}, {shape})"),
            numbers={**sizes},
        )


def same_free_size(**operands: Access) -> None:
    """All operands have the same number of elements per partition."""
    sizes = {name: a.free_size for name, a in operands.items()}
    if len(set(sizes.values())) > 1:
        raise NkiValidationError(
            "operands must have the same number of elements per partition: got "
            + ", ".join(f"{n} {sizes[n]} (shape {operands[n].shape})" for n in operands),
            code="free-mismatch",
            hint=_spread(
                operands, 1, "{name}.broadcast(1, {size}), or nisa.tensor_scalar(operand0={name})"
            ),
            numbers={**sizes},
        )


def same_tile(**operands: Access) -> None:
    """Same partitions and same number of elements per partition; shapes may differ."""
    same_partitions(**operands)
    same_free_size(**operands)


def scalar_or_column(name: str, value: Any, partitions: int) -> None:
    """A number, or a tile of one element per partition."""
    if isinstance(value, Access) and (value.free_size != 1 or value.shape[0] != partitions):
        raise NkiValidationError(
            f"{name} has shape {value.shape}; allowed: a number or a tile of shape "
            f"({partitions}, 1)",
            code="operand-vector",
            numbers={"got": value.shape, "allowed": (partitions, 1)},
        )


def check_priority(i: Instruction, arch: Arch) -> None:
    """A class of DMA's quality of service, which exists from NeuronCore-v4."""
    if i["priority"] is None:
        return
    if arch.generation < 4:
        raise NkiValidationError(
            f"priority needs NeuronCore-v4; the platform is {arch.name}",
            code="generation",
            numbers={"allowed": 4},
        )
    if not 0 <= i["priority"] < arch.dma_qos_classes:
        raise NkiValidationError(
            f"priority={i['priority']}; allowed: 0 to {arch.dma_qos_classes - 1}",
            code="argument-range",
            numbers={"got": i["priority"], "least": 0, "most": arch.dma_qos_classes - 1},
        )


def not_both_psum(**operands: Any) -> None:
    """At most one of the operands may be in PSUM."""
    inside = [n for n, a in operands.items() if isinstance(a, Access) and a.region.value == "psum"]
    if len(inside) > 1:
        raise NkiValidationError(
            f"{' and '.join(inside)} are both in PSUM; at most one input may be", code="psum-inputs"
        )


def not_in_psum(engine: str, **operands: Any) -> None:
    """GpSimd has no access to PSUM."""
    if engine != "gpsimd":
        return
    for name, a in operands.items():
        if isinstance(a, Access) and a.region.value == "psum":
            raise NkiValidationError(
                f"{name} is in PSUM, which the GpSimd engine can't access; use the Vector or "
                "Scalar engine, or copy it to SBUF first",
                code="gpsimd-psum",
            )
