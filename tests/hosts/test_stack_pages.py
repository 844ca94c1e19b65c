"""Pages of a stack that a core stores into are in its process's page table already."""

from __future__ import annotations

import resource
import sys

import pytest
import ray

from nki_dist.hbm.arena import Arena, map_arena

PAGES, PAGE = 4096, 4096  # 16 MiB


@ray.remote(num_cpus=0)
class Storing:
    def faults(self, handle) -> int:
        """How often the kernel had to come while every page was stored into once."""
        (memory,) = map_arena(handle).stacks.values()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        memory[: PAGES * PAGE : PAGE] = 7
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="as Linux enters pages")
def test_stores_into_a_stack_find_its_pages() -> None:
    arena = Arena([0])
    arena.ensure(PAGES * PAGE)
    storing = Storing.remote()
    try:
        assert ray.get(storing.faults.remote(arena.handle(None))) < PAGES // 8
        assert arena.memory(0)[: PAGES * PAGE : PAGE].tolist() == [7] * PAGES
    finally:
        ray.kill(storing)
        arena.close()
