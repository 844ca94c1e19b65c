"""ncc.collective_permute: ranks send to each other along explicit (source, target) pairs."""

from __future__ import annotations

from nki_dist.arch import Arch
from nki_dist.isa.collectives import _roles as r
from nki_dist.program import Instruction
from nki_dist.ranges import shown


def _ring(i: Instruction, arch: Arch) -> None:
    pairs = i["source_target_pairs"]
    if not _is_circular(pairs):
        r.limitation(
            f"source_target_pairs={shown(pairs)}; allowed: one ring",
            code="collective-pairs",
        )


@r.collective(
    *r.SINGLE, r.equal_sizes("srcs dsts"), r.in_hbm("srcs dsts"), _ring, effects=r.IN_PART
)
def collective_permute(
    srcs=r.SOURCES, dsts=r.TARGETS, source_target_pairs=r.PAIRS, priority=r.PRIORITY, name=None
):
    """`dsts of target = srcs of source` for every pair.

    Args:
        srcs, dsts: one tensor each, of equal sizes and dtypes, in HBM.
        source_target_pairs: (source, target) ranks; each rank at most once on either side.
        priority: 0 (highest) to 3, NeuronCore-v4 only.

    Ranks in no pair do nothing; a rank that is no target keeps its dsts.
    """
    return locals()


def _is_circular(pairs: list[list[int]]) -> bool:
    """Whether following the pairs from any rank leads through all of them and back."""
    following = {source: target for source, target in pairs}  # noqa: C416 (pairs are lists)
    rank = first = pairs[0][0]
    for _ in pairs[1:]:
        rank = following.get(rank, -1)
        if rank in (first, -1):
            return False
    return following.get(rank) == first
