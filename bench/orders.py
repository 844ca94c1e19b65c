"""`python -m bench.orders [--ladder DIR] [--programs N] [--orders N]`: programs in random orders.

Which instruction needs which follows from declarations and places, and lanes rely on it. Here
programs run in orders that keep their needs and little else (`tests/linking/orders.py`). Outputs,
prints and errors are compared with those of their own order: of random programs, and with
`--ladder` of the cases of a ladder of kernels (a folder with `ladder.py` and `harness.py`).

Exit status 1 if anything differed, or a process ended without an answer.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import re
import resource
import sys
import time
import warnings
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

from tests.linking.orders import Tried, in_orders
from tests.linking.random_programs import data, random_kernel

MEMORY = 10 << 30  # bytes of address space of a process
CHUNK = 50  # random programs of a process


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.orders", description=__doc__)
    parser.add_argument("--ladder", type=Path, metavar="DIR", help="also the cases of a ladder")
    parser.add_argument("--case", default="", metavar="REGEX", help="of the ladder's cases")
    parser.add_argument("--programs", type=int, default=500, help="random ones")
    parser.add_argument("--first", type=int, default=0, help="number of the first")
    parser.add_argument("--orders", type=int, default=20)
    parser.add_argument("--timeout", type=float, default=900, help="of a process, in seconds")
    a = parser.parse_args()
    total = Tried()
    lost: list[str] = []
    end = a.first + a.programs
    for first in range(a.first, end, CHUNK):
        seeds = range(first, min(first + CHUNK, end))
        name = f"random programs {seeds.start} to {seeds.stop - 1}"
        _one(name, _random, (seeds, a.orders), {}, a.timeout, total, lost)
    if a.ladder:
        import nki_dist  # noqa: F401 - once, not in each process

        for index, case in enumerate(_cases(a.ladder)):
            name = f"{case.rung} {case.name}"
            if re.search(a.case, name):
                environment = {"NEURON_PLATFORM_TARGET_OVERRIDE": case.platform, **case.env}
                work = (a.ladder, index, a.orders)
                _one(name, _rung, work, environment, a.timeout, total, lost)
    print(
        f"{total.launches} launches in {total.orders} other orders: {len(total.differences)} "
        f"differ; {total.free} of {total.steps} instructions don't need the one before them; "
        f"{total.large} too large, {len(lost)} without an answer {lost or ''}"
    )
    return 1 if total.differences or lost else 0


def _one(
    name: str,
    work: Any,
    arguments: tuple[Any, ...],
    environment: dict[str, str],
    timeout: float,
    total: Tried,
    lost: list[str],
) -> None:
    """One process, and its line."""
    context, before = multiprocessing.get_context("fork"), dict(os.environ)
    ours, theirs = context.Pipe()
    started = time.perf_counter()
    os.environ.update(environment)
    process = context.Process(target=_process, args=(theirs, work, arguments))
    process.start()
    os.environ.clear()
    os.environ.update(before)
    theirs.close()
    found = None
    with contextlib.suppress(EOFError):
        found = ours.recv() if ours.poll(timeout) else None
    process.kill() if found is None else process.join()
    if not isinstance(found, tuple):
        lost.append(name)
        print(f"{name}: {found or 'no answer'}", flush=True)
        return
    for field, value in zip(fields(Tried), found, strict=True):
        setattr(total, field.name, getattr(total, field.name) + value)
    tried, seconds = Tried(*found), time.perf_counter() - started
    verdict = "; ".join(tried.differences) or ("too large" if tried.large else "same bits")
    print(f"{name}: {verdict} ({tried.launches} launches, {seconds:.1f} s)", flush=True)


def _process(connection: Any, work: Any, arguments: tuple[Any, ...]) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # kernels print
    warnings.simplefilter("ignore")
    try:
        connection.send(astuple(work(*arguments)))
    except Exception as error:
        connection.send(f"{type(error).__name__}: {str(error).splitlines()[0]}")


def _random(seeds: range, orders: int) -> Tried:
    import nki_dist as nki
    from nki_dist.errors import NkiError

    with in_orders(orders) as tried:
        for seed in seeds:
            with contextlib.suppress(NkiError):
                nki.simulate(nki.jit(random_kernel(seed)))(*data())
    return tried


def _cases(ladder: Path) -> list[Any]:
    sys.path.insert(0, str(ladder))
    import ladder as cases

    found: list[Any] = cases.all_cases()
    return found


def _rung(ladder: Path, index: int, orders: int) -> Tried:
    case = _cases(ladder)[index]
    import harness
    import ladder as cases

    harness.install_compat()
    with in_orders(orders) as tried:
        result = cases.run(case, "inprocess", 1)
    if not result["ok"]:
        raise RuntimeError(result["reason"])
    return tried


if __name__ == "__main__":
    sys.exit(main())
