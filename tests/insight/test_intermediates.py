"""What tensors inside a kernel should hold says where a mistake lies."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import LaunchError
from tests.insight.lines import lines_of

LINES = lines_of(__file__)


@nki.jit
def attention(q, k, v, how="right"):
    """softmax(q.T @ k / sqrt(d)) @ v, with one of several mistakes."""
    (d, n), wide = q.shape, v.shape[1]
    out = nl.ndarray((n, wide), dtype=q.dtype, buffer=nl.shared_hbm)
    products = nl.ndarray((n, n), dtype=nl.float32, buffer=nl.psum)
    scores = nl.ndarray((n, n), dtype=nl.float32, buffer=nl.sbuf, name="logits")
    nisa.nc_matmul(dst=products, stationary=nl.load(q), moving=nl.load(k))
    factor = 1 / d if how in ("scale", "both") else d**-0.5
    # LINE scale
    nisa.tensor_scalar(dst=scores, data=products, op0=nl.multiply, operand0=factor)
    peak = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=peak, op=nl.maximum, data=scores, axis=1, negate=True)
    exps = nl.ndarray((n, n), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=exps, op=nl.exp, data=scores, bias=peak)
    total = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.sbuf)
    # LINE total
    nisa.tensor_reduce(dst=total, op=nl.maximum if how == "sum" else nl.add, data=exps, axis=1)
    inverse = nl.ndarray((n, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.reciprocal(dst=inverse, data=total)
    # LINE probs
    nisa.tensor_scalar(dst=exps, data=exps, op0=nl.multiply, operand0=inverse)
    turned = nl.ndarray((n, n), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_transpose(dst=turned, data=exps)
    moved = nl.ndarray((n, n), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=moved, src=turned)
    result = nl.ndarray((n, wide), dtype=nl.float32, buffer=nl.psum)
    rows = exps if how in ("order", "both") else moved
    # LINE result
    nisa.nc_matmul(dst=result, stationary=rows, moving=nl.load(v))
    last = nl.ndarray((n, wide), dtype=nl.float32, buffer=nl.sbuf)
    nisa.activation(dst=last, op=nl.copy, data=result)
    nl.store(out, last)
    return out


def inputs():
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape, np.float32) for shape in ((48, 40), (48, 40), (40, 24))]


def reference(q, k, v):
    scores = q.astype(np.float64).T @ k / np.sqrt(q.shape[0])
    exps = np.exp(scores - scores.max(1, keepdims=True))
    total = exps.sum(1, keepdims=True)
    probs = exps / total
    return {"logits": scores, "total": total, "exps": probs, "result": probs @ v}


@pytest.mark.parametrize("how, line", [("scale", "scale"), ("sum", "total"), ("order", "result")])
def test_the_first_line_that_departs(how, line):
    arguments = inputs()
    expected = reference(*arguments)
    record = nki.record(attention)(*arguments, how=how)
    origin = record.origin(0, (5, 7), expected=expected)
    assert origin[0].location == LINES[line], str(origin)
    assert "departs first" in origin.why
    off = [bool(one.off) for one in origin.expected]
    assert off == sorted(off) and any(off)  # right ones come before wrong ones


@pytest.mark.parametrize(
    "how, line, kept, between",
    [
        ("scale", "scale", ("result",), 13),
        ("sum", "total", ("logits", "exps"), 5),
        ("order", "result", ("exps", 0), 4),
    ],
)
def test_the_line_lies_between_what_is_right_and_what_departs(how, line, kept, between):
    arguments = inputs()
    expected = reference(*arguments)
    expected[0] = expected["result"]
    record = nki.record(attention)(*arguments, how=how)
    origin = record.origin(0, (5, 7), expected={name: expected[name] for name in kept})
    assert f"{kept[-1]} departs first" in origin.why
    assert f"is expected, {between} steps from what is right; it made" in origin.why
    assert LINES[line] in [s.location for s in origin[:between]], str(origin)


def test_of_two_mistakes_the_first():
    arguments = inputs()
    expected = reference(*arguments)
    record = nki.record(attention)(*arguments, how="both")
    assert record.origin(0, (5, 7), expected=expected)[0].location == LINES["scale"]
    later = {"result": expected["result"]}
    assert record.origin(0, (5, 7), expected=later)[0].location != LINES["scale"]


def test_what_is_right_ends_the_way_back():
    arguments = inputs()
    expected = reference(*arguments)
    record = nki.record(attention)(*arguments, how="order")
    whole = record.origin(0, (5, 7))
    assert whole[0].location != LINES["result"]  # the copy behind it computed last
    everything = record.origin(0, (5, 7), expected={"logits": expected["logits"]})
    assert "is as expected, 9 steps from what is right" in everything.why  # not the product's
    assert [str(one) for one in everything.expected] == ["logits: as expected"]
    assert {s.location for s in whole} == {s.location for s in everything}


def test_a_right_kernel_has_no_line_that_departs():
    arguments = inputs()
    expected = reference(*arguments)
    record = nki.record(attention)(*arguments)
    origin = record.origin(0, (5, 7), expected={**expected, 0: expected["result"]})
    assert not any(one.off for one in origin.expected)
    assert origin.why.startswith("everything that is expected is as expected; it made")


@nki.jit
def rows_summed(x, shift):
    """Rows of x, tile by tile, plus a shift; the third tile's is left out."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for n in range(x.shape[0] // 32):
        first = 32 * n
        tile = nl.load(x[first : first + 32, :])
        doubled = nl.ndarray((32, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
        # LINE doubled
        nisa.tensor_scalar(dst=doubled, data=tile, op0=nl.multiply, operand0=1.0 if n == 2 else 2.0)
        # LINE shifted
        nisa.tensor_scalar(dst=doubled, data=doubled, op0=nl.add, operand0=shift)
        nl.store(out[first : first + 32, :], doubled)
    return out


def test_a_tensor_of_each_round_and_a_line_of_each_round():
    x = np.random.default_rng(5).standard_normal((128, 8)).astype(np.float32)
    record = nki.record(rows_summed)(x, 3.0)
    tiles = x.reshape(4, 32, 8)
    by_name = record.origin(0, (70, 1), expected={"doubled": 2 * tiles + 3})
    line = LINES["doubled"]
    by_line = record.origin(0, (70, 1), expected={line: [None, *(2 * t for t in tiles[1:])]})
    assert by_line[0].location == line and by_line[0].step == by_line.expected[-2].step
    assert [one.off for one in by_line.expected] == [0, 256, 0]
    assert [one.off for one in by_name.expected] == [0, 0, 256, 0]
    assert {one.location for one in by_name.expected} == {LINES["shifted"]}
    both = record.origin(
        0, (70, 1), expected={"doubled": 2 * tiles + 3, line.rsplit("/", 1)[1]: 2 * tiles}
    )
    assert both[0].location == line and len(both.expected) == 8


@nki.jit
def halves(x):
    """Each core does half of the rows; core 1 forgets the sign."""
    me, rows = nl.program_id(0), x.shape[0] // 2
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[me * rows : me * rows + rows, :])
    sign = 1.0 if me else -1.0
    # LINE sign
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=sign)
    nl.store(out[me * rows : me * rows + rows, :], tile)
    return out


