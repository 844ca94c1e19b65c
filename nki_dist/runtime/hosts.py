"""Where the cores of a world run: what every host does, and the one in this process.

A host is given a compiled launch and each rank's inputs. It copies the inputs into the ranks' HBM
stacks, runs all cores, and leaves the results in the stacks for the launcher to read. Tensors that
stay in HBM lie in regions, which it makes and drops as it is told.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import numpy as np

from nki_dist.collectives.choose import VARIABLE, named
from nki_dist.compiler.compiled import Compiled
from nki_dist.errors import CoreLostError, NkiWarning, typed
from nki_dist.hbm.contents import Fill, Memories, Place, Places
from nki_dist.hbm.layout import Given, Inputs, Layout, Layouts, fill_common, fill_stack
from nki_dist.isa.core import CoreSlot
from nki_dist.ops.alignment import aligned
from nki_dist.program import Program
from nki_dist.runtime.group import CoreGroup, CoreReport, StackView
from nki_dist.runtime.host_memory import check_memory, check_resident
from nki_dist.runtime.progress import sampled
from nki_dist.runtime.settings import processors

_NOTHING: Final[frozenset[tuple[str, int]]] = frozenset()


@dataclass
class Launch:
    """One launch, ready to run.

    Attributes:
        key: names the compiled kernel among all of this process.
        compiled: programs and layout.
        inputs: per rank, the arrays by index, with the types of `compiled.as_run.inputs`; None for
            those that stay in HBM.
        printer: called with (core, prefix, array) by device_print; see Printer.
        timeout: seconds after which it is given up; None for never.
        warn: gives a warning while it runs.
        places: where tensors lie that stay in HBM.
    """

    key: Any
    compiled: Compiled
    inputs: Sequence[Inputs]
    printer: Callable[[int, str, np.ndarray], None]
    timeout: float | None = None
    warn: Callable[[NkiWarning], None] = warnings.warn
    places: Places = ()

    @property
    def resident(self) -> frozenset[tuple[str, int]]:
        """(role, index) of tensors that stay in HBM."""
        return frozenset([key for key, _ in self.places]) if self.places else _NOTHING

    def poisoned(self, layout: Layout) -> list[Fill]:
        """What is filled of them before anything runs."""
        where = dict(self.places)
        return [(where["shared", n], size, bits, raw) for n, size, bits, raw in layout.poisoned]


@dataclass
class LaunchResult:
    """What is left of a launch.

    Attributes:
        layout: of the stacks.
        memories: per rank, the bytes of its HBM stack.
        reports: per core.
        losses: after which the launch was run again.
        programs: what each core ran, if that isn't `compiled.programs` on every rank.
    """

    layout: Layout
    memories: list[np.ndarray]
    reports: list[CoreReport] = field(default_factory=list)
    losses: list[CoreLostError] = field(default_factory=list)
    programs: list[Program] | None = None


Attempt: TypeAlias = "Callable[[Launch], LaunchResult]"
"""Carries out a launch."""


class Host(Protocol):
    """Runs launches and holds tensors; stays warm between launches."""

    def launch(self, launch: Launch) -> LaunchResult: ...

    def launch_row(self, launches: Sequence[Launch]) -> list[LaunchResult]:
        """Carry out the first of these together, as many as can be and don't fail; perhaps none.

        Args:
            launches: which write nothing but new tensors, so that each can be carried out again.
        """
        ...

    def era(self) -> int:
        """Replace what was lost; regions that were made before this number changed are gone."""
        ...

    def hold(self, number: int, nbytes: int) -> None:
        """Make a region of that number in the HBM of each rank."""
        ...

    def drop(self, numbers: Sequence[int]) -> None:
        """Let go of regions, and of what is bound to tensors in them."""
        ...

    def write(self, place: Place, values: Sequence[Given]) -> None:
        """Copy in what a tensor holds in each rank: an array, or what makes it."""
        ...

    def read(self, place: Place, nbytes: int) -> list[np.ndarray]:
        """Copies of the bits that a tensor has in each rank, (nbytes,) uint8."""
        ...

    def stop(self) -> None:
        """End the launch under way as soon as can be; any thread may ask."""
        ...

    def close(self) -> None: ...


def slots(ranks: int, lnc: int, ranks_per_node: int = 0) -> list[CoreSlot]:
    """Every core of a world, in order; see CoreSlot for `ranks_per_node`."""
    algorithm = forced_algorithm()
    return [
        CoreSlot(r * lnc + c, r, c, lnc, ranks, ranks_per_node, algorithm)
        for r in range(ranks)
        for c in range(lnc)
    ]


def forced_algorithm() -> str:
    """What NKI_DIST_COLLECTIVE_ALGORITHM asks for, or ""."""
    name = os.environ.get(VARIABLE, "")
    if name:
        named(name)
    return name


class InProcessHost(Memories):
    """All cores in the caller's process: deterministic, and `breakpoint()` works.

    Args:
        memory: bytes that the tensors of a launch may take; None for what the machine has.
        threads: that carry out a launch; None for as many as this process has processors.
    """

    def __init__(
        self,
        ranks: int,
        lnc: int,
        ranks_per_node: int = 0,
        memory: int | None = None,
        threads: int | None = None,
    ) -> None:
        self.ranks = range(ranks)
        self._memory = memory
        self._group = CoreGroup(slots(ranks, lnc, ranks_per_node), threads or processors())
        self._stacks: list[np.ndarray] = []
        self._common = aligned(0)
        self._generation = 0
        self._layouts = Layouts()
        self._regions: list[dict[int, np.ndarray]] = [{} for _ in range(ranks)]

    def launch(self, launch: Launch) -> LaunchResult:
        compiled = launch.compiled.as_run
        resident = launch.resident
        layout = self._layouts.of(launch.key, compiled, launch.inputs, resident)
        key = (launch.key, layout.common, resident)
        local = None
        if key not in self._group.linked:
            local = check_memory(compiled, layout, len(self.ranks), self._memory, self._resident)
        try:
            self._ensure(layout.stack_bytes, layout.common_bytes)
        except MemoryError as error:
            raise typed(error) from error
        for stack, arrays in zip(self._stacks, launch.inputs):
            fill_stack(layout, stack, arrays)
        if layout.common:
            fill_common(layout, self._common, launch.inputs[0])
        if layout.poisoned:
            self.fill(launch.poisoned(layout))
        with sampled(len(self._group.slots), self._group.progress):
            reports = self._group.run(
                key,
                compiled.programs,
                layout.offsets,
                {
                    rank: StackView(stack, self._generation, self._common, self._regions[rank])
                    for rank, stack in enumerate(self._stacks)
                },
                launch.printer,
                timeout=launch.timeout,
                local=local,
                places=launch.places,
            )
        return LaunchResult(layout, self._stacks, reports)

    def _ensure(self, need: int, common: int) -> None:
        """Stacks only grow; growing moves them, and what was linked for the old place is void."""
        have = len(self._stacks[0]) if self._stacks else -1
        if need <= have and common <= len(self._common):
            return
        self._generation += 1
        self._group.forget()
        if need > have:
            size = max(need, 2 * have, 1 << 16)
            self._stacks = []
            self._stacks = [aligned(size) for _ in self.ranks]
        if common > len(self._common):
            self._common = aligned(0)
            self._common = aligned(max(common, 1 << 16))

    def launch_row(self, launches: Sequence[Launch]) -> list[LaunchResult]:
        return []  # nothing would be gained

    def era(self) -> int:
        return 0  # nothing can be lost

    @property
    def _resident(self) -> int:
        """Bytes of all regions."""
        return len(self.ranks) * sum(map(len, self._regions[0].values()))

    def hold(self, number: int, nbytes: int) -> None:
        check_resident(self._resident, len(self.ranks) * nbytes, self._memory)
        try:
            for regions in self._regions:
                regions[number] = aligned(nbytes)
        except MemoryError as error:
            self.drop([number])
            raise typed(error) from error

    def drop(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._group.forget_region(number)
            for regions in self._regions:
                regions.pop(number, None)

    def memory(self, rank: int, number: int) -> np.ndarray:
        return self._regions[rank][number]

    def stop(self) -> None:
        self._group.stop()

    def close(self) -> None:
        self._group.forget()
        self._regions = [{} for _ in self.ranks]
        self._stacks = []
        self._common = aligned(0)
