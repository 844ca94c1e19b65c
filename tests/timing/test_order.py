"""The order graph: boxes, conflicts, kinds of edges, loops, legal reorderings."""

from __future__ import annotations

import random

import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import dtypes
from nki_dist.errors import LaunchError
from nki_dist.isa import INSTRUCTIONS
from nki_dist.program import instructions
from nki_dist.timing import order
from nki_dist.timing.cells import Cells, note_read, note_write
from nki_dist.timing.footprint import footprint, territories
from tests.timing.build import compiled
from tests.timing.reorder import reordered


def ancestors(graph):
    """For each position a bit set of every position before it."""
    reach = []
    for at in range(len(graph)):
        bits = 0
        for p in graph.before(at):
            bits |= reach[p] | (1 << p)
        reach.append(bits)
    return reach


def touched(a):
    """Byte numbers an access without run-time index touches, worked out one by one."""
    index = np.zeros(a.shape, np.int64) + a.offset
    for d, (n, s) in enumerate(zip(a.shape, a.strides, strict=True)):
        index += (np.arange(n) * s).reshape([-1 if k == d else 1 for k in range(len(a.shape))])
    size = a.dtype.itemsize
    return set((index.reshape(-1, 1) * size + np.arange(size)).ravel().tolist())


def scatter_kernel(seed):
    """A kernel of random copies between random slices, strided ones and transposed views too."""
    pick = random.Random(seed)

    def part(tile, rows, columns):
        p = pick.choice((0, 32, 64))
        step = pick.choice((1, 1, 2))
        c = pick.randrange(0, tile.shape[1] - columns * step + 1)
        return tile[p : p + rows, c : c + columns * step : step]

    def kernel(x):
        tiles = [nl.ndarray((96, 40), nl.float32, buffer=nl.sbuf) for _ in range(3)]
        out = nl.ndarray((96, 40), nl.float32, buffer=nl.shared_hbm)
        for tile in tiles:
            nisa.memset(dst=tile, value=0.0)
        for _ in range(60):
            columns = pick.choice((1, 5, 8, 13))
            source, target = pick.randrange(3), pick.randrange(3)
            src, dst = tiles[source], tiles[target]
            if source == target:
                nisa.memset(dst=part(dst, 32, columns), value=1.0)
            elif pick.random() < 0.3:
                nisa.dma_copy(dst=part(out, 32, columns), src=part(src, 32, columns))
            else:
                nisa.tensor_copy(dst=part(dst, 32, columns), src=part(src, 32, columns))
        return out

    return kernel


def test_an_edge_has_one_kind():
    """What is read and written again waits for its last writer's result, not for its bytes, too."""

    def kernel(x):
        tile, other = nl.load(x), nl.ndarray((8, 8), nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=other, src=tile)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0)
        nisa.tensor_copy(dst=tile[:, 4:8], src=tile[:, 0:4])
        out = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, other)
        return out

    (program,), _ = compiled(kernel, [(8, 8)])
    graph = order(program)
    assert graph.data == [(), (0,), (0,), (2,), (1,)]
    assert graph.reuse == [(), (), (1,), (), ()]


@pytest.mark.parametrize("seed", range(6))
def test_every_conflict_of_bytes_is_ordered(seed):
    (program,), _ = compiled(scatter_kernel(seed), [(8, 8)])
    graph = order(program)
    reach = ancestors(graph)
    seen = []
    for at, i in enumerate(graph.executed):
        spec = INSTRUCTIONS[i.opcode]
        reads = [(a.storage.number, touched(a)) for a in spec.reads(i)]
        writes = [(a.storage.number, touched(a)) for a in spec.writes(i)]
        for before, their_reads, their_writes in seen:
            conflict = any(
                s == t and x & y
                for mine, theirs in ((reads, their_writes), (writes, their_reads + their_writes))
                for s, x in mine
                for t, y in theirs
            )
            if conflict:
                assert reach[at] >> before & 1, f"{i!r} isn't after {graph.executed[before]!r}"
        seen.append((at, reads, writes))


@pytest.mark.parametrize(("dtype", "size"), [(nl.int8, 1), (nl.bfloat16, 2), (nl.float32, 4)])
def test_a_box_holds_what_the_access_touches(dtype, size):
    def kernel(x):
        tile = nl.ndarray((96, 6, 10), dtype, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=0)
        nisa.memset(dst=tile[32:64, 1:5:2, 3:9], value=0)
        nisa.memset(dst=tile[:, 5, :], value=0)
        nisa.memset(dst=tile.ap([[60, 96], [7, 4], [1, 3]], 5), value=0)
        nisa.memset(dst=tile.ap([[60, 96], [-1, 20]], 40), value=0)

    (program,), _ = compiled(kernel, [(2, 2)])
    (territory,) = [t for t in territories(program.storages)[1] if len(t.sizes) == 3]
    assert territory.sizes == (96, 6, 10 * size)
    boxes = []
    for i in program.body:
        a = i["dst"]
        box = footprint(a, territory, {})
        boxes.append(box)
        p, rest = np.divmod(np.array(sorted(touched(a))), 60 * size)
        row, byte = np.divmod(rest, 10 * size)
        found = zip((p, row, byte), box[::2], box[1::2], territory.sizes, strict=True)
        for values, low, high, end in found:
            assert low <= values.min() and values.max() < high <= end
    assert boxes[0] == territory.whole == (0, 96, 0, 6, 0, 10 * size)
    assert boxes[1] == (32, 64, 1, 4, 3 * size, 9 * size)
    assert boxes[2] == (0, 96, 5, 6, 0, 10 * size)


