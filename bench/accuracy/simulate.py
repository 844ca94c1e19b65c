"""Estimating rows, each in a process of its own with limits on time and memory.

Kernels import modules under names of their own, print, and may take more memory than there is, so
no row sees another's process. The parent has one thread and forks, which spares each child the
imports; children answer once, through a pipe, and are over when it closes.
"""

from __future__ import annotations

import os
import resource
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import PurePath
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import nki_dist as nki
import nki_dist.compat
from bench.accuracy import library, public, tutorials
from bench.accuracy.library import Launch
from bench.accuracy.rows import PUBLIC, Result, Row
from nki_dist.arch import PLATFORM_VARIABLE

BUILDERS: Final = MappingProxyType(
    {
        "att": library.attention,
        "mlpcte": library.mlp,
        "mlptkg": library.mlp,
        "rmsq": library.rmsnorm_quant,
        "rmstkg": library.rmsnorm_tkg,
        "mm1": tutorials.matmul,
        "mm2": tutorials.matmul_by_steps,
        "mamba": tutorials.mamba,
    }
)
_MESSAGE: Final = 300  # characters of an error that are kept


class Limits(NamedTuple):
    """Of one row: seconds, and GiB of address space."""

    seconds: float = 600.0
    memory: int = 10


def launch_of(row: Row) -> Launch:
    """The kernel of a row with its arguments, imported and made now."""
    if row.set == PUBLIC:
        return public.made(row.kernel, row.inputs)
    return BUILDERS[row.family](row.lnc, **row.config)


def profile_of(row: Row, make: Callable[..., nki.World] = nki.World) -> Any:
    """The profile of a row's launch, without arithmetic, in a world that `make` makes."""
    os.environ[PLATFORM_VARIABLE] = row.platform  # kernels ask for it
    nki_dist.compat.install()
    launch = launch_of(row)
    options: dict[str, Any] = {"platform": row.platform, "host": "inprocess"}
    if launch.check is not None:
        options["check"] = launch.check
    with make(ranks=1, lnc=row.lnc, **options) as world:
        return world.dry_run(launch.kernel, *launch.args, profile=True, **launch.kwargs).profile


def result_of(row: Row) -> Result:
    """What the model says of a row, in this process."""
    started = time.perf_counter()
    profile = profile_of(row)
    lines = max(profile.lines, key=lambda line: line.critical_us)
    where = f"{lines.opcode} ({lines.engine}) at {PurePath(lines.location).name}"
    return Result(
        row.id,
        round(profile.device_us, 3),
        round(profile.overhead_us, 3),
        round(profile.assumed_us, 3),
        {kind: round(us, 3) for kind, us in profile.critical.items()},
        profile.beta1,
        profile.instructions,
        where,
        round(time.perf_counter() - started, 1),
    )


def each(
    ask: Callable[[Row], Any], rows: Sequence[Row], jobs: int, limits: Limits
) -> Iterator[tuple[Row, Any, str]]:
    """Ask about rows, `jobs` at a time; each answer as it comes, or None and what went wrong."""
    todo, fork = list(rows)[::-1], get_context("fork")
    running: dict[Connection, tuple[Row, Any, float]] = {}
    while todo or running:
        while todo and len(running) < jobs:
            row = todo.pop()
            here, there = fork.Pipe(duplex=False)
            process = fork.Process(target=_child, args=(ask, row, limits, there), daemon=True)
            process.start()
            there.close()
            running[here] = (row, process, time.monotonic() + limits.seconds)
        nearest = min(deadline for _, _, deadline in running.values())
        ready = wait(list(running), max(nearest - time.monotonic(), 0.0))
        late = [pipe for pipe, (_, _, end) in running.items() if end <= time.monotonic()]
        for pipe in {*ready, *late}:
            row, process, _ = running.pop(pipe)
            answer, error = _answer(pipe, process, limits) if pipe in ready else (None, "")
            process.kill()
            process.join()
            pipe.close()
            yield row, answer, error or ("" if pipe in ready else f"over {limits.seconds:g} s")


def _answer(pipe: Connection, process: Any, limits: Limits) -> tuple[Any, str]:
    try:
        return pipe.recv()
    except EOFError:
        process.join()
        return None, f"its process ended with {process.exitcode} (limit: {limits.memory} GiB)"


def _child(ask: Callable[[Row], Any], row: Row, limits: Limits, pipe: Connection) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (limits.memory << 30, limits.memory << 30))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # kernels print
    warnings.simplefilter("ignore")  # about what AWS's compiler may refuse; it didn't
    try:
        answer = ask(row), ""
    except BaseException as error:  # whatever a foreign kernel ends with is this row's answer
        answer = None, f"{type(error).__name__}: {' '.join(str(error).split())}"[:_MESSAGE].strip()
    pipe.send(answer)
    pipe.close()


def estimate(rows: Sequence[Row], jobs: int, limits: Limits) -> Iterator[tuple[Row, Result]]:
    """Results of rows, as they come."""
    for row, answer, error in each(result_of, rows, jobs, limits):
        yield row, answer if answer is not None else Result(row.id, error=error)
