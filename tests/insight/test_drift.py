"""Where precision is lost: against sums in exact numbers, for every instruction, over ranks."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compiler.passes.low_precision import FLOATS
from nki_dist.insight.regions import region
from nki_dist.insight.replay import Place
from nki_dist.insight.wide import Beside, in_double
from nki_dist.linking.indirect import lowered
from nki_dist.program.walk import operands
from tests.insight.lines import lines_of
from tests.isa.effects.cases import CASES

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning")

LINES = lines_of(__file__)
X = np.random.default_rng(4).standard_normal((50, 36)).astype(np.float32)
ROUNDS = {"float32": 1e-6, "tfloat32": 1e-3, "bfloat16": 8e-3, "float16": 1e-3}  # or 0.13
EXAMPLES = [
    pytest.param(case, id=f"{name}-{n}")
    for name, cases in CASES.items()
    for n, case in enumerate(cases)
]


def shared(x, dtype=None):
    return nl.ndarray(x.shape, dtype=dtype or x.dtype, buffer=nl.shared_hbm)


def tile(*shape, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def rms(x):
    return float(np.sqrt(np.mean(np.square(x, dtype=np.float64))))


def by_line(drift):
    return {line.location: line for line in drift.lines}


@pytest.mark.parametrize("case", EXAMPLES)
def test_every_instruction_runs_in_float64(case):
    """On the same operands it gives the same numbers, but for one rounding or float32's sums."""
    machine = replace(case).traced()
    i, spec = machine.i, machine.spec
    machine.restore()
    machine.link()
    touched = [a for _, a in operands(i.args)]
    touched += [a.dynamic.source for a in touched if a.dynamic is not None]
    storages = list({a.storage: None for a in touched})
    platform = machine.platform.instance
    program: Any = SimpleNamespace(platform=platform, registers=64, storages=storages)
    wide = {a.storage.number for a in touched if a.storage.dtype in FLOATS}
    wide -= {a.storage.number for a in touched if a.dtype is not a.storage.dtype}
    bits = spec.effects.bits
    if bits is not None and bits.when(i) and bits.pads(i):
        wide.clear()
    beside = Beside(Place(machine.slot, program, machine.kit), {}, wide, "")
    beside.follow(sums=True)
    for a in (*spec.reads(i), *spec.writes(i)):
        r = region(machine.slot, a, machine.kit)
        beside.take(r, r.get(machine.kit))
    instruction = beside.rewrite.instruction(i)
    beside.kit.begin()
    with np.errstate(all="ignore"):
        beside.kit.step(lowered(instruction, beside.kit))()
        machine.run()
    for a in spec.writes(i):
        if a.storage.number not in wide:
            continue
        r = region(machine.slot, a, machine.kit)
        got, exact = in_double(r, r.get(machine.kit)), beside.values(r)
        assert np.array_equal(np.isfinite(got), np.isfinite(exact))
        kept = np.isfinite(got)
        assert rms((got - exact)[kept]) <= ROUNDS.get(a.dtype.name, 0.13) * rms(exact[kept])


def rounding(x):
    out, fine = shared(x, nl.float32), nl.load(x)
    narrow = tile(*x.shape, dtype=nl.bfloat16)
    nisa.tensor_tensor(dst=fine, data1=fine, data2=fine, op=nl.multiply)
    # LINE narrow
    nisa.tensor_scalar(dst=narrow, data=fine, op0=nl.multiply, operand0=1.5)
    # LINE widened
    nisa.tensor_scalar(dst=fine, data=narrow, op0=nl.multiply, operand0=3.0)
    nl.store(out, fine)
    return out


@pytest.mark.parametrize("lnc", [1, 2])
def test_added_and_what_came_in(lnc):
    drift = nki.drift(nki.jit(rounding)[lnc])(X)
    squares = (X * X).astype(np.float64)
    exact = squares * 1.5
    rounded = exact.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)
    lines = by_line(drift)
    assert drift.lines[0].location == LINES["narrow"]
    assert drift.lines[0].dtype == "bfloat16"
    assert drift.lines[0].added == pytest.approx(rms(rounded - exact) / rms(exact), rel=1e-6)
    unrounded = X.astype(np.float64) ** 2 * 1.5
    after = lines[LINES["widened"]]
    assert after.came_in == pytest.approx(rms(rounded - unrounded) / rms(unrounded), rel=1e-6)
    assert after.added < 1e-7
    assert drift.outputs.tobytes() == nki.simulate(nki.jit(rounding)[lnc])(X).tobytes()
    table = str(drift).split("\n")
    assert LINES["narrow"] in table[2] and "added" in table[1]