@pytest.mark.parametrize("offset", [0, 52, -20])
@pytest.mark.parametrize("dim", [0, 1])
def test_a_box_holds_every_place_an_address_leads_to(offset, dim):
    """Rows that go beyond the tensor may be skipped; the others are anywhere, also further back."""

    def kernel(start):
        out = nl.ndarray((12, 10), nl.float32, buffer=nl.shared_hbm)
        tile = nl.ndarray((3, 4), nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=0)
        target = out.ap([[10, 3], [1, 4]], offset, scalar_offset=nl.load(start), indirect_dim=dim)
        nisa.dma_copy(dst=target, src=tile, oob_mode=nisa.oob_mode.skip)
        return out

    (program,), _ = compiled(kernel, [(1, 1)], dtype=dtypes.int32)
    a = list(instructions(program.body))[-1]["dst"]
    low, high, first, last = footprint(a, territories(program.storages)[1][a.storage.number], {})
    reached = set()
    for index in range(-130, 130):
        moved = a.offset + index * a.dynamic.stride
        for row in range(3):
            if moved + 10 * row >= 0 and moved + 10 * row + 4 <= 120:
                reached |= set(range(moved + 10 * row, moved + 10 * row + 4))
    rows, columns = np.divmod(np.array(sorted(reached)), 10)
    assert low <= rows.min() and rows.max() < high
    assert first <= 4 * columns.min() and 4 * columns.max() + 4 <= last


def test_disjoint_tiles_of_hbm_and_heads_are_independent():
    def kernel(x):
        out = nl.ndarray((64, 4, 48), nl.float32, buffer=nl.shared_hbm)
        tile = nl.ndarray((64, 48), nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=0)
        for head in range(4):  # interleaved in memory: byte ranges overlap, elements don't
            nisa.dma_copy(dst=out[:, head, :], src=tile)
        nisa.dma_copy(dst=out[10:20, 1:3, 4:8], src=tile[:10, :8])
        return out

    (program,), _ = compiled(kernel, [(2, 2)])
    graph = order(program)
    assert graph.data == [(), (0,), (0,), (0,), (0,), (0,)]
    assert graph.reuse == [(), (), (), (), (), (2, 3)]


def test_kinds_of_edges():
    def kernel(x):
        a = nl.ndarray((128, 8), nl.float32, buffer=nl.sbuf)
        b = nl.ndarray((128, 8), nl.float32, buffer=nl.sbuf)
        first = nisa.dma_copy(dst=a, src=x[:, 0:8])  # 0
        nisa.tensor_copy(dst=b, src=a)  # 1: data on 0
        nisa.dma_copy(dst=a, src=x[:, 8:16])  # 2: reuses what 0 wrote and 1 read
        nisa.memset(dst=b, value=0).depends_on(first)  # 3: reuse of 1, data on 0
        with nl.no_reorder():
            nisa.memset(dst=nl.ndarray((4, 4), nl.float32, buffer=nl.sbuf), value=0)  # 4
            nisa.memset(dst=nl.ndarray((4, 4), nl.float32, buffer=nl.sbuf), value=0)  # 5

    (program,), _ = compiled(kernel, [(128, 16)])
    graph = order(program)
    assert graph.data == [(), (0,), (), (0,), (), ()]
    assert graph.reuse == [(), (), (0, 1), (1,), (), ()]
    assert graph.issue == [(), (), (), (), (), (4,)]


@pytest.mark.parametrize("byte, dependent", [(0, True), (28, True), (32, False)])
def test_tensors_placed_on_the_same_bytes_conflict(byte, dependent):
    def kernel(x):
        a = nl.ndarray((128, 8), nl.float32, buffer=nl.sbuf, address=(0, 0))
        b = nl.ndarray((128, 8), nl.float32, buffer=nl.sbuf, address=(0, byte))
        nisa.memset(dst=a, value=0)
        nisa.memset(dst=b, value=0)

    (program,), _ = compiled(kernel, [(2, 2)])
    assert order(program).reuse[1] == ((0,) if dependent else ())
    keys = {*territories([s for s in program.storages if s.placed])[0]}
    assert len(keys) == (1 if dependent else 2)


def test_partitions_decide_between_placed_tensors_too():
    def kernel(x):
        a = nl.ndarray((64, 8), nl.float32, buffer=nl.sbuf, address=(0, 0))
        b = nl.ndarray((64, 8), nl.float32, buffer=nl.sbuf, address=(64, 0))
        c = nl.ndarray((128, 2), nl.float32, buffer=nl.sbuf, address=(0, 0))
        for tile in (a, b, c[64:128, :]):
            nisa.memset(dst=tile, value=0)

    (program,), _ = compiled(kernel, [(2, 2)])
    assert order(program).reuse == [(), (), (1,)]


