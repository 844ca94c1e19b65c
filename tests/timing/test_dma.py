"""What a transfer asks of the DMA engines, by hand: queue, latency, engines, bytes.

8 partitions to an engine, 16 engines. Figures are the test's own, so that the rules stay as they
are when trn2's become better known: an engine moves 25 GB/s, a row takes at least as long as
512 bytes, and 10 ns for each of its pieces. Of 1300 ns from the semaphore to the end, 1000 pass
before the first byte.
"""

from __future__ import annotations

from typing import Any

import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import arch, dtypes
from nki_dist.timing.compiled.plan import Plan
from nki_dist.timing.dma import Transfer
from nki_dist.timing.fixed import describe
from nki_dist.timing.order import order
from tests.timing.build import compiled, replay
from tests.timing.costs.rows import P, hbm, sb

RATE, FLOOR, PIECE = 25.0, 512 / 25.0, 10.0
MACHINE = arch.get("trn2").with_values(
    dma_engine_gbps=RATE, dma_element_ns=PIECE, dma_efficient_bytes=512
)


def transfers(kernel, shapes=((128, 64),), platform=MACHINE, dtype=dtypes.float32):
    """The demands of the kernel's transfers, in the order they were issued."""
    programs, machine = compiled(kernel, list(shapes), platform=platform, dtype=dtype)
    (core,) = replay(programs, [[]], machine).cores
    return [core.transfers[i.ordinal] for i in core.graph.executed if i.ordinal in core.transfers]


def one(issue: Any) -> Transfer:
    (found,) = transfers(lambda x: issue(x))
    return found


def test_rows_go_to_the_engine_of_their_partition():
    """30 rows from partition 32 on: engines 4 to 6 have 8 of them each, engine 7 has 6."""
    t = one(lambda x: nisa.dma_copy(sb(7, rows=64)[32:62], hbm(P, 7)))
    assert [e for e, _ in t.parts] == [4, 5, 6, 7]
    assert [ns for _, ns in t.parts] == pytest.approx([8 * FLOOR, 8 * FLOOR, 8 * FLOOR, 6 * FLOOR])


@pytest.mark.parametrize(
    ("start", "stop", "rows"),
    [(5, 15, {8: 3, 9: 7}), (3, 5, {8: 2}), (8, 25, {9: 8, 10: 8, 11: 1})],
)
def test_rows_of_a_placed_tensor_begin_at_its_partition(start, stop, rows):
    def issue(x):
        tile = nl.ndarray((32, 7), nl.float32, buffer=nl.sbuf, address=(64, 0))
        nisa.dma_copy(tile[start:stop], hbm(stop - start, 7))

    assert dict(one(issue).parts) == pytest.approx({e: n * FLOOR for e, n in rows.items()})


@pytest.mark.parametrize(
    ("issue", "row"),
    [
        (lambda x: nisa.dma_copy(sb(7, rows=3), hbm(3, 7)), FLOOR),
        (lambda x: nisa.dma_copy(sb(1000, rows=3), hbm(3, 1000)), 4000 / RATE),
        (lambda x: nisa.dma_copy(sb(100, rows=3), hbm(3, 200)[:, 0:200:2]), 100 * PIECE),
    ],
)
def test_a_row_takes_its_floor_its_bytes_or_its_pieces(issue, row):
    (part,) = one(issue).parts
    assert part == (0, pytest.approx(3 * row))


def test_the_tile_with_most_partitions_decides():
    """From one partition to many, and back: rows are those of the larger side."""

    def kernel(x):
        line = nl.ndarray((1, 24), nl.float32, buffer=nl.sbuf, address=(0, 0))
        tile = nl.ndarray((24, 1), nl.float32, buffer=nl.sbuf, address=(0, 96))
        nisa.memset(line, 0)
        nisa.dma_copy(tile, line)
        nisa.dma_copy(line, tile)

    there, back = transfers(kernel)
    assert [e for e, _ in there.parts] == [e for e, _ in back.parts] == [0, 1, 2]


@pytest.mark.parametrize(
    ("columns", "engines"),
    [(1024, 1), (1025, 2), (5 * 1024, 5), (15 * 1024 + 1, 16), (17 * 1024, 16)],
)
def test_within_hbm_packets_of_4_kib_are_dealt_out(columns, engines):
    t = one(lambda x: nisa.dma_copy(hbm(1, columns), hbm(1, columns)))
    assert [e for e, _ in t.parts] == list(range(engines))
    each = max(FLOOR, 4 * columns / engines / RATE)
    assert [ns for _, ns in t.parts] == pytest.approx([each] * engines)
    assert (t.hbm_read, t.hbm_written) == (4 * columns, 4 * columns)


