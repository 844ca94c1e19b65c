"""Subscripts of tensors in HBM and of tiles, against NumPy's indexing."""

import numpy as np
import pytest

from nki_dist.compat.beta1 import isa as nisa
from nki_dist.compat.beta1 import language as nl
from nki_dist.errors import NkiValidationError, OutOfBoundsError
from tests.beta1.helpers import close, normal, run

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning")


def test_offsets_steps_and_reversal():
    def kernel(a):
        out = nl.ndarray((5, 9), dtype=a.dtype, buffer=nl.shared_hbm)
        i, j = nl.arange(5)[:, None], nl.arange(9)[None, :]
        nl.store(out[i, j], nl.load(a[2 * i + 1, 10 - j]))
        return out

    a = normal(12, 11)
    close(run(kernel, a), a[1:11:2, 10:1:-1])


def test_tiles_are_indexed_in_several_dimensions():
    def kernel(a):
        out = nl.ndarray((6, 3, 2, 5), dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a)
        p, i, j, k = nl.mgrid[0:6, 0:3, 0:2, 0:5]
        nl.store(out, nl.copy(tile[p, i + j, 2 * k]))
        return out

    a = normal(6, 4, 9)
    p, i, j, k = np.mgrid[0:6, 0:3, 0:2, 0:5]
    close(run(kernel, a), a[p, i + j, 2 * k])


def test_slices_ds_and_ellipsis():
    def kernel(a):
        out = nl.ndarray((4, 3, 5), dtype=a.dtype, buffer=nl.shared_hbm)
        rows = nl.load(a[1, ..., nl.ds(2, 5)])
        tile = nl.ndarray((4, 3, 5), dtype=a.dtype)
        for j in nl.affine_range(3):
            tile[:, j, :] = rows[:, j]
        nl.store(out, tile)
        return out

    a = normal(2, 4, 3, 8)
    close(run(kernel, a), a[1, :, :, 2:7])


