"""Does what AWS's compiler does with PSUM, once a Beta 1 kernel has been traced.

In this order: products accumulate where their sums are (products), zeros that matmuls replace go
(fills), and blocks that don't fit leave PSUM (evacuation). Each needs to know what comes later,
which nobody does while the kernel is traced.

A kernel that holds a dynamic loop, which Beta 1 can't write but a helper in today's language can,
is left as it was traced: a tile's uses don't come in one order then.
"""

from __future__ import annotations

from typing import Any

from nki_dist.compat.beta1.evacuation import evacuate
from nki_dist.compat.beta1.fills import settle_fills
from nki_dist.compat.beta1.products import fold
from nki_dist.compat.beta1.recorded import Recorded
from nki_dist.compat.beta1.state import State
from nki_dist.errors import CompileError
from nki_dist.isa.spec import current_tracer
from nki_dist.language import creation
from nki_dist.language.tensor import NkiTensor
from nki_dist.program import Instruction, MemoryRegion, Storage


def finish(state: State) -> None:
    """Settle what the kernel has recorded, whose trace ends.

    Raises:
        CompileError: a return statement in a loop left out iterations.
    """
    left = state.returned
    if left is not None:
        raise CompileError(
            f"return inside nl.affine_range or nl.sequential_range, after {left.traced} of "
            f"{left.total} iterations: these loops are the device's, which runs all of their "
            "iterations, so the others would be lost. Move the return behind the loop "
            "(nl.static_range is Python's loop, and may be left)",
            code="beta1-return",
            numbers={"got": left.traced, "allowed": left.total},
        ).at(location=left.location)
    trace: Any = current_tracer()
    items = trace.block[state.start :]
    if not all(isinstance(i, Instruction) for i in items):
        return
    recorded = Recorded(items, state.first)
    changed = fold(recorded, state.starting, trace.arch)
    changed |= settle_fills(recorded)
    if changed:
        recorded = Recorded(recorded.program(), state.first)
    moved = evacuate(recorded, state.blocks, trace.arch, _tile_for)
    if changed or moved is not None:
        trace.replace(state.start, recorded.program() if moved is None else moved)


def _tile_for(
    shape: tuple[int, ...], dtype: Any, region: MemoryRegion, storage: Storage
) -> NkiTensor:
    """A tile that stands for a storage, and is called like it."""
    tile: NkiTensor = creation.ndarray(shape, dtype, region, storage.name)
    tile.storage.called, tile.storage.location = storage.called, storage.location
    return tile
