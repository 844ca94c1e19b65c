"""What a dry run tells: what was executed, what couldn't be checked.

The cores run their skeletons (see compiler.passes.skeleton) in this process, whatever the world's
host is: there is nothing to compute that more processes could share. No HBM stacks are made and no
actors are started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.passes.conflicts import visible
from nki_dist.compiler.passes.elements import LARGEST
from nki_dist.compiler.passes.skeleton import Skeleton, make_skeleton
from nki_dist.isa import INSTRUCTIONS
from nki_dist.isa.core import CoreSlot
from nki_dist.program import Program, instructions
from nki_dist.runtime.dry import DryCores
from nki_dist.runtime.dry_classes import executions, run_classes
from nki_dist.runtime.group import CoreReport
from nki_dist.runtime.progress import sampled
from nki_dist.runtime.unread import check_messages


@dataclass(frozen=True)
class DryRun:
    """What a dry run found; that there is one says that all cores came to their end.

    Attributes:
        kernel: its name.
        instructions: per core, how many a full run executes.
        messages: per core, how many it sends to others.
        exchanges: over all cores, how often each instruction that waits for others was executed.
        computed: over all cores, instructions that were carried out all the same, because loops
            and addresses depend on them.
        unchecked: kernel lines with run-time addresses that weren't checked, because they are
            vectors of addresses or depend on the contents of a TensorSpec.
        overlaps: kernel lines where the cores of a rank touch the same bytes in no order; a full
            run tells by their values whether that is a race.
        may_overlap: those where they may, because addresses in such a tensor are known at run time
            only: cores whose indices differ keep apart.
        profile: of simulated time, if asked for.
    """

    kernel: str
    instructions: tuple[int, ...]
    messages: tuple[int, ...]
    exchanges: Mapping[str, int]
    computed: int
    unchecked: tuple[str, ...] = ()
    overlaps: tuple[str, ...] = ()
    may_overlap: tuple[str, ...] = ()
    profile: Any = None

    def __str__(self) -> str:
        counts = ", ".join(f"{name} {n:,}" for name, n in sorted(self.exchanges.items()))
        lines = [
            f"{self.kernel} on {_cores(len(self.instructions))}, dry: all came to their end",
            f"  {sum(self.instructions):,} instructions, {self.computed:,} of them computed",
            f"  {sum(self.messages):,} messages between cores" + (f": {counts}" if counts else ""),
        ]
        if self.unchecked:
            lines.append("  run-time addresses that weren't checked:")
            lines += [f"    {line}" for line in self.unchecked]
        for how, where in (("", self.overlaps), ("maybe ", self.may_overlap)):
            if where:
                lines.append(
                    f"  {how}touched by both cores of a rank in no order; run it to see if it's a "
                    "race:"
                )
                lines += [f"    {line}" for line in where]
        return "\n".join(lines)


def run_dry(
    slots: Sequence[CoreSlot],
    compiled: Compiled,
    inputs: Sequence[Sequence[np.ndarray]],
    unknown: Collection[int],
    timeout: float | None = None,
    in_classes: bool = True,
) -> tuple[DryRun, list[CoreReport]]:
    """Run a compiled kernel dry on every core of a world.

    Args:
        slots: every core.
        inputs: per rank, the arrays by index.
        unknown: indices of the inputs without contents.
        timeout: seconds after which the run is given up; None for never. If that is while ranks
            are run in classes, it begins anew with all of them.
        in_classes: ranks that do the same are run once, where that is sure; else all are run.

    Raises:
        NkiError: what the program does wrong, as in a full run.
        LaunchError: how often a loop iterates depends on an input without contents.
    """
    skeleton = make_skeleton(compiled.programs, unknown)
    reports = run_classes(slots, skeleton, inputs, timeout) if in_classes else None
    if reports is None:
        cores = DryCores(slots, skeleton, inputs, timeout)
        with sampled(len(slots), cores.progress):
            reports = sorted(cores.run(), key=lambda r: r.core)
        check_messages(reports, len(compiled.programs) if len(inputs) > 1 else 0)
    return _report(compiled, skeleton, reports), reports


def _report(compiled: Compiled, skeleton: Skeleton, reports: Sequence[CoreReport]) -> DryRun:
    # Most cores iterate as often as the others.
    keys = [(r.core % len(compiled.programs), tuple(r.trips)) for r in reports]
    totals: dict[Any, int] = {}
    exchanges: Counter[str] = Counter()
    computed = 0
    for (core, trips), cores in Counter(keys).items():
        program = compiled.programs[core]
        times = executions(program.body, iter(trips))
        totals[core, trips] = sum(times.values())
        computed += cores * sum([times[ordinal] for ordinal in skeleton.real[core]])
        for i in instructions(program.body):
            spec = INSTRUCTIONS[i.opcode]
            if spec.synchronises and times[i.ordinal]:
                exchanges[spec.title] += cores * times[i.ordinal]
    return DryRun(
        compiled.programs[0].kernel,
        tuple([totals[key] for key in keys]),
        tuple(r.messages for r in reports),
        dict(exchanges),
        computed,
        skeleton.unchecked,
        *_overlaps(compiled.programs),
    )


def _overlaps(programs: Sequence[Program]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Lines of instructions that are watched: those that surely meet, those that may."""
    found: list[tuple[str, set[tuple[str, int]]]] = []
    unsure: set[tuple[str, int]] = set()  # tensors of which compile time doesn't tell the places
    for program in programs:
        watched = set(program.facts.get("watched", ()))
        for i in instructions(program.body):
            line = program.where(i.location) if i.ordinal in watched else None
            if line is not None:
                seen = [*visible(i, writes=True), *visible(i, writes=False)]
                found.append((line, {a.storage.key for a in seen}))
                for a in seen:
                    if a.dynamic is not None or a.storage.nbytes > LARGEST:
                        unsure.add(a.storage.key)
    sure = dict.fromkeys(line for line, keys in found if not keys & unsure)
    return tuple(sure), tuple(dict.fromkeys(line for line, _ in found if line not in sure))


def _cores(count: int) -> str:
    return "1 core" if count == 1 else f"{count:,} cores"
