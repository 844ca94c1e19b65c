"""What a page says of a result that is off: lines by rounds, odd facts, what it was made of."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.collectives as ncc
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.insight.log import Log
from tests.examples import scripts  # noqa: F401 - so that examples can be imported
from tests.insight.lines import lines_of

LINES = lines_of(__file__)
RNG = np.random.default_rng(7)


def shared(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


def tile(*shape, dtype=nl.float32, buffer=nl.sbuf):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def told(record, expected):
    return record.wrong(Log(record.launched), expected)


def of(name):
    return LINES[name].rpartition("/")[2]


@nki.jit
def last_round(x, y):
    """Rows of y, of which the last tile takes other ones than those of x."""
    out = shared(x.shape)
    for first in range(0, x.shape[0], 32):
        start = min(first, x.shape[0] - 32)
        mine = nl.load(x[start : start + 32])
        # LINE last_round
        theirs = nl.load(y[first : first + 32])
        total = tile(32, x.shape[1])
        nisa.tensor_tensor(dst=total, data1=mine, data2=theirs, op=nl.add)
        nl.store(out[start : start + 32], total)
    return out


def test_lines_are_told_apart_by_their_rounds():
    x, y = (RNG.standard_normal((n, 12)).astype(np.float32) for n in (80, 100))
    made = told(nki.record(last_round)(x, y), x + y[:80])
    (said,) = [s for s in made.said if s.startswith("those looked at that are off came through")]
    assert said.startswith("those looked at that are off came through round 3 of 3 of ")
    assert of("last_round") in said and said.endswith("right ones through rounds 1 to 2 of 3")
    assert not made.first and LINES["last_round"] in made.others
    (_, right, off_parts), (_, other, right_parts) = (
        made.ways[0],
        next(w for w in made.ways if w[1]),
    )
    assert (right, other) == (False, True) and set(off_parts) == set(right_parts) == {"x", "y"}
    row, taken = (int(off_parts[n].partition("[")[2].partition(",")[0]) for n in ("x", "y"))
    assert taken == row + 16


def test_elements_that_are_right_by_chance_veto_nothing():
    @nki.jit
    def factors(x):
        out, data = shared(x.shape), nl.load(x)
        # LINE factor
        nisa.tensor_scalar(dst=data, data=data, op0=nl.multiply, operand0=2.0)
        nl.store(out, data)
        return out

    x = RNG.standard_normal((64, 80)).astype(np.float32)
    want = RNG.standard_normal(x.shape)
    by_chance = RNG.integers(0, want.size, 12)
    want.flat[by_chance] = 2 * x.flat[by_chance]
    made = told(nki.record(factors)(x), want)
    assert not any(right for _, right, _ in made.ways)
    assert made.why.startswith("No element is surely right")
    assert made.start.location == LINES["factor"]  # the last that computed, not the store
    want[32:] = 2 * x[32:]  # half of it is right altogether
    made = told(nki.record(factors)(x), want)
    assert [w for w in made.ways if w[1]]
    rights = [
        int(name.partition("[")[2].partition(",")[0]) for name, right, _ in made.ways if right
    ]
    assert min(rights) >= 32


@nki.jit
def counted(x):
    """A count that is kept in int8."""
    out, count = shared((x.shape[0], 1)), tile(x.shape[0], 1, dtype=nl.int8)  # LINE count
    nisa.memset(dst=count, value=0)
    for first in range(0, x.shape[1], 100):
        part, total = tile(x.shape[0], 1), tile(x.shape[0], 1)
        data = nl.load(x[:, first : first + 100])
        nisa.tensor_reduce(dst=part, op=nl.add, data=data, axis=1)
        nisa.tensor_tensor(dst=total, data1=part, data2=count, op=nl.add)
        # LINE counted
        nisa.tensor_copy(dst=count, src=total)
    nisa.tensor_copy(dst=total, src=count)
    nl.store(out, total)
    return out


def test_a_type_that_cannot_hold_a_value_is_told_where_it_is_written():
    x = (RNG.random((40, 200)) < np.linspace(0.2, 1, 40)[:, None]).astype(np.float32)
    made = told(nki.record(counted)(x), x.sum(1, keepdims=True))
    assert (made.line, made.first) == (LINES["counted"], False)
    assert any(f"{of('counted')} 2" in s and "became 127 in int8" in s for s in made.said), (
        made.said
    )
    assert next(s.odd for s in made.steps if s.location == made.line)
    assert "count: int8" in {one for ones in made.allocated.values() for one in ones}
    assert made.start.location == LINES["counted"] and made.start.odd


@pytest.mark.parametrize(
    ("dtype", "value", "said"),
    [(nl.float16, 1e-8, "1e-08 became 0 in float16"), (nl.float16, 1e5, "100000 became inf in")],
)
def test_numbers_of_the_kernel_count_too(dtype, value, said):
    @nki.jit
    def added(x):
        out, data, small = shared(x.shape), nl.load(x), tile(*x.shape, dtype=dtype)
        nisa.memset(dst=small, value=value)
        nisa.tensor_tensor(dst=data, data1=data, data2=small, op=nl.add)
        nl.store(out, data)
        return out

    x = np.full((4, 5), value / 8, np.float32)
    made = told(nki.record(added)(x), x + np.float64(value))
    assert any(said in s for s in made.said), made.said


@pytest.mark.parametrize("reset", [False, True])
def test_a_sum_that_goes_on_after_it_was_read(reset):
    @nki.jit
    def products(a, b):
        out = shared((2, a.shape[1], b.shape[1]))
        acc = tile(a.shape[1], b.shape[1], buffer=nl.psum)
        for n in range(2):
            for k in (0, 64):
                left, right = nl.load(a[k : k + 64]), nl.load(b[k : k + 64])
                nisa.tensor_scalar(dst=left, data=left, op0=nl.multiply, operand0=n + 1.0)
                more = {"accumulate": k > 0} if reset else {}
                # LINE products
                nisa.nc_matmul(dst=acc, stationary=left, moving=right, **more)
            result = tile(a.shape[1], b.shape[1])
            # LINE taken
            nisa.tensor_copy(dst=result, src=acc)
            nl.store(out[n], result)
        return out

    a, b = (RNG.standard_normal((128, n)).astype(np.float32) for n in (16, 24))
    want = np.stack([a.T @ b, 2 * a.T @ b])
    made = told(nki.record(products)(a, b), want + 5 * reset)
    fact = f"{of('products')} added to what {of('taken')} had read before"
    assert any(s.startswith(fact) for s in made.said) == (not reset), made.said
    assert reset or made.line == LINES["products"]


@pytest.mark.parametrize("slots", [1, 2])
def test_what_was_lost_before_it_was_used(slots):
    @nki.jit
    def ahead(x):
        out = shared(x.shape)
        places = [tile(32, x.shape[1]) for _ in range(slots)]
        for n in range(3):
            if n == 0:
                nisa.dma_copy(dst=places[0], src=x[0:32])
            if n < 2:
                # LINE fetched
                nisa.dma_copy(dst=places[(n + 1) % slots], src=x[32 * n + 32 : 32 * n + 64])
            result = tile(32, x.shape[1])
            nisa.activation(dst=result, op=nl.exp, data=places[n % slots])
            nl.store(out[32 * n : 32 * n + 32], result)
        return out

    x = RNG.standard_normal((100, 12)).astype(np.float32)
    want = np.concatenate([np.exp(x[:96]), np.zeros((4, 12))])
    out = nki.record(ahead)(x[:96])
    made = told(out, want[:96] + (slots == 2))
    lost = [s for s in made.said if "before it was used" in s]
    assert bool(lost) == (slots == 1), made.said
    unused = [s for s in made.said if s.startswith("nothing that is returned is made of")]
    assert unused == ["nothing that is returned is made of x[0:32, 0:12]"] * (slots == 1)


def test_ranks_that_give_the_same_are_one():
    @nki.jit
    def summed(x, group):
        local, out, data = shared(x.shape), shared(x.shape), nl.load(x)
        nl.store(local, data)
        ncc.all_reduce(srcs=[local], dsts=[out], replica_group=group, op=nl.add)
        return out

    parts = [RNG.standard_normal((6, 7)).astype(np.float32) for _ in range(4)]
    with nki.World(ranks=4, host="inprocess") as world:
        group = ncc.ReplicaGroup([[0, 1, 2, 3]])
        record = world.record(summed, nki.per_rank(parts), group=group)
    made = told(record, [sum(parts) / 4] * 4)
    (parts_of,) = made.ways[0][2].values()
    assert parts_of.startswith("x[") and parts_of.endswith("] of ranks 0 to 3")
    page = record.report(expected=[sum(parts) / 4] * 4, charts=False)
    way = page.partition("class=chain")[2].partition("</section>")[0]
    assert "<summary>3 more</summary>" in way  # of the same line, on other ranks
    assert way.count("of rank ") >= 4


def test_one_rank_is_not_named():
    x = RNG.standard_normal((80, 12)).astype(np.float32)
    page = nki.record(last_round)(x, np.pad(x, ((0, 20), (0, 0)))).report(expected=x, charts=False)
    assert "rank 0" not in page.partition("<section id=difference")[2].partition("</section>")[0]


def test_a_line_with_a_right_element_comes_nearest():
    """A row of zeros stays right whatever it is multiplied by."""

    @nki.jit
    def scaled(x):
        me, rows = nl.program_id(0), x.shape[0] // 2
        out, data = shared(x.shape), nl.load(x[me * rows : me * rows + rows])
        if me == 1:
            # LINE scaled
            nisa.tensor_scalar(dst=data, data=data, op0=nl.multiply, operand0=3.0)
        nisa.tensor_scalar(dst=data, data=data, op0=nl.add, operand0=1.0)
        nl.store(out[me * rows : me * rows + rows], data)
        return out

    x = RNG.random((64, 12)).astype(np.float32) + 2
    x[-1] = 0
    made = told(nki.record(scaled[2])(x), x + 1.0)
    assert (made.line, made.first) == ("", False)
    assert f"{of('scaled')} comes nearest to that" in made.why
    assert made.start.location == LINES["scaled"]
    assert any(f"came through {of('scaled')}, and 1 of 3 right ones" in s for s in made.said)


def running_sums(reset):
    @nki.jit
    def running(x):
        """What was summed so far is kept for the next round; the last round needs nothing of it."""
        out = shared((2, *x.shape))
        before, total = tile(32, x.shape[1]), tile(32, x.shape[1])
        for n in range(2):
            if reset:
                nisa.memset(dst=before, value=0.0)
            else:
                nisa.tensor_scalar(dst=before, data=nl.load(x[:32]), op0=nl.multiply, operand0=0.0)
            for first in range(0, x.shape[0], 32):
                data = nl.load(x[first : first + 32])
                nisa.tensor_tensor(dst=total, data1=data, data2=before, op=nl.add)
                nl.store(out[n, first : first + 32], total)
                nisa.tensor_copy(dst=before, src=total)
        return out

    x = RNG.standard_normal((96, 12)).astype(np.float32)
    return running, [x], np.stack([np.add.accumulate(x.reshape(3, 32, 12)).reshape(x.shape)] * 2)


def half_softmax():
    @nki.jit
    def softmax(x):
        """Exponentials that are small beside others are 0 in float16."""
        out, data, total = shared(x.shape), nl.load(x), tile(x.shape[0], 1)
        high = tile(x.shape[0], 1)
        nisa.tensor_reduce(dst=high, op=nl.maximum, data=data, axis=1, negate=True)
        half = tile(*x.shape, dtype=nl.float16)
        nisa.activation(dst=half, op=nl.exp, data=data, bias=high)
        nisa.tensor_reduce(dst=total, op=nl.add, data=half, axis=1)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=data, data=half, op0=nl.multiply, operand0=total)
        nl.store(out, data)
        return out

    x = 9 * RNG.standard_normal((64, 30)).astype(np.float32)
    e = np.exp(x - x.max(1, keepdims=True))
    return softmax, [x], e / e.sum(1, keepdims=True)


def huge_mask():
    @nki.jit
    def masked(x):
        """-3e38 is -inf in float16: asked for."""
        out, data, mask = shared(x.shape), nl.load(x), tile(*x.shape, dtype=nl.float16)
        nisa.memset(dst=mask, value=0.0)
        nisa.memset(dst=mask[:, :4], value=-3e38)
        nisa.tensor_tensor(dst=data, data1=data, data2=mask, op=nl.add)
        nisa.activation(dst=data, op=nl.exp, data=data)
        nl.store(out, data)
        return out

    x = RNG.standard_normal((64, 30)).astype(np.float32)
    return masked, [x], np.where(np.arange(30) < 4, 0, np.exp(x))


def printed_sum():
    @nki.jit
    def product(a, b):
        """A sum is printed before it is complete."""
        out, acc = shared((a.shape[1], b.shape[1])), tile(a.shape[1], b.shape[1], buffer=nl.psum)
        for k in (0, 64):
            nisa.nc_matmul(
                dst=acc, stationary=nl.load(a[k : k + 64]), moving=nl.load(b[k : k + 64])
            )
            nl.device_print("so far", acc)
        result = tile(*acc.shape)
        nisa.tensor_copy(dst=result, src=acc)
        nl.store(out, result)
        return out

    a, b = (RNG.standard_normal((128, n)).astype(np.float32) for n in (16, 24))
    return product, [a, b], a.T @ b


def scratch():
    @nki.jit
    def squares(x):
        """What is made of one of two results isn't returned, and its place is used again."""
        out, data, left, right = shared(x.shape), nl.load(x), tile(*x.shape), tile(*x.shape)
        nisa.activation(dst=left, op=nl.square, data=data)
        nisa.tensor_copy(dst=right, src=left)
        nisa.tensor_tensor(dst=left, data1=data, data2=data, op=nl.multiply)
        nl.store(out, left)
        return out

    x = RNG.standard_normal((64, 30)).astype(np.float32)
    return squares, [x], x * x


