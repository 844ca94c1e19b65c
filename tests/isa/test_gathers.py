"""GpSimd gathers, shuffles and searches against loops over their definition."""

import ml_dtypes
import numpy as np
import pytest
from helpers import numbers, on_tiles

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError, OutOfBoundsError

BF16 = ml_dtypes.bfloat16
RNG = np.random.default_rng


# ---- nc_stream_shuffle ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32, np.uint8])
@pytest.mark.parametrize("partitions", [128, 64, 32, 7])
def test_shuffle(partitions, dtype):
    x = numbers(partitions, (partitions, 30), dtype)
    mask = RNG(partitions).integers(0, min(partitions, 32), 32).tolist()
    mask[3] = mask[6] = 255
    (got,) = on_tiles(
        lambda x, out: nisa.nc_stream_shuffle(out, x, mask), [x], [(x.shape, x.dtype)]
    )
    want = np.full(x.shape, 7, x.dtype)
    for p in range(partitions):
        if mask[p % 32] != 255:
            want[p] = x[p // 32 * 32 + mask[p % 32]]
    assert np.array_equal(got, want)


def test_shuffle_broadcasts_one_partition_and_works_in_place():
    x = numbers(1, (70, 4, 5))

    got, moved = on_tiles(
        _broadcast_and_reverse, [x], [((70, 20), np.float32), (x.shape, np.float32)]
    )
    assert np.array_equal(got, np.repeat(x[0:1].reshape(1, 20), 70, 0))
    want = x.copy()
    want[32:64] = x[32:64][::-1]
    assert np.array_equal(moved, want)


def _broadcast_and_reverse(x, out, moved):
    for start in (0, 32, 64):
        rows = min(32, 70 - start)
        nisa.nc_stream_shuffle(out[start : start + rows], x[0:1], [0] * 32)
    nisa.nc_stream_shuffle(x[32:64], x[32:64], list(range(31, -1, -1)))
    nisa.tensor_copy(moved, x)


def test_shuffle_reads_psum_and_another_quadrant():
    x = numbers(2, (128, 9))

    def body(x, out):
        nisa.nc_stream_shuffle(out, x[96:128], [5] * 32)

    (got,) = on_tiles(body, [x], [((32, 9), np.float32)], psum=[0, 1])
    assert np.array_equal(got, np.repeat(x[101:102], 32, 0))


@pytest.mark.parametrize(
    "mask, source, target, message",
    [
        (7, (0, 32), (0, 32), "shuffle_mask=7; allowed: a list of 32 ints"),
        ([0] * 32, (16, 32), (0, 32), "src starts at partition 16; with 32 active"),
        ([0] * 32, (32, 64), (0, 64), "src starts at partition 32; with 64 active .* 0, 64"),
        ([0] * 32, (32, 96), (0, 96), "src starts at partition 32; with 96 active"),
        ([4] * 32, (0, 4), (0, 32), "reads partition 4 of src, which has 4"),
    ],
)
def test_shuffle_refuses(mask, source, target, message):
    x = numbers(3, (128, 9))

    def body(x, out):
        first, last = source
        nisa.nc_stream_shuffle(out[: target[1]], x[first : max(last, first + 1)], mask)

    with pytest.raises(NkiValidationError, match=message):
        on_tiles(body, [x], [((128, 9), np.float32)])


# ---- local_gather -----------------------------------------------------------------------------


def local_gather(src, index, shape, dtype=None, **options):
    return on_tiles(
        lambda s, i, out: nisa.local_gather(out, s, i, **options),
        [src, index],
        [(shape, dtype or src.dtype)],
    )[0]


@pytest.mark.parametrize("width", [1, 2, 32])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32, np.uint8])
@pytest.mark.parametrize("partitions", [128, 16, 48])
def test_local_gather(partitions, dtype, width):
    src = numbers(5, (partitions, 21, 8), dtype)
    index = RNG(6).integers(0, 168 - width + 1, (partitions, 3)).astype(np.uint16)
    count = 41
    got = local_gather(
        src, index, (partitions, count * width), num_elem_per_idx=width, num_valid_indices=count
    )
    flat = src.reshape(partitions, -1)
    for p in range(partitions):
        core = p // 16 * 16
        for n in range(count):
            first = index[core + n % 16, n // 16]
            assert np.array_equal(
                got[p, n * width : (n + 1) * width], flat[p, first : first + width]
            )


def test_local_gather_uses_all_indices_by_default_and_any_shape():
    src = numbers(7, (32, 10))
    index = RNG(8).integers(0, 10, (32, 2, 2)).astype(np.uint16)
    got = local_gather(src, index, (32, 4, 16))
    for core in (0, 16):
        order = index[core : core + 16].reshape(16, 4).T.reshape(-1)
        assert np.array_equal(
            got[core : core + 16].reshape(16, 64), src[core : core + 16][:, order]
        )


def test_local_gather_outside_gives_poison():
    src, index = numbers(9, (16, 10)), np.zeros((16, 1), np.uint16)
    index[3], index[5] = 10, 65535

    def body(s, i, out):
        wide = nl.ndarray((16, 16), dtype=nl.float32)
        nisa.local_gather(wide, s, i)
        nisa.tensor_copy(out, wide)

    (got,) = on_tiles(body, [src, index], [((16, 16), np.float32)])
    assert np.isnan(got[:, [3, 5]]).all() and not np.isnan(np.delete(got, [3, 5], 1)).any()


def test_a_local_gather_fills_its_destination():
    with pytest.raises(NkiValidationError, match="16 indices of 1 elements make 16"):
        local_gather(numbers(1, (16, 9)), np.zeros((16, 1), np.uint16), (16, 15))


def test_local_gather_takes_4096_indices():
    src = numbers(1, (16, 9))
    local_gather(src, np.zeros((16, 256), np.uint16), (16, 4096))


# ---- nc_n_gather ------------------------------------------------------------------------------


def n_gather(data, index, shape=None, dtype=None):
    return on_tiles(
        lambda d, i, out: nisa.nc_n_gather(out, d, i),
        [data, index],
        [(shape or index.shape, dtype or data.dtype)],
    )[0]


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32, np.uint8])
def test_n_gather(dtype):
    data = numbers(10, (77, 5, 13), dtype)
    index = RNG(11).integers(0, 65, (77, 4, 30)).astype(np.uint32)
    want = np.take_along_axis(data.reshape(77, 65), index.reshape(77, 120), 1)
    assert np.array_equal(n_gather(data, index).reshape(77, 120), want)
    assert np.array_equal(n_gather(data, index, (77, 120)), want)


