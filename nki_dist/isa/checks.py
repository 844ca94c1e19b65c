"""Constraints that several instructions share.

Most are rules: an instruction declares them with the parameters that they are about, as in
`checks=[same_tile("dst data"), one_in_psum("data1 data2")]`. Parameters that may be numbers or None
are looked at where they hold tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Concatenate, Final, ParamSpec, TypeAlias

from nki_dist.arch import Arch
from nki_dist.dtypes import DType
from nki_dist.errors import NkiValidationError, invalid
from nki_dist.program import Access, Instruction
from nki_dist.program.walk import operands

Check: TypeAlias = "Callable[[Instruction, Arch], None]"
P = ParamSpec("P")

MOST_REPEATED: Final = 1 << 22
"""Elements that an operand may always have, however small the tensor that it repeats."""

LONGEST_ROW: Final = 1 << 18
"""Elements per partition: on every platform, SBUF has at most as many bytes in each."""


def rule(
    check: Callable[Concatenate[Instruction, Arch, tuple[str, ...], P], None],
) -> Callable[Concatenate[str, P], Check]:
    """Make `check(i, arch, names, ...)` a rule that is declared with names, separated by spaces."""

    def declared(names: str, /, *args: P.args, **kwargs: P.kwargs) -> Check:
        parameters = tuple(names.split())
        return lambda i, arch: check(i, arch, parameters, *args, **kwargs)

    declared.__doc__ = check.__doc__
    return declared


def check_repeats(args: Mapping[str, Any]) -> None:
    """An operand repeats its elements (stride 0, strides that overlap) to match another tensor.

    So none has more elements than the largest tensor of the instruction has bytes, and on chip
    none has more in a partition than fit there. Nobody documents a limit; without one, a pattern of
    a few numbers could ask for more work and scratch memory than any machine has.

    Raises:
        NkiValidationError: an operand has more.
    """
    accesses = list(operands(args))
    capacity = max([a.storage.nbytes for _, a in accesses], default=0)
    for name, a in accesses:
        check_size(name, a, capacity, "the largest tensor of the instruction")
        if a.region.on_chip and a.free_size > LONGEST_ROW:
            message = (
                f"{name} has shape {a.shape}, which repeats the elements of {a.storage.label} up "
                f"to {a.free_size} per partition; allowed: {LONGEST_ROW}"
            )
            raise invalid(message, code="pattern-size", got=a.free_size, most=LONGEST_ROW)


def check_size(name: str, a: Access, capacity: int, of: str) -> None:
    """An access has at most as many elements as `capacity`, or MOST_REPEATED.

    Args:
        of: what has so many bytes.

    Raises:
        NkiValidationError: it has more.
    """
    if a.size > max(capacity, MOST_REPEATED):
        message = (
            f"{name} has shape {a.shape}, which repeats the elements of {a.storage.label} up to "
            f"{a.size}; allowed: {max(capacity, MOST_REPEATED)} (as many as {of} has bytes, or "
            f"{MOST_REPEATED})"
        )
        raise invalid(message, code="pattern-size", got=a.size, most=max(capacity, MOST_REPEATED))


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


def _tiles(i: Instruction, names: tuple[str, ...]) -> dict[str, Access]:
    args = i.args
    return {name: args[name] for name in names if isinstance(args[name], Access)}


def check_partitions(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """All operands touch the same number of partitions."""
    tiles = _tiles(i, names)
    sizes = {name: a.shape[0] for name, a in tiles.items()}
    if len(set(sizes.values())) > 1:
        raise invalid(
            "operands must have the same number of partitions (dimension 0): got "
            + ", ".join(f"{name} {n}" for name, n in sizes.items()),
            code="partition-mismatch",
            hint=_spread(tiles, 0, "nl.broadcast_to({name}, {shape})"),
            **sizes,
        )


def check_free_size(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """All operands have the same number of elements per partition."""
    tiles = _tiles(i, names)
    sizes = {name: a.free_size for name, a in tiles.items()}
    if len(set(sizes.values())) > 1:
        how = "{name}.broadcast(1, {size}), or nisa.tensor_scalar(operand0={name})"
        message = "operands must have the same number of elements per partition: got " + ", ".join(
            f"{n} {sizes[n]} (shape {a.shape})" for n, a in tiles.items()
        )
        raise invalid(message, code="free-mismatch", hint=_spread(tiles, 1, how), **sizes)


@rule
def same_tile(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """Same partitions and same number of elements per partition; shapes may differ."""
    args = i.args
    if len({args[name].shape for name in names if isinstance(args[name], Access)}) > 1:
        check_partitions(i, arch, names)
        check_free_size(i, arch, names)


same_partitions = rule(check_partitions)
same_free_size = rule(check_free_size)


@rule
def same_dtype(i: Instruction, arch: Arch, names: tuple[str, ...], why: str) -> None:
    """Two operands have one type."""
    first, second = names
    if len(_tiles(i, names)) == 2 and i[first].dtype is not i[second].dtype:
        raise NkiValidationError(
            f"{first} has dtype {i[first].dtype}, {second} {i[second].dtype}; {why}",
            code="dtype-mismatch",
            numbers={first: i[first].dtype, second: i[second].dtype},
        )


@rule
def tile_dtype(i: Instruction, arch: Arch, names: tuple[str, ...], dtype: DType) -> None:
    """Tiles have the one allowed type."""
    for name, a in _tiles(i, names).items():
        if a.dtype is not dtype:
            message = f"{name} has dtype {a.dtype}; allowed: {dtype}"
            raise invalid(message, code="dtype-mismatch", got=a.dtype, allowed=dtype)


def refuse_packed(name: str, a: Access, why: str) -> None:
    """Arithmetic and conversions have no meaning on packed (x4) data types."""
    if a.dtype.is_mx:
        message = f"{name} has the packed dtype {a.dtype}; {why}"
        raise invalid(message, code="dtype-packed", got=a.dtype)


def check_unpacked(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """Tiles of types with one value per element."""
    for name, a in _tiles(i, names).items():
        refuse_packed(name, a, "allowed: one value per element")


unpacked = rule(check_unpacked)


@rule
def number_or_column(i: Instruction, arch: Arch, names: tuple[str, ...], of: str) -> None:
    """Numbers, or tiles of one element for each partition of another operand."""
    for name in names:
        scalar_or_column(name, i[name], i[of].shape[0])


@rule
def one_per_partition(i: Instruction, arch: Arch, names: tuple[str, ...], of: str) -> None:
    """Tiles, or None, with one element for each partition of another operand."""
    for name in names:
        column(name, i[name], i[of].shape[0], "{}, one element per partition")


def scalar_or_column(name: str, value: Any, partitions: int) -> None:
    """A number, or a tile of one element per partition."""
    column(name, value, partitions, "a number or a tile of shape {}")


def column(name: str, value: Any, partitions: int, allowed: str) -> None:
    """A tile of one element per partition, if it is a tile."""
    if isinstance(value, Access) and (value.free_size != 1 or value.shape[0] != partitions):
        form = allowed.format((partitions, 1))
        message = f"{name} has shape {value.shape}; allowed: {form}"
        raise invalid(message, code="operand-vector", got=value.shape, allowed=(partitions, 1))


@rule
def dimensions(i: Instruction, arch: Arch, names: tuple[str, ...], most: int) -> None:
    """Tiles of so many dimensions at most."""
    for name in names:
        if len(i[name].shape) > most:
            message = f"{name} has {len(i[name].shape)} dimensions; allowed: up to {most}"
            raise invalid(message, code="shape-rank", got=len(i[name].shape), most=most)


@rule
def free_size(
    i: Instruction, arch: Arch, names: tuple[str, ...], count: int, shown: str = ""
) -> None:
    """Exactly so many elements per partition."""
    for name, a in _tiles(i, names).items():
        if a.free_size != count:
            message = f"{name} has {a.free_size} elements per partition; allowed: {shown or count}"
            raise invalid(message, code="free-size", got=a.free_size, allowed=count)


def check_one_element(a: Access, what: str, *, code: str) -> None:
    """A tensor whose element a register takes or gives."""
    if a.size != 1:
        message = f"{what}, the tensor has {a.size} (shape {a.shape})"
        raise invalid(message, code=code, got=a.size, allowed=1)


@rule
def free_up_to(
    i: Instruction, arch: Arch, names: tuple[str, ...], figure: str, least: int = 0
) -> None:
    """At most as many elements per partition as a figure of the architecture says."""
    for name in names:
        got, most = i[name].free_size, getattr(arch, figure)
        if not least <= got <= most:
            allowed = f"{least} to {most}" if least else f"up to {most}"
            message = f"{name} has {got} elements per partition; allowed: {allowed}"
            raise invalid(message, code="free-limit", got=got, least=least, most=most)


def check_elements(name: str, a: Access, count: int, why: str, *, code: str) -> None:
    """So many elements per partition, for a reason that the message gives."""
    if a.free_size != count:
        message = f"{name} has {a.free_size} elements per partition (shape {a.shape}); {why}"
        raise invalid(message, code=code, got=a.free_size, allowed=count)


def check_result(dst: Access, partitions: int, elements: int, why: str) -> None:
    """So many partitions and elements in each, for a reason that the message gives."""
    if (dst.shape[0], dst.free_size) != (partitions, elements):
        raise invalid(
            f"dst has {dst.shape[0]} partitions and {dst.free_size} elements in each (shape "
            f"{dst.shape}); {why} {partitions} and {elements}",
            code="shape-mismatch",
            got=[dst.shape[0], dst.free_size],
            allowed=[partitions, elements],
        )


@rule
def within(i: Instruction, arch: Arch, names: tuple[str, ...], least: int, most: int) -> None:
    """Numbers of a range."""
    for name in names:
        if not isinstance(i[name], Access):
            check_range(name, i[name], least, most)


def check_range(name: str, value: Any, least: int, most: int) -> None:
    """A number of a range.

    Raises:
        NkiValidationError: it isn't.
    """
    if not least <= value <= most:
        message = f"{name}={value}; allowed: {least} to {most}"
        raise invalid(message, code="argument-range", got=value, least=least, most=most)


def require_generation(arch: Arch, generation: int, what: str) -> None:
    if arch.generation < generation:
        message = f"{what} needs NeuronCore-v{generation} or later; the platform is {arch.name}"
        raise invalid(message, code="generation", got=arch.generation, least=generation)


def check_priority(i: Instruction, arch: Arch) -> None:
    """A class of DMA's quality of service, which exists from NeuronCore-v4."""
    if i["priority"] is None:
        return
    require_generation(arch, 4, "priority")
    check_range("priority", i["priority"], 0, arch.dma_qos_classes - 1)


@rule
def one_in_psum(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """At most one of the operands may be in PSUM."""
    inside = [name for name, a in _tiles(i, names).items() if a.region.value == "psum"]
    if len(inside) > 1:
        message = f"{' and '.join(inside)} are both in PSUM; at most one input may be"
        raise invalid(message, code="psum-inputs")


@rule
def not_in_psum(i: Instruction, arch: Arch, names: tuple[str, ...]) -> None:
    """GpSimd has no access to PSUM."""
    for name, a in _tiles(i, names).items() if i.engine == "gpsimd" else ():
        if a.region.value == "psum":
            message = (
                f"{name} is in PSUM, which the GpSimd engine can't access; use the Vector or "
                "Scalar engine, or copy it to SBUF first"
            )
            raise invalid(message, code="gpsimd-psum")
