"""Launches of compiled kernels that came from a file: arrays meet signatures, not parameters.

Invariant: what a world runs of a file has that world's platform and cores, and every array has the
shape and dtype that the programs were compiled for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nki_dist import frameworks
from nki_dist.compiler.compiled import Compiled
from nki_dist.compiler.locations import users_line
from nki_dist.errors import LaunchError
from nki_dist.isa.described import described
from nki_dist.launcher.binding import (
    Args,
    BoundArguments,
    Kwargs,
    PerRank,
    is_array,
    of_rank,
    take_array,
)
from nki_dist.launcher.in_hbm import InHbm
from nki_dist.program import TensorSignature
from nki_dist.topology.topology import Topology

_MOST_WORK: Final = 100_000
"""Candidates that NumPy tries to tell whether two strided arrays overlap; slices need a few."""


def bind_loaded(
    compiled: Compiled, args: Args, kwargs: Kwargs, world: Topology
) -> list[BoundArguments]:
    """Every rank's arrays, in the order of `compiled.inputs`.

    Raises:
        LaunchError: it was compiled for another platform or number of cores, there are more or
            fewer arrays, one has another shape or dtype or is masked, or one that the kernel
            writes shares memory with another.
        NkiValidationError: an array has a dtype that NKI doesn't know.
    """
    platform, cores = compiled.programs[0].platform, len(compiled.programs)
    if (platform, cores) != (world.arch.name, world.lnc):
        raise _refused(
            f"kernel {compiled.kernel} was compiled for {cores} cores of {platform}, the world has "
            f"ranks of {world.lnc} of {world.arch.name}: make it "
            f"nki.World(platform={platform!r}, lnc={cores})",
            got=world.lnc,
            allowed=cores,
        )
    if kwargs:
        raise _refused(
            f"{', '.join(kwargs)}: a compiled kernel takes its tensors by position, in the order "
            "of its inputs; its other arguments are part of it",
        )
    if not any(isinstance(a, PerRank) for a in args):
        return [_bound(compiled, args)] * world.ranks
    ranks = world.ranks
    return [_bound(compiled, [of_rank(a, rank, ranks) for a in args]) for rank in range(ranks)]


def _bound(compiled: Compiled, arrays: Sequence[Any]) -> BoundArguments:
    expected = compiled.inputs
    if len(arrays) != len(expected):
        raise _refused(
            f"{len(arrays)} arrays for kernel {compiled.kernel}, which takes {len(expected)}: "
            + (", ".join(map(_shown, expected)) or "none"),
            got=len(arrays),
            allowed=len(expected),
        )
    taken = [_taken(compiled.kernel, a, s) for a, s in zip(arrays, expected)]
    for written in compiled.written_inputs:
        _refuse_shared(compiled, written, arrays, taken)
    foreign = len(arrays) > 0 and not isinstance(arrays[0], np.ndarray)
    framework = frameworks.describe(arrays[0]) if foreign else None
    stays = any(isinstance(a, InHbm) for a in arrays)
    return BoundArguments((), {}, expected, list(arrays), taken, framework, stays)


def _taken(kernel: str, value: Any, expected: TensorSignature) -> np.ndarray:
    if not is_array(value):
        raise _refused(
            f"{described(value)} for {_shown(expected)}; a compiled kernel takes arrays only",
        )
    array, shape, dtype = take_array(kernel, expected.name, value)
    if (shape, dtype) != (expected.shape, expected.dtype):
        raise _refused(
            f"an array of shape {shape} and dtype {dtype} for {_shown(expected)}; a compiled "
            "kernel takes the shapes and types it was compiled for",
            got=shape,
            allowed=expected.shape,
        )
    return array


def _refuse_shared(
    compiled: Compiled, written: int, arrays: Sequence[Any], taken: Sequence[np.ndarray]
) -> None:
    """Refuse memory of a written input that is another input's, too.

    A kernel that is launched directly is compiled for it: one array passed twice is one tensor. The
    programs of a file have two tensors, so a store to one wouldn't be seen in the other.
    """
    for other in range(len(arrays)):
        if other == written:
            continue
        if arrays[other] is arrays[written] or _overlap(taken[other], taken[written]):
            first, second = (compiled.inputs[n].name for n in sorted((other, written)))
            raise _refused(
                f"inputs {first} and {second} of kernel {compiled.kernel} got the same memory, and "
                f"the kernel writes {compiled.inputs[written].name}; it was compiled for tensors "
                "that are apart. Pass a copy as one of them, or compile the kernel with one array "
                "as both arguments",
            )


def _overlap(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether they have bytes in common; True where that would take long to find out."""
    if not np.may_share_memory(a, b):
        return False
    try:
        return np.shares_memory(a, b, max_work=_MOST_WORK)  # type: ignore[arg-type]  # NumPy's stub
    except RuntimeError:  # NumPy's TooHardError, which has moved between its versions
        return True


def _shown(s: TensorSignature) -> str:
    return f"{s.name} {s.shape} {s.dtype}"


def _refused(message: str, **numbers: Any) -> LaunchError:
    return LaunchError(message, location=users_line(), code="loaded-kernel", numbers=numbers)