def test_n_gather_refuses():
    data, index = numbers(14, (20, 30)), np.zeros((20, 4), np.uint32)
    index[7, 2] = 30
    with pytest.raises(
        OutOfBoundsError, match=r"index 30 \(partition 7, position 2\) .* \[0, 30\)"
    ):
        n_gather(data, index)
    with pytest.raises(NkiValidationError, match=r"dst 5 .* indices 4"):
        n_gather(data, index, (20, 5))
    with pytest.raises(NkiValidationError, match="dst 19, data 20, indices 20"):
        n_gather(data, index, (19, 4))


# ---- sequence_bounds --------------------------------------------------------------------------


def bounds(ids, shape=None, dtype=None):
    return on_tiles(
        lambda i, out: nisa.sequence_bounds(out, i),
        [ids],
        [(shape or (1, 2, ids.shape[1]), dtype or ids.dtype)],
    )[0]


def test_sequence_bounds_of_the_documented_example():
    ids = np.array([[0, 1, 1, 2, 2, 2, 0, 3, 3]], np.int32)
    got = bounds(ids)
    assert got[0, 0].tolist() == [9, 1, 1, 3, 3, 3, 9, 7, 7]
    assert got[0, 1].tolist() == [-1, 3, 3, 6, 6, 6, -1, 9, 9]


