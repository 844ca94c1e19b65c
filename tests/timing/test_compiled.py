"""What AWS's compiler is taken to change: each pass by a small kernel, accepted and refused."""

import functools
from itertools import pairwise

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compat import beta1
from nki_dist.compat.beta1 import language as old
from nki_dist.timing.compiled import LOOK_AHEAD
from nki_dist.timing.critical import CAPACITY, critical_path
from nki_dist.timing.timeline import MEMORY
from tests.timing.build import events
from tests.timing.traces import read_trace

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning")

KIB = 1 << 10
ROWS = 128


def spec(*shape, dtype=nl.float32):
    return nki.TensorSpec(shape, dtype)


def estimated(kernel, *specs, schedule="compiled", check=None):
    """A kernel's profile on trn2, and that its critical path has no gaps."""
    with nki.World(host="inprocess", platform="trn2", check=check) as world:
        p = world.estimate(kernel, *specs, schedule=schedule)
    assert p.schedule == schedule == p.timeline.schedule
    assert sum(piece.end - piece.start for piece in critical_path(p.timeline)) == pytest.approx(
        p.timeline.total_ns
    )
    return p


def positions(p, opcode, engine=None):
    (core,) = p.timeline.cores
    found = [at for at, i in enumerate(core.graph.executed) if i.opcode == opcode]
    return [at for at in found if engine in (None, core.graph.executed[at].engine)], core


def counts(p):
    """(what, how many, bytes) of every change; their lines are this file's."""
    assert all(__file__.endswith(c.location.rpartition("/")[2].split(":")[0]) for c in p.changes)
    return sorted((c.what, c.count, c.bytes) for c in p.changes)


# ---- zeroing ------------------------------------------------------------------------------------


def summed(x, value=0.0, memory=nl.psum, peek=False, products=2, columns=64):
    """`products` times x.T @ x, the first on a tile filled with `value`; `columns` of it."""
    tile = nl.load(x)
    total = nl.ndarray((64, 64), nl.float32, buffer=memory)
    nisa.memset(dst=total, value=value)
    if peek:
        nl.store(nl.ndarray((64, 64), nl.float32, buffer=nl.hbm), nl.copy(total))
    for _ in range(products):
        nisa.nc_matmul(dst=total[:, :columns], stationary=tile, moving=tile[:, :columns])
    result = nl.ndarray((64, 64), nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=total)
    out = nl.ndarray((64, 64), nl.float32, buffer=nl.shared_hbm)
    nl.store(out, result)
    return out


def test_zeroes_before_a_sum_of_products_take_no_time():
    p = estimated(summed, spec(96, 64))
    (change,) = p.changes
    assert (change.what, change.count, change.bytes) == ("zeroing dropped", 1, 0)
    line = summed.__code__.co_firstlineno + 4
    assert change.location == f"{__file__}:{line}"
    (fill,), core = positions(p, "memset")
    assert fill in core.dropped and core.start[fill] == core.done[fill]
    (written,), core = positions(estimated(summed, spec(96, 64), schedule="program"), "memset")
    assert core.end[written] > core.start[written] and not core.dropped


@pytest.mark.parametrize(
    "options",
    [
        {"value": 1.0},
        {"memory": nl.sbuf, "products": 0},
        {"products": 0},
        {"peek": True},
        {"columns": 63},
    ],
    ids=["one", "sbuf", "no product", "read before", "read beside"],
)
def test_what_else_reads_zeroes_keeps_them(options):
    def kernel(x):
        return summed(x, **options)

    assert counts(estimated(kernel, spec(96, 64))) == []


def test_several_products_may_cover_the_zeroes():
    def kernel(x):
        tile = nl.load(x)
        total = nl.ndarray((64, 64), nl.float32, buffer=nl.psum)
        nisa.memset(dst=total, value=0.0)
        for first in (0, 40):
            some = slice(first, min(first + 40, 64))
            nisa.nc_matmul(dst=total[:, some], stationary=tile, moving=tile[:, some])
        out = nl.ndarray((64, 64), nl.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.copy(total))
        return out

    assert counts(estimated(kernel, spec(96, 64))) == [("zeroing dropped", 1, 0)]


# ---- repeated loads -----------------------------------------------------------------------------


def doubled_today(x, rounds=5):
    out = nl.ndarray((rounds, *x.shape), x.dtype, buffer=nl.shared_hbm)
    for n in range(rounds):
        tile = nl.load(x)
        nl.store(out[n], nl.add(tile, tile))
    return out


def doubled(x, rounds=5):
    out = old.ndarray((rounds, *x.shape), dtype=x.dtype, buffer=old.shared_hbm)
    for n in range(rounds):
        tile = old.load(x)
        old.store(out[n], value=old.add(tile, tile))
    return out


def test_a_line_of_beta_1_that_loads_the_same_again_loads_once():
    size = 96 * 40 * 4
    p = estimated(beta1.jit(doubled), spec(96, 40))
    sums = ("repetition dropped", 4, 0)
    assert counts(p) == [sums, ("repetition dropped", 4, 4 * size)]
    assert p.hbm_read == size and p.hbm_written == 5 * size
    written = estimated(beta1.jit(doubled), spec(96, 40), schedule="program")
    assert written.hbm_read == 5 * size and written.changes == []


