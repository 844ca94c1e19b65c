"""Wrong programs: how long after a launch its error is raised, on both hosts and dry.

`python -m bench.wrong_programs` runs the programs of `tests/collectives/wrong_table.py`, each twice
on a world that is running already (the first launch also compiles and links), and prints a Markdown
table. "after the fact" is the time of the second launch: everything in it comes after the mistake,
or is what a launch costs anyway. The last rows kill a process and let a program run for ever.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import ray

import nki_dist as nki
from nki_dist.errors import NkiError
from tests.collectives.wrong_table import PROGRAMS, RANKS, Wrong
from tests.launcher import kernels as K

COLUMNS = ("program", "error", "in process", "on Ray", "dry")


def reported(launch: Callable[[], Any]) -> tuple[str, float]:
    """Name of the error a launch ends with, and seconds until it was raised."""
    start = time.perf_counter()
    try:
        launch()
    except NkiError as error:
        return type(error).__name__, time.perf_counter() - start
    return "none", time.perf_counter() - start


def twice(world: nki.World, program: Wrong) -> tuple[str, float]:
    def launch() -> None:
        world.run(program.kernel, *program.arguments)

    reported(launch)
    return reported(launch)


def row(program: Wrong, near: nki.World, far: nki.World) -> tuple[list[str], float]:
    """Cells of a row, and the slowest of its times."""
    error, in_process = twice(near, program)
    found, on_ray = twice(far, program)
    dry = reported(lambda: near.dry_run(program.kernel, *program.arguments))[1]
    name = error if found == error else f"{error}, on Ray {found}"
    times = (in_process, on_ray, dry)
    return [str(program), name, *(f"{1e3 * t:.0f} ms" for t in times)], max(times)


def killed() -> tuple[str, float]:
    """From the moment a core's process is killed to the error."""
    group = [list(range(RANKS))]
    with nki.World(ranks=RANKS, lnc=1, host="ray") as world:
        world.run(K.count_then_meet, np.array([[3]], np.int32), group)
        actor = world.host.actors[1]  # type: ignore[attr-defined]
        at: list[float] = []

        def kill() -> None:
            at.append(time.perf_counter())
            ray.kill(actor)

        timer = threading.Timer(1.0, kill)
        timer.start()
        name, _ = reported(
            lambda: world.run(K.count_then_meet, np.array([[2**30]], np.int32), group)
        )
        took = time.perf_counter() - at[0]
        world.run(K.count_then_meet, np.array([[3]], np.int32), group)
    return name, took


def endless() -> tuple[str, float]:
    """From the end of the world's timeout to the error."""
    with nki.World(ranks=RANKS, lnc=1, host="ray", timeout=2.0) as world:
        group = [list(range(RANKS))]
        world.run(K.count_then_meet, np.array([[3]], np.int32), group)
        name, took = reported(
            lambda: world.run(K.count_then_meet, np.array([[2**30]], np.int32), group)
        )
    return name, took - 2.0


def main() -> None:
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    slowest = 0.0
    near = {lnc: nki.World(ranks=RANKS, lnc=lnc, host="inprocess") for lnc in (1, 2)}
    far = {lnc: nki.World(ranks=RANKS, lnc=lnc, cores_per_actor=lnc) for lnc in (1, 2)}
    for world in (*near.values(), *far.values()):
        world.start()
    for program in PROGRAMS:
        cells, took = row(program, near[program.lnc], far[program.lnc])
        slowest = max(slowest, took)
        print("| " + " | ".join(cells) + " |", flush=True)
    for world in (*near.values(), *far.values()):
        world.close()
    for label, measure in (("a process is killed", killed), ("a loop without end", endless)):
        name, took = measure()
        slowest = max(slowest, took)
        print(f"| {label} | {name} | | {1e3 * took:.0f} ms | |", flush=True)
    print(f"\n{len(PROGRAMS) + 2} programs; the slowest report took {slowest:.2f} s")


if __name__ == "__main__":
    main()
