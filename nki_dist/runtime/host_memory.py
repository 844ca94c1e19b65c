"""How much memory of this machine a launch would take, before any of it is taken.

Linux promises memory that it doesn't have and kills the process that uses it, without a word. So
what a launch needs is added up first: stacks, tiles that are alive at once, results. Scratch space
of instructions isn't counted, nor what a core's lanes need besides (up to `placing.BUDGET`); where
NumPy finds no room for it, the instruction is the error's.

Follows: cgroup-v2.rst of the Linux kernel, `memory.max`.
"""

from __future__ import annotations

import os
import resource
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from nki_dist.compiler.compiled import Compiled
from nki_dist.errors import OutOfMemoryError
from nki_dist.hbm.layout import Layout
from nki_dist.linking.memory import Places, places
from nki_dist.ops.alignment import padded
from nki_dist.program.walk import returned

CGROUP: Final = "/sys/fs/cgroup/memory.max"


def check_memory(
    compiled: Compiled, layout: Layout, ranks: int, limit: int | None, held: int = 0
) -> list[Places]:
    """Refuse a launch in this process that needs more memory than there is.

    Args:
        compiled: as it is run.
        layout: of its stacks.
        limit: bytes; None for what the machine has.
        held: bytes of tensors that stay in HBM.

    Returns:
        For each program where its local storages lie.

    Raises:
        OutOfMemoryError: it needs more.
    """
    stacks = ranks * layout.stack_bytes + layout.common_bytes
    found = [places(p) for p in compiled.programs]
    tiles = _tiles(found, ranks)
    results = ranks * sum({id(a): padded(a.nbytes) for _, a in returned(compiled.outputs)}.values())
    need = stacks + tiles + results + held
    have, said = _limit(limit)
    if need > have:
        stay = f", {held} for tensors that stay in HBM" if held else ""
        raise OutOfMemoryError(
            f"a launch of {compiled.kernel} on {ranks} rank(s) needs {need} bytes of host memory: "
            f"{stacks} for arguments and shared tensors, {tiles} for tiles and private tensors, "
            f"{results} for results{stay}; {said} {have}",
            code="host-memory",
            numbers={"got": need, "most": have},
        )
    return found


def check_resident(held: int, more: int, limit: int | None) -> None:
    """Refuse memory for tensors that stay in HBM if there is less.

    Args:
        held: bytes of those that are there.
        more: bytes that are asked for.
        limit: bytes; None for what the machine has.

    Raises:
        OutOfMemoryError: there is less.
    """
    have, said = _limit(limit)
    if held + more > have:
        raise OutOfMemoryError(
            f"tensors that stay in HBM need {more} bytes of host memory beside {held} that others "
            f"of this world have; {said} {have}",
            code="host-memory",
            numbers={"got": held + more, "most": have},
        )


def _limit(limit: int | None) -> tuple[int, str]:
    if limit is None:
        return machine_bytes(), "this machine has"
    return limit, "World(memory=) allows"


def _tiles(found: Sequence[Places], ranks: int) -> int:
    """Bytes of the local storages of all cores; brief ones are in the same buffers in turn."""
    per_core, shared = 0, Counter[int]()  # buffers by size
    for p in found:
        per_core += sum(size for size, brief in zip(p.sizes, p.brief) if not brief)
        shared |= Counter(size for size, brief in zip(p.sizes, p.brief) if brief)
    return ranks * per_core + sum(size * count for size, count in shared.items())


def machine_bytes() -> int:
    """Memory that this process can have at most, whoever uses it now."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY:
        found.append(limit)
    with suppress(OSError, ValueError):  # no such group, or "max": none smaller
        found.append(int(Path(CGROUP).read_text()))
    return min(found)
