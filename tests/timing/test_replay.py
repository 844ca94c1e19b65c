"""Replay: schedules worked out by hand, shared resources, messages, and published measurements."""

import json
from itertools import pairwise

import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import arch, dtypes
from nki_dist.errors import LaunchError
from nki_dist.timing import Seat, profile_launch
from tests.timing.build import compiled, executed, replay
from tests.timing.test_messages import exchange
from tests.timing.test_order import scatter_kernel

TRN2 = arch.get("trn2")


def timed(kernel, shapes, schedule="program", **options):
    programs, machine = compiled(kernel, shapes, **options)
    return replay(programs, [[] for _ in programs], machine, schedule=schedule)


def load_activate_store(x):
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    result = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=tile, src=x)
    nisa.activation(dst=result, op=nl.exp, data=tile)
    nisa.dma_copy(dst=out, src=result)
    return out


def test_load_activate_store_by_hand():
    (core,) = timed(load_activate_store, [(4, 4096)], dtype=dtypes.bfloat16).cores
    row = 4096 * 2 / TRN2.dma_engine_gbps  # longer than the floor; the engine has 4 rows
    arrived = 1000 + 4 * row
    table = arrived + 300  # what is left of dma_semaphore_ns
    begun = table + 1290
    assert core.start == pytest.approx([1000, begun, core.ready[2] + 1000])
    assert core.end[:2] == pytest.approx([arrived, begun + (68 + 4096) / 1.2])
    assert core.ready[2] == pytest.approx(begun + 290 + 4096 / 1.2 + TRN2.semaphore_ns)
    (load,) = core.table_loads.values()
    assert (load.start, load.function) == (pytest.approx(table), "exp")


@pytest.mark.parametrize(
    ("functions", "loads"),
    [
        ("exp exp tanh exp", "exp tanh exp"),
        ("exp log exp", "exp"),  # one set
        ("rsqrt copy square relu abs sign rsqrt", "rsqrt"),  # in every set
        ("rsqrt reciprocal gelu exp", "rsqrt reciprocal gelu exp"),
        ("square copy", ""),
    ],
)
def test_tables_are_loaded_when_the_function_needs_others(functions, loads):
    def kernel(x):
        t = nl.ndarray((128, 64), nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=t, value=0)
        for op in functions.split():
            nisa.activation(dst=t, op=getattr(nl, op), data=t)

    (core,) = timed(kernel, [(2, 2)]).cores
    assert [load.function for load in core.table_loads.values()] == loads.split()


def test_dependent_instructions_wait_for_the_pipeline():
    def kernel(x):
        a, b, c = (nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf) for _ in range(3))
        nisa.memset(dst=a, value=0)  # 0
        nisa.memset(dst=b, value=0)  # 1: independent, back to back
        nisa.tensor_copy(dst=c, src=b)  # 2: waits for 1
        nisa.memset(dst=b, value=1)  # 3: overwrites what 2 reads, which an engine does in order
        nisa.tensor_copy(dst=a, src=c, engine=nisa.engine.scalar)  # 4: another engine

    (core,) = timed(kernel, [(2, 2)]).cores
    busy, drain = (68 + 512) / 0.96, 100 / 0.96
    assert core.start == pytest.approx(
        [0, busy, 2 * busy + drain, 3 * busy + drain, 3 * busy + 2 * drain + TRN2.semaphore_ns]
    )
    assert core.reason == ["start", "queue", "data", "queue", "data"]


def accumulate(matmuls, columns=512, dtype=nl.float32):
    """A kernel that only multiplies: `matmuls` times 128 x 128 by 128 x columns."""

    def kernel(x):
        a = nl.ndarray((128, 128), dtype, buffer=nl.sbuf)
        b = nl.ndarray((128, columns), dtype, buffer=nl.sbuf)
        out = nl.ndarray((128, columns), nl.float32, buffer=nl.psum)
        nisa.memset(dst=a, value=0)
        nisa.memset(dst=b, value=0)
        for _ in range(matmuls):
            nisa.nc_matmul(dst=out, stationary=a, moving=b)

    return kernel


