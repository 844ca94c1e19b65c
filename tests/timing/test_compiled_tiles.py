"""What AWS's compiler is taken to make of Beta 1's elementwise work, by small kernels."""

from collections import Counter

import numpy as np
import pytest

import nki_dist as nki
from nki_dist import arch
from nki_dist.compat import beta1
from nki_dist.compat.beta1 import isa as old_isa
from nki_dist.compat.beta1 import language as old
from nki_dist.timing.engines import TensorClock

TRN1, TRN2 = arch.get("trn1"), arch.get("trn2")


def estimated(kernel, *shapes, platform="trn2", dtype="float32", schedule="compiled"):
    specs = [nki.TensorSpec(shape, dtype) for shape in shapes]
    with nki.World(host="inprocess", platform=platform) as world:
        return world.estimate(beta1.jit(kernel), *specs, schedule=schedule)


def changed(p):
    return Counter({c.what: c.count for c in p.changes})


def took(p, opcode, engine="vector"):
    """ns that instructions kept their engine, of each once."""
    (core,) = p.timeline.cores
    executed = enumerate(core.graph.executed)
    found = [at for at, i in executed if i.opcode == opcode and i.engine == engine]
    return [round(core.end[at] - core.start[at], 6) for at in found if at not in core.dropped]


# ---- one width of tiles -------------------------------------------------------------------------


