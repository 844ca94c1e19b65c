"""DMA, other cores, and what sequencers do by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.timing.costs.rows import BF16, F32, I32, P, Row, cycles, hbm, moves, sb


def registers(which: str) -> Callable[[], Any]:
    def issue() -> Any:
        register, cell = nisa.register_alloc(), hbm(1, 1, dtype=I32)
        nisa.register_move(register, 3)
        nisa.register_store(cell, register)
        return nisa.register_load(register, cell)

    return issue


def scalars(which: str) -> Callable[[], Any]:
    """Records all of them; the one that is meant is the last."""

    def issue() -> Any:
        cell = hbm(1, 1, dtype=I32)
        nisa.register_store(cell, nisa.register_alloc(3))
        scalar = nisa.scalar_load(cell)
        if which == "arithmetic":
            return scalar * 3
        return nisa.scalar_store(cell, scalar) if which == "store" else scalar

    return issue


def ring_rank() -> Any:
    group = ncc.ReplicaGroup([[0]])
    return ncc.collective_permute_implicit_current_processing_rank_id(0, group)


def met() -> Any:
    return nisa.core_barrier(nl.ndarray((4, 4), F32, buffer=nl.shared_hbm), (0, 1))


def swapped() -> Any:
    other = 1 - nl.program_id(0)
    return nisa.sendrecv(sb(5), sb(5), send_to_rank=other, recv_from_rank=other, pipe_id=0)


# A piece is a run of bytes that one descriptor can name: on chip at most a partition's.
TRANSFERS = [
    Row("dma_copy", "HBM to SBUF", lambda: nisa.dma_copy(sb(7), hbm(P, 7)), moves(840, P)),
    Row("dma_copy", "within HBM", lambda: nisa.dma_copy(hbm(6, 7), hbm(6, 7)), moves(168, 1)),
    Row(
        "dma_copy",
        "widened: the larger side",
        lambda: nisa.dma_copy(hbm(6, 7), hbm(6, 7, dtype=BF16)),
        moves(168, 1),
    ),
    Row(
        "dma_copy",
        "narrowed: the larger side",
        lambda: nisa.dma_copy(hbm(6, 7, dtype=BF16), hbm(6, 7)),
        moves(168, 1),
    ),
    Row(
        "dma_copy",
        "rows of a larger tensor",
        lambda: nisa.dma_copy(hbm(6, 5), hbm(6, 7)[:, 1:6]),
        moves(120, 6),
    ),
    Row(
        "dma_copy",
        "single elements",
        lambda: nisa.dma_copy(hbm(6, 3), hbm(6, 7)[:, 0:5:2]),
        moves(72, 18),
    ),
    Row(
        "dma_copy",
        "whole rows, one after the other",
        lambda: nisa.dma_copy(hbm(2, 3, 7), hbm(2, 5, 7)[:, 1:4]),
        moves(168, 2),
    ),
    Row(
        "dma_copy",
        "a dimension of one has no stride",
        lambda: nisa.dma_copy(hbm(3, 1, 7), hbm(9, 21).ap([[7, 3], [100, 1], [1, 7]])),
        moves(84, 1),
    ),
    Row(
        "dma_compute",
        "twice the bytes of all sources, pieces of both sides",
        lambda: nisa.dma_compute(hbm(6, 5), [hbm(6, 5), hbm(6, 7)[:, 1:6]], nl.add),
        moves(2 * 240, 1 + 6 + 1, flops=30),
    ),
    Row(
        "dma_transpose",
        "from HBM",
        lambda: nisa.dma_transpose(sb(27, dtype=BF16, rows=10), hbm(27, 10, dtype=BF16)),
        moves(600, 10, figures=("dma_transpose_hbm_fraction",)),
    ),
    Row(
        "dma_transpose",
        "from SBUF",
        lambda: nisa.dma_transpose(sb(27, dtype=BF16, rows=10), sb(10, dtype=BF16, rows=27)),
        moves(1080, 27, figures=("dma_transpose_sbuf_fraction",)),
    ),
    Row("sendrecv", "a piece per partition", swapped, moves(600, P, known=False), cores=2),
    Row("core_barrier", "", met, cycles(64, known=False), cores=2),
    Row("device_print", "", lambda: nisa.device_print("x", hbm(2, 3)), cycles(64, known=False)),
    *(
        Row(f"register_{name}", "", registers(name), cycles(64, known=False))
        for name in ("move", "load", "store")
    ),
    *(
        Row(f"scalar_{name}", "", scalars(name), cycles(64, known=False))
        for name in ("load", "arithmetic", "store")
    ),
    Row("read_rank_id", "", ncc.rank_id, cycles(64, known=False)),
    Row("read_ring_rank_id", "", ring_rank, cycles(64, known=False)),
]