def test_matmuls_into_one_bank_follow_each_other():
    (core,) = timed(accumulate(8), [(2, 2)]).cores
    gaps = np.diff(core.start[2:])
    full = (4 * 512 + 15) / 2.4
    # Half speed for the first 3 us: the first matmul, and 1293 ns of the second.
    assert gaps == pytest.approx([2 * full, 3000 - 2 * full + (full - 1500 + full), *[full] * 5])


@pytest.mark.parametrize("engine", ["tensor", "vector"])
def test_only_tensor_goes_on_before_its_results_are_there(engine):
    def kernel(x):
        a = nl.ndarray((32, 32), nl.float32, buffer=nl.sbuf)
        b, c = (nl.ndarray((32, 32), nl.float32, buffer=nl.psum) for _ in range(2))
        nisa.memset(dst=a, value=0)
        first = nisa.nc_transpose(dst=b, data=a, engine=nisa.engine[engine])
        nisa.nc_transpose(dst=c, data=a, engine=nisa.engine[engine]).depends_on(first)

    (core,) = timed(kernel, [(2, 2)]).cores
    assert core.end[1] < core.done[1]
    assert core.start[2] == (core.end[1] if engine == "tensor" else core.done[1])


def test_untiled_loads_bound_a_matmul_on_trn1_as_published():
    """4096 x 8192 x 8192, here 1/128 of the output. DMA is the bottleneck.

    The same loop is measured twice: autocomp's gemm 0 takes 20.99 ms, the tutorial's (PN-B) 51.80.
    The rate of trn1's engines is of the first, whose 5.4 GB can't move in less at less.
    """

    def kernel(left, right):
        out = nl.ndarray((256, 1024), nl.bfloat16, buffer=nl.shared_hbm)
        for m in range(0, 256, 128):
            for n in range(0, 1024, 512):
                total = nl.ndarray((128, 512), nl.float32, buffer=nl.psum)
                for k in range(0, 8192, 128):
                    a = nl.ndarray((128, 128), nl.bfloat16, buffer=nl.sbuf)
                    b = nl.ndarray((128, 512), nl.bfloat16, buffer=nl.sbuf)
                    nisa.dma_copy(dst=a, src=left[k : k + 128, m : m + 128])
                    nisa.dma_copy(dst=b, src=right[k : k + 128, n : n + 512])
                    nisa.nc_matmul(dst=total, stationary=a, moving=b)
                tile = nl.ndarray((128, 512), nl.bfloat16, buffer=nl.sbuf)
                nisa.tensor_copy(dst=tile, src=total)
                nisa.dma_copy(dst=out[m : m + 128, n : n + 512], src=tile)
        return out

    shapes = [(8192, 256), (8192, 1024)]
    timeline = timed(kernel, shapes, dtype=dtypes.bfloat16, platform="trn1")
    assert timeline.total_ns * 128 == pytest.approx(20.99e6, rel=0.2)
    assert timeline.total_ns * 128 < 51.80e6


