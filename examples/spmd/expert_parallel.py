"""Expert-parallel layer: tokens travel to the rank that has their expert, and back.

Each rank has one expert and some tokens, sorted by the expert a router chose for them. How many
go where is known only at run time, so both trips are all_to_all_v. On the way out, each rank has a
slot for every sender, and learns how many tokens arrived; these counts, and the places the tokens
came from, are the metadata of the way back. A slot has room for all of a sender's tokens, because
all of them may choose one expert; places without a token are computed too, but never sent.

On trn2 hardware all_to_all_v is documented for ranks of different instances only, so this example
runs on trn3, with 8 ranks of two cores: two whole devices, as the documentation asks for. Here it
also runs with other numbers of ranks and cores.

    python examples/spmd/expert_parallel.py [--ranks 16] [--lnc 1] [--host inprocess] [--small]
"""

from __future__ import annotations

import numpy as np
from _tiles import tiles
from _worlds import Case, WorldExample, everybody, run
from tensor_parallel_mlp import load_rows, mlp
from tensor_parallel_mlp import reference as mlp_reference

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl


@nki.jit
def expert_parallel(tokens, send, w1, w2, group, ranks):
    """Each token after silu(x @ w1) @ w2 with the weights of its expert.

    Args:
        tokens: (T, H), sorted by expert.
        send: (2, ranks) uint32, in elements: how much goes to each expert, and where it begins.
        w1, w2: (H, F) and (F, H), of this rank's expert.
        group: all ranks; the expert of its n-th rank is expert n.
        ranks: how many they are.

    Returns:
        (T, H) in the order of the tokens.
    """
    count, h = tokens.shape
    cores, me = nl.num_programs(axes=0), nl.program_id(0)
    mine, back = [nl.ndarray((count, h), dtype=nl.float32, buffer=nl.shared_hbm) for _ in range(2)]
    arrived, done = [
        nl.ndarray((ranks * count, h), dtype=nl.float32, buffer=nl.shared_hbm) for _ in range(2)
    ]
    outward = nl.ndarray((3, ranks), dtype=nl.uint32, buffer=nl.shared_hbm)
    homeward = nl.ndarray((4, ranks), dtype=nl.uint32, buffer=nl.shared_hbm)
    work = tiles(0, ranks * count, nl.tile_size.pmax)[me::cores]
    clear(arrived, work)
    if me == 0:
        nisa.dma_copy(dst=mine, src=tokens)
        nisa.dma_copy(dst=outward[0:2], src=send)
    ncc.all_to_all_v(srcs=[mine], dsts=[arrived], replica_group=group, metadata_tensor=outward)
    first, second = load_rows(w1), load_rows(w2)
    for pair in work:
        t0, width = pair
        result = mlp(turned(arrived[t0 : t0 + width]), first, second)
        nisa.dma_copy(dst=done[t0 : t0 + width], src=result)
    if me == 0:
        describe_way_back(homeward, outward, slot=count * h)
    ncc.all_to_all_v(
        srcs=[done],
        dsts=[back],
        replica_group=group,
        metadata_tensor=homeward,
        recv_counts_known=True,
        has_rdispls=True,
    )
    out = nl.ndarray((count, h), dtype=nl.float32, buffer=nl.shared_hbm)
    if me == 0:
        nisa.dma_copy(dst=out, src=back)
    return out


def clear(rows, work):
    """Zeros wherever no token will arrive: those places are computed like all others."""
    zeros = nl.ndarray((nl.tile_size.pmax, rows.shape[1]), dtype=rows.dtype, buffer=nl.sbuf)
    nisa.memset(dst=zeros, value=0.0)
    for pair in work:
        t0, width = pair
        nisa.dma_copy(dst=rows[t0 : t0 + width], src=zeros[0:width])


def turned(rows):
    """(tokens, H) in HBM, at most 128 tokens, as SBUF tiles of 128 rows of (H, tokens)."""
    width, h = rows.shape
    block = nl.ndarray((width, h), dtype=rows.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=block, src=rows)
    found = []
    for cut in tiles(0, h, nl.tile_size.pmax):
        h0, hw = cut
        acc = nl.ndarray((hw, width), dtype=rows.dtype, buffer=nl.psum)
        nisa.nc_transpose(dst=acc, data=block[:, h0 : h0 + hw], engine=nisa.tensor_engine)
        tile = nl.ndarray((hw, width), dtype=rows.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=tile, src=acc)
        found.append(tile)
    return found


def describe_way_back(homeward, outward, slot):
    """What came from a rank goes back to it: from its slot, to where it was taken from."""
    starts = nl.ndarray((1, homeward.shape[1]), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.iota(dst=starts, pattern=[[slot, homeward.shape[1]]])
    nisa.dma_copy(dst=homeward[0:1], src=outward[2:3])
    nisa.dma_copy(dst=homeward[1:2], src=starts)
    nisa.dma_copy(dst=homeward[3:4], src=outward[1:2])


def case(rng: np.random.Generator, ranks: int, small: bool = False) -> Case:
    """Tokens with a random expert each, and the experts' weights."""
    count, h, features = (13, 150, 37) if small else (64, 256, 512)
    x = rng.standard_normal((ranks, count, h), dtype=np.float32)
    experts = np.sort(rng.integers(0, ranks, (ranks, count)), axis=1)
    w1 = rng.standard_normal((ranks, h, features), dtype=np.float32) / np.float32(h**0.5)
    w2 = rng.standard_normal((ranks, features, h), dtype=np.float32)
    expected = np.empty(x.shape)
    send = []
    for rank in range(ranks):
        counts = np.bincount(experts[rank], minlength=ranks) * h
        send.append(np.array([counts, np.cumsum(counts) - counts], np.uint32))
        for expert in set(experts[rank]):
            chosen = experts[rank] == expert
            expected[rank, chosen] = mlp_reference(x[rank, chosen], w1[expert], w2[expert])
    arguments = {
        "tokens": nki.per_rank(list(x)),
        "send": nki.per_rank(send),
        "w1": nki.per_rank(list(w1)),
        "w2": nki.per_rank(list(w2)),
        "group": everybody(ranks),
        "ranks": ranks,
    }
    what = f"{ranks * count} tokens of {h}, {ranks} experts with {features} hidden features"
    return Case(what, arguments, expected)


EXAMPLE = WorldExample("expert-parallel layer", expert_parallel, case, ranks=8, platform="trn3")

if __name__ == "__main__":
    run(EXAMPLE)