def test_cancellation_shows_as_error_that_came_in():
    """The line that loses isn't the one that subtracts: that one is exact."""

    def cancelling(x):
        out, data, ten = shared(x), nl.load(x), tile(*x.shape)
        # LINE large
        nisa.tensor_scalar(dst=ten, data=data, op0=nl.add, operand0=1e5)
        # LINE small
        nisa.tensor_scalar(dst=ten, data=ten, op0=nl.subtract, operand0=1e5)
        nl.store(out, ten)
        return out

    lines = by_line(nki.drift(cancelling)(X))
    assert lines[LINES["small"]].added == 0
    assert 1e-4 < lines[LINES["small"]].came_in < 1e-1
    assert 0 < lines[LINES["large"]].added < 1e-6


def test_numbers_that_a_type_cannot_hold_come_first():
    def overflowing(x):
        out, data, half = shared(x), nl.load(x), tile(*x.shape, dtype=nl.float16)
        # LINE coarse
        nisa.tensor_copy(dst=tile(*x.shape, dtype=nl.float8_e4m3), src=data)
        # LINE lost
        nisa.tensor_scalar(dst=half, data=data, op0=nl.multiply, operand0=1e5)
        nisa.tensor_copy(dst=data, src=half)
        nl.store(out, data)
        return out

    worst = nki.drift(overflowing)(X).lines[0]
    assert worst.location == LINES["lost"]
    assert worst.not_finite == int((np.abs(X) * 1e5 > 65519).sum())


