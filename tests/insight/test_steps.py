"""What a record gives as data: every instruction with its operands, before it and after it."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import LaunchError
from tests.insight.lines import lines_of

LINES = lines_of(__file__)
X = np.arange(60, dtype=np.float32).reshape(12, 5)


@nki.jit
def chosen(x, rows):
    out = nl.ndarray((4, 5), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((4, 5), dtype=x.dtype, buffer=nl.sbuf)
    # LINE gather
    nisa.dma_copy(dst=tile, src=x.ap([[5, 4], [1, 5]], vector_offset=nl.load(rows)))
    for n in range(3):
        # LINE add
        nisa.tensor_scalar(dst=tile[:, 1:4], data=tile[:, 1:4], op0=nl.add, operand0=n + 1.0)
    nl.store(out, tile)
    return out


@pytest.fixture(scope="module")
def record():
    return nki.record(chosen)(X, np.array([[3], [11], [0], [7]], np.int32))


def test_steps_are_in_order_with_their_lines(record):
    steps = record.steps()
    assert [s.instruction for s in steps] == ["nisa.dma_copy"] * 2 + ["nisa.tensor_scalar"] * 3 + [
        "nisa.dma_copy"
    ]
    assert [s.location for s in steps[2:5]] == [LINES["add"]] * 3
    assert [s.location for s in steps].count(LINES["gather"]) == 2
    assert [s.step for s in steps] == sorted({s.step for s in steps})
    assert {(s.core, s.rank) for s in steps} == {(0, 0)}
    assert len(steps) == 6 and steps[-1].step == record.writes("out")[0].step


def test_operands_have_names_shapes_and_memories(record):
    gather, add = record.steps()[1], record.steps()[2]
    assert list(gather.reads) == ["src", "src.index"]
    assert gather.reads["src.index"].dtype == "int32"
    dst = add.writes["dst"]
    assert (dst.tensor, dst.memory, dst.shape, dst.dtype) == ("tile", "sbuf", (4, 3), "float32")
    assert "tensor_scalar(data tile, dst tile)" in str(add)


def test_one_view_in_two_places_is_both(record):
    @nki.jit
    def squared(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.multiply)
        nl.store(out, tile)
        return out

    step = nki.record(squared)(X).steps()[1]
    assert list(step.reads) == ["data1", "data2"] and list(step.writes) == ["dst"]
    before, after = step.before(), step.after()
    for name in ("dst", "data1", "data2"):  # which lie in one place
        np.testing.assert_array_equal(before[name], X)
        np.testing.assert_array_equal(after[name], X**2)


def test_values_are_those_before_and_after(record):
    want = X[[3, 11, 0, 7]]
    steps = record.steps()
    np.testing.assert_array_equal(steps[1].after()["dst"], want)
    np.testing.assert_array_equal(steps[1].before()["src"].reshape(4, 5), want)
    for n, step in enumerate(steps[2:5]):
        before = want[:, 1:4] + sum(range(1, n + 1))
        np.testing.assert_array_equal(step.before()["data"], before)
        np.testing.assert_array_equal(step.before()["dst"], before)
        np.testing.assert_array_equal(step.after()["dst"], before + n + 1)


def test_any_order_gives_the_same(record):
    fresh = record.steps()
    backwards = [s.after()["dst"] for s in list(fresh)[::-1]][::-1]
    for step, values in zip(record.steps(), backwards):
        np.testing.assert_array_equal(step.after()["dst"], values)


def test_collectives_of_ranks(tmp_path):
    @nki.jit
    def summed(x, group):
        local = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(local, nl.load(x))
        ncc.all_reduce(srcs=[local], dsts=[out], replica_group=group, op=nl.add)
        return out

    parts = [X * (r + 1) for r in range(3)]
    with nki.World(ranks=3, host="inprocess") as world:
        group = ncc.ReplicaGroup([[0, 1, 2]])
        record = world.record(summed, nki.per_rank(parts), group=group)
    found = [s for s in record.steps() if s.instruction == "ncc.all_reduce"]
    assert sorted(s.rank for s in found) == [0, 1, 2]
    for step in found:
        assert list(step.reads) == ["srcs[0]"] and list(step.writes) == ["dsts[0]"]
        np.testing.assert_array_equal(step.before()["srcs[0]"], parts[step.rank])
        np.testing.assert_array_equal(step.after()["dsts[0]"], X * 6)


def test_no_step_begins_everywhere(record):
    with pytest.raises(LaunchError, match="step 99: no instruction begins there"):
        record.steps().values(99)
