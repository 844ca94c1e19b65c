"""How far a simulated time can be from what a device shows: a band around it.

The figures come from kernels whose time on a device is published (`bench/data`, docs/accuracy.md):
`python -m bench.accuracy --fit` works them out anew, and a test compares. What a device spends
before and after a kernel is known less well than the kernel, so short kernels have wider bands: a
kernel's width is the mean of both, weighted with their shares of the device's time. A width for
each engine made bands wider, and held fewer kernels of families that it wasn't fitted to. Time that
rests on figures or costs that nobody publishes counts more, and so do kernels of Beta 1: AWS's
compiler orders their instructions and places their tensors as it sees fit, while those of later
releases say more of it themselves.
Widths are natural logarithms of a factor, so that a band is as wide upwards as downwards in ratio,
and never reaches zero.

Doesn't model correlation: two variants of one kernel share most of their error, so their order is
known better than their times are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp
from types import MappingProxyType
from typing import Final, NamedTuple

from nki_dist.timing.critical import DMA_BUSY, MESSAGES

COLLECTIVES: Final = "collectives"

# What a piece of the critical path says about what bounded the launch; other pieces are waits.
BOUND_BY: Final = MappingProxyType(
    {
        "tensor": "tensor",
        "vector": "elementwise",
        "scalar": "elementwise",
        "gpsimd": "elementwise",
        "dma data": "transfers",
        DMA_BUSY: "transfers",
        MESSAGES: "exchanges",
        "cc": COLLECTIVES,
    }
)
WAITS: Final = "waits"
AROUND: Final = "around"  # the start and the end of a kernel on the device
KERNEL: Final = "kernel"  # all bounds that have no width of their own

# Made by `python -m bench.accuracy --fit`.
WIDTHS: Final = MappingProxyType(
    {
        "kernel": 0.12,
        "around": 0.336,
        "collectives": 0.35,
    }
)
# What is added where all of the time rests on figures or costs that nobody publishes.
ASSUMED: Final = 0.17
# What is added for a kernel of Beta 1.
FREEDOM: Final = 0.09
# How many kernels were measured, and how many percent of them were inside, with widths that were
# fitted without a kernel's family: of all, of the family with fewest inside, and of that with most.
COVERED: Final = (247, 87, 50, 100)
HELD: Final = "held {1}% of {0} measured kernels; {2}-{3}% by family".format(*COVERED)
MEASURED: Final = (2, 3)  # generations of the kernels whose times are published


class Shares(NamedTuple):
    """What a launch's time on the device was spent on.

    Attributes:
        bounds: by bound, the share of the device's time; they sum to 1.
        assumed: the share that rests on figures or costs that nobody publishes.
        free: 1 for a kernel that AWS's compiler orders and places as it sees fit, else 0.
    """

    bounds: Mapping[str, float]
    assumed: float
    free: float = 0.0


def shares(
    critical: Mapping[str, float], overhead_us: float, assumed_us: float, beta1: bool
) -> Shares:
    """Shares of a launch.

    Args:
        critical: microseconds of its critical path, by what they were spent on.
        overhead_us: what the device spends before and after.
        assumed_us: what of it rests on figures or costs that nobody publishes.
        beta1: it's a kernel of Beta 1.
    """
    spent = {AROUND: overhead_us}
    for kind, us in critical.items():
        bound = BOUND_BY.get(kind, WAITS)
        spent[bound] = spent.get(bound, 0.0) + us
    total = sum(spent.values())
    if not total:
        return Shares({WAITS: 1.0}, 1.0, float(beta1))
    bounds = {bound: us / total for bound, us in spent.items() if us}
    return Shares(bounds, min(assumed_us / total, 1.0), float(beta1))


def width(
    of: Shares,
    widths: Mapping[str, float] = WIDTHS,
    assumed: float = ASSUMED,
    freedom: float = FREEDOM,
) -> float:
    """The logarithm of the factor between a time and either end of its band."""
    bounded = sum(s * widths.get(bound, widths[KERNEL]) for bound, s in of.bounds.items())
    return bounded + of.assumed * assumed + of.free * freedom


def band(device_us: float, of: Shares) -> tuple[float, float]:
    """The lower and the upper end of the band around a time on the device."""
    factor = exp(width(of))
    return device_us / factor, device_us * factor


# ---- variants of one kernel ---------------------------------------------------------------------

APART: Final = 1.06  # ratio of simulated times; `python -m bench.rank --apart` works it out


def groups(times: Sequence[float]) -> list[int]:
    """Which of a kernel's variants can't be told apart, by numbers from 1 on.

    A group has those that are less than `APART` times as slow as its first. The next group's first
    was slower than this group's in nine of ten pairs that were measured.

    Args:
        times: simulated ones, the shortest first.
    """
    found: list[int] = []
    first = 0.0
    for time in times:
        if not found or time >= APART * first:
            first = time
            found.append(found[-1] + 1 if found else 1)
        else:
            found.append(found[-1])
    return found
