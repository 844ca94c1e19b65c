"""Programs that are wrong on purpose. `# HERE` marks the line an error must name."""

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.collectives.kernels import hbm, sbuf, staged

ALL = [[0, 1, 2, 3]]


def times(counts):
    """A register with this rank's entry of `counts` (1, ranks): how often a loop goes round."""
    tile = sbuf((1, 1), nl.int32)
    nisa.dma_copy(
        dst=tile, src=counts.ap([[1, 1], [1, 1]], scalar_offset=ncc.rank_id(), indirect_dim=1)
    )
    register = nisa.register_alloc()
    nisa.register_load(register, tile)
    return register


@nki.jit
def one_rank_leaves_out_a_round(x, counts):
    src = staged(x, "hbm")
    dst = hbm(x.shape, x.dtype)
    for _ in nl.dynamic_range(times(counts)):
        ncc.all_reduce([src], [dst], ALL, nl.add)  # HERE
    return dst


@nki.jit
def then_another_operation(x, counts):
    """Ranks that leave the loop early go on to the gather, others still reduce."""
    src = staged(x, "hbm")
    dst = hbm(x.shape, x.dtype)
    big = hbm((4 * x.shape[0], *x.shape[1:]), x.dtype)
    for _ in nl.dynamic_range(times(counts)):
        ncc.all_reduce([src], [dst], ALL, nl.add)  # HERE
    ncc.all_gather([src], [big], ALL, 0)  # HERE
    return big


@nki.jit
def then_another_reduction(x, counts):
    """The operations look alike but for the operator."""
    src = staged(x, "hbm")
    dst = hbm(x.shape, x.dtype)
    for _ in nl.dynamic_range(times(counts)):
        ncc.all_reduce([src], [dst], ALL, nl.add)  # HERE
    ncc.all_reduce([src], [dst], ALL, nl.maximum)  # HERE
    return dst


@nki.jit
def then_other_shapes(x, counts):
    src = staged(x, "hbm")
    dst = hbm(x.shape, x.dtype)
    for _ in nl.dynamic_range(times(counts)):
        ncc.all_reduce([src], [dst], ALL, nl.add)  # HERE
    ncc.all_reduce([src[0:1]], [dst[0:1]], ALL, nl.add)  # HERE
    return dst


@nki.jit
def then_another_dtype(x, counts):
    src = staged(x, "hbm")
    dst = hbm(x.shape, x.dtype)
    for _ in nl.dynamic_range(times(counts)):
        ncc.all_reduce([src], [dst], ALL, nl.add)  # HERE
    ncc.all_reduce([src.view(nl.int32)], [dst.view(nl.int32)], ALL, nl.add)  # HERE
    return dst


@nki.jit
def then_other_groups(x, counts):
    """Ranks meet in different groups: no message is ever compared, they wait in a circle."""
    src = staged(x, "hbm")
    dst = hbm(x.shape, x.dtype)
    for _ in nl.dynamic_range(times(counts)):
        ncc.collective_permute_implicit([[src]], [[dst]], [[0, 1], [2, 3]])  # HERE
    ncc.collective_permute_implicit([[src]], [[dst]], [[0, 2], [1, 3]])  # HERE
    return dst


@nki.jit
def only_the_sender_permutes(x, counts):
    src = staged(x, "hbm")
    dst = hbm(x.shape, x.dtype)
    nisa.dma_copy(dst=dst, src=src)
    for _ in nl.dynamic_range(times(counts)):
        ncc.collective_permute([src], [dst], [(0, 1)])  # HERE
    return dst


@nki.jit
def cores_call_different_collectives(x, counts):
    src = staged(x, "hbm")
    dst = hbm(x.shape, x.dtype)
    if nl.program_id(0) == 0:
        ncc.all_reduce([src], [dst], ALL, nl.add)  # HERE
    else:
        ncc.all_reduce([src], [dst], ALL, nl.maximum)  # HERE
    return dst


@nki.jit
def cores_name_different_tensors(x, counts):
    src, other = staged(x, "hbm"), staged(x, "hbm")
    dst = hbm(x.shape, x.dtype)
    mine = src if nl.program_id(0) == 0 else other
    ncc.all_reduce([mine], [dst], ALL, nl.add)  # HERE
    return dst


@nki.jit
def one_core_alone(x, counts):
    src = staged(x, "hbm")
    dst = hbm(x.shape, x.dtype)
    if nl.program_id(0) == 1:
        ncc.all_reduce([src], [dst], ALL, nl.add)  # HERE
    return dst


@nki.jit
def kinds_of_hbm_mixed(x, counts):
    src = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
    nisa.dma_copy(dst=src, src=x)
    dst = hbm(x.shape, x.dtype)
    ncc.all_reduce([src], [dst], ALL, nl.add)  # HERE
    return dst


@nki.jit
def rank_without_group(x, counts):
    src, dst = staged(x, "hbm"), hbm(x.shape, x.dtype)
    ncc.all_reduce([src], [dst], [[0, 1], [3]], nl.add)  # HERE
    return dst


@nki.jit
def rank_beyond_the_world(x, counts):
    src, dst = staged(x, "hbm"), hbm(x.shape, x.dtype)
    ncc.all_reduce([src], [dst], [[0, 1], [2, 3, 4]], nl.add)  # HERE
    return dst


@nki.jit
def pair_beyond_the_world(x, counts):
    src, dst = staged(x, "hbm"), hbm(x.shape, x.dtype)
    nisa.dma_copy(dst=dst, src=src)
    ncc.collective_permute([src], [dst], [(0, 7)])  # HERE
    return dst


@nki.jit
def ring_register_of_another_group(x, counts):
    rank = ncc.collective_permute_implicit_current_processing_rank_id(1, [[0, 1]])  # HERE
    out = hbm((1, 1), nl.int32)
    nisa.dma_copy(dst=out, src=counts.ap([[1, 1], [1, 1]], scalar_offset=rank, indirect_dim=1))
    return out


@nki.jit
def rank_used_beyond_a_table(x, counts):
    out = hbm((1, 1), nl.int32)
    short = counts[0:1, 0:2]
    nisa.dma_copy(  # HERE
        dst=out, src=short.select(1, ncc.rank_id()).reshape((1, 1))
    )
    return out