def test_later_releases_load_as_often_as_they_say():
    p = estimated(doubled_today, spec(96, 40))
    assert p.hbm_read == 5 * 96 * 40 * 4 and p.changes == []


def test_other_rows_are_loaded():
    def kernel(x):
        out = old.ndarray(x.shape, dtype=x.dtype, buffer=old.shared_hbm)
        for n in range(3):
            old.store(out[n * 32 : n * 32 + 32], value=old.load(x[n * 32 : n * 32 + 32]))
        return out

    p = estimated(beta1.jit(kernel), spec(96, 40))
    assert p.hbm_read == 96 * 40 * 4 and p.changes == []


def test_what_was_stored_in_between_is_loaded_again():
    def kernel(x):
        out = old.ndarray(x.shape, dtype=x.dtype, buffer=old.shared_hbm)
        old.store(out, value=old.load(x))
        for _ in range(4):
            tile = old.load(out)
            old.store(out, value=old.add(tile, tile))
        return out

    p = estimated(beta1.jit(kernel), spec(96, 40))
    assert p.hbm_read == 5 * 96 * 40 * 4 and p.changes == []


# ---- room on chip -------------------------------------------------------------------------------


def kept(x, tiles=4, changed=True):
    """Load (and change) all tiles, then store all: they are alive together."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    held = []
    for n in range(tiles):
        held.append(nl.load(x[n * ROWS : (n + 1) * ROWS]))
        if changed:
            nisa.activation(dst=held[n][:, :8], op=nl.copy, data=held[n][:, 8:16])
    for n in range(tiles):
        nl.store(out[n * ROWS : (n + 1) * ROWS], held[n])
    return out


def begun(x, tiles=4):
    """Load all tiles, then use a little of each, and long the one that is reloaded."""
    out = nl.ndarray((ROWS, 8 * tiles), x.dtype, buffer=nl.shared_hbm)
    held = []
    for n in range(tiles):
        held.append(nl.load(x[n * ROWS : (n + 1) * ROWS]))
    for n in range(tiles):
        result = nl.ndarray((ROWS, 8), x.dtype, buffer=nl.sbuf)
        if n == 2:
            for _ in range(4):
                nisa.tensor_reduce(dst=result[:, :1], op=nl.add, data=held[n], axis=1)
        nisa.activation(dst=result, op=nl.copy, data=held[n][:, :8])
        nl.store(out[:, 8 * n : 8 * n + 8], result)
    return out


@pytest.mark.parametrize(("columns", "spilled"), [(64 * KIB // 4, 1), (48 * KIB // 4, 0)])
def test_what_does_not_fit_goes_to_hbm_and_comes_back(columns, spilled):
    """Four tiles of 64 KiB a partition, of which trn2 has 207.99; four of 48 fit.

    The tile that leaves has two pieces, as its first columns are written by themselves.
    """
    x = spec(4 * ROWS, columns)
    size = ROWS * columns * 4
    p = estimated(kept, x, check="spill")
    moves = [("reloaded", 2, size), ("spilled", 2, size)]
    assert counts(p) == (moves if spilled else [])
    assert p.hbm_read == p.hbm_written == (4 + spilled) * size
    written = estimated(kept, x, check="spill", schedule="program")
    assert written.hbm_read == written.hbm_written == 4 * size
    if spilled:
        assert p.total_us > written.total_us
        line = kept.__code__.co_firstlineno + 7  # whose next use is farthest: the tile before last
        assert [c.location for c in p.changes if c.what == "spilled"] == [f"{__file__}:{line}"]
        assert "  spilled at test_compiled.py:" in str(p)


def worked_on(x, tiles=6):
    """Tile after tile: load, work longer than a load takes, store."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for n in range(tiles):
        tile = nl.load(x[n * ROWS : (n + 1) * ROWS])
        for _ in range(4):
            nisa.activation(dst=tile, op=nl.exp, data=tile)
        nl.store(out[n * ROWS : (n + 1) * ROWS], tile)
    return out


