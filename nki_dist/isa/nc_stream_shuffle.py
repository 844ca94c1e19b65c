"""nisa.nc_stream_shuffle: moves partitions within quadrants of 32."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nki_dist.arch import Arch, allowed_start_partitions
from nki_dist.errors import invalid
from nki_dist.isa.checks import same_dtype, same_free_size
from nki_dist.isa.described import wrong_value
from nki_dist.isa.effects import Effects, MaskOf, Results, flattened, moves, passes_on, tile_of
from nki_dist.isa.operands import Custom, read, write
from nki_dist.isa.reach import start_partition
from nki_dist.isa.spec import Instruction, Kit, Operation, instruction, op
from nki_dist.isa.timing_rules import per_element
from nki_dist.ops.arrays import put, take
from nki_dist.ops.function import copy

_QUADRANT: Final = 32
_KEEP: Final = 255


def _mask(name: str, value: Any) -> list[int]:
    try:
        mask = [m.__index__() for m in value]
    except (TypeError, AttributeError):
        raise wrong_value(name, value, "a list of 32 ints", code="shuffle-mask") from None
    if len(mask) != _QUADRANT:
        message = f"{name} has {len(mask)} entries; must be {_QUADRANT}"
        raise invalid(message, code="shuffle-mask", got=len(mask), allowed=_QUADRANT)
    for n, m in enumerate(mask):
        if m != _KEEP and not 0 <= m < _QUADRANT:
            message = f"{name}[{n}]={m}; allowed: 0 to 31, or 255 to keep"
            raise invalid(message, code="shuffle-mask", got=m)
    return mask


@passes_on
def _shuffled(i: Instruction, sources: tuple[str, ...], mask_of: MaskOf) -> Results:
    """Partitions move, and those the mask leaves alone keep their elements."""
    m, before = mask_of(i.args[sources[0]]), mask_of(i.args["dst"])
    out = np.zeros(tile_of(i), bool) if before is None else flattened(before).copy()
    targets, moved = _moves(i)
    out[targets] = False if m is None else flattened(m)[moved]
    return {"dst": out}


def _moves_all(i: Instruction) -> bool:
    return _KEEP not in i["shuffle_mask"][: i["dst"].shape[0]]


@instruction(
    engines="vector",
    effects=Effects(
        _shuffled("src"), partial=True, bits=moves("dst src"), state=None, whole=_moves_all
    ),
    checks=[same_free_size("dst src"), same_dtype("dst src", "a shuffle doesn't convert")],
    cost=per_element("src"),
)
def nc_stream_shuffle(
    dst=write(any_start=True),  # its own rule is stricter
    src=read(any_start=True),
    shuffle_mask=Custom(_mask),
    name=None,
):
    """Partition i of each quadrant of `dst` becomes partition `shuffle_mask[i]` of `src`'s.

    Args:
        dst, src: tiles of equal dtype and elements per partition; may be the same tile. They start
            at 0, 32, 64 or 96 (up to 32 partitions), 0 or 64 (up to 64), or 0.
        shuffle_mask: 32 entries, 0 to 31, or 255 to leave that partition of dst alone.

    Raises:
        NkiValidationError: the tiles don't fit, or the mask reads a partition src doesn't have.
    """
    return locals()


@nc_stream_shuffle.check
def _check(i: Instruction, arch: Arch) -> None:
    dst, src = i["dst"], i["src"]
    most = max(dst.shape[0], src.shape[0])
    active = -(-most // _QUADRANT) * _QUADRANT
    allowed = allowed_start_partitions(active, arch)
    for name, a in (("dst", dst), ("src", src)):
        if start_partition(a) not in allowed:
            message = (
                f"{name} starts at partition {start_partition(a)}; with {active} active partitions "
                f"(most touched: {most}) allowed: {', '.join(map(str, allowed))}"
            )
            raise invalid(message, code="partition-start", got=start_partition(a), allowed=allowed)
    _, sources = _moves(i)
    if sources.size and sources.max() >= src.shape[0]:
        message = f"shuffle_mask reads partition {sources.max()} of src, which has {src.shape[0]}"
        raise invalid(message, code="shuffle-mask", got=sources.max(), most=src.shape[0] - 1)


def _moves(i: Instruction) -> tuple[np.ndarray, np.ndarray]:
    """Partitions of dst that are written, and of src that each comes from."""
    targets = np.arange(i["dst"].shape[0])
    mask = np.array(i["shuffle_mask"])[targets % _QUADRANT]
    moved = mask != _KEEP
    return targets[moved], (targets // _QUADRANT * _QUADRANT + mask)[moved]


@nc_stream_shuffle.meaning
def _meaning(i: Instruction, kit: Kit) -> list[Operation]:
    dst, src = i["dst"], i["src"]
    targets, sources = _moves(i)
    into, bits = kit.raw(dst), kit.raw(src)
    if targets.size == 0:
        return []
    moved = kit.scratch((targets.size, *src.shape[1:]), src.dtype.raw)
    shaped = moved.reshape(targets.size, *dst.shape[1:])
    whole = targets.size == dst.shape[0]
    save = op(copy, into, shaped) if whole else op(put, into, targets, shaped)
    return [op(take, bits, sources, moved), save]
