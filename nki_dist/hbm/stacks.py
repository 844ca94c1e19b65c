"""The HBM stacks of the ranks on one Ray node: created, filled and read there.

Plasma objects are shared memory on their own node only, so each node that simulates ranks has one
`NodeStacks`: in the launcher's process for its own node, as an actor on every other.
Values cross between nodes in actor calls, as bits: arrays of ml_dtypes would travel in band.

Invariant: an object belongs to the process that made it, and so goes away with its node or agent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import ray.exceptions

from nki_dist.errors import LaunchError, OutOfMemoryError
from nki_dist.hbm.actor_repr import ActorRepr
from nki_dist.hbm.arena import Arena, ArenaHandle
from nki_dist.hbm.layout import Given, Inputs, Layout, fill_common, fill_stack
from nki_dist.hbm.plasma import StackHandle
from nki_dist.ranges import named

EVERYBODY: Final = -1  # in place of a rank


@dataclass(frozen=True)
class Fill:
    """What goes into a node's stacks before a launch.

    Attributes:
        inputs: arrays of each rank by input; those that are in common are None.
        common: arrays by input; those that aren't in common are None.
    """

    layout: Layout
    inputs: Mapping[int, Inputs]
    common: Inputs


class NodeStacks:
    """See the module's docstring.

    Args:
        groups: ranks whose stacks lie in one object.
        world: its name.
    """

    def __init__(self, groups: Sequence[Sequence[int]], world: str) -> None:
        self._world = world
        self._arenas = [Arena(ranks) for ranks in groups]
        self._by_rank = {rank: arena for arena in self._arenas for rank in arena.ranks}
        self._common = Arena([EVERYBODY])

    __repr__ = ActorRepr(lambda self: f"NodeStacks({named(self.ranks)} of world {self._world})")

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(self._by_rank)

    def fill(self, fill: Fill) -> list[ArenaHandle]:
        """Make room, copy inputs to their places, poison the rest.

        Raises:
            OutOfMemoryError: the node's object store can't hold the stacks.
        """
        layout = fill.layout
        try:
            common = self._ensure(layout)
        except OutOfMemoryError as error:
            self.close()  # what was made so far is of no use, and others may need the place
            error.message = f"{error.message}. {self._needs(layout)}"
            raise
        if common is not None:
            fill_common(layout, self._common.memory(EVERYBODY), fill.common)
        for rank, arrays in fill.inputs.items():
            fill_stack(layout, self.memory(rank), arrays)
        return [arena.handle(common) for arena in self._arenas]

    def _ensure(self, layout: Layout) -> StackHandle | None:
        """Objects large enough, the old ones released first; returns that of common inputs."""
        for arena in self._arenas:
            arena.vacate(layout.stack_bytes)
        self._common.vacate(layout.common_bytes)
        common = None
        if layout.common_bytes:
            self._common.ensure(layout.common_bytes)
            common = self._common.object
        for arena in self._arenas:
            arena.ensure(layout.stack_bytes)
        return common

    def _needs(self, layout: Layout) -> str:
        ranks = len(self._by_rank)
        total = ranks * layout.stack_bytes + layout.common_bytes
        return (
            f"This launch needs {total:,} bytes on this node: {ranks} ranks of "
            f"{layout.stack_bytes:,}, and {layout.common_bytes:,} for inputs that all share; its "
            "world's earlier stacks were released before it was tried"
        )

    def memory(self, rank: int) -> np.ndarray:
        """The bytes of a rank's stack."""
        return self._by_rank[rank].memory(rank)

    def read(self, parts: Sequence[tuple[int, int]]) -> dict[int, list[np.ndarray]]:
        """Copies of parts, (start, end), of every rank's stack."""
        return {
            rank: [self.memory(rank)[start:end].copy() for start, end in parts]
            for rank in self._by_rank
        }

    def close(self) -> None:
        """Let go of all objects. Idempotent."""
        for arena in (*self._arenas, self._common):
            arena.close()


def make_fill(
    layout: Layout, inputs: Sequence[Inputs], ranks: Sequence[int], travels: bool
) -> Fill:
    """What a node needs for a launch.

    Args:
        inputs: per rank, the arrays by index.
        ranks: that sit on the node.
        travels: to another node, so what isn't needed there is left out, and arrays become bits;
            what makes an array is sent as it is.
    """
    if not travels:
        return Fill(layout, {rank: inputs[rank] for rank in ranks}, inputs[0])
    once = set(layout.common)

    def chosen(arrays: Inputs, common: bool) -> Inputs:
        found: list[Given | None] = []
        for signature, array in zip(layout.inputs, arrays):
            replaced = signature.index in layout.replaced
            goes = (signature.index in once) == common and not replaced
            raw = signature.dtype.raw
            if not goes or array is None or callable(array):
                found.append(array if goes else None)
                continue
            bits = np.ascontiguousarray(array)
            found.append(bits.reshape(signature.shape).view(raw))
        return found

    return Fill(layout, {r: chosen(inputs[r], False) for r in ranks}, chosen(inputs[0], True))


def with_arrays(inputs: Sequence[Inputs], ranks: Sequence[int]) -> list[Inputs]:
    """The inputs with all arrays of some ranks made."""
    chosen = set(ranks)
    return [
        [a() if callable(a) else a for a in arrays] if rank in chosen else arrays
        for rank, arrays in enumerate(inputs)
    ]


def unknown_there(error: Exception) -> bool:
    """Whether a node couldn't make arrays because it hasn't what the function needs.

    Ray sends functions of modules by their names, and fails where it takes them in; one that is
    taken in may import or open what only the launcher's node has.
    """
    missing = r"per_rank raised (ModuleNotFound|Import|FileNotFound)Error"
    raised = isinstance(error, LaunchError) and re.search(missing, error.message)
    return bool(raised) or isinstance(error, ray.exceptions.RaySystemError)


def sparse(layout: Layout, parts: Sequence[np.ndarray]) -> np.ndarray:
    """A stack that holds what is read back, at its place; the rest is zero and takes no memory."""
    memory = np.zeros(max(layout.stack_bytes, 1), np.uint8)
    for (start, end), part in zip(layout.read_back, parts):
        memory[start:end] = part
    return memory
