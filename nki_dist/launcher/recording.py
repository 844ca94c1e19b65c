"""Launches that can be asked afterwards what happened inside them.

What answers is imported by the first record: every program imports this file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from nki_dist.compiler.compiled import Compiled, Grid
from nki_dist.launcher.binding import Args, Kwargs
from nki_dist.launcher.profiles import executed
from nki_dist.launcher.results import inputs_as_run
from nki_dist.launcher.session import session
from nki_dist.launcher.tracebacks import leaves_package
from nki_dist.runtime.hosts import LaunchResult

if TYPE_CHECKING:
    from nki_dist.insight.drift import Drift
    from nki_dist.insight.record import Record


def copied(inputs: Sequence[Sequence[Any]]) -> list[list[np.ndarray]]:
    """Copies of all ranks' arrays; what ranks share stays shared."""
    copies: dict[int, np.ndarray] = {}
    for array in (a for arrays in inputs for a in arrays):
        if id(array) not in copies:
            copies[id(array)] = np.array(array, order="C")
    return [[copies[id(a)] for a in arrays] for arrays in inputs]


def recorded(
    world: Any, outputs: Any, compiled: Compiled, inputs: Sequence[Any], result: LaunchResult
) -> Record:
    """The record of a launch on a world.

    Args:
        inputs: every rank's arrays, as the kernel found them.
    """
    from nki_dist.insight.record import Record
    from nki_dist.insight.replay import Launched

    programs = result.programs  # of every core, if ranks ran different ones
    if programs is None:
        each = [compiled.as_run] * world.ranks
    else:
        of = [programs[n : n + world.lnc] for n in range(0, len(programs), world.lnc)]
        each = [Compiled([*some], compiled.inputs).as_run for some in of]
    ran = executed(world, "", compiled.as_run, result.reports, programs)
    replayable = Launched(each, inputs, world.slots, world.timeout)
    return Record(outputs, replayable, result.reports, ran.profile)


def record_of(world: Any, kernel: Any, grid: Grid | None, args: Args, kwargs: Kwargs) -> Record:
    """The record of a launch; its outputs are a list, one of each rank.

    It is made in a world of its own, in this process, which is closed at once: what it linked would
    lie beside what questions link.

    Args:
        grid: None for what the kernel and the world say.

    Raises:
        NkiError: as the launch.
    """
    if (checker := session().checker) is not None:
        checker.launch(world, kernel, grid, args, kwargs)  # notes what is wrong with it
    world._refuse_closed()
    args, kwargs = world._arrays_for(args, kwargs)
    here = type(world)(
        ranks=world.ranks,
        lnc=world.lnc,
        platform=world.arch.instance,
        host="inprocess",
        timeout=world.timeout,
        check=world.checks,
        release=world.checks.release,
        memory=world._memory,
    )
    with here:
        bound, key, compiled = here._compiled(kernel, grid, args, kwargs)
        inputs = copied(inputs_as_run(compiled.as_run, bound))  # the kernel may write to them
        outputs, result, _ = here.launch_compiled(bound, key, compiled)
        return recorded(here, outputs, compiled, inputs, result)


def drift_of(world: Any, kernel: Any, grid: Grid | None, args: Args, kwargs: Kwargs) -> Drift:
    """A launch beside itself in float64; its outputs are a list, one of each rank.

    Args:
        grid: None for what the kernel and the world say.

    Raises:
        NkiError: as the launch.
    """
    from nki_dist.insight.drift import Drift, Shadows

    record = record_of(world, kernel, grid, args, kwargs)
    lines = Shadows(record.launched).lines()
    return Drift(record.outputs, record.launched.compiled.kernel, lines)


def of_one_rank(make: Callable[..., Record | Drift]) -> Callable[..., Any]:
    """Of `kernel[grid](...)`, on a world of one rank, what `make` gives of launches on worlds."""

    def recorded(*launch: Any) -> Record | Drift:
        found = make(*launch)
        (found.outputs,) = found.outputs
        return found

    return recorded


record_one, drift_one = of_one_rank(record_of), of_one_rank(drift_of)


class Recording:
    """What worlds offer besides running kernels: records of launches."""

    @leaves_package
    def record(self, kernel: Any, *args: Any, **kwargs: Any) -> Record:
        """Run a kernel on every rank, in this process, so that it can be asked what happened.

        Args:
            kernel, args, kwargs: as of `World.run`.

        Returns:
            A Record; its `outputs` are a list with what the kernel returns for each rank.

        Raises:
            NkiError: as `World.run`.
        """
        return record_of(self, kernel, None, args, kwargs)

    @leaves_package
    def drift(self, kernel: Any, *args: Any, **kwargs: Any) -> Drift:
        """Run a kernel on every rank, in this process, beside itself in float64.

        Args:
            kernel, args, kwargs: as of `World.run`.

        Returns:
            A Drift: the error that each kernel line added, the worst first.

        Raises:
            NkiError: as `World.run`.
        """
        return drift_of(self, kernel, None, args, kwargs)