@pytest.mark.parametrize("row, ratio", [(4096, 0.9672), (16384, 0.9918)])
def test_dma_rate_against_row_size_as_published(row, ratio):
    """PN-G: throughput of one 128-partition transfer, relative to 32 KiB rows.

    Of shorter rows (64 bytes: 0.0278, 256: 0.104, 1024: 0.4252), one transfer by itself is slower
    than here: 88 ns a row, which kernels with many under way don't see.
    """

    def rate(size):
        def kernel(x):
            tile = nl.ndarray((128, size // 2), nl.bfloat16, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x)

        (core,) = timed(kernel, [(128, size // 2)], dtype=dtypes.bfloat16).cores
        return 128 * size / (core.end[0] - core.start[0])

    assert rate(row) / rate(32768) == pytest.approx(ratio, rel=0.05)


def test_sixteen_transfers_go_round_the_queues():
    """Written so; each moves rows of 256 bytes on engine 0, which takes one such at a time."""

    def kernel(x):
        for n in range(18):
            tile = nl.ndarray((8, 64), nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[:, n * 64 : n * 64 + 64])

    (core,) = timed(kernel, [(8, 1152)]).cores
    assert [core.queues[q] for q in core.queue] == [f"dma q{n % 16}" for n in range(18)]
    row = max(512 / TRN2.dma_engine_gbps, TRN2.dma_element_ns)
    assert core.start == pytest.approx([1000 + 8 * row * n for n in range(18)])
    assert core.hbm_read == 18 * 8 * 64 * 4


def test_who_writes_descriptors():
    def kernel(x, index):
        t = nl.ndarray((16, 64), nl.float32, buffer=nl.sbuf)
        held = nl.ndarray((16, 1), nl.int32, buffer=nl.sbuf)
        nisa.memset(dst=held, value=3)
        nisa.dma_copy(dst=t, src=x[0:16, :])
        nisa.dma_copy(dst=t, src=x[0:16, :], dge_mode=nisa.dge_mode.hwdge)
        nisa.dma_copy(
            dst=t, src=x[0:16, :], dge_mode=nisa.dge_mode.hwdge, engine=nisa.engine.scalar
        )
        nisa.dma_copy(dst=t, src=x.ap([[64, 16], [1, 64]], 0, vector_offset=held))

    (core,) = timed(kernel, [(128, 64), (2, 2)]).cores
    names = [core.queues[q] for q in core.queue[1:]]
    assert names == ["dma q0", "dma hwdge sync", "dma hwdge scalar", "dma swdge"]


def test_cores_of_a_stack_share_its_bandwidth():
    """One core alone is limited by its DMA engines, two by what transfers reach of the stack."""

    def kernel(x):
        for n in range(32):
            tile = nl.ndarray((128, 2048), nl.float32, buffer=nl.sbuf)
            nisa.dma_copy(dst=tile, src=x[:, n * 2048 : n * 2048 + 2048])

    programs, machine = compiled(kernel, [(128, 65536)], cores=2)

    def rate(programs, placement):
        t = replay(programs, [[] for _ in programs], machine, placement)
        size = sum(c.hbm_read for c in t.cores)
        return size / (t.total_ns - 1000)

    together = [Seat(0, 0, 0), Seat(0, 1, 0)]
    apart = [Seat(0, 0, 0), Seat(0, 1, 1)]
    engines, stack = 16 * TRN2.dma_engine_gbps, TRN2.hbm_stack_gbps * TRN2.hbm_efficiency
    assert engines < stack < 2 * engines
    assert rate(programs[:1], together[:1]) == pytest.approx(engines)
    assert rate(programs, together) == pytest.approx(stack)
    assert rate(programs, apart) == pytest.approx(2 * engines)


def test_a_transfer_begins_behind_one_other_at_most():
    """A row of partition 64 moves on engine 8 only, of which the wide one has the first share."""

    def kernel(x):
        wide = nl.ndarray((128, 2000), nl.float32, buffer=nl.sbuf)
        rows = nl.ndarray((32, 512), nl.float32, buffer=nl.sbuf, address=(64, 16000))
        nisa.dma_copy(dst=wide, src=x)
        for n in range(2):
            nisa.dma_copy(dst=rows[n : n + 1], src=x[0:1, 0:512])

    (core,) = timed(kernel, [(128, 2000)]).cores
    wide, row = (size / TRN2.dma_engine_gbps for size in (8 * 8000, 2048))
    assert core.start == pytest.approx([1000, 1000, 1000 + wide])
    assert core.end == pytest.approx([1000 + wide, 1000 + wide + row, 1000 + wide + 2 * row])
    assert core.reason[1:] == ["resource", "resource"]
    assert core.cause[1:] == [(0, 0), (0, 1)]


@pytest.mark.parametrize("schedule", ["program", "compiled"])
def test_an_unknown_schedule_is_refused(schedule):
    assert timed(accumulate(2), [(2, 2)], schedule=schedule).total_ns > 0
    wrong = f"{schedule}s"
    with pytest.raises(LaunchError, match=f"'{wrong}'; allowed: 'compiled'.*'program'"):
        timed(accumulate(2), [(2, 2)], schedule=wrong)


@pytest.mark.parametrize("platform, overlap", [("trn1", False), ("trn2", True)])
def test_vector_and_gpsimd_exclude_each_other_on_trn1(platform, overlap):
    def kernel(x):
        a, b = (nl.ndarray((128, 512), nl.float32, buffer=nl.sbuf) for _ in range(2))
        nisa.memset(dst=a, value=1, engine=nisa.engine.vector)
        nisa.memset(dst=b, value=1, engine=nisa.engine.gpsimd)

    timeline = timed(kernel, [(2, 2)], platform=platform)
    (core,) = timeline.cores
    if overlap:
        assert core.start == [0.0, 0.0]
    else:
        assert core.start == [0.0, core.end[0]]
        assert (core.reason[1], core.cause[1]) == ("resource", (0, 0))
    critical = profile_launch([core.graph.program], [[]], timeline.arch, "k").critical
    assert sum(critical.values()) == pytest.approx(timeline.total_ns / 1000)


def test_every_program_needs_its_trip_counts():
    programs, machine = compiled(exchange, [(2, 2)], cores=2)
    with pytest.raises(LaunchError, match="2 programs, but trip counts of 1"):
        replay(programs, [[]], machine)


def test_trip_counts_of_an_execution_drive_the_replay():
    def kernel(x, limits):
        out = nl.ndarray((8, 16, 32), nl.float32, buffer=nl.shared_hbm)
        tile = nl.ndarray((16, 32), nl.float32, buffer=nl.sbuf)
        count = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        nisa.dma_copy(dst=count, src=limits)
        for n in nl.dynamic_range(0, nisa.register_alloc(count)):
            nisa.dma_copy(dst=out.select(0, n), src=tile)
        return out

    arrays = [np.ones((16, 32), np.float32), np.full((1, 1), 5, np.float32)]
    _, programs, trips, machine = executed(kernel, arrays)
    assert trips == [[5]]
    profile = profile_launch(programs, trips, machine, "loop")
    assert profile.instructions == 3 + 5
    assert profile.hbm_written == 5 * 16 * 32 * 4


@pytest.mark.parametrize("platform", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("seed", range(3))
def test_schedules_keep_every_rule(seed, platform):
    """Checked from the outside: nothing starts early, and no queue does two things at once."""
    timeline = timed(scatter_kernel(seed), [(8, 8)], platform=platform)
    (core,) = timeline.cores
    graph = core.graph
    for at in range(len(graph)):
        assert 0 <= core.ready[at] <= core.start[at] < core.end[at] <= core.done[at]
        assert all(core.start[at] >= core.done[p] for p in graph.data[at])
        for p in graph.reuse[at]:
            later = core.start[at] >= core.end[p]
            assert later and (core.queue[p] == core.queue[at] or core.start[at] > core.end[p])
    for q in range(len(core.queues)):
        mine = [at for at in range(len(graph)) if core.queue[at] == q]
        assert all(core.end[a] <= core.start[b] for a, b in pairwise(mine))
    busy = [sum(ns for _, ns in t.parts) for t in core.transfers.values()]
    assert sum(core.dma_busy) == pytest.approx(sum(busy))
    assert max(core.dma_busy) <= timeline.total_ns
    if platform == "trn1":
        ports = [at for at, i in enumerate(graph.executed) if i.engine in ("vector", "gpsimd")]
        ports.sort(key=lambda at: core.start[at])
        assert all(core.end[a] <= core.start[b] for a, b in pairwise(ports))


def test_equal_launches_give_equal_bits(tmp_path):
    files = []
    for n in range(2):
        programs, machine = compiled(exchange, [(2, 2)], cores=2)
        profile = profile_launch(programs, [[], []], machine, "exchange")
        profile.save(tmp_path / f"{n}.json")
        profile.write_trace(tmp_path / f"{n}.trace")
        files.append([(tmp_path / f"{n}.{kind}").read_bytes() for kind in ("json", "trace")])
    assert files[0] == files[1]
    assert json.loads(files[0][0])["cores"] == 2
