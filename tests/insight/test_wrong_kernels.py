"""Kernels that are wrong on purpose: the guilty line is named first."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from tests.insight.lines import lines_of

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
]

LINES = lines_of(__file__)
X = np.random.default_rng(3).standard_normal((96, 40)).astype(np.float32)


def shared(x):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)


def tile(*shape, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def zero_rows(x):
    """A norm without epsilon, of a row of zeros; there are masks of -inf before it."""
    out, data, total = shared(x), nl.load(x), tile(x.shape[0], 1)
    masked = tile(*x.shape)
    nisa.affine_select(
        dst=masked,
        pattern=[[1, x.shape[1]]],
        channel_multiplier=-1,
        on_true_tile=data,
        on_false_value=-np.inf,
    )
    weights = tile(*x.shape)
    nisa.activation(dst=weights, op=nl.exp, data=masked)
    nisa.activation_reduce(
        dst=tile(*x.shape), op=nl.square, data=data, reduce_op=nl.add, reduce_res=total
    )
    # LINE zero_rows
    nisa.activation(dst=total, op=nl.rsqrt, data=total)
    nisa.tensor_scalar(dst=data, data=data, op0=nl.multiply, operand0=total)
    nisa.tensor_tensor(dst=data, data1=data, data2=weights, op=nl.multiply)
    nl.store(out, data)
    return out


def log_of_negative(x):
    out, data = shared(x), nl.load(x)
    # LINE log_of_negative
    nisa.activation(dst=data, op=nl.log, data=data)
    nisa.tensor_scalar(dst=data, data=data, op0=nl.maximum, operand0=0.0)
    nl.store(out, data)
    return out


def difference_of_infinities(x):
    """Two masks of -inf are subtracted from each other."""
    out, data, mask = shared(x), nl.load(x), tile(*x.shape)
    nisa.memset(dst=mask, value=-np.inf)
    # LINE difference_of_infinities
    nisa.tensor_tensor(dst=mask, data1=mask, data2=mask, op=nl.subtract)
    nisa.tensor_tensor(dst=data, data1=data, data2=mask, op=nl.add)
    nl.store(out, data)
    return out


def divided_in_a_loop(x):
    """Row blocks are divided by what reaches zero in the last round."""
    out, count = shared(x), tile(32, 1)
    nisa.memset(dst=count, value=2.0)
    for _ in nl.dynamic_range(3):
        data = tile(32, x.shape[1])
        nisa.dma_copy(dst=data, src=x[0:32, :])
        # LINE divided_in_a_loop
        nisa.tensor_scalar(dst=data, data=data, op0=nl.divide, operand0=count)
        nisa.tensor_scalar(dst=count, data=count, op0=nl.subtract, operand0=1.0)
        nisa.dma_copy(dst=out[0:32, :], src=data)
    nisa.dma_copy(dst=out[32:, :], src=x[32:, :])
    return out


def wrong_factor(x):
    """Everything is moved after it was scaled by the wrong number."""
    out, data, moved = shared(x), nl.load(x), tile(x.shape[1], x.shape[0], buffer=nl.psum)
    # LINE wrong_factor
    nisa.tensor_scalar(dst=data, data=data, op0=nl.multiply, operand0=4.0)
    nisa.nc_transpose(dst=moved, data=data)
    back, copy = tile(*x.shape, buffer=nl.psum), tile(x.shape[1], x.shape[0])
    nisa.tensor_copy(dst=copy, src=moved)
    nisa.nc_transpose(dst=back, data=copy)
    nisa.tensor_copy(dst=data, src=back)
    nl.store(out, data)
    return out


def wrong_product(x):
    """A matmul of the wrong tiles, rounded on its way out."""
    out = nl.ndarray((40, 40), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    data, product = nl.load(x), tile(40, 40, buffer=nl.psum)
    # LINE wrong_product
    nisa.nc_matmul(dst=product, stationary=data, moving=data)
    narrow = tile(40, 40, dtype=nl.bfloat16)
    nisa.tensor_copy(dst=narrow, src=product)
    nl.store(out, narrow)
    return out


def half_sum(x):
    """Core 1's sum overflows, and travels to core 0."""
    me, rows = nl.program_id(0), x.shape[0] // 2
    out, data = shared(x), nl.load(x[me * rows : me * rows + rows])
    theirs = tile(rows, x.shape[1])
    # LINE half_sum
    nisa.tensor_tensor(dst=data, data1=data, data2=data, op=nl.add)
    nisa.sendrecv(src=data, dst=theirs, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    nisa.tensor_tensor(dst=data, data1=data, data2=theirs, op=nl.subtract)
    nl.store(out[me * rows : me * rows + rows], data)
    return out


def sum_of_ranks(x, group):
    """Every rank's numbers are finite, their sum isn't."""
    local, out = shared(x), shared(x)
    nisa.dma_copy(dst=local, src=x)
    # LINE sum_of_ranks
    ncc.all_reduce(srcs=[local], dsts=[out], replica_group=group, op=nl.add)
    final, data = shared(x), nl.load(out)
    nisa.tensor_scalar(dst=data, data=data, op0=nl.multiply, operand0=0.25)
    nl.store(final, data)
    return final


def at(value, *index):
    changed = np.abs(X) + 0.5
    changed[index] = value
    return changed


ODD = {
    zero_rows: (at(0.0, 11), (11, 20)),
    log_of_negative: (at(-1.0, 3, 30), (3, 30)),
    difference_of_infinities: (at(2.0, 60, 1), (5, 5)),
    divided_in_a_loop: (at(2.0, 60, 1), (9, 2)),
}
FINITE = {
    wrong_factor: (X, (80, 17)),
    wrong_product: (X, (17, 30)),
}


def guilty(kernel):
    return LINES[kernel.__name__]


@pytest.mark.parametrize("kernel", ODD, ids=lambda k: k.__name__)
def test_the_line_that_made_it_infinite_or_nan(kernel):
    x, index = ODD[kernel]
    record = nki.record(kernel)(x)
    assert not np.isfinite(record.outputs[index])
    assert record.first_non_finite().location == guilty(kernel)
    origin = record.origin(0, index)
    assert origin[0].location == guilty(kernel), str(origin)
    assert "isn't finite" in origin.why


@pytest.mark.parametrize("kernel", FINITE, ids=lambda k: k.__name__)
def test_the_line_that_made_a_wrong_number(kernel):
    x, index = FINITE[kernel]
    record = nki.record(kernel)(x)
    origin = record.origin(0, index)
    assert origin[0].location == guilty(kernel), str(origin)
    assert record.first_non_finite() is None


def test_across_cores():
    x = at(3e38, 70, 5)
    record = nki.record(nki.jit(half_sum)[2])(x)
    first = record.first_non_finite()
    assert (first.location, first.core, first.index) == (guilty(half_sum), 1, (22, 5))
    origin = record.origin(0, (22, 5))  # of core 0's half
    assert (origin[0].location, origin[0].core) == (guilty(half_sum), 1)


def test_across_ranks():
    kernel, shards = sum_of_ranks, [at(1.5e38, 40, 9) for _ in range(4)]
    group = ncc.ReplicaGroup([[0, 1, 2, 3]])
    with nki.World(ranks=4, host="inprocess") as world:
        plain = world.run(kernel, nki.per_rank(shards), group=group)
        record = world.record(kernel, nki.per_rank(shards), group=group)
    for a, b in zip(plain, record.outputs, strict=True):
        assert a.tobytes() == b.tobytes()
    first = record.first_non_finite()
    assert first.location == guilty(kernel)
    assert first.index == (40, 9)
    origin = record.origin(0, (40, 9), rank=1)
    assert origin[0].location == guilty(kernel), str(origin)
    assert {s.rank for s in origin.sources} == {0, 1, 2, 3}


def stale_tail(x):
    """One tile for all rounds; the last round leaves rows of the round before in it."""
    ones, data, total = tile(40, 1), tile(40, x.shape[1]), tile(1, x.shape[1], buffer=nl.psum)
    nisa.memset(ones, 1.0)
    for start in range(0, x.shape[0], 40):
        rows = slice(start, min(start + 40, x.shape[0]))
        nisa.dma_copy(dst=data[: rows.stop - start], src=x[rows])
        nisa.nc_matmul(dst=total, stationary=ones, moving=data)
    out = nl.ndarray(total.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.copy(total))
    return out


def test_the_text_says_which_steps_a_step_read():
    """Steps 1, 3 and 5 load rows; of the products 2, 4 and 6 only the last reads two loads."""
    origin = nki.record(nki.jit(stale_tail))(X).origin(0, (0, 7))
    read = {s.step: str(s).partition(" (of ")[2].partition(":")[0] for s in origin}
    assert (read[1], read[8]) == ("x)", "step 7)")
    assert [read[n] for n in (2, 4, 6)] == ["steps 0, 1)", "steps 0, 2, 3)", "steps 0, 3, 4, 5)"]
    assert str(origin[0]).startswith("step 6 rank 0 core 0")


def test_the_text_of_a_step_that_reads_much_is_short():
    def total(x):
        parts = tile(1, 40)
        for n in range(40):
            nisa.memset(parts[:, n : n + 1], n + 1.0)
        out = nl.ndarray((1, 1), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.sum(parts, axis=1, keepdims=True))
        return out

    origin = nki.record(nki.jit(total))(X).origin(0, (0, 0))
    assert "(of steps 0, 1, 2, 3, 4, 5, ...): 820" in str(origin[0])
