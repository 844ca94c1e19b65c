"""Tensors whose contents before a launch nobody can see: they are neither copied in nor filled."""

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compiler.compiled import Compiled
from nki_dist.hbm.layout import Layouts, fill_stack
from tests.compiler.compiling import line_of

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning")

X = np.arange(64 * 8, dtype=np.float32).reshape(64, 8)
OLD = np.full((64, 8), 7, np.float32)
OUTPUT, ARGUMENT = ("shared", 0), ("input", 1)


def copy(dst, src):
    tile = nl.ndarray(src.shape, src.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=src)
    nisa.dma_copy(dst=dst, src=tile)


def whole(x, y):
    copy(y, x)


def in_tiles(x, y):
    for start in range(0, 64, 16):
        copy(y[start : start + 16], x[start : start + 16])


def over_and_over(x, y):
    for start in (0, 8, 16, 32, 40):
        copy(y[start : start + 24], x[start : start + 24])


def read_afterwards(x, y):
    copy(y, x)
    copy(y[0:32], y[32:64])


def in_columns(x, y):
    for column in range(8):
        copy(y[:, column : column + 1], x[:, column : column + 1])


def surely_looped(x, y):
    for _ in nl.dynamic_range(3):
        copy(y, x)


def half(x, y):
    copy(y[0:32], x[0:32])


def read_before(x, y):
    copy(y[0:32], y[32:64])
    copy(y[32:64], x[32:64])


def read_whole_before(x, y):
    tile = nl.ndarray(y.shape, y.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=y)
    nisa.dma_copy(dst=y, src=tile)


def at_a_run_time_row(x, y):
    for row in nl.dynamic_range(64):
        nisa.dma_copy(dst=y.select(0, row), src=x.select(0, 0))


def maybe_never(x, y):
    count = nisa.register_alloc(0)
    for _ in nl.dynamic_range(count):
        copy(y, x)


def onto_what_was_there(x, y):
    nisa.dma_compute(dst=y, srcs=[x, y], scales=[1.0, 1.0], reduce_op=nl.add)


YES = (whole, in_tiles, over_and_over, read_afterwards, in_columns, surely_looped)
NO = (half, read_before, read_whole_before, at_a_run_time_row, maybe_never, onto_what_was_there)


def as_argument(body):
    def kernel(x, y):
        body(x, y)

    return kernel


def compiled(kernel, *arrays, cores=1):
    return nki.simulate(nki.jit(kernel))[cores].compile(*arrays)


@pytest.mark.parametrize("body", YES)
def test_a_written_argument_isnt_copied_in(body):
    kernel = as_argument(body)
    assert compiled(kernel, X, OLD).replaced == {ARGUMENT}
    y = OLD.copy()
    nki.simulate(nki.jit(kernel))(X, y)
    assert np.array_equal(y[32:], X[32:]) and (body is read_afterwards or np.array_equal(y, X))


@pytest.mark.parametrize("body", NO)
def test_what_was_there_counts(body):
    kernel = as_argument(body)
    made = compiled(kernel, X, OLD)
    assert not made.replaced
    assert not made.undecided  # it may hold what the caller passed, and that is somebody's
    y = OLD.copy()
    nki.simulate(nki.jit(kernel))(X, y)
    wanted = {
        half: np.concatenate([X[:32], OLD[32:]]),
        read_before: np.concatenate([OLD[32:], X[32:]]),
        at_a_run_time_row: np.broadcast_to(X[:1], X.shape),
        onto_what_was_there: X + OLD,
    }
    assert np.array_equal(y, wanted.get(body, OLD))


def test_an_output_that_is_written_whole_isnt_filled():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        in_tiles(x, out)
        return out

    made = compiled(kernel, X)
    assert made.replaced == {OUTPUT}
    layout = Layouts().of("key", made, [[X]])
    stack = np.full(layout.stack_bytes, 9, np.uint8)
    fill_stack(layout, stack, [X])
    at = layout.offsets[OUTPUT]
    assert (stack[at : at + X.nbytes] == 9).all()


def halves(x, *, share=32, meet=False, look=()):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    start = nl.program_id(0) * 32
    copy(out[start : start + share], x[start : start + share])
    if meet:
        nisa.core_barrier(data=out, cores=(0, 1))
    if nl.program_id(0) in look:
        nl.load(out[32:64])
    return out


@pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning")
@pytest.mark.parametrize(
    "options, found",
    [
        ({}, {OUTPUT}),
        ({"share": 31}, set()),
        ({"look": [1]}, {OUTPUT}),
        ({"look": [0]}, set()),
        ({"look": [0, 1], "meet": True}, {OUTPUT}),
    ],
)
def test_cores_may_write_a_part_each_if_none_reads_before(options, found):
    def kernel(x):
        return halves(x, **options)

    assert compiled(kernel, X, cores=2).replaced == found


def test_a_saved_program_is_looked_at_anew(tmp_path):
    made = compiled(as_argument(half), X, OLD)
    made.programs[0].facts["replaced"] = [s.number for s in made.programs[0].storages]
    made.save(tmp_path / "k.nkip")
    assert not Compiled.load(tmp_path / "k.nkip").replaced


def test_who_looks_into_a_launch_sees_what_is_not_written_yet():
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, name="out", buffer=nl.shared_hbm)
        copy(out[0:32], x[0:32])
        copy(out[32:64], x[32:64])
        return out

    run = nki.record(nki.jit(kernel))(X)
    assert np.array_equal(run.outputs, X)
    line = line_of(copy, "dma_copy(dst=dst")
    first, second = (step for step in run.steps() if step.location == line)
    assert np.array_equal(first.after()["dst"], X[:32])
    assert np.isnan(second.before()["dst"]).all()


def test_what_one_of_two_cores_reads_before_it_writes_counts():
    def kernel(x):
        seen = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        if nl.program_id(0) == 0:
            copy(seen, out)
            copy(out, x)
        return seen, out

    launch = nki.simulate(nki.jit(kernel), check="unwritten=nan")[2]
    for _ in range(2):  # the second finds what the first left, unless it is filled
        with pytest.warns(nki.errors.UnwrittenOutputWarning, match="512 of 512"):
            assert np.isnan(launch(X)[0]).all()