@pytest.mark.parametrize(
    ("make", "off"),
    [
        pytest.param(lambda: running_sums(True), np.s_[1], id="reset"),
        pytest.param(lambda: running_sums(False), np.s_[1], id="computed"),
        pytest.param(half_softmax, np.s_[32:], id="small"),
        pytest.param(huge_mask, np.s_[:, :4], id="mask"),
        pytest.param(printed_sum, np.s_[8:], id="printed"),
        pytest.param(scratch, np.s_[32:], id="scratch"),
    ],
)
def test_right_kernels_are_not_accused(make, off):
    """Whose result was expected to be another one."""
    kernel, given, want = make()
    record = nki.record(kernel)(*given)
    assert told(record, want).why == "Nothing is off."
    want = np.array(want, np.float64)
    want[off] = 7.5 + np.abs(want).max()
    made = told(record, want)
    assert not [fact for s in made.steps for fact in s.odd]
    assert "stands out" not in made.why


def test_rows_of_counts_that_nobody_reads_are_no_mistake():
    """Its second exchange has counts that are known: nobody writes row 2 of them, or reads it."""
    from expert_parallel import case, expert_parallel

    made = case(np.random.default_rng(0), ranks=8, small=True)
    with nki.World(ranks=8, host="inprocess", platform="trn3") as world:
        record = world.record(expert_parallel, **made.arguments)
    want = np.array(made.expected[0])
    assert told(record, [want] + [None] * 7).why == "Nothing is off."
    want[6:] += 9
    off = told(record, [want] + [None] * 7)
    assert "nobody" not in off.why
    assert not [name for *_, parts in off.ways for name in parts if "unwritten" in name]