def test_a_tensor_of_one_of_two_cores():
    x = np.random.default_rng(6).standard_normal((16, 8)).astype(np.float32)
    record = nki.record(halves[2])(x)
    found = record.origin(0, (9, 1), expected={("tile", 0): -x[:8], ("tile", 1): -x[8:]})
    assert (found[0].location, found[0].core) == (LINES["sign"], 1)
    assert [bool(one.off) for one in found.expected] == [False, True]
    made = r"are made tile \(8, 8\), tile \(8, 8\)"
    with pytest.raises(LaunchError, match=made) as caught:
        record.origin(0, (9, 1), expected={"tile": -x[:8]})
    assert caught.value.code == "record-expected-ambiguous"


@nki.jit
def summed_over_ranks(x, group):
    local = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    # LINE squared
    nisa.activation(dst=tile, op=nl.square, data=tile, scale=0.5)
    nl.store(local, tile)
    nki.collectives.all_reduce(srcs=[local], dsts=[out], replica_group=group, op=nl.add)
    return out


def test_the_tensors_of_a_rank():
    x = np.arange(12, dtype=np.float32).reshape(4, 3) + 1
    with nki.World(ranks=3, host="inprocess") as world:
        group = nki.collectives.ReplicaGroup([[0, 1, 2]])
        parts = [x * (rank + 1) for rank in range(3)]
        record = world.record(summed_over_ranks, nki.per_rank(parts), group=group)
    origin = record.origin(0, (1, 1), rank=1, expected={"local": parts[1] ** 2})
    assert (origin[0].location, origin[0].rank) == (LINES["squared"], 1)