def test_within_hbm_pieces_are_dealt_out_too():
    t = one(lambda x: nisa.dma_copy(hbm(5, 3), hbm(5, 7)[:, 1:4]))
    assert [(e, pytest.approx(ns)) for e, ns in t.parts] == [(e, FLOOR) for e in range(5)]


def test_bytes_of_hbm_are_counted_on_their_side():
    load = one(lambda x: nisa.dma_copy(sb(7), hbm(P, 7, dtype=nl.bfloat16)))
    store = one(lambda x: nisa.dma_copy(hbm(P, 7, dtype=nl.bfloat16), sb(7)))
    inside = one(lambda x: nisa.dma_copy(sb(7), sb(7)))
    assert (load.hbm_read, load.hbm_written) == (2 * 7 * P, 0)
    assert (store.hbm_read, store.hbm_written) == (0, 2 * 7 * P)
    assert (inside.hbm_read, inside.hbm_written) == (0, 0)


@pytest.mark.parametrize(
    ("asked", "mode", "issue_ns"), [("none", "none", 8), ("hwdge", "hwdge", 600)]
)
def test_descriptors_as_asked(asked, mode, issue_ns):
    t = one(lambda x: nisa.dma_copy(sb(7), hbm(P, 7), dge_mode=getattr(nisa.dge_mode, asked)))
    assert (t.mode, t.issue_ns, t.lead_ns) == (mode, issue_ns, pytest.approx(1000))


@pytest.mark.parametrize(
    ("platform", "mode", "queue", "issue_ns"),
    [("trn1", "swdge", "dma swdge", 1000), ("trn2", "hwdge", "dma hwdge sync", 600)],
)
def test_descriptors_of_an_address_in_a_register(platform, mode, queue, issue_ns):
    """Hardware's if there is such, GpSimd's otherwise."""

    def kernel(x):
        cell, tile = sb(1, dtype=nl.int32, rows=1), sb(16)
        nisa.memset(cell, 1)
        register = nisa.register_alloc()
        nisa.register_load(register, cell)
        nisa.dma_copy(tile, x.reshape((4, 32, 64)).select(0, register)[:P, 0:16])

    (t,) = transfers(kernel, platform=platform)
    assert (t.mode, t.queue, t.issue_ns) == (mode, queue, issue_ns)
    assert t.lead_ns == pytest.approx(1000)


def test_descriptors_of_rows_chosen_by_a_tile_are_written_by_gpsimd():
    def kernel(x):
        rows, tile = sb(1, dtype=nl.int32, rows=16), sb(64, rows=16)
        nisa.memset(rows, 3)
        nisa.dma_copy(tile, x.ap([[64, 16], [1, 64]], 0, vector_offset=rows))

    (t,) = transfers(kernel)
    assert (t.mode, t.queue, t.issue_ns) == ("swdge", "dma swdge", 1000)


@pytest.mark.parametrize(("columns", "size"), [(64, 256), (512, 2048), (1024, 4096), (4096, 4096)])
def test_engines_take_turns_between_packets_of_a_row_or_of_4_kib(columns, size):
    def kernel(x):
        nl.load(x)

    (t,) = transfers(kernel, ((128, columns),))
    assert t.packet_ns == pytest.approx(max(512, size) / MACHINE.dma_engine_gbps)


def test_who_makes_descriptors_where_a_kernel_does_not_say():
    """As compiled the hardware, where it can, on the one queue of DMA; as written, nobody."""

    def kernel(x):
        nisa.dma_copy(sb(7), hbm(P, 7))

    for platform, mode, issue_ns in ("trn2", "hwdge", 600), ("trn1", "none", 8):
        (program,), machine = compiled(kernel, [(P, 64)], platform=platform)
        for generates, found in (True, (mode, issue_ns)), (False, ("none", 8)):
            plan = Plan(reorders=True, look_ahead=16 * generates)
            fixed = describe(order(program), machine, plan)
            (t,) = [f.transfer for f in fixed.values() if f.transfer is not None]
            assert (t.mode, t.issue_ns, t.queue) == (*found, "")