def test_what_is_as_it_was_loaded_needs_no_saving():
    def kernel(x):
        return kept(x, changed=False)

    size = ROWS * 64 * KIB
    p = estimated(kernel, spec(4 * ROWS, 64 * KIB // 4), check="spill")
    assert counts(p) == [("reloaded", 1, size)]
    assert p.hbm_read == 5 * size and p.hbm_written == 4 * size


@pytest.mark.parametrize(("columns", "ahead"), [(80 * KIB // 4, 1), (64 * KIB // 4, 1), (256, 5)])
def test_loads_run_ahead_as_far_as_there_is_room(tmp_path, columns, ahead):
    """Of six tiles, two of 80 KiB or of 64 KiB (three would fit) are on chip, or all small ones."""
    p = estimated(worked_on, spec(6 * ROWS, columns))
    moves, core = positions(p, "dma_copy")
    loads, stores = moves[::2], moves[1::2]
    first_out = core.end[stores[0]]
    assert [core.start[at] < first_out for at in loads] == [n <= ahead for n in range(6)]
    p.write_trace(tmp_path / "trace.json")
    events = [e["args"] for e in read_trace(tmp_path / "trace.json").events["X"]]
    waited = {args.get("position"): args.get("waited_for") for args in events}
    if ahead == 5:
        assert "memory" not in waited.values() and CAPACITY not in p.critical
        return
    assert core.reason[loads[ahead + 1]] == MEMORY == waited[loads[ahead + 1]] == "memory"
    later = loads[ahead + 1 :]
    assert all(core.start[at] >= core.end[stores[n]] for n, at in enumerate(later))


def test_waiting_for_a_reload_is_on_the_critical_path():
    p = estimated(begun, spec(4 * ROWS, 64 * KIB // 4), check="spill")
    size = ROWS * 64 * KIB
    assert counts(p) == [("reloaded", 1, size)]
    assert p.critical[CAPACITY] > size / 435e3  # us, at 16 engines of 27.2 GB/s


# ---- order --------------------------------------------------------------------------------------


def behind_a_load(x, others=3 * LOOK_AHEAD):
    """One Vector instruction that waits for a load, and many behind it that wait for nothing."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    for _ in range(others):
        small = nl.ndarray((8, 8), nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=small, value=1.0, engine=nisa.vector_engine)
        nl.store(nl.ndarray((8, 8), nl.float32, buffer=nl.hbm), small)
    nl.store(out, tile)
    return out


def early(p):
    """How many memsets begin before the instruction that waits for a load."""
    (waits,), core = positions(p, "tensor_scalar")
    fills, _ = positions(p, "memset")
    return sum(core.start[at] < core.start[waits] for at in fills)


def test_later_releases_are_reordered_a_little():
    x = spec(128, 4096)
    assert early(estimated(behind_a_load, x)) == LOOK_AHEAD
    assert early(estimated(behind_a_load, x, schedule="program")) == 0


def test_beta_1_is_reordered_freely():
    """Instructions of today in a kernel that is checked against the rules of Beta 1."""
    free = functools.partial(behind_a_load)
    functools.update_wrapper(free, behind_a_load).__beta1__ = True
    assert early(estimated(free, spec(128, 4096))) == 3 * LOOK_AHEAD


@pytest.mark.parametrize("loop", [nl.dynamic_range, range], ids=["dynamic", "static"])
def test_rounds_of_a_dynamic_loop_follow_each_other(loop):
    def kernel(x):
        out = nl.ndarray((8, 8), nl.float32, buffer=nl.shared_hbm)
        for _ in loop(0, 3):
            tile = nl.load(x)
            nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
            small = nl.ndarray((8, 8), nl.float32, buffer=nl.sbuf)
            nisa.memset(dst=small, value=1.0, engine=nisa.vector_engine)
            nl.store(out, small)
        return out

    p = estimated(kernel, spec(128, 4096))
    slow, core = positions(p, "tensor_scalar")
    quick, _ = positions(p, "memset")
    assert len(slow) == 3
    assert core.start[quick[0]] < core.start[slow[0]]  # within a round
    rounds = [(min(core.start[a], core.start[b]), core.end[a]) for a, b in zip(slow, quick)]
    apart = all(end <= start for (_, end), (start, _) in pairwise(rounds))
    assert apart == (loop is nl.dynamic_range)


# ---- values and files ---------------------------------------------------------------------------


@pytest.mark.parametrize("schedule", ["compiled", "program"])
def test_values_do_not_depend_on_it(schedule):
    x = np.random.default_rng(5).integers(-4, 5, (96, 64)).astype(np.float32)
    run = nki.profile(nki.jit(summed), host="inprocess", schedule=schedule)(x)
    assert np.array_equal(run.outputs, 2 * x.T.astype(np.float64) @ x)
    assert run.profile.schedule == schedule and len(run.profile.changes) == (schedule == "compiled")


def test_transfers_that_overlap_have_lanes_in_a_trace(tmp_path):
    p = estimated(doubled_today, spec(96, 4000))
    p.write_trace(tmp_path / "trace.json")
    trace = read_trace(tmp_path / "trace.json")  # refuses what overlaps on a thread
    names = list(trace.threads().values())
    lanes = [name for name in names if name.startswith("dma")]
    assert lanes == [f"dma {n}" for n in range(len(lanes))] and len(lanes) > 1
    assert len(names) == len(set(names))
    (core,) = p.timeline.cores
    shown = {e["args"]["position"]: e for e in trace.events["X"] if "position" in e["args"]}
    assert sorted(shown) == list(range(len(core.graph)))
    for at, e in shown.items():
        name = trace.threads()[e["pid"], e["tid"]]
        assert name.split()[0] == core.graph.executed[at].engine


def test_what_is_left_out_is_not_in_a_trace(tmp_path):
    p = estimated(summed, spec(96, 64))
    p.write_trace(tmp_path / "trace.json")
    names = {e["name"] for e in read_trace(tmp_path / "trace.json").events["X"]}
    assert "memset" not in names and "nc_matmul" in names
    assert "memset" not in {e.instruction.opcode for e in events(p.timeline)}