@pytest.mark.parametrize("dtypes", [(np.float32, np.float32), (np.int32, np.float32)])
@pytest.mark.parametrize("n", [1, 2, 57])
def test_sequence_bounds(n, dtypes):
    ids = np.sort(RNG(n).integers(0, 9, (1, n)).astype(dtypes[0]))
    ids[0, n // 2 : n // 2 + 3] = 0
    got = bounds(ids, dtype=dtypes[1])
    for at, segment in enumerate(ids[0]):
        first = last = at
        while first and ids[0, first - 1] == segment:
            first -= 1
        while last < n and ids[0, last] == segment:
            last += 1
        assert got[0, :, at].tolist() == ([first, last] if segment else [n, -1])


def test_sequence_bounds_refuses():
    ids = np.ones((1, 6), np.int32)
    with pytest.raises(NkiValidationError, match="6 segment ids need 12"):
        bounds(ids, (1, 6))


# ---- nonzero_with_count -----------------------------------------------------------------------


def nonzero(x, shape=None, platform="trn2", dtype=np.int32, **options):
    return on_tiles(
        lambda x, out: nisa.nonzero_with_count(out, x, **options),
        [x],
        [(shape or (len(x), x.shape[1] + 1), dtype)],
        platform=platform,
    )[0]


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@pytest.mark.parametrize("partitions", [128, 1, 33])
def test_nonzero(partitions, dtype):
    x = numbers(15, (partitions, 40), dtype) * (RNG(16).random((partitions, 40)) < 0.4)
    x = x.astype(dtype)
    got = nonzero(x, index_offset=16, padding_val=-3)
    for p in range(partitions):
        if p % 16:
            assert (got[p] == 7).all()
            continue
        found = np.flatnonzero(x[p])
        assert got[p].tolist() == [*(found + 16), *[-3] * (40 - found.size), found.size]


def test_nonzero_example_and_extremes():
    x = np.array([[0, 1, 1, 0, 0, 1, 0, 0]], np.float32)
    assert nonzero(x, index_offset=16).tolist() == [[17, 18, 21, -1, -1, -1, -1, -1, 3]]
    assert nonzero(np.zeros((1, 3), np.int32)).tolist() == [[-1, -1, -1, 0]]
    assert nonzero(np.ones((1, 3), np.int32)).tolist() == [[0, 1, 2, 3]]


def test_nonzero_refuses():
    x = np.ones((16, 8), np.float32)
    with pytest.raises(NkiValidationError, match="same number of partitions"):
        nonzero(x, (32, 9))
    with pytest.raises(NkiValidationError, match="src starts at partition 8; must be a multiple"):
        on_tiles(lambda x, o: nisa.nonzero_with_count(o[:8], x[8:16]), [x], [((16, 9), np.int32)])
    with pytest.raises(NkiValidationError, match=r"padding_val=0\.5; allowed: an int"):
        nonzero(x, padding_val=0.5)


# ---- topk -------------------------------------------------------------------------------------


def topk(x, n, k, columns=None):
    columns = columns or k

    def body(x, values, places):
        nisa.topk(values[:, :k], places[:, :k], x, n)

    shape = (len(x), columns)
    return on_tiles(body, [x], [(shape, BF16), (shape, np.uint32)])


@pytest.mark.parametrize("sizes", [(42, 8), (128, 16), (100, 33), (8, 1), (40, 40)])
@pytest.mark.parametrize("partitions", [128, 16])
def test_topk(partitions, sizes):
    n, k = sizes
    x = numbers(17, (partitions, -(-n // 16) + 1), BF16)
    values, places = topk(x, n, k)
    used = -(-k // 16)
    for start in range(0, partitions, 16):
        snake = x[start : start + 16].T.reshape(-1)[:n].astype(np.float32)
        got = values[start : start + 16, :used].T.reshape(-1)[:k].astype(np.float32)
        where = places[start : start + 16, :used].T.reshape(-1)[:k]
        assert np.array_equal(got, np.sort(snake)[n - k :])
        assert np.array_equal(snake[where], got) and len(set(where.tolist())) == k
    assert (values[:, used:] == 7).all() and (places[:, used:] == 7).all()


def test_topk_of_equal_values_takes_the_first():
    values, places = topk(np.ones((16, 2), BF16), 20, 3)
    assert places[:3, 0].tolist() == [2, 1, 0] and (values[:3, 0] == 1).all()
