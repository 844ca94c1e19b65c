"""The first launch of a program, beside Ray alone, with and without a kept Ray, and its end.

    python -m bench.cold [--rounds N] [--against CHECKOUT]

Every figure is of a fresh process, from its first line to its last, and from there to its end; the
sides take turns:

    ray    imports NumPy and ray, ray.init, two actors that import NumPy, one call to each
    own    imports nki_dist, kernel[2](x) of a one-instruction kernel, in a Ray of its own
    old    the same with the package of another checkout
    kept   the same program, with `nki-dist cluster` running
    here   the same program in process, without Ray

Ratios are of the smallest of each side: what else a machine does only adds. Before a turn of
`kept`, the actors that the last one borrowed have been replaced; the keeper runs beside all sides.

All sides have compiled Python files, as programs have that aren't run for the first time: in a
folder of the measurement, because where PYTHONDONTWRITEBYTECODE is set, or the package's folder
can't be written, every process compiles all of it again (0.15 s for an actor, 0.3 s for a program).
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

from nki_dist.core_actor.pool import control, place

RAY: Final = """
import logging
import numpy
import ray
ray.init("local", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)

@ray.remote(num_cpus=0)
class Actor:
    def __init__(self):
        import numpy
    def ready(self):
        return 1

actors = [Actor.remote(), Actor.remote()]
ray.get([actor.ready.remote() for actor in actors])
"""
OURS: Final = """
import numpy as np
from bench.rooms import passes_on
x = np.arange(12, dtype=np.float32).reshape(4, 3)
assert (passes_on[2](x) == x).all()
"""
BEGIN: Final = "import time\nbegun = time.perf_counter()\n"
END: Final = "\nprint(begun, time.perf_counter(), flush=True)\n"  # of all processes alike
STORE: Final = 200 << 20
PACKAGE: Final = Path(__file__).resolve().parents[1]


def seconds(program: str, package: Path = PACKAGE, **environment: str) -> tuple[float, float]:
    """Of a program in a process of its own, to its last line, and from there to its end."""
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program + END],
        cwd=package,  # the first place that is looked in
        env={**os.environ, "PYTHONPATH": str(package), **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    ended = time.perf_counter()
    if done.stderr:
        raise RuntimeError(done.stderr)  # a warning would mean that another thing was measured
    begun, last = map(float, done.stdout.split())
    return last - begun, ended - last


def rested(actors: int) -> None:
    """Return when all actors of the keeper wait."""
    while control.status()["waiting"] < actors:
        time.sleep(0.05)


def measured(rounds: int, against: Path | None) -> dict[str, list[tuple[float, float]]]:
    """Seconds of each side, in turn."""
    found: dict[str, list[tuple[float, float]]] = {}

    def turn(side: str, *program: Any, **environment: str) -> None:
        found.setdefault(side, []).append(seconds(*program, **environment))

    for _ in range(rounds):
        turn("ray", RAY)
        turn("own", OURS, NKI_DIST_CLUSTER="off")
        if against is not None:
            turn("old", OURS, against, NKI_DIST_CLUSTER="off")
        rested(2)
        turn("kept", OURS, NKI_DIST_CLUSTER="auto")
        turn("here", OURS, NKI_DIST_HOST="inprocess")
    return found


def show(what: str, found: dict[str, list[float]]) -> dict[str, float]:
    """Print all figures; the least of each side."""
    print(f"\nseconds {what}")
    for side, taken in found.items():
        print(
            f"{side:5} " + " ".join(f"{t:6.2f}" for t in taken) + f"   least {min(taken):.2f}, "
            f"median {statistics.median(taken):.2f}"
        )
    return {side: min(taken) for side, taken in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", type=Path, help="another checkout, whose package takes turns")
    chosen = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ["NKI_DIST_OBJECT_STORE_BYTES"] = str(STORE)
    os.environ.pop("RAY_ADDRESS", None)
    with tempfile.TemporaryDirectory(prefix="nki-", dir="/tmp") as folder:
        os.environ[place.FOLDER_VARIABLE] = folder
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/compiled"
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        seconds(RAY)
        for package in filter(None, (PACKAGE, chosen.against)):
            seconds(OURS, package, NKI_DIST_CLUSTER="off")
        control.start(2, 3600, STORE)
        try:
            found = measured(chosen.rounds, chosen.against)
        finally:
            control.stop(force=True)
    least = show("to the last line", {side: [t for t, _ in ts] for side, ts in found.items()})
    ends = show("from there to the end", {side: [t for _, t in ts] for side, ts in found.items()})
    print(f"\nown / ray   {least['own'] / least['ray']:.2f} (goal <= 1.10)")
    print(f"kept / ray  {least['kept'] / least['ray']:.2f} (goal <= 0.25)")
    print(f"kept / own  {least['kept'] / least['own']:.2f}")
    print(f"own's end   {ends['own']:.2f} s (goal <= 0.30 s)")


if __name__ == "__main__":
    main()
