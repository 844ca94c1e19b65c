"""Simulated time of an HBM stack, whose bandwidth is shared equally by its cores that move data.

A core that wants less than its share leaves the rest to the others. Equal cores stay in step: they
load at the same time, and none can use what another leaves while it computes, as would be the case
if who comes first were served first. What was promised stays: a transfer under way keeps its end
when another core begins to move data, and the transfers after it are late for it.

A choice of ours: no document says how the cores of a stack are served.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from nki_dist.arch import Arch


class Engines(Protocol):
    """The DMA engines of a core, as far as the stack is concerned."""

    def delay(self, since: float, by: float) -> None:
        """Whatever is asked for after `since`, and isn't under way, comes later by so many ns."""


class HbmBandwidth:
    """The bandwidth of one HBM stack."""

    def __init__(self, arch: Arch) -> None:
        self.rate = arch.hbm_stack_gbps * arch.hbm_efficiency
        self._core = arch.dma_engines * arch.dma_engine_gbps
        self._moving: dict[int, _Moving] = {}  # by identity of its engines

    def run(self, engines: Engines, size: int, begin: float, end: float) -> float:
        """When a transfer is over, which engines alone move from `begin` to `end`.

        Args:
            size: bytes.
        """
        if not size:
            return end
        me = self._moving.setdefault(id(engines), _Moving(engines))
        demand = min(size / (end - begin), self.rate)
        before = me.rate if me.until > begin else 0.0
        end = max(end, begin + size / self.rate)
        for other in self._moving.values():
            if other is me or other.until <= begin:
                continue
            mine, theirs = max(min(before + demand, self._core), demand), other.rate
            if mine + theirs <= self.rate:
                continue
            half = self.rate / 2
            share = max(half, self.rate - theirs) if mine > half else mine
            slower, theirs = demand * share / mine, self.rate - share
            both = min(size / slower, (other.until - begin) * other.rate / theirs)
            late = both * (1 - theirs / other.rate)
            other.engines.delay(begin, late)
            other.rate *= (other.until - begin) / (other.until - begin + late)
            other.until += late
            end = max(end, begin + both + (size - slower * both) / demand)
        left = before * max(0.0, me.until - begin)
        me.until = max(me.until, end)
        me.rate = min((left + size) / (me.until - begin), self.rate)
        return end


@dataclass
class _Moving:
    """What a core's engines have to move from and to a stack: until when, and how fast."""

    engines: Engines
    until: float = 0.0
    rate: float = 0.0
