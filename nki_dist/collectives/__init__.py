"""Operations between ranks, such as all-reduce: which messages ranks exchange, in what time.

Declarations are in `nki_dist.isa.collectives`; this package carries them out: `execute` (who meets
whom), `operations` (what each does), `algorithms` (who sends what to whom, when and at what cost),
`choose` (which one).
"""

from __future__ import annotations

from nki_dist.collectives.replica_group import ReplicaGroup, rg_partition_op
from nki_dist.isa.collectives.groups import all_gather, all_reduce, all_to_all, reduce_scatter
from nki_dist.isa.collectives.permutes import (
    collective_permute,
    collective_permute_implicit,
    collective_permute_implicit_reduce,
)
from nki_dist.isa.collectives.prepared import (
    all_gather_v_prepare,
    all_gather_v_trigger,
    all_to_all_v_prepare,
    all_to_all_v_trigger,
)
from nki_dist.isa.collectives.rank_registers import (
    collective_permute_implicit_current_processing_rank_id,
    rank_id,
)
from nki_dist.isa.collectives.variable import all_gather_v, all_to_all_v

__all__ = [
    "ReplicaGroup",
    "all_gather",
    "all_gather_v",
    "all_gather_v_prepare",
    "all_gather_v_trigger",
    "all_reduce",
    "all_to_all",
    "all_to_all_v",
    "all_to_all_v_prepare",
    "all_to_all_v_trigger",
    "collective_permute",
    "collective_permute_implicit",
    "collective_permute_implicit_current_processing_rank_id",
    "collective_permute_implicit_reduce",
    "rank_id",
    "reduce_scatter",
    "rg_partition_op",
]


def __dir__() -> list[str]:
    """The interface, without the modules that it is made in."""
    return sorted(__all__)
