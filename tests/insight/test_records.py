"""Records: outputs, writes, sources, refusals."""

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import LaunchError, NkiError
from tests.insight.lines import lines_of

LINES = lines_of(__file__)
X = np.random.default_rng(8).standard_normal((30, 14)).astype(np.float32)


def shared(x, dtype=None):
    return nl.ndarray(x.shape, dtype=dtype or x.dtype, buffer=nl.shared_hbm)


def tile(*shape, dtype=nl.float32, buffer=nl.sbuf, name=""):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer, name=name)


@nki.jit
def summed_rows(x):
    """Each core adds up the columns of its rows, one after the other."""
    rows = x.shape[0] // nl.num_programs(0)
    first = nl.program_id(0) * rows
    out = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.shared_hbm)
    data, total = nl.load(x[first : first + rows]), tile(rows, 1, name="total")
    # LINE cleared
    nisa.memset(dst=total, value=0.0)
    for column in range(x.shape[1]):
        # LINE added
        nisa.tensor_tensor(dst=total, data1=total, data2=data[:, column : column + 1], op=nl.add)
    nl.store(out[first : first + rows], total)
    return out


def test_outputs_are_the_bits_of_a_launch():
    record = nki.record(summed_rows[2])(X)
    assert record.outputs.tobytes() == nki.simulate(summed_rows[2])(X).tobytes()
    assert "2 cores" in str(record) and len(repr(record)) < 200


def test_writes_of_a_tensor_and_of_a_line():
    record = nki.record(summed_rows[2])(X)
    writes = record.writes("total", core=1)
    assert [w.instruction for w in writes] == ["nisa.memset"] + 14 * ["nisa.tensor_tensor"]
    assert {w.core for w in writes} == {1} and {w.rank for w in writes} == {0}
    assert [w.step for w in writes] == sorted({w.step for w in writes})
    sums = np.cumsum(X[15:], axis=1, dtype=np.float32)
    for n, write in enumerate(writes[1:]):
        np.testing.assert_array_equal(write.values[:, 0], sums[:, n])
        assert write.location == LINES["added"] and write.tensor == "total"
    by_line = record.writes(LINES["added"])
    assert len(by_line) == 28 and {w.core for w in by_line} == {0, 1}
    number = int(LINES["added"].rpartition(":")[2])
    assert len(record.writes(number)) == len(record.writes(f"test_records.py:{number}")) == 28
    assert "total" in str(writes) and len(str(by_line).split("\n")) <= 41


def test_an_argument_that_the_kernel_writes_is_updated_and_kept():
    def doubled(x):
        data = nl.load(x)
        nisa.tensor_tensor(dst=data, data1=data, data2=data, op=nl.add)
        nl.store(x, data)
        return x

    x = X.copy()
    record = nki.record(doubled)(x)
    np.testing.assert_array_equal(x, 2 * X)
    np.testing.assert_array_equal(record.writes("data")[0].values, X)
    origin = record.origin(0, (4, 5))
    assert origin.value == 2 * X[4, 5]
    assert (origin.sources[0].kind, origin.sources[0].index) == ("argument", (4, 5))