def test_integers_and_what_they_choose_are_followed_exactly():
    """Indices computed in a kernel and bits under another name add nothing and break nothing."""

    def choosing(x, index):
        out = nl.ndarray((5, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
        rows, offsets = tile(5, x.shape[1]), tile(5, 1, dtype=nl.int32)
        nisa.dma_copy(dst=offsets, src=index)
        nisa.tensor_scalar(dst=offsets, data=offsets, op0=nl.add, operand0=1)
        nisa.dma_copy(dst=rows, src=x.ap([[36, 5], [1, 36]], vector_offset=offsets, indirect_dim=0))
        bits = rows.view(nl.int32)
        nisa.tensor_scalar(dst=bits, data=bits, op0=nl.bitwise_and, operand0=0x7FFFFFFF)
        nl.store(out, rows)
        return out

    index = np.array([[7], [2], [19], [3], [11]], np.int32)
    drift = nki.drift(choosing)(X, index)
    np.testing.assert_array_equal(drift.outputs, np.abs(X[index[:, 0] + 1]))
    assert drift.lines and all(line.added == line.came_in == 0 for line in drift.lines)


def test_loops_add_up():
    def looping(x):
        out, total = shared(x), nl.load(x)
        for _ in nl.dynamic_range(5):
            # LINE round
            nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=1.1)
        nl.store(out, total)
        return out

    drift = nki.drift(looping)(X)
    line = by_line(drift)[LINES["round"]]
    assert line.elements == 5 * X.size and line.came_in > line.added > 0
    last = by_line(drift)[drift.lines[-1].location]
    assert last.elements == X.size


def exchanged(x, group):
    """Halves of bfloat16 are exchanged between cores, and summed over ranks."""
    me, rows = nl.program_id(0), x.shape[0] // 2
    out = nl.ndarray((x.shape[0], x.shape[1]), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    local = shared(x, nl.bfloat16)
    data = nl.load(x[me * rows : me * rows + rows])
    narrow, theirs = [tile(rows, x.shape[1], dtype=nl.bfloat16) for _ in range(2)]
    # LINE narrowed
    nisa.tensor_scalar(dst=narrow, data=data, op0=nl.multiply, operand0=1.1)
    # LINE sent
    nisa.sendrecv(src=narrow, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    nl.store(local[me * rows : me * rows + rows], theirs)
    nisa.core_barrier(data=local, cores=(0, 1))
    # LINE summed
    ncc.all_reduce(srcs=[local], dsts=[out], replica_group=group, op=nl.add)
    return out


def test_over_cores_and_ranks():
    shards = [X * (rank + 1) for rank in range(3)]
    group = ncc.ReplicaGroup([[0, 1, 2]])
    with nki.World(ranks=3, lnc=2, host="inprocess") as world:
        drift = world.drift(nki.jit(exchanged), nki.per_rank(shards), group=group)
        plain = world.run(nki.jit(exchanged), nki.per_rank(shards), group=group)
    for a, b in zip(drift.outputs, plain, strict=True):
        assert a.tobytes() == b.tobytes()
    lines = by_line(drift)
    swapped = [np.concatenate([s[25:], s[:25]]) for s in shards]
    factor = float(np.float32(1.1))
    narrow = [(s * np.float32(1.1)).astype(ml_dtypes.bfloat16).astype(np.float64) for s in swapped]
    exact = [s.astype(np.float64) * factor for s in swapped]
    error = np.subtract(narrow, exact)
    sent, summed = lines[LINES["sent"]], lines[LINES["summed"]]
    assert sent.added == 0
    assert sent.came_in == pytest.approx(rms(error) / rms(exact), rel=1e-3)
    total = np.sum(narrow, axis=0)
    got = plain[0].astype(np.float64)
    assert summed.added == pytest.approx(rms(got - total) / rms(total), rel=1e-3)
    come = rms(total - np.sum(exact, axis=0)) / rms(np.sum(exact, axis=0))
    assert summed.came_in == pytest.approx(come, rel=1e-3)


COLLECTIVES = {
    "all_gather": lambda a, g: (3 * 6, ncc.all_gather, {"collective_dim": 0, "replica_group": g}),
    "all_reduce": lambda a, g: (6, ncc.all_reduce, {"op": nl.add, "replica_group": g}),
    "reduce_scatter": lambda a, g: (
        2,
        ncc.reduce_scatter,
        {"collective_dim": 0, "op": nl.add, "replica_group": g},
    ),
    "all_to_all": lambda a, g: (6, ncc.all_to_all, {"collective_dim": 0, "replica_group": g}),
}


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives_in_float64(name, dtype):
    def kernel(x, group):
        rows, call, options = COLLECTIVES[name](x, group)
        local = shared(x)
        out = nl.ndarray((rows, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=local, src=x)
        call(srcs=[local], dsts=[out], **options)
        return out

    shards = [np.array(X[6 * r : 6 * r + 6], dtype) for r in range(3)]
    group = ncc.ReplicaGroup([[0, 1, 2]])
    with nki.World(ranks=3, host="inprocess") as world:
        drift = world.drift(kernel, nki.per_rank(shards), group=group)
    assert all(line.came_in == 0 for line in drift.lines)
    worst = drift.lines[0].added
    assert worst < (5e-3 if dtype != np.float32 else 1e-7)
    assert (worst > 0) == (name in ("all_reduce", "reduce_scatter"))


def test_products_are_exact_in_float64():
    """Of bfloat16, through float32 copies of the operands in the kernel."""

    def product(x, y):
        out = nl.ndarray((36, 20), dtype=nl.float32, buffer=nl.shared_hbm)
        a, b = nl.load(x), nl.load(y)
        psum, result = tile(36, 20, buffer=nl.psum), tile(36, 20)
        # LINE product
        nisa.nc_matmul(dst=psum, stationary=a, moving=b)
        nisa.tensor_copy(dst=result, src=psum)
        nl.store(out, result)
        return out

    x, y = (X.astype(ml_dtypes.bfloat16), X[:, :20].astype(ml_dtypes.bfloat16))
    drift = nki.drift(product)(x, y)
    exact = x.astype(np.float64).T @ y.astype(np.float64)
    line = by_line(drift)[LINES["product"]]
    assert 0 < line.added == pytest.approx(rms(drift.outputs - exact) / rms(exact), rel=1e-3)
    assert line.came_in == 0
