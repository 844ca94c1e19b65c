"""The rules that look for what costs time, in the order in which they are tried."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from nki_dist.timing.advice.cores import unbalanced
from nki_dist.timing.advice.engines import crowded_engine, wide_products
from nki_dist.timing.advice.loads import run_time_descriptors, small_transfers
from nki_dist.timing.advice.partitions import idle_partitions
from nki_dist.timing.advice.repeated import repeated_loads
from nki_dist.timing.advice.suspect import Spent, Suspect
from nki_dist.timing.timeline import Timeline

Rule: TypeAlias = "Callable[[Timeline, Spent], Suspect | None]"
RULES: Final[tuple[Rule, ...]] = (
    small_transfers,
    repeated_loads,
    run_time_descriptors,
    crowded_engine,
    wide_products,
    idle_partitions,
    unbalanced,
)