def test_loops_are_executed_as_often_as_they_were():
    def kernel(x):
        out = nl.ndarray((128, 64), nl.float32, buffer=nl.shared_hbm)
        for n in nl.dynamic_range(4):
            tile = nl.ndarray((128, 16), nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[:, nl.ds(n * 16 if isinstance(n, int) else n, 16)])
            nisa.dma_copy(dst=out[:, nl.ds(n, 16)], src=tile)
        return out

    (program,), _ = compiled(kernel, [(128, 64)])
    graph = order(program, [4])
    assert [i.ordinal for i in graph.executed] == [0, 1] * 4
    assert graph.data[3] == (2,)
    assert set(graph.reuse[2]) == {0, 1}  # the tile has one address: rounds wait for each other
    assert 1 in graph.reuse[3]  # rows n and n + 1 of `out` overlap
    with pytest.raises(LaunchError, match="no trip count"):
        order(program, [])
    with pytest.raises(LaunchError, match="2 trip counts were recorded, the program enters 1"):
        order(program, [4, 1])


def test_reordering_leaves_loops_between_what_was_around_them():
    def kernel(x):
        tiles = [nl.ndarray((4, 4), nl.float32, buffer=nl.sbuf) for _ in range(8)]
        for n in range(3):
            nisa.memset(dst=tiles[n], value=0)
        for _ in nl.dynamic_range(4):
            nisa.memset(dst=tiles[3], value=0)
            nisa.memset(dst=tiles[4], value=0)
        nisa.memset(dst=tiles[5], value=0)

    (program,), _ = compiled(kernel, [(2, 2)])
    before, (loop,), after = np.split(np.array(reordered(program, 1).body, object), [3, 4])
    assert (len(before), len(loop.body), len(after)) == (3, 2, 1)
    assert sorted(i.ordinal for i in loop.body) == [3, 4]


def test_the_loop_index_is_followed():
    def kernel(x):
        out = nl.ndarray((8, 128, 16), nl.float32, buffer=nl.shared_hbm)
        tile = nl.ndarray((128, 16), nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=0)
        for n in nl.dynamic_range(8):
            nisa.dma_copy(dst=out.select(0, n), src=tile)
        return out

    (program,), _ = compiled(kernel, [(2, 2)])
    assert order(program, [8]).reuse == [()] * 9


def test_an_unknown_index_may_be_anywhere():
    def kernel(x, index):
        out = nl.ndarray((8, 128, 16), nl.float32, buffer=nl.shared_hbm)
        tile = nl.ndarray((128, 16), nl.float32, buffer=nl.sbuf)
        held = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
        nisa.memset(dst=tile, value=0)
        nisa.memset(dst=held, value=3)
        register = nisa.register_alloc(held)
        nisa.dma_copy(dst=out.select(0, register), src=tile)
        nisa.dma_copy(dst=out[7], src=tile)
        return out

    (program,), _ = compiled(kernel, [(2, 2), (2, 2)])
    graph = order(program)
    assert graph.data[3] == (0, 2) and graph.reuse[4] == (3,)


def test_state_outside_tensors_keeps_its_order():
    def kernel(x):
        tiles = [nl.ndarray((128, 8), nl.float32, buffer=nl.sbuf) for _ in range(6)]
        total = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tiles[0], src=x)  # 0
        reset, add = nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce
        nisa.activation(dst=tiles[1], op=nl.exp, data=tiles[0], reduce_cmd=reset, reduce_op=nl.add)
        nisa.activation(dst=tiles[2], op=nl.exp, data=tiles[0])  # 2: leaves the registers alone
        nisa.activation(
            dst=tiles[3],
            op=nl.exp,
            data=tiles[0],
            reduce_cmd=add,
            reduce_op=nl.add,
            reduce_res=total,
        )  # 3
        nisa.rng(dst=tiles[4].view(nl.uint32))  # 4
        nisa.rng(dst=tiles[5].view(nl.uint32))  # 5
        nl.device_print("a", tiles[0])  # 6
        nl.device_print("b", tiles[0])  # 7

    (program,), _ = compiled(kernel, [(128, 8)])
    assert order(program).data == [(), (0,), (0,), (0, 1), (), (4,), (0,), (0, 6)]


def test_reads_that_later_ones_imply_are_forgotten():
    cells = Cells()
    slices = [cells.cell((0, 128, n, n + 1)) for n in range(200)]
    whole = cells.cell((0, 128, 0, 200))
    edges: list[list[int]] = []
    for n, part in enumerate(slices):
        found: list[int] = []
        note_write(part, 2 * n, found)
        edges.append(found)
        found = []
        note_read(whole, 2 * n + 1, found, lambda ps: {q for p in ps for q in edges[p]})
        edges.append(found)
    assert len(whole.reads) < 80
