"""Tensors that stay in HBM: what launches, rows, memory and many puts cost. Fails above its bars.

python -m bench.residence resident|row|memory|growth ...
"""

from __future__ import annotations

import argparse
import gc
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import ray

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl

MIB: Final = 1 << 20
STORE: Final = 3 << 30
TURNS: Final = 25


@nki.jit
def corner(w: Any, x: Any) -> Any:
    """x plus the first 128 rows of w, however many it has."""
    tile = nl.load(x)
    part = nl.load(w[0:128, 0 : x.shape[1]])
    nisa.tensor_tensor(dst=tile, data1=tile, data2=part, op=nl.add)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


@nki.jit
def one(x: Any) -> Any:
    """One instruction on each core, for its half of x."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = x.shape[0] // nl.num_programs()
    mine = nl.ds(rows * nl.program_id(0), rows)
    nisa.dma_copy(dst=out[mine], src=x[mine])
    return out


def verdict(name: str, figure: float, bar: float, unit: str = "x", note: str = "") -> bool:
    """Print a line; whether the figure holds."""
    holds = figure <= bar
    print(f"{name}: {figure:.3f} {unit}, bar {bar} {unit}{'' if holds else ' ABOVE'}{note}")
    return holds


# ---- a launch beside 1 GiB -----------------------------------------------------------------------


@contextmanager
def second_node() -> Iterator[str]:
    """The address of a cluster whose only processors are on a node that isn't the launcher's."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "object_store_memory": 200 * MIB}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=2, object_store_memory=STORE)
    cluster.wait_for_nodes()
    try:
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()


def resident_ratio(world: nki.World) -> float:
    """Median of launches that get 1 GiB over that of launches that get 1 MiB, in turn."""
    x = world.put(np.ones((128, 512), np.float32))
    large = world.put(np.ones((256 * 1024, 1024), np.float32))
    small = world.put(np.ones((256, 1024), np.float32))
    seconds: dict[int, list[float]] = {id(large): [], id(small): []}
    for turn in range(TURNS + 3):
        for w in (large, small) if turn % 2 else (small, large):
            start = time.perf_counter()
            world.run(corner, w, x)
            world.wait()
            if turn >= 3:
                seconds[id(w)].append(time.perf_counter() - start)
    return statistics.median(seconds[id(large)]) / statistics.median(seconds[id(small)])


def resident() -> bool:
    found = []
    with nki.World(host="inprocess") as world:
        found.append(verdict("1 GiB against 1 MiB, in process", resident_ratio(world), 1.1))
    with nki.World(host="ray") as world:
        found.append(verdict("1 GiB against 1 MiB, on Ray", resident_ratio(world), 1.1))
    ray.shutdown()
    with second_node() as address, nki.World(host="ray", address=address) as world:
        found.append(verdict("1 GiB against 1 MiB, second node", resident_ratio(world), 1.1))
    return all(found)


# ---- launches in a row ---------------------------------------------------------------------------


@ray.remote(num_cpus=0)
class Empty:
    def nothing(self) -> None:
        pass


def row() -> bool:
    """A launch in a row against an actor call that does nothing and is waited for; turns."""
    count, calls, rows = 1000, [], []
    with nki.World(ranks=1, lnc=2, host="ray") as world:
        x = world.put(np.ones((128, 64), np.float32))
        world.run(one, x).numpy()
        empty: Any = Empty.remote()  # type: ignore[attr-defined]
        ray.get(empty.nothing.remote())
        for _ in range(5):
            start = time.perf_counter()
            for _ in range(count):
                ray.get(empty.nothing.remote())
            calls.append((time.perf_counter() - start) / count)
            start = time.perf_counter()
            for _ in range(count):
                world.run(one, x)
            world.wait()
            rows.append((time.perf_counter() - start) / count)
    call, launch = statistics.median(calls), statistics.median(rows)
    note = f" ({launch * 1e6:.0f} us a launch, {call * 1e6:.0f} us a call)"
    return verdict("a launch in a row against an empty call", launch / call, 0.5, note=note)


# ---- memory --------------------------------------------------------------------------------------


def memory_of(pid: int, field: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (OSError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{field}:"))


def family() -> list[int]:
    """This process and all that descend from it."""
    parents = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after = (folder / "stat").read_text().rpartition(")")[2].split()
        except (OSError, ProcessLookupError):
            continue
        parents[int(folder.name)] = int(after[1])
    found = {os.getpid()}
    while more := {p for p, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found)


def store_bytes() -> int:
    """Bytes in /dev/shm, whose files may have no names any more."""
    status = os.statvfs("/dev/shm")
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def total() -> int:
    """Memory of all processes, what they share counted once: no page is in a file and a process."""
    return store_bytes() + sum(memory_of(pid, "Pss_Anon") for pid in family())


def memory() -> bool:
    """64 ranks x 64 MiB on one node."""
    os.environ.setdefault("NKI_DIST_OBJECT_STORE_BYTES", str(6 << 30))
    ranks, nbytes = 64, 64 * MIB
    with nki.World(ranks=ranks, host="ray") as world:
        x = world.put(np.ones((128, 512), np.float32))
        small = world.put(np.ones((256, 1024), np.float32))
        world.run(corner, small, x).numpy()
        gc.collect()
        before = total()
        w = world.put(nki.per_rank(lambda rank: np.full((16 * 1024, 1024), rank, np.float32)))
        world.run(corner, w, x).numpy()
        used = total() - before
    note = f" ({used / MIB:,.0f} MiB for {ranks * nbytes / MIB:,.0f})"
    return verdict("memory of 64 ranks x 64 MiB", used / (ranks * nbytes), 1.05, note=note)


# ---- growth --------------------------------------------------------------------------------------


def grows(name: str, times: int, act: Callable[[], object]) -> bool:
    """Whether so many times need no more memory than a quarter of them did."""

    def state() -> tuple[int, int]:
        gc.collect()
        anonymous = memory_of(os.getpid(), "Pss_Anon")
        return store_bytes() + anonymous, len(os.listdir("/proc/self/fd"))

    for _ in range(times // 4):
        act()
    before, files = state()
    for _ in range(times - times // 4):
        act()
    after, more = state()
    grown, opened = (after - before) / MIB, more - files
    note = f" ({opened:+d} file descriptors)"
    return verdict(f"{name}, growth", max(grown, 0.0), 16, "MiB", note) and opened <= 2


def growth() -> bool:
    array, found = np.ones((256, 1024), np.float32), []

    def opened(host: str) -> Callable[[], None]:
        def act() -> None:
            with nki.World(ranks=2, host=host) as world:
                world.run(corner, world.put(array), world.put(array[:128])).numpy()

        return act

    for host in ("inprocess", "ray"):
        with nki.World(ranks=2, host=host) as world:

            def act(world: nki.World = world) -> None:
                world.put(array).free()

            found.append(grows(f"2,000 puts, {host}", 2000, act))
        found.append(grows(f"200 worlds, {host}", 200, opened(host)))
    return all(found)


PARTS: Final[dict[str, Callable[[], bool]]] = {
    "resident": resident,
    "row": row,
    "memory": memory,
    "growth": growth,
}


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="+", choices=PARTS)
    held = [PARTS[part]() for part in parser.parse_args(given).parts]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