@pytest.mark.parametrize("name", ["turned", "reinterpreted"])
def test_a_view_of_a_result_is_assigned_as_it_is_seen(name):
    def view(result):
        at = nl.mgrid[0:5, 0:3, 0:3]
        return result[at.p, at.y, at.x] if name == "turned" else result.view(nl.int32)

    def kernel(a):
        dtype = nl.float32 if name == "turned" else nl.int32
        out = nl.ndarray((5, 3, 3), dtype=dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((5, 3, 3), dtype=dtype)
        tile[...] = view(nl.maximum(nl.load(a), 0.5))
        nl.store(out, tile)
        return out

    a = normal(5, 3, 3)
    wanted = np.maximum(a, np.float32(0.5))
    wanted = wanted.swapaxes(1, 2) if name == "turned" else wanted.view(np.int32)
    np.testing.assert_array_equal(run(kernel, a), wanted)


def test_rows_chosen_at_run_time():
    def kernel(a, rows):
        out = nl.ndarray((6, 5), dtype=a.dtype, buffer=nl.shared_hbm)
        back = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        index = nl.load(rows)
        f = nl.arange(5)[None, :]
        tile = nl.load(a[index, f])
        nl.store(out, tile)
        nl.store(back, nl.load(a))
        p = nl.arange(6)[:, None]
        nl.store(back[index[p, 0], f], tile * 2.0)
        return out, back

    a, rows = normal(11, 5), np.array([[7], [0], [3], [10], [2], [4]], np.int32)
    out, back = run(kernel, a, rows)
    close(out, a[rows[:, 0]])
    wanted = a.copy()
    wanted[rows[:, 0]] *= 2
    close(back, wanted)


def test_blocks_are_separate_tiles():
    def kernel(a):
        blocks, rows, columns = a.shape
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        tiles = nl.ndarray((blocks, nl.par_dim(rows), columns), dtype=a.dtype, buffer=nl.sbuf)
        assert tiles.shape == a.shape
        for b in nl.affine_range(blocks):
            tiles[b] = nl.load(a[b])
        for b in nl.affine_range(blocks):
            tiles[b, :, 1:3] = tiles[blocks - 1 - b, :, 1:3] + b
        for b in nl.affine_range(blocks):
            nl.store(out[b], tiles[b])
        return out

    a = normal(3, 5, 7)
    wanted = a.copy()
    for b in range(3):
        wanted[b, :, 1:3] = wanted[2 - b, :, 1:3] + b
    close(run(kernel, a), wanted)


def refused(kernel, message, error=NkiValidationError):
    with pytest.raises(error, match=message) as caught:
        run(kernel, normal(8, 16))
    assert "test_indexing.py:" in caught.value.location


def test_an_index_is_affine():
    def kernel(a):
        i, j = nl.mgrid[0:8, 0:16]
        nl.load(a[i, j // 3])

    refused(kernel, "allowed: sums, and products with ints")


def test_an_index_outside_needs_a_mask():
    def kernel(a):
        i, j = nl.mgrid[0:8, 0:16]
        nl.load(a[i + 1, j])

    refused(kernel, "from 1 to 8 on dimension 0 of size 8", OutOfBoundsError)


def test_slices_outside():
    def rows(a):
        nl.load(a[8:9])

    def of_a_tile(a):
        nl.exp(nl.load(a)[:, 20:24])

    refused(rows, r"slice 8:9 on dimension 0 of size 8 of a \(", OutOfBoundsError)
    refused(of_a_tile, r"slice 20:24 on dimension 1 of size 16 of t1 \(", OutOfBoundsError)


@pytest.mark.parametrize("key", [slice(0, 4), nl.ds(0, 4), ...])
def test_index_expressions_dont_mix_with_slices(key):
    def kernel(a):
        nl.load(a[nl.arange(8)[:, None], key])

    refused(kernel, "an index expression for each dimension")


def test_index_expressions_are_as_many_as_dimensions():
    def kernel(a):
        nl.load(a[nl.arange(8)[:, None]])

    refused(kernel, "1 subscripts for 2 dimensions")


def test_partitions_follow_axis_0_only():
    def kernel(a):
        tile = nl.load(a)
        i, j = nl.mgrid[0:8, 0:8]
        nl.copy(tile[j, i])

    refused(kernel, "axis 0, and only it, goes over partitions")


def test_blocks_are_chosen_by_ints():
    def kernel(a):
        tiles = nl.ndarray((4, nl.par_dim(8), 16), dtype=a.dtype)
        i, j = nl.mgrid[0:8, 0:16]
        tiles[nl.arange(4)[:, None], i, j]

    def some(a):
        nl.ndarray((4, 2, nl.par_dim(8), 16), dtype=a.dtype)[1]

    refused(kernel, "block dimension indexed by")
    refused(some, "1 of 2 block dimensions")


@pytest.mark.parametrize(
    "use",
    [
        lambda a, tiles: nl.store(a, tiles),
        lambda a, tiles: nl.exp(tiles),
        lambda a, tiles: tiles + 1.0,
        lambda a, tiles: tiles.__iadd__(1.0),
    ],
)
def test_blocks_are_used_one_by_one(use):
    refused(lambda a: use(a, nl.ndarray((4, nl.par_dim(8), 16), a.dtype)), "index the blocks")


def test_rows_on_chip_are_refused():
    def kernel(a):
        tile = nl.load(a)
        rows = nisa.iota(nl.arange(8)[:, None], dtype=nl.int32)
        nl.copy(tile[rows, nl.arange(16)[None, :]])

    refused(kernel, "chooses rows of a tensor in HBM")


def test_too_many_and_wrong_subscripts():
    def many(a):
        nl.load(a)[0, 0, 0]

    def wrong(a):
        nl.load(a["x"])

    refused(many, "3 subscripts of a tile")
    refused(wrong, "allowed: ints, slices")


def test_partition_dimension_is_marked_once():
    def kernel(a):
        nl.ndarray((nl.par_dim(2), nl.par_dim(8), 16), dtype=a.dtype)

    refused(kernel, "2 partition dimensions")


@pytest.mark.parametrize("masked", [False, True])
def test_an_axis_of_one_index_takes_no_steps_where_others_are_wider(masked):
    """nl.arange(1) is one number, wherever its axis lies."""

    def kernel(a):
        out = nl.ndarray((3, 16), dtype=a.dtype, buffer=nl.shared_hbm)
        for row in nl.affine_range(3):
            one, columns = row + nl.arange(1)[None, :], nl.arange(16)[None, :]
            tile = nl.load(a[one, columns])
            mask = (one < 3) & (columns + 5 * one < 16) if masked else None
            nl.store(out[one, columns + 0 * one], nl.copy(tile), mask=mask)
        return out

    a = normal(3, 16)
    rows, columns = np.mgrid[0:3, 0:16]
    kept = columns + 5 * rows < 16 if masked else np.full(a.shape, True)
    found = run(kernel, a)
    close(np.where(kept, found, 0), np.where(kept, a, 0))
    assert masked or np.isfinite(found).all()


def test_views_of_more_dimensions_than_engines_address():
    """AWS's compiler made several instructions of one; a kernel of today's has to itself."""

    def kernel(a):
        out = nl.ndarray((4, 2, 2, 2, 3, 3, 3), dtype=a.dtype, buffer=nl.shared_hbm)
        tile = nl.load(a)
        p, x, y, z, i, j, k = nl.mgrid[0:4, 0:2, 0:2, 0:2, 0:3, 0:3, 0:3]
        nl.store(out, 2.0 * tile[p, x + i, y + j, z + k])
        return out

    a = normal(4, 4, 5, 6)
    p, x, y, z, i, j, k = np.mgrid[0:4, 0:2, 0:2, 0:2, 0:3, 0:3, 0:3]
    close(run(kernel, a), 2 * a[p, x + i, y + j, z + k])
