"""Declarations of `nki.collectives`: operands, constraints and costs.

How ranks carry them out is in `nki_dist.collectives`, above the compiler.
"""

# ruff: noqa: F401 -- what is imported is in COLLECTIVES

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from nki_dist.isa.collectives.groups import all_gather, all_reduce, all_to_all, reduce_scatter
from nki_dist.isa.collectives.permutes import (
    collective_permute,
    collective_permute_implicit,
    collective_permute_implicit_reduce,
)
from nki_dist.isa.collectives.rank_registers import read_rank_id, read_ring_rank_id
from nki_dist.isa.collectives.variable import all_gather_v, all_to_all_v
from nki_dist.isa.spec import Spec

COLLECTIVES: Mapping[str, Spec] = MappingProxyType(
    {value.name: value for value in list(globals().values()) if isinstance(value, Spec)}
)

__all__ = ["COLLECTIVES"]
