"""Launch grids: `kernel[2]`, and the Beta 1 forms `nl.nc(2)`, `nl.spmd_dim(nl.nc(2), 4)`, tuples.

Axes marked `nl.nc` are physical cores; the rest are program instances that the cores run one after
the other.
"""

from __future__ import annotations

import os
from math import prod
from typing import Any

from nki_dist.arch import Arch
from nki_dist.compiler.compiled import Grid
from nki_dist.compiler.locations import users_line
from nki_dist.errors import LaunchError
from nki_dist.language.grid import Nc, SpmdDim
from nki_dist.launcher.session import session
from nki_dist.release import Release
from nki_dist.runtime.settings import LNC_VARIABLE


def make_grid(spec: Any, arch: Arch, default_cores: int) -> Grid:
    """The grid that `kernel[spec]` asks for; `None` is a launch without one.

    Raises:
        LaunchError: not a grid, or more cores than the platform's LNC limit.
    """
    if spec is None:
        if default_cores == 1:
            return Grid((), 1, ())
        spec = default_cores
    parts = spec if isinstance(spec, (tuple, list)) else (spec,)
    if len(parts) == 1 and isinstance(parts[0], int) and not isinstance(parts[0], bool):
        _positive(parts[0])
        return _limited(Grid((parts[0],), parts[0], (0,)), arch)
    shape: list[int] = []
    core_axes: list[int] = []
    cores = 1
    for axis, part in enumerate(parts):
        programs, instances = _axis(part)
        shape.append(programs * instances)
        if programs > 1:
            core_axes.append(axis)
            cores *= programs
    return _limited(Grid(tuple(shape), cores, tuple(core_axes)), arch)


def grid_of_world(spec: Any, arch: Arch, lnc: int) -> Grid:
    """The grid of a launch in a world of `lnc` cores per rank.

    Raises:
        LaunchError: as of `make_grid`, or it has another number of cores.
    """
    grid = make_grid(spec, arch, lnc)
    if grid.cores != lnc:
        raise LaunchError(
            f"a launch grid of {grid.cores} cores in a world of lnc={lnc}; run the kernel "
            "without a grid, or make the world with as many cores per rank",
            code="grid-and-world",
            numbers={"got": grid.cores, "allowed": lnc},
        )
    return grid


def check_launch_grid(grid: Grid, lnc: int, release: Release) -> None:
    """Judge that a kernel of today was launched with a grid.

    Args:
        lnc: what NEURON_LOGICAL_NC_CONFIG says; only asked where that is set.

    Raises:
        LaunchError: from NKI 0.7 on, the grid is of another number of cores than that.
    """
    warning = release.check("the launch grid")
    if warning is None:
        return
    if grid.cores != lnc and os.environ.get(LNC_VARIABLE):
        raise LaunchError(
            f"a launch grid of {grid.cores} cores, and {LNC_VARIABLE}={lnc}; in NKI 0.7 they must "
            "be equal",
            location=users_line(),
            code="lnc-mismatch",
            numbers={"got": grid.cores, "allowed": lnc},
        )
    session().warn(warning.at(location=users_line()))


def _axis(part: Any) -> tuple[int, int]:
    """(cores, instances per core) of one axis."""
    if isinstance(part, Nc):
        return part.n, 1
    if isinstance(part, SpmdDim):
        cores = prod(p.n for p in part.parts if isinstance(p, Nc))
        return cores, prod(_positive(p) for p in part.parts if not isinstance(p, Nc))
    return 1, _positive(part)


def _positive(n: Any) -> int:
    if isinstance(n, bool) or not hasattr(n, "__index__") or n.__index__() < 1:
        raise LaunchError(
            f"a launch grid is made of positive ints (or nl.nc and nl.spmd_dim), got {n!r}",
            code="grid-form",
            numbers={"got": n},
        )
    return int(n)


def _limited(grid: Grid, arch: Arch) -> Grid:
    if grid.cores > arch.max_lnc:
        raise LaunchError(
            f"a grid of {grid.cores} cores; a logical NeuronCore of {arch.name} has at most "
            f"{arch.max_lnc} (the LNC limit)",
            code="lnc-range",
            hint="for more cores use nki.World(ranks=..., lnc=...)",
            numbers={"got": grid.cores, "most": arch.max_lnc},
        )
    return grid
