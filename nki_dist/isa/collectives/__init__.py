"""Declarations of `nki.collectives`: operands, constraints and costs; one file each.

How ranks carry them out is in `nki_dist.collectives`, above the compiler.
"""

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
    {
        spec.name: spec
        for spec in (
            all_gather,
            all_gather_v,
            all_reduce,
            all_to_all,
            all_to_all_v,
            collective_permute,
            collective_permute_implicit,
            collective_permute_implicit_reduce,
            read_rank_id,
            read_ring_rank_id,
            reduce_scatter,
        )
    }
)

__all__ = ["COLLECTIVES"]
