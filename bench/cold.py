"""The first launch of a program, beside Ray alone, with and without a kept Ray.

    python -m bench.cold [--rounds N]

Every figure is of a fresh process, from its first line to its last, and the sides take turns:

    ray    imports NumPy and ray, ray.init, two actors that import NumPy, one call to each
    own    imports nki_dist, kernel[2](x) of a one-instruction kernel, in a Ray of its own
    kept   the same program, with `nki-dist cluster` running

Ratios are of the smallest of each side: what else a machine does only adds. Before a turn of
`kept`, the actors that the last one borrowed have been replaced; the keeper runs beside all sides.

All sides have compiled Python files, as programs have that aren't run for the first time: in a
folder of the measurement, because where PYTHONDONTWRITEBYTECODE is set, or the package's folder
can't be written, every process compiles all of it again (0.15 s for an actor, 0.3 s for a program).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from nki_dist.core_actor.kept import control, place

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
END: Final = "\nprint(time.perf_counter() - begun, flush=True)\n"
STORE: Final = 200 << 20


def seconds(program: str, **environment: str) -> float:
    """Of a program in a process of its own."""
    place_of_package = str(Path(__file__).resolve().parents[1])
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + program + END],
        env={**os.environ, "PYTHONPATH": place_of_package, **environment},
        check=True,
        capture_output=True,
        text=True,
    )
    if done.stderr:
        raise RuntimeError(done.stderr)  # a warning would mean that another thing was measured
    return float(done.stdout)


def rested(actors: int) -> None:
    """Return when all actors of the keeper wait."""
    while control.status()["waiting"] < actors:
        time.sleep(0.05)


def measured(rounds: int) -> dict[str, list[float]]:
    """Seconds of each side, in turn."""
    found: dict[str, list[float]] = {"ray": [], "own": [], "kept": []}
    for _ in range(rounds):
        found["ray"].append(seconds(RAY))
        found["own"].append(seconds(OURS, NKI_DIST_CLUSTER="off"))
        rested(2)
        found["kept"].append(seconds(OURS, NKI_DIST_CLUSTER="auto"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ["NKI_DIST_OBJECT_STORE_BYTES"] = str(STORE)
    os.environ.pop("RAY_ADDRESS", None)
    with tempfile.TemporaryDirectory(prefix="nki-", dir="/tmp") as folder:
        os.environ[place.FOLDER_VARIABLE] = folder
        os.environ["PYTHONPYCACHEPREFIX"] = f"{folder}/compiled"
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        seconds(RAY)
        seconds(OURS, NKI_DIST_CLUSTER="off")
        control.start(2, 3600, STORE)
        try:
            found = measured(rounds)
        finally:
            control.stop(force=True)
    for side, taken in found.items():
        print(f"{side:5} " + " ".join(f"{t:6.2f}" for t in taken) + f"   least {min(taken):.2f} s")
    least = {side: min(taken) for side, taken in found.items()}
    print(f"own / ray   {least['own'] / least['ray']:.2f} (goal <= 1.10)")
    print(f"kept / ray  {least['kept'] / least['ray']:.2f} (goal <= 0.25)")
    print(f"kept / own  {least['kept'] / least['own']:.2f}")


if __name__ == "__main__":
    main()
