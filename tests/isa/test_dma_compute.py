"""dma_compute against float64 NumPy: sums, gathered and scattered rows."""

import ml_dtypes
import numpy as np
import pytest
from helpers import numbers, rounded, run

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import dtypes
from nki_dist.errors import NkiValidationError, OutOfBoundsError

BF16 = ml_dtypes.bfloat16


def total(arrays, dtype=np.float32, dst=None, sbuf=(), platform="trn2", wrap=list, **options):
    def kernel(*tensors):
        shape, element = dst or tensors[0].shape, dtypes.of(dtype)
        out = nl.ndarray(shape, dtype=element, buffer=nl.shared_hbm)
        srcs = [nl.load(t) if n in sbuf else t for n, t in enumerate(tensors)]
        tile = nl.ndarray(shape, dtype=element, buffer=nl.sbuf)
        nisa.dma_compute(tile, wrap(srcs), nl.add, **options)
        nisa.dma_copy(out, tile)
        return out

    return np.asarray(run(kernel, *arrays, platform=platform))


@pytest.mark.parametrize("count", [1, 2, 3, 16])
@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_sum(count, dtype):
    arrays = [numbers(n, (37, 50), dtype) for n in range(count)]
    want = np.float32(0)
    for a in arrays:
        want = want + a.astype(np.float32)
    got = total(arrays, dtype, sbuf=(1, 4))
    assert np.array_equal(got.astype(np.float64), rounded(want, dtype))


def test_mixed_types_and_shapes():
    a, b, c = numbers(1, (20, 6, 5), BF16), numbers(2, (20, 30)), numbers(3, (20, 30), np.int32)
    want = a.reshape(20, 30).astype(np.float32) + b + c.astype(np.float32)
    got = total([a, b, c], np.int16, dst=(20, 30), scales=[1.0, 1, 1.0], wrap=tuple)
    assert np.array_equal(got, rounded(want, np.int16))


def test_destination_among_the_sources_and_in_hbm():
    a, b = numbers(4, (40, 24)), numbers(5, (40, 24))

    def kernel(a, b):
        tile = nl.load(a)
        nisa.dma_compute(tile, [tile, b, tile], nl.add)
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nisa.dma_compute(out, [b, tile], nl.add)
        return out

    assert np.array_equal(run(kernel, a, b), b + (a + b + a))


@pytest.mark.parametrize(
    "count, options, message",
    [
        (2, {"scales": 1.0}, "scales=1.0; allowed: None or a list of 1.0"),
        (2, {"scales": ["a", "b"]}, r"scales=\['a', 'b'\]; allowed: None or a list of 1.0"),
    ],
)
def test_refuses(count, options, message):
    with pytest.raises(NkiValidationError, match=message):
        total([numbers(n, (4, 6)) for n in range(count)], **options)


def rows(table, data, index, scatter, mode=nisa.oob_mode.error, srcs=None, **options):
    """`data + table[index]`, or the table after `table[index] += data`."""

    def kernel(table, data, index):
        tile, offsets = nl.load(data), nl.load(index)
        width = table.shape[1]
        target = nl.ndarray(table.shape, dtype=table.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(target, table)
        view = target.ap([[width, len(index)], [1, width]], vector_offset=offsets)
        both = [view, tile] if srcs is None else srcs(view, tile)
        nisa.dma_compute(view if scatter else tile, both, nl.add, oob_mode=mode, **options)
        if scatter:
            return target
        out = nl.ndarray(data.shape, dtype=data.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out

    return np.asarray(run(kernel, table, data, index))


@pytest.mark.parametrize("dtypes", [(np.float32, np.float32), (BF16, np.float32), (BF16, BF16)])
def test_gathered_rows(dtypes):
    table, data = numbers(6, (90, 33), dtypes[0]), numbers(7, (50, 33), dtypes[1])
    index = np.random.default_rng(0).integers(0, 90, (50, 1)).astype(np.uint32)
    want = data.astype(np.float32) + table[index[:, 0]].astype(np.float32)
    got = rows(table, data, index, False)
    assert np.array_equal(got.astype(np.float64), rounded(want, dtypes[1]))


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_scattered_rows(dtype):
    table, data = numbers(8, (90, 33), dtype), numbers(9, (50, 33))
    index = np.random.default_rng(1).permutation(90)[:50].astype(np.int32)[:, None]
    want = table.copy()
    want[index[:, 0]] = (table[index[:, 0]].astype(np.float32) + data).astype(dtype)
    assert np.array_equal(rows(table, data, index, True), want)
    swapped = rows(table, data, index, True, srcs=lambda view, tile: [tile, view])
    assert np.array_equal(swapped, want)


def test_rows_scattered_to_twice_receive_both():
    table, data = np.zeros((5, 4), BF16), numbers(10, (6, 4))
    index = np.array([[1], [3], [1], [1], [0], [3]], np.uint32)
    want = table.copy()
    for n, row in zip(index[:, 0], data, strict=True):
        want[n] = (want[n].astype(np.float32) + row).astype(BF16)
    assert np.array_equal(rows(table, data, index, True), want)


@pytest.mark.parametrize("scatter", [False, True])
def test_out_of_bounds(scatter):
    table, data = numbers(11, (9, 4)), numbers(12, (3, 4))
    index = np.array([[2], [9], [-1]], np.int32)
    with pytest.raises(
        OutOfBoundsError, match=r"vector offset 9 \(partition 1\) is outside \[0, 9\)"
    ):
        rows(table, data, index, scatter)
    got = rows(table, data, index, scatter, nisa.oob_mode.skip)
    want = table.copy() if scatter else data.copy()
    want[2 if scatter else 0] += data[0] if scatter else table[2]
    assert np.array_equal(got, want)


def test_indirect_forms_that_are_refused():
    table, data = numbers(13, (9, 4)), numbers(14, (3, 4))
    index = np.array([[2], [1], [0]], np.uint32)
    with pytest.raises(NkiValidationError, match="unique_indices=False"):
        rows(table, data, index, True, unique_indices=False)
    with pytest.raises(NkiValidationError, match="3 sources, 1 of them with a vector offset"):
        rows(table, data, index, False, srcs=lambda view, tile: [view, tile, tile])
    with pytest.raises(NkiValidationError, match="2 sources, 2 of them with a vector offset"):
        rows(table, data, index, True, srcs=lambda view, tile: [view, view])
    with pytest.raises(NkiValidationError, match="2 sources, 0 of them"):
        rows(table, data, index, True, srcs=lambda view, tile: [tile, tile])

    def other(view, tile):
        copy = nl.ndarray(tile.shape, dtype=tile.dtype)
        nisa.tensor_copy(copy, tile)
        return [view, copy]

    with pytest.raises(NkiValidationError, match="the other source the same elements"):
        rows(table, data, index, False, srcs=other)


def test_indirect_views_are_refused():
    def indirect(a, where):
        tile = nl.load(a)
        nisa.dma_compute(tile[:, 0:1], [tile.indirect(nl.load(where))], nl.add)

    with pytest.raises(NkiValidationError, match=r"\.indirect\(\) view"):
        run(indirect, numbers(15, (8, 6)), np.zeros((8, 1), np.uint32), platform="trn3")