def test_elements_that_matter_and_no_others():
    """Of a sum of products only the row and the column; the values are theirs."""

    def product(x, y):
        out = nl.ndarray((x.shape[1], y.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
        a, b = nl.load(x), nl.load(y)
        psum, result = tile(*out.shape, buffer=nl.psum), tile(*out.shape)
        nisa.nc_matmul(dst=psum, stationary=a, moving=b)
        nisa.tensor_copy(dst=result, src=psum)
        nl.store(out, result)
        return out

    y = np.random.default_rng(9).standard_normal((30, 21)).astype(np.float32)
    record = nki.record(product)(X, y)
    origin = record.origin(0, (3, 17))
    loads = {s.tensor: s for s in origin if s.tensor in ("a", "b")}
    np.testing.assert_array_equal(loads["a"].values, X[:, 3])
    np.testing.assert_array_equal(loads["b"].values, y[:, 17])
    assert (loads["a"].index, loads["b"].index) == ((0, 3), (0, 17))
    assert sorted((s.name, s.count) for s in origin.sources) == [("x", 30), ("y", 30)]
    assert origin[0].instruction == "nisa.nc_matmul"
    assert origin[0].values.tolist() == [origin.value]


def test_rows_that_indices_choose():
    def gathered(x, index):
        out = nl.ndarray((5, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
        rows, offsets = tile(5, x.shape[1]), tile(5, 1, dtype=nl.int32)
        nisa.dma_copy(dst=offsets, src=index)
        # LINE shifted
        nisa.tensor_scalar(dst=offsets, data=offsets, op0=nl.add, operand0=1)
        chosen = x.ap([[14, 5], [1, 14]], vector_offset=offsets, indirect_dim=0)
        nisa.dma_copy(dst=rows, src=chosen)
        nl.store(out, rows)
        return out

    index = np.array([[7], [2], [19], [3], [11]], np.int32)
    record = nki.record(gathered)(X, index)
    origin = record.origin(0, (2, 6))
    assert origin.value == X[20, 6]
    by_name = {s.name: s for s in origin.sources}
    assert (by_name["x"].index, by_name["x"].count) == ((20, 6), 1)
    assert by_name["index"].kind == "argument"
    assert LINES["shifted"] in [s.location for s in origin]


def test_addresses_in_registers_are_followed():
    def chosen(x, row):
        out = nl.ndarray((1, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
        at, line = nisa.register_alloc(0), tile(1, x.shape[1])
        # LINE loaded
        nisa.register_load(at, row)
        nisa.dma_copy(dst=line, src=x.select(0, at))
        nl.store(out, line)
        return out

    record = nki.record(chosen)(X, np.array([[9]], np.int32))
    origin = record.origin(0, (0, 4))
    assert origin.value == X[9, 4]
    assert {s.name: s.index for s in origin.sources} == {"x": (9, 4), "row": (0, 0)}
    assert LINES["loaded"] in [s.location for s in origin]


def test_sums_that_instructions_leave_behind():
    """An engine's accumulators are followed from one instruction to the next."""

    def accumulated(x):
        out = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.shared_hbm)
        data, total, scratch = nl.load(x), tile(x.shape[0], 1), tile(*x.shape)
        cmd = nisa.reduce_cmd
        options = {"op": nl.square, "reduce_op": nl.add}
        # LINE begins
        nisa.activation(dst=scratch, data=data, reduce_cmd=cmd.reset_reduce, **options)
        nisa.activation(dst=scratch, data=data, reduce_cmd=cmd.reduce, reduce_res=total, **options)
        nl.store(out, total)
        return out

    record = nki.record(accumulated)(X)
    origin = record.origin(0, (8, 0))
    assert LINES["begins"] in [s.location for s in origin]
    np.testing.assert_allclose(origin.value, 2 * (X[8] ** 2).sum(), rtol=1e-5)
    assert (origin.sources[0].name, origin.sources[0].count) == ("x", 14)


def test_memory_that_nobody_wrote_comes_first():
    def half_written(x):
        out, data = shared(x), tile(*x.shape)
        nisa.dma_copy(dst=data[:, :7], src=x[:, :7])
        # LINE reads
        nisa.tensor_scalar(dst=data, data=data, op0=nl.add, operand0=1.0)
        nisa.tensor_scalar(dst=data, data=data, op0=nl.multiply, operand0=3.0)
        nl.store(out, data)
        return out

    kernel = nki.jit(half_written)
    with nki.World(host="inprocess", check="unwritten=zero") as world:
        record = world.record(kernel, X)
    assert record.outputs[0][2, 9] == 3
    origin = record.origin(0, (2, 9))
    assert origin[0].location == LINES["reads"] and "nobody had written" in origin.why
    assert origin.sources[0].kind == "unwritten" and origin.sources[0].name == "data"
    assert record.origin(0, (2, 3)).sources[0].kind == "argument"
    assert "(of data where nobody wrote)" in str(origin)


def test_a_walk_ends_at_its_limit():
    record = nki.record(summed_rows)(X)
    short, whole = record.origin(0, (3, 0), limit=4), record.origin(0, (3, 0), limit=None)
    assert not short.complete and len(short) == 4 and "limit=None" in str(short)
    assert whole.complete and len(whole) > 16
    assert whole[0].reads and all(r in list(whole) + whole.sources for r in whole[0].reads)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda r: r.writes("totl"), "'totl' is no tensor and no line of summed_rows; near are"),
        (lambda r: r.writes("total", core=2), "core=2; the launch has cores 0 to 1"),
        (lambda r: r.writes("total", rank=1), "rank=1; the launch has ranks 0 to 0"),
        (lambda r: r.writes("nowhere.py:3"), "no tensor and no line"),
        (lambda r: r.origin(1, (0, 0)), "the kernel returned 1 tensors: out"),
        (lambda r: r.origin(0, (30, 0)), r"index=\(30, 0\); the output has shape \(30, 1\)"),
        (lambda r: r.origin(0, (3,)), r"index=\(3,\); the output has shape"),
        (lambda r: r.origin("out", (3, 0), rank=4), "rank=4; the launch has ranks 0 to 0"),
    ],
)
def test_questions_without_answer(ask, message):
    record = nki.record(summed_rows[2])(X)
    with pytest.raises(LaunchError, match=message) as error:
        ask(record)
    assert error.value.code == "record-question"


def test_an_argument_that_is_not_finite():
    x = X.copy()
    x[5, 5] = np.nan
    first = nki.record(summed_rows)(x).first_non_finite()
    assert (first.made, first.index, first.tensor) == (False, (5, 5), "x")
    assert np.isnan(first.value) and "read from argument x" in str(first)


def test_masks_are_asked_for():
    """Fills with -inf, also by a number that the tile's type can't hold, aren't reported."""

    def masked(x):
        out, data = shared(x, nl.bfloat16), nl.load(x)
        low, mask = tile(*x.shape, dtype=nl.bfloat16), tile(*x.shape)
        nisa.memset(dst=mask, value=-np.inf)
        nisa.tensor_copy(dst=data[:, :3], src=mask[:, :3])
        nisa.affine_select(
            dst=low,
            pattern=[[1, x.shape[1]]],
            channel_multiplier=-1,
            on_true_tile=data,
            on_false_value=-3.4e38,
        )
        nisa.activation(dst=low, op=nl.exp, data=low)
        nisa.tensor_scalar(dst=mask, data=data, op0=nl.minimum, operand0=-np.inf)
        nl.store(out, low)
        return out

    record = nki.record(masked)(X)
    assert np.isneginf(record.writes("low")[0].values.astype(np.float32)).any()
    assert record.first_non_finite() is None


def test_low_precision_as_float32(monkeypatch):
    monkeypatch.setenv("NKI_PRECISE_FP", "0")

    def narrow(x):
        out, data = shared(x, nl.bfloat16), tile(*x.shape, dtype=nl.bfloat16)
        nisa.dma_copy(dst=data, src=x)
        nisa.tensor_tensor(dst=data, data1=data, data2=data, op=nl.multiply)
        nl.store(out, data)
        return out

    record = nki.record(narrow)(X)
    assert record.outputs.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(record.writes("data")[1].values, X * X)
    assert record.origin(0, (7, 7)).value == np.float32(X[7, 7] ** 2)


def test_stores_that_are_watched_for_races():
    """Both cores store the same bytes to the same place, which is no race."""

    @nki.jit
    def both(x):
        out, data = shared(x), nl.load(x)
        nl.store(out, data)
        return out

    record = nki.record(both[2])(X)
    assert [w.core for w in record.writes("out")] == [0, 1]
    assert record.origin(0, (3, 4)).value == X[3, 4]


def test_a_collective_reads_what_both_cores_stored():
    """Core 0 comes to it before core 1 has stored its half."""

    @nki.jit
    def summed(x, group):
        me, rows = nl.program_id(0), x.shape[0] // 2
        local, out = shared(x), shared(x)
        data = nl.load(x[me * rows : me * rows + rows])
        nl.store(local[me * rows : me * rows + rows], data)
        ncc.all_reduce(srcs=[local], dsts=[out], replica_group=group, op=nl.add)
        return out

    shards = [X, X + 1, X + 2]
    with nki.World(ranks=3, lnc=2, host="inprocess") as world:
        group = ncc.ReplicaGroup([[0, 1, 2]])
        record = world.record(summed, nki.per_rank(shards), group=group)
    origin = record.origin(0, (20, 5), rank=1)
    assert origin.value == record.outputs[1][20, 5]
    np.testing.assert_allclose(origin.value, 3 * X[20, 5] + 3, rtol=1e-5)
    sources = [(s.rank, s.index, s.count, s.values[0]) for s in origin.sources]
    assert sorted(sources) == [(r, (20, 5), 1, shards[r][20, 5]) for r in range(3)]


def test_an_instructions_own_fill_is_no_fault():
    """range_select fills with float32's lowest number, which bfloat16 holds as -inf."""

    def kept_columns(x):
        out, data = shared(x, nl.bfloat16), nl.load(x)
        low, high = tile(x.shape[0], 1), tile(x.shape[0], 1)
        nisa.memset(dst=low, value=2.0)
        nisa.memset(dst=high, value=9.0)
        kept = tile(*x.shape, dtype=nl.bfloat16)
        nisa.range_select(
            dst=kept,
            on_true_tile=data,
            comp_op0=nl.greater_equal,
            comp_op1=nl.less,
            bound0=low,
            bound1=high,
        )
        nl.store(out, kept)
        return out

    record = nki.record(kept_columns)(X)
    assert np.isneginf(record.outputs.astype(np.float32)).any()
    assert record.first_non_finite() is None


def test_what_cannot_be_linked_is_told_with_its_core_and_line(monkeypatch):
    """As memory for what an instruction needs, when a question is asked."""
    record, spec = nki.record(summed_rows[2])(X), nisa.tensor_tensor
    meaning = spec.lower

    def fails(i, kit):
        if kit.slot.core == 1:
            raise MemoryError
        return meaning(i, kit)

    monkeypatch.setattr(spec, "lower", fails)
    with pytest.raises(NkiError) as caught:
        record.writes("total")
    assert (caught.value.core, caught.value.instruction) == (1, "nisa.tensor_tensor")
    assert caught.value.location == LINES["added"]
