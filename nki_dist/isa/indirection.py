"""Tensor indirection: operands whose columns an index tile chooses at run time (`.indirect()`).

Offset n of a view comes from row `n % G`, column `n // G` of its index tile, G being 16 partitions
for the Vector, Scalar and GpSimd engines and 32 for the Tensor engine, and holds for all partitions
of the view. The documentation gives this formula and asks for an index tile with as many
partitions as the view; it doesn't say what the rows from G on mean, so they aren't read.

An instruction says which operands take such views by `indirect=G` in their roles; the linker brings
the chosen columns to a tile of their own before the instruction and back afterwards, so meanings
never see them. Follows NkiTensor.indirect and the "Tensor indirection" sections of nki.isa (0.6).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nki_dist.arch import Arch
from nki_dist.errors import invalid
from nki_dist.isa.checks import require_generation
from nki_dist.program import Access, Instruction


def is_indirect(a: Any) -> bool:
    return isinstance(a, Access) and a.dynamic is not None and a.dynamic.kind == "tensor"


def table(a: Access) -> Access:
    """Every column the view can select, as a tile (partitions, columns)."""
    assert a.dynamic is not None
    shape, strides = (a.shape[0], a.dynamic.limit), (a.strides[0], a.dynamic.stride)
    return Access(a.storage, a.offset, shape, strides, a.dtype)


def narrowed(name: str, a: Access, group: int) -> Access:
    """The view with only those elements of its index tile that hold offsets it uses."""
    assert a.dynamic is not None
    index, count = a.dynamic.source, a.shape[1]
    if len(index.shape) != 2 or index.region.value != "sbuf" or index.dtype.is_float:
        message = (
            f"the index of {name} has shape {index.shape} and dtype {index.dtype} in "
            f"{index.region.value}; allowed: an SBUF tile (P, K) of integers"
        )
        raise invalid(message, code="indirect-index", got=index.shape)
    rows, columns = min(group, count), -(-count // group)
    if index.shape[0] < rows or index.shape[1] < columns:
        message = (
            f"{name} uses {count} offsets, its index has shape {index.shape}; offset n is in row "
            f"n % {group}, column n // {group} of it, so at least ({rows}, {columns}) is needed. "
            "Give num_elem to use fewer offsets"
        )
        raise invalid(message, code="indirect-index", got=index.shape, least=(rows, columns))
    used = Access(index.storage, index.offset, (rows, columns), index.strides, index.dtype)
    return Access(a.storage, a.offset, a.shape, a.strides, a.dtype, a.dynamic.of(used))


def check(i: Instruction, operands: Sequence[str], arch: Arch) -> None:
    """Constraints that all instructions share.

    Args:
        operands: names of the parameters that take indirect views, `dst` first, then the one
            whose partitions the index of dst has to share.
    """
    used = [name for name in operands if is_indirect(i[name])]
    if not used:
        return
    require_generation(arch, 4, f"{used[0]} is an .indirect() view, which")
    if i.engine == "scalar" and "dst" in used and i["dst"].region.value == "psum":
        message = "dst is an .indirect() view in PSUM; the Scalar engine scatters to SBUF only"
        raise invalid(message, code="indirect-view")
    position = i.args.get("tile_position")
    if position is not None and tuple(position) != (0, 0):
        message = (
            f"tile_position={tuple(position)} with an .indirect() {used[0]}; allowed: (0, 0) or "
            "not given"
        )
        raise invalid(message, code="tile-position")
    _check_places(i, used, operands[1], arch)


def _check_places(i: Instruction, used: Sequence[str], source: str, arch: Arch) -> None:
    """Partitions that must agree, where the kernel has placed the tensors."""
    for name in used:
        index = _index(i[name])
        start, unit = _start(index), arch.partition_quadrant
        if start is not None and start % unit:
            message = (
                f"the index of {name} starts at partition {start}; must be a multiple of {unit}"
            )
            raise invalid(message, code="partition-start", got=start, multiple=unit)
        if name != "dst":
            _same_start(f"{name} and its index", i[name], index)
    if "dst" in used:
        first = i[source]
        if first.region.value == "sbuf":
            _same_start(f"{source} and the index of dst", first, _index(i["dst"]))
        elif source in used:
            what = f"the index of {source} and the index of dst"
            _same_start(what, _index(first), _index(i["dst"]))


def _index(a: Access) -> Access:
    assert a.dynamic is not None
    return a.dynamic.source


def _start(a: Access) -> int | None:
    """First partition, if the kernel has decided it."""
    if not a.storage.placed or a.storage.address is None:
        return None
    return a.storage.address[0] + a.start_partition


def _same_start(what: str, a: Access, b: Access) -> None:
    first, second = _start(a), _start(b)
    if first is not None and second is not None and first != second:
        message = (
            f"{what} start at partitions {first} and {second}; they must start at the same one"
        )
        raise invalid(message, code="partition-start", first=first, second=second)