def squared(x, columns):
    out = old.ndarray(x.shape, dtype=x.dtype, buffer=old.shared_hbm)
    for n in range(x.shape[1] // columns):
        part = slice(n * columns, (n + 1) * columns)
        tile = old.load(x[:, part])
        old.store(out[:, part], value=old_isa.tensor_tensor(tile, tile, op=np.multiply))
    return out


def ns(columns, starts):
    return TRN2.cycles_to_ns(columns + starts * TRN2.access_cycles, "vector")


@pytest.mark.parametrize(
    ("columns", "starts", "what"),
    [
        (512, 1, None),
        (1024, 2, "tiles split"),
        (1536, 3, "tiles split"),
        (256, 0.5, "tiles merged"),
        (128, 0.25, "tiles merged"),
        (64, 1, None),  # too narrow to be known
    ],
)
def test_elementwise_work_is_done_in_one_width(columns, starts, what):
    p = estimated(lambda x: squared(x, columns), (128, 3072))
    assert took(p, "tensor_tensor") == pytest.approx([ns(columns, starts)] * (3072 // columns))
    assert changed(p) == ({what: 3072 // columns} if what else {})
    written = estimated(lambda x: squared(x, columns), (128, 3072), schedule="program")
    assert took(written, "tensor_tensor") == pytest.approx([ns(columns, 1)] * (3072 // columns))


def test_the_last_part_of_a_split_tile_may_be_narrow():
    p = estimated(lambda x: squared(x, 640), (128, 640))
    assert took(p, "tensor_tensor") == pytest.approx([ns(640, 2)])


def test_what_a_line_does_too_rarely_to_fill_a_tile_is_not_merged():
    p = estimated(lambda x: squared(x, 128), (128, 384))
    assert changed(p) == {}


# ---- copies of results --------------------------------------------------------------------------


def halves(x, dtype=old.float32, reuse=False):
    """The upper partitions get what Scalar makes of the lower ones."""
    tile = old.ndarray((128, x.shape[1]), dtype=dtype, buffer=old.sbuf)
    out = old.ndarray(tile.shape, dtype=dtype, buffer=old.shared_hbm)
    tile[0:64] = old.load(x)
    made = old_isa.activation(op=old.copy, data=tile[0:64], scale=-1.0, dtype=old.float32)
    tile[64:128] = made
    if reuse:
        tile[0:64] = old.add(made, made)
    old.store(out, value=tile)
    return out


def test_a_result_is_written_where_it_is_copied_to():
    p = estimated(halves, (64, 512))
    assert changed(p) == {"copy dropped": 1} and took(p, "tensor_copy") == []
    assert len(took(estimated(halves, (64, 512), schedule="program"), "tensor_copy")) == 1


def test_a_copy_of_what_others_read_stays():
    p = estimated(lambda x: halves(x, reuse=True), (64, 512))
    assert changed(p) == {} and len(took(p, "tensor_copy")) == 1


def test_what_makes_a_result_converts_it():
    p = estimated(lambda x: halves(x, dtype=old.bfloat16), (64, 512))
    assert changed(p) == {"copy dropped": 1} and len(took(p, "tensor_copy")) == 1  # of the load


def test_parts_of_results_sums_and_products_are_copied():
    """A copy takes part of what Scalar made, all of a sum that two lines made, and a product."""

    def kernel(x):
        out = old.ndarray((3, 128, 512), dtype=x.dtype, buffer=old.shared_hbm)
        tile = old.load(x)
        made = old_isa.activation(op=old.copy, data=tile, scale=2.0)
        pieces = old.ndarray((128, 512), dtype=x.dtype, buffer=old.sbuf)
        pieces[:, 0:256] = old_isa.tensor_scalar(tile[:, 0:256], np.add, 1.0)
        pieces[:, 256:512] = old_isa.tensor_scalar(tile[:, 256:512], np.add, 1.0)
        product = old_isa.nc_matmul(tile[:, 0:128], tile[:, 0:512])
        for n, result in enumerate((made[:, 0:512], pieces, product)):
            copied = old_isa.tensor_copy(result)
            old.store(out[n], value=copied)
        return out

    p = estimated(kernel, (128, 1024))
    assert "copy dropped" not in changed(p) and len(took(p, "tensor_copy")) == 3


def test_what_a_loop_kept_is_copied_to_each_of_its_places():
    """The first result is written where it goes; those not made again still have to move."""

    def kernel(x):
        tile = old.load(x)
        out = old.ndarray((128, 1536), dtype=x.dtype, buffer=old.sbuf)
        stored = old.ndarray(out.shape, dtype=x.dtype, buffer=old.shared_hbm)
        for n in range(3):
            square = old_isa.tensor_tensor(tile, tile, op=np.multiply)
            other = old_isa.tensor_scalar(tile, np.add, float(n))
            out[:, n * 512 : n * 512 + 512] = square
            old.store(stored[:, 0:512], value=other)
        old.store(stored, value=out)
        return stored

    p = estimated(kernel, (128, 512))
    assert changed(p)["repetition dropped"] == 2 and len(took(p, "tensor_copy")) == 2


def test_a_result_and_what_it_is_copied_to_have_one_place_on_chip():
    """Two tiles of 96 KiB a partition wouldn't fit beside each other with their copies."""
    assert changed(estimated(halves, (64, 24 << 10))).keys() == {"copy dropped", "tiles split"}


# ---- rows for all partitions --------------------------------------------------------------------


def scaled(x, row):
    out = old.ndarray(x.shape, dtype=x.dtype, buffer=old.shared_hbm)
    wide = old.load(row).broadcast_to(x.shape)
    old.store(out, value=old_isa.tensor_tensor(old.load(x), wide, op=np.multiply))
    return out


def test_a_row_for_all_partitions_is_a_product_that_its_user_reads_from_psum():
    """On trn1, Vector takes 2 cycles for two float32 from SBUF, one if either is from PSUM."""
    p = estimated(scaled, (128, 512), (1, 512), platform="trn1")
    assert changed(p) == {"broadcast by a product": 1}
    assert len(took(p, "dma_copy", engine="tensor")) == 1
    cycles = 512 + TRN1.access_cycles
    assert took(p, "tensor_tensor") == pytest.approx([TRN1.cycles_to_ns(cycles, "vector")])
    written = estimated(scaled, (128, 512), (1, 512), platform="trn1", schedule="program")
    assert took(written, "dma_copy", engine="tensor") == []
    cycles += 512
    assert took(written, "tensor_tensor") == pytest.approx([TRN1.cycles_to_ns(cycles, "vector")])


@pytest.mark.parametrize(("columns", "products"), [(1024, 1), (1040, 0)])
def test_rows_that_fill_psum_stay_transfers(columns, products):
    p = estimated(scaled, (128, columns), (1, columns))
    assert changed(p)["broadcast by a product"] == products
    assert len(took(p, "dma_copy", engine="tensor")) == products


def test_a_product_that_broadcasts_is_as_slow_as_float32_on_a_cold_engine():
    def cycles(dtype, columns=512):
        p = estimated(scaled, (128, columns), (1, columns), dtype=dtype)
        (taken,) = took(p, "dma_copy", engine="tensor")
        return taken * TRN2.engine_clock_ghz["tensor"] / 2  # cold for 3 us

    switch = TRN2.matmul_switch_cycles
    assert cycles("float32") == pytest.approx(4 * 512 + switch)
    assert cycles("bfloat16") == pytest.approx(512 + switch)
    assert cycles("bfloat16", 1024) == pytest.approx(2 * (512 + switch))  # at most 512 at a time


def test_many_products_that_broadcast_never_warm_tensor_up():
    def kernel(x, rows):
        out = old.ndarray((16, *x.shape), dtype=x.dtype, buffer=old.shared_hbm)
        tile = old.load(x)
        for n in range(16):
            wide = old.load(rows[n : n + 1]).broadcast_to(x.shape)
            old.store(out[n], value=old_isa.tensor_tensor(tile, wide, op=np.multiply))
        return out

    p = estimated(kernel, (128, 512), (16, 512))
    times = took(p, "dma_copy", engine="tensor")
    assert len(times) == 16 and times == pytest.approx([times[0]] * 16)


def test_what_others_write_too_or_one_partition_has_stays_a_transfer():
    def twice(x, row):
        out = old.ndarray(x.shape, dtype=x.dtype, buffer=old.shared_hbm)
        wide = old.ndarray(x.shape, dtype=x.dtype, buffer=old.sbuf)
        wide[...] = old.load(row).broadcast_to(x.shape)
        wide[0:32] = old_isa.tensor_scalar(wide[0:32], np.add, 1.0)
        old.store(out, value=old_isa.tensor_tensor(old.load(x), wide, op=np.multiply))
        return out

    p = estimated(twice, (128, 512), (1, 512))
    assert "broadcast by a product" not in changed(p)

    def moved(x):
        out = old.ndarray(x.shape, dtype=x.dtype, buffer=old.shared_hbm)
        tile = old.load(x)
        other = old.ndarray(x.shape, dtype=x.dtype, buffer=old.sbuf)
        old_isa.dma_copy(dst=other, src=tile)
        old.store(out, value=old_isa.tensor_scalar(other, np.add, 1.0))
        return out

    for rows in (1, 128):
        assert "broadcast by a product" not in changed(estimated(moved, (rows, 512)))


def test_products_of_one_row_never_warm_tensor_up():
    """A window of 3 us at half speed, then full speed for who used the array, half for others."""
    busy, idle = TensorClock(TRN2), TensorClock(TRN2)
    assert busy.run(0.0, 3000.0) == 4500.0
    assert idle.run(0.0, 3000.0, activity=1 / 128) == 6000.0
    assert busy.run(4500.0, 1000.0) == 5500.0
    assert idle.run(6000.0, 1000.0, activity=1 / 128) == 8000.0


# ---- arithmetic that a loop repeats -------------------------------------------------------------


def weighted(x, weights, invariant):
    """The innermost loop multiplies the same tiles in each round, or its own."""
    out = old.ndarray((weights.shape[1], *x.shape), dtype=x.dtype, buffer=old.shared_hbm)
    tile = old.load(x)
    for n in range(weights.shape[1]):
        weight = old.load(weights[:, n : n + 1])
        factor = tile if invariant else old_isa.activation(op=old.copy, data=tile, scale=weight)
        square = old_isa.tensor_tensor(tile, factor, op=np.multiply)
        old.store(out[n], value=old_isa.tensor_scalar(square, np.add, weight))
    return out


@pytest.mark.parametrize(("columns", "made"), [(6 << 10, 1), (7 << 10, 3)])
def test_a_large_result_is_made_anew_instead_of_kept(columns, made):
    """24 and 28 KiB of 208 in each partition."""

    def kernel(x, weights):
        out = old.ndarray((3, 128, 1), dtype=x.dtype, buffer=old.shared_hbm)
        tile = old.load(x)
        for n in range(3):
            weight = old.load(weights[:, n : n + 1])
            square = old_isa.tensor_tensor(tile, tile, op=np.multiply)
            least = old_isa.tensor_reduce(np.min, square, axis=(1,))
            old.store(out[n], value=old_isa.tensor_tensor(least, weight, op=np.multiply))
        return out

    p = estimated(kernel, (128, columns), (128, 3))
    wide = [ns for ns in took(p, "tensor_tensor") if ns > 1000]
    assert len(wide) == made


def test_random_numbers_are_drawn_each_time():
    def kernel(x):
        out = old.ndarray((4, *x.shape), dtype=x.dtype, buffer=old.shared_hbm)
        for n in range(4):
            old.store(out[n], value=old.rand(x.shape))
        return out

    p = estimated(kernel, (128, 512))
    assert "repetition dropped" not in changed(p)


@pytest.mark.parametrize(("invariant", "made"), [(True, 1), (False, 4)])
def test_a_loop_makes_what_it_repeats_once(invariant, made):
    p = estimated(lambda x, w: weighted(x, w, invariant), (128, 512), (128, 4))
    assert len(took(p, "tensor_tensor")) == made
    assert changed(p) == ({"repetition dropped": 3} if invariant else {})


def in_turns(x, weights, unroll, tiles=4):
    """The inner loop squares one tile after the other; the outer one repeats it."""
    width = x.shape[1] // tiles
    shape = (weights.shape[1], tiles, x.shape[0], width)
    out = old.ndarray(shape, dtype=x.dtype, buffer=old.shared_hbm)
    held = old.load(x)
    for n in old.affine_range(weights.shape[1]):
        weight = old.load(weights[:, n : n + 1])
        for m in unroll(tiles):
            part = held[:, m * width : (m + 1) * width]
            square = old_isa.tensor_tensor(part, part, op=np.multiply)
            old.store(out[n, m], value=old_isa.tensor_scalar(square, np.add, weight))
    return out


@pytest.mark.parametrize(
    ("unroll", "columns", "made"),
    [
        (old.static_range, 2048, 4),  # each copy of the body once
        (old.affine_range, 2048, 12),  # one body, whose operands are others each time
        (old.sequential_range, 2048, 12),
        (old.static_range, 7168, 12),  # 28 KiB in all are too much to keep
    ],
)
def test_copies_of_an_unrolled_body_are_kept_side_by_side(unroll, columns, made):
    p = estimated(lambda x, w: in_turns(x, w, unroll), (128, columns), (128, 3))
    assert len(took(p, "tensor_tensor")) == made


def test_copies_are_those_of_all_unrolled_loops_around():
    def kernel(x):
        out = old.ndarray((2, 3, *x.shape), dtype=x.dtype, buffer=old.shared_hbm)
        for n in old.static_range(2):
            for m in old.affine_range(2):
                for _ in old.static_range(3):
                    tile = old.load(x)
                old.store(out[n, m], value=tile)
            old.store(out[n, 2], value=old.load(x))
        old.store(out[0, 2], value=old.load(x))
        return out

    p = estimated(kernel, (128, 512))
    marks = p.timeline.cores[0].graph.program.facts["unrolled"]
    copy = [dict(m for m in marks if m[0] <= n) for n in range(22)]
    numbers = [list(each.values())[-1] for each in copy]
    inner, outer = slice(0, 3), 3
    assert len({*numbers[inner], numbers[outer]}) == 4
    assert numbers[0:4] == numbers[4:8] and numbers[8:10] == [numbers[outer]] * 2
    assert numbers[10:14] == numbers[14:18] and not {*numbers[0:10]} & {*numbers[10:20]}
    assert numbers[20:] == [0, 0]
