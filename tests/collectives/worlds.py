"""Running kernels on all ranks of a world, and the references the results are compared with."""

from __future__ import annotations

from typing import Any

import numpy as np

import nki_dist as nki


def run(
    kernel: Any,
    ranks: int,
    *args: Any,
    lnc: int = 1,
    host: str = "inprocess",
    platform: str = "trn2",
    check: str = "default",
    cores_per_actor: Any = "auto",
    **kwargs: Any,
) -> list[Any]:
    """What the kernel returns on each rank; lists among the arguments differ between ranks."""
    args = tuple(nki.per_rank(a) if isinstance(a, PerRank) else a for a in args)
    with nki.World(
        ranks=ranks,
        lnc=lnc,
        host=host,
        platform=platform,
        check=check,
        cores_per_actor=cores_per_actor,
    ) as world:
        return world.run(kernel, *args, **kwargs)


class PerRank(list):
    """One array for each rank."""


def whole_numbers(seed: int, ranks: int, shape: tuple[int, ...], dtype: Any) -> PerRank:
    """Different data on every rank, small whole numbers, so that sums are exact in any order."""
    rng = np.random.default_rng(seed)
    low = 0 if np.dtype(dtype).kind == "u" else -9
    return PerRank(rng.integers(low, 10, shape).astype(dtype) for _ in range(ranks))


def normal(seed: int, ranks: int, shape: tuple[int, ...], dtype: Any) -> PerRank:
    rng = np.random.default_rng(seed)
    return PerRank(
        rng.standard_normal(shape).astype(np.float32).astype(dtype) for _ in range(ranks)
    )


def mates(groups: list[list[int]], rank: int) -> tuple[list[int], int]:
    """(the group a rank is in, its place there)."""
    group = next(g for g in groups if rank in g)
    return group, group.index(rank)


def same_on_cores(out: np.ndarray, want: np.ndarray) -> None:
    """Every core of a rank has the wanted result, bit for bit in its dtype."""
    for core in np.asarray(out):
        np.testing.assert_array_equal(
            np.asarray(core).astype(np.float64), np.asarray(want).astype(np.float64)
        )
