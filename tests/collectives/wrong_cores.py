"""More programs that are wrong on purpose: the cores of a rank, addresses, memory, groups.

`# HERE` marks the lines an error must name, as in `wrong`.
"""

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.collectives.kernels import hbm, sbuf, staged
from tests.collectives.wrong import ALL, times


def tile_of(x):
    tile = sbuf(x.shape, x.dtype)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def times_of_core(counts):
    """As `times`, for the core's entry."""
    tile = sbuf((1, 1), nl.int32)
    me = nl.program_id(0)
    nisa.dma_copy(dst=tile, src=counts[0:1, me : me + 1])
    register = nisa.register_alloc()
    nisa.register_load(register, tile)
    return register


# ---- races --------------------------------------------------------------------------------------


@nki.jit
def no_barrier_before_a_load(x, counts):
    """Core 0 stores all rows, core 1 loads them at once."""
    shared, out = hbm(x.shape, x.dtype), hbm(x.shape, x.dtype)
    if nl.program_id(0) == 0:
        nisa.dma_copy(dst=shared, src=tile_of(x))  # HERE
    else:
        mine = sbuf(x.shape, x.dtype)
        nisa.dma_copy(dst=mine, src=shared)  # HERE
        nisa.dma_copy(dst=out, src=mine)
    return out


@nki.jit
def both_cores_store(x, counts):
    """Different bytes to the same place."""
    out = hbm(x.shape, x.dtype)
    mine = tile_of(x)
    nisa.tensor_scalar(dst=mine, data=mine, op0=nl.add, operand0=float(nl.program_id(0)))
    nisa.dma_copy(dst=out, src=mine)  # HERE
    return out


# ---- barriers -----------------------------------------------------------------------------------


@nki.jit
def barrier_on_one_core(x, counts):
    """A branch that depends on the core, around a barrier."""
    out = staged(x, "hbm")
    if nl.program_id(0) == 0:
        nisa.core_barrier(data=out, cores=(0, 1))  # HERE
    return out


@nki.jit
def barriers_of_uneven_loops(x, counts):
    """The cores go round a run-time loop differently often."""
    out = staged(x, "hbm")
    for _ in nl.dynamic_range(times_of_core(counts)):
        nisa.core_barrier(data=out, cores=(0, 1))  # HERE
    return out


@nki.jit
def barrier_meets_collective(x, counts):
    """One core is at a barrier, the other in a collective of the rank."""
    src, dst = staged(x, "hbm"), hbm(x.shape, x.dtype)
    if nl.program_id(0) == 0:
        nisa.core_barrier(data=src, cores=(0, 1))  # HERE
        ncc.all_reduce([src], [dst], ALL, nl.add)
    else:
        ncc.all_reduce([src], [dst], ALL, nl.add)  # HERE
        nisa.core_barrier(data=src, cores=(0, 1))
    return dst


# ---- sendrecv -----------------------------------------------------------------------------------


@nki.jit
def sendrecv_without_partner(x, counts):
    mine = tile_of(x)
    if nl.program_id(0) == 1:
        nisa.sendrecv(mine, mine, 0, 0, 0)  # HERE
    return staged(x, "hbm")


@nki.jit
def sendrecv_on_two_pipes(x, counts):
    mine, theirs, me = tile_of(x), sbuf(x.shape, x.dtype), nl.program_id(0)
    nisa.sendrecv(mine, theirs, 1 - me, 1 - me, me)  # HERE
    return staged(x, "hbm")


@nki.jit
def sendrecv_of_two_shapes(x, counts):
    mine, theirs = tile_of(x), sbuf(x.shape, x.dtype)
    if nl.program_id(0) == 0:
        nisa.sendrecv(mine, theirs, 1, 1, 0)  # HERE
    else:
        nisa.sendrecv(mine[:, 0:2], theirs[:, 0:2], 0, 0, 0)  # HERE
    return staged(x, "hbm")


@nki.jit
def sendrecv_of_two_dtypes(x, counts):
    mine, theirs = tile_of(x), sbuf(x.shape, x.dtype)
    if nl.program_id(0) == 0:
        nisa.sendrecv(mine, theirs, 1, 1, 0)  # HERE
    else:
        nisa.sendrecv(mine.view(nl.int32), theirs.view(nl.int32), 0, 0, 0)  # HERE
    return staged(x, "hbm")


