"""Launches of compiled kernels that came from a file: arrays meet signatures, not parameters.

Invariant: what a world runs of a file has that world's platform and cores, and every array has the
shape and dtype that the programs were compiled for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nki_dist import dtypes, frameworks
from nki_dist.compiler.compiled import Compiled
from nki_dist.errors import LaunchError, NkiError
from nki_dist.launcher.binding import Args, BoundArguments, Kwargs, PerRank
from nki_dist.program import TensorSignature
from nki_dist.topology.topology import Topology


def bind_loaded(
    compiled: Compiled, args: Args, kwargs: Kwargs, world: Topology
) -> list[BoundArguments]:
    """Every rank's arrays, in the order of `compiled.inputs`.

    Raises:
        LaunchError: it was compiled for another platform or number of cores, there are more or
            fewer arrays, or one has another shape or dtype.
    """
    platform, cores = compiled.programs[0].platform, len(compiled.programs)
    if (platform, cores) != (world.arch.name, world.lnc):
        raise LaunchError(
            f"kernel {compiled.kernel} was compiled for {cores} cores of {platform}, the world has "
            f"ranks of {world.lnc} of {world.arch.name}: make it "
            f"nki.World(platform={platform!r}, lnc={cores})",
            code="loaded-kernel",
        )
    if kwargs:
        raise LaunchError(
            f"{', '.join(kwargs)}: a compiled kernel takes its tensors by position, in the order "
            "of its inputs; its other arguments are part of it",
            code="loaded-kernel",
        )
    if not any(isinstance(a, PerRank) for a in args):
        return [_bound(compiled, args)] * world.ranks
    return [
        _bound(compiled, [a.of(rank, world.ranks) if isinstance(a, PerRank) else a for a in args])
        for rank in range(world.ranks)
    ]


def _bound(compiled: Compiled, arrays: Sequence[Any]) -> BoundArguments:
    wanted = compiled.inputs
    if len(arrays) != len(wanted):
        raise LaunchError(
            f"{len(arrays)} arrays for kernel {compiled.kernel}, which takes {len(wanted)}: "
            + (", ".join(map(_shown, wanted)) or "none"),
            code="loaded-kernel",
            numbers={"got": len(arrays), "allowed": len(wanted)},
        )
    taken = [_taken(a, s) for a, s in zip(arrays, wanted)]
    foreign = len(arrays) > 0 and not isinstance(arrays[0], np.ndarray)
    framework = frameworks.describe(arrays[0]) if foreign else None
    return BoundArguments((), {}, wanted, list(arrays), taken, framework)


def _taken(value: Any, wanted: TensorSignature) -> np.ndarray:
    if not isinstance(value, np.ndarray) and frameworks.describe(value) is None:
        raise LaunchError(
            f"{value!r} for {_shown(wanted)}; a compiled kernel takes arrays only",
            code="loaded-kernel",
        )
    array = value if isinstance(value, np.ndarray) else frameworks.to_numpy(value)
    shape = array.shape if array.ndim else (1,)
    try:
        dtype = dtypes.of(array.dtype)
    except NkiError as error:
        error.message = f"argument {wanted.name}: {error.message}"
        raise
    if (shape, dtype) != (wanted.shape, wanted.dtype):
        raise LaunchError(
            f"an array of shape {shape} and dtype {dtype} for {_shown(wanted)}; a compiled kernel "
            "takes the shapes and types it was compiled for",
            code="loaded-kernel",
        )
    return array


def _shown(s: TensorSignature) -> str:
    return f"{s.name} {s.shape} {s.dtype}"
