"""Where the actors of a world come from: borrowed from a kept Ray, or started.

A kept Ray has few; it is asked once for each session, and what it doesn't have, or has lost, is
started as in any other Ray.
"""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from nki_dist.core_actor.actor import NeuronCore
from nki_dist.core_actor.kept.borrowed import Loan
from nki_dist.hbm.nodes import here
from nki_dist.isa.core import CoreSlot


class Actors:
    """Of one world.

    Attributes:
        world: what it is called in titles of processes, logs, metrics and timelines.
    """

    def __init__(self) -> None:
        self.world = uuid.uuid4().hex[:6]
        self._loan: Loan | None = None

    def borrow(self, count: int) -> None:
        """Borrow so many, or as many as there are, unless this was tried before."""
        if self._loan is None:
            self._loan = Loan(count)

    def make(self, cores: Sequence[CoreSlot], node: str, options: Mapping[str, Any]) -> Any:
        """An actor that simulates these cores on that node; it needn't be up yet."""
        borrowed = self._loan.take() if self._loan is not None and node == here() else None
        if borrowed is not None:
            # Calls of a group are carried out in their order.
            borrowed.become.remote(cores, self.world)
            return borrowed
        # It has no name in Ray, which would make time series of its metrics for each.
        return NeuronCore.options(**options).remote(pickle.dumps(cores), self.world)  # type: ignore[attr-defined]

    def close(self) -> None:
        """The world's session is over, or the world is."""
        if self._loan is not None:
            self._loan.close()
            self._loan = None
