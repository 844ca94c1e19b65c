"""Where the cores of a world run: `InProcessHost` here, `RayHost` in ray_host.

A host is given a compiled launch and each rank's inputs. It copies the inputs into the ranks' HBM
stacks, runs all cores, and leaves the results in the stacks for the launcher to read.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from nki_dist.collectives.choose import VARIABLE, named
from nki_dist.compiler.compiled import Compiled
from nki_dist.errors import CoreLostError, NkiWarning, typed
from nki_dist.hbm.layout import Layout, Layouts, fill_common, fill_stack
from nki_dist.isa.core import CoreSlot
from nki_dist.ops.alignment import aligned
from nki_dist.program import Program
from nki_dist.runtime.group import CoreGroup, CoreReport, StackView
from nki_dist.runtime.host_memory import check_memory
from nki_dist.runtime.progress import sampled
from nki_dist.runtime.settings import processors


@dataclass
class Launch:
    """One launch, ready to run.

    Attributes:
        key: names the compiled kernel among all of this process.
        compiled: programs and layout.
        inputs: per rank, the arrays by index, with the types of `compiled.as_run.inputs`.
        printer: called with (core, prefix, array) by device_print; see Printer.
        timeout: seconds after which it is given up; None for never.
        warn: gives a warning while it runs.
    """

    key: Any
    compiled: Compiled
    inputs: Sequence[Sequence[np.ndarray]]
    printer: Callable[[int, str, np.ndarray], None]
    timeout: float | None = None
    warn: Callable[[NkiWarning], None] = warnings.warn


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


class Host(Protocol):
    """Runs launches; stays warm between them."""

    def launch(self, launch: Launch) -> LaunchResult: ...

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


class InProcessHost:
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
        self.ranks = ranks
        self._memory = memory
        self._group = CoreGroup(slots(ranks, lnc, ranks_per_node), threads or processors())
        self._stacks: list[np.ndarray] = []
        self._common = aligned(0)
        self._generation = 0
        self._layouts = Layouts()

    def launch(self, launch: Launch) -> LaunchResult:
        compiled = launch.compiled.as_run
        layout = self._layouts.of(launch.key, compiled, launch.inputs)
        key = (launch.key, layout.common)
        known = None
        if not self._group.knows(key):
            known = check_memory(compiled, layout, self.ranks, self._memory)
        try:
            self._ensure(layout.stack_bytes, layout.common_bytes)
        except MemoryError as error:
            raise typed(error) from error
        for stack, arrays in zip(self._stacks, launch.inputs):
            fill_stack(layout, stack, arrays)
        if layout.common:
            fill_common(layout, self._common, launch.inputs[0])
        with sampled(len(self._group.slots), self._group.progress):
            reports = self._group.run(
                key,
                compiled.programs,
                layout.offsets,
                {
                    rank: StackView(stack, self._generation, self._common)
                    for rank, stack in enumerate(self._stacks)
                },
                launch.printer,
                timeout=launch.timeout,
                known=known,
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
            self._stacks = [aligned(size) for _ in range(self.ranks)]
        if common > len(self._common):
            self._common = aligned(0)
            self._common = aligned(max(common, 1 << 16))

    def close(self) -> None:
        self._group.forget()
        self._stacks = []
        self._common = aligned(0)
