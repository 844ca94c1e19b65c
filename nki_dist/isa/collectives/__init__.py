"""Declarations of `nki.collectives`: operands, constraints and costs; one file each.

How ranks carry them out is in `nki_dist.collectives`, above the compiler.
"""

# ruff: noqa: F401 -- what is imported is in COLLECTIVES

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from nki_dist.isa.collectives.all_gather import all_gather
from nki_dist.isa.collectives.all_gather_v import all_gather_v
from nki_dist.isa.collectives.all_reduce import all_reduce
from nki_dist.isa.collectives.all_to_all import all_to_all
from nki_dist.isa.collectives.all_to_all_v import all_to_all_v
from nki_dist.isa.collectives.collective_permute import collective_permute
from nki_dist.isa.collectives.collective_permute_implicit import collective_permute_implicit
from nki_dist.isa.collectives.collective_permute_implicit_reduce import (
    collective_permute_implicit_reduce,
)
from nki_dist.isa.collectives.rank_registers import read_rank_id, read_ring_rank_id
from nki_dist.isa.collectives.reduce_scatter import reduce_scatter
from nki_dist.isa.spec import Spec

COLLECTIVES: Mapping[str, Spec] = MappingProxyType(
    {value.name: value for value in list(globals().values()) if isinstance(value, Spec)}
)

__all__ = ["COLLECTIVES"]