WRONG = {
    "record-expected-name": [
        ({"logit": np.zeros((40, 40))}, "near are .*logits"),
        ({"q": np.zeros((48, 40))}, "nothing in the launch writes to 'q'"),
        ({None: 1.0}, "names no tensor"),
    ],
    "record-expected-shape": [
        ({"total": np.zeros(40)}, r"shape \(40,\); total has \(40, 1\)"),
        ({0: np.zeros((40, 40))}, r"output 0 has \(40, 24\)"),
        (np.zeros((24, 40)), r"has shape \(24, 40\); output 0 has \(40, 24\)"),
        (4.0, r"has shape \(\); output 0 has \(40, 24\)"),
    ],
    "record-expected-dtype": [
        ({"total": np.zeros((40, 1), complex)}, "complex128"),
        ({"total": 40 * [["x"]]}, "give real numbers"),
    ],
    "record-question": [
        ({7: np.zeros((40, 24))}, "returned 1 tensors"),
        ([None, None], "a list of 2; there are 1 ranks"),
    ],
}


@pytest.mark.parametrize("code", WRONG)
def test_what_names_nothing_or_does_not_fit(code):
    record = nki.record(attention)(*inputs())
    for expected, message in WRONG[code]:
        with pytest.raises(LaunchError, match=message) as caught:
            record.origin(0, (0, 0), expected=expected)
        assert caught.value.code == code


@nki.jit
def twice_named(x):
    out = nl.ndarray(x.shape, dtype=nl.int32, buffer=nl.shared_hbm)
    tile = nl.load(x)
    first = tile
    # LINE second
    tile = nl.copy(first, dtype=nl.int32)
    nl.store(out, tile)
    return out


def test_a_name_of_two_lines():
    record = nki.record(twice_named)(np.ones((4, 3), np.float32))
    with pytest.raises(LaunchError, match=r"made tile \(4, 3\), tile \(4, 3\)") as caught:
        record.origin(0, (0, 0), expected={"tile": np.ones((4, 3))})
    assert caught.value.code == "record-expected-ambiguous"
    with pytest.raises(LaunchError, match=r"float64; .* has int32") as caught:
        record.origin(0, (0, 0), expected={LINES["second"]: np.full((4, 3), 0.5)})
    assert caught.value.code == "record-expected-dtype"
    with pytest.raises(LaunchError, match=r"doubled \(32, 8\), doubled \(32, 8\)") as caught:
        nki.record(rows_summed)(np.ones((64, 8), np.float32), 1.0).origin(
            0, (0, 0), expected={"doubled": np.ones((32, 8))}
        )
    assert caught.value.code == "record-expected-ambiguous"


@nki.jit
def mended(x, first, second):
    """x, written whole and then its first columns again; each with a factor of its own."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    given = nl.load(x)
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    # LINE whole
    nisa.tensor_scalar(dst=tile, data=given, op0=nl.multiply, operand0=first)
    # LINE part
    nisa.tensor_scalar(dst=tile[:, 0:4], data=given[:, 0:4], op0=nl.multiply, operand0=second)
    nl.store(out, nl.copy(tile))
    return out


@pytest.mark.parametrize(
    "first, second, index, line, count",
    [(1.0, 2.0, (3, 2), "part", 32), (2.0, 1.0, (3, 9), "whole", 96)],
)
def test_what_counts_is_the_write_that_left_an_element(first, second, index, line, count):
    x = np.random.default_rng(4).standard_normal((8, 16), np.float32)
    origin = nki.record(mended)(x, first, second).origin(0, index, expected={"tile": x})
    assert origin[0].location == LINES[line], str(origin)
    (compared,) = origin.expected
    assert compared.off == count and compared.location == LINES[line]


def test_without_an_index_the_element_that_is_farthest_off_is_asked_about():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nisa.memset(dst=tile[0:1, 5:6], value=0.25)
        nl.store(out, tile)
        return out

    x = 1 + np.arange(48, dtype=np.float32).reshape(6, 8) / 64
    record = nki.record(kernel)(x)
    for expected in (x, [x], {0: x}, {"out": None, 0: x}):
        assert record.origin(expected=expected).what == "out[0, 5]"
    with pytest.raises(LaunchError, match=r"index=\(\); the output has shape"):
        record.origin()
    with pytest.raises(LaunchError, match="rank=3"):
        record.origin(expected=x, rank=3)
    with pytest.raises(LaunchError, match=r"has shape \(5, 8\); output 0 has \(6, 8\)"):
        record.origin(expected=x[1:])