@nki.jit
def sendrecv_without_second_core(x, counts):
    mine, theirs = tile_of(x), sbuf(x.shape, x.dtype)
    nisa.sendrecv(mine, theirs, 1, 1, 0)  # HERE
    return staged(x, "hbm")


# ---- order and control flow ---------------------------------------------------------------------


@nki.jit
def then_another_dimension(x, counts):
    """The same shapes, cut along another dimension."""
    src, dst = sbuf((4, 4), x.dtype), sbuf((4, 4), x.dtype)
    nisa.memset(dst=src, value=1.0)
    for _ in nl.dynamic_range(times(counts)):
        ncc.all_to_all([src], [dst], ALL, 0)  # HERE
    ncc.all_to_all([src], [dst], ALL, 1)  # HERE
    return staged(x, "hbm")


@nki.jit
def then_more_channels(x, counts):
    a, b = staged(x, "hbm"), staged(x, "hbm")
    c, d = hbm(x.shape, x.dtype), hbm(x.shape, x.dtype)
    for _ in nl.dynamic_range(times(counts)):
        ncc.collective_permute_implicit([[a]], [[c]], ALL)  # HERE
    ncc.collective_permute_implicit([[a], [b]], [[c], [d]], ALL, [0, 1])  # HERE
    return c


@nki.jit
def while_loop_left_early(x, counts):
    """Each rank counts down from its own number, and all meet in every round."""
    src, dst = staged(x, "hbm"), hbm(x.shape, x.dtype)
    left, one = sbuf((1, 1), nl.int32), sbuf((1, 1), nl.int32)
    nisa.dma_copy(
        dst=left, src=counts.ap([[1, 1], [1, 1]], scalar_offset=ncc.rank_id(), indirect_dim=1)
    )
    nisa.memset(dst=one, value=1)
    counter = nisa.register_alloc(left)

    def body(register):
        ncc.all_reduce([src], [dst], ALL, nl.add)  # HERE
        nisa.tensor_tensor(dst=left, data1=left, data2=one, op=nl.subtract)
        nisa.register_load(register, left)
        return register

    nl.while_loop(counter, body)
    return dst


# ---- failures of one rank -----------------------------------------------------------------------


@nki.jit
def one_rank_fails_while_others_wait(x, counts):
    """The rank with a large count reads beyond a table; the others are in a collective by then."""
    src, dst = staged(x, "hbm"), hbm(x.shape, x.dtype)
    row, index = sbuf((1, x.shape[1]), x.dtype), times(counts)
    nisa.dma_copy(dst=row, src=x[nl.ds(index, 1), :])  # HERE
    ncc.all_reduce([src], [dst], ALL, nl.add)
    return dst


@nki.jit
def collective_beyond_its_tensor(x, counts):
    """A collective's own operand has a run-time address."""
    src, dst = tile_of(x), sbuf((x.shape[0], 2), x.dtype)
    ncc.all_reduce([src[:, nl.ds(times(counts), 2)]], [dst], ALL, nl.add)  # HERE
    return staged(x, "hbm")


@nki.jit
def chunks_beyond_the_source(x, counts):
    """The counts of all_to_all_v ask for more than there is."""
    meta = nl.ndarray((3, 4), dtype=nl.uint32, buffer=nl.shared_hbm)
    table = sbuf((1, 4), nl.uint32)
    nisa.dma_copy(dst=table, src=counts)
    for n in range(3):
        nisa.dma_copy(dst=meta[n : n + 1], src=table)
    src, dst = staged(x, "hbm"), hbm(x.shape, x.dtype)
    ncc.all_to_all_v([src], [dst], ALL, meta)  # HERE
    return dst


@nki.jit
def one_core_needs_too_much(x, counts):
    """SBUF is full on core 1 only."""
    if nl.program_id(0) == 1:
        tiles = []
        for _ in range(4):
            tiles.append(nl.ndarray((128, 16384), dtype=nl.float32, buffer=nl.sbuf))  # HERE
            nisa.memset(dst=tiles[-1], value=0.0)
        nisa.tensor_tensor(dst=tiles[0], data1=tiles[1], data2=tiles[2], op=nl.add)
        nisa.tensor_tensor(dst=tiles[0], data1=tiles[0], data2=tiles[3], op=nl.add)
    return staged(x, "hbm")


@nki.jit
def one_core_allocates_more(x, counts):
    out = staged(x, "hbm")
    if nl.program_id(0) == 1:
        other = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)  # HERE
        nisa.dma_copy(dst=other, src=tile_of(x))
    return out
