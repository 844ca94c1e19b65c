"""Where on-chip operands may lie: within their partitions, and where engines can start."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import NkiValidationError, OutOfBoundsError
from tests.isa.helpers import numbers, output, run

X = numbers(1, (128, 12))


def _copied(pattern, offset, rows, cols, how=nisa.tensor_copy):
    def kernel(x):
        tile = nl.load(x)
        part = nl.ndarray((rows, cols), dtype=x.dtype, buffer=nl.sbuf)
        how(dst=part, src=tile.ap(pattern, offset=offset))
        return output(part)

    return run(kernel, X)


@pytest.mark.parametrize("how", [nisa.tensor_copy, nisa.dma_copy])
def test_a_pattern_stays_in_its_partitions(how) -> None:
    np.testing.assert_array_equal(_copied([[12, 7], [2, 5]], 3, 7, 5, how), X[:7, 3:12:2])
    np.testing.assert_array_equal(_copied([[12, 7], [-2, 5]], 8, 7, 5, how), X[:7, 8::-2])
    with pytest.raises(OutOfBoundsError, match=r"covers bytes \[16, 52\) of a partition .* 48"):
        _copied([[12, 7], [2, 5]], 4, 7, 5, how)
    with pytest.raises(OutOfBoundsError, match=r"covers bytes \[-4, 32\) of a partition"):
        _copied([[12, 7], [-2, 5]], 12 + 7, 7, 5, how)
    with pytest.raises(OutOfBoundsError, match="only dimension 0 goes from partition"):
        _copied([[12, 1], [12, 5]], 0, 1, 5, how)


def test_partitions_may_repeat() -> None:
    np.testing.assert_array_equal(
        _copied([[0, 40], [1, 12]], 0, 40, 12), np.broadcast_to(X[0], (40, 12))
    )


def test_a_pattern_in_another_type_stays_in_its_partitions() -> None:
    def kernel(x, offset=0):
        tile = nl.load(x)
        part = nl.ndarray((9, 20), dtype=nl.uint16, buffer=nl.sbuf)
        nisa.tensor_copy(part, tile.ap([[24, 9], [1, 20]], offset=offset, dtype=nl.uint16))
        return output(part)

    np.testing.assert_array_equal(run(lambda x: kernel(x, 4), X), X[:9].view(np.uint16)[:, 4:])
    with pytest.raises(OutOfBoundsError, match=r"covers bytes \[10, 50\)"):
        run(lambda x: kernel(x, 5), X)


def test_a_run_time_index_keeps_a_pattern_in_its_partitions() -> None:
    def kernel(x, where):
        tile, index = nl.load(x), nl.load(where)
        part = nl.ndarray((9, 5), dtype=x.dtype, buffer=nl.sbuf)
        view = tile.ap([[12, 9], [1, 5]], scalar_offset=index, indirect_dim=1)
        nisa.tensor_copy(part, view)
        return output(part)

    np.testing.assert_array_equal(run(kernel, X, np.array([[7]], np.int32)), X[:9, 7:])
    with pytest.raises(OutOfBoundsError, match="run-time index 8"):
        run(kernel, X, np.array([[8]], np.int32))


def test_dimensions_that_go_on_in_others_count_as_one() -> None:
    def kernel(free: tuple[int, ...]) -> None:
        tile = nl.ndarray((4, 3, 3, 3, 3, 3), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(tile, value=0)
        part = tile[(slice(None), *[slice(0, n) for n in free])]
        nisa.tensor_copy(part, part)

    for free in ((2, 2, 2, 2, 3), (2, 2, 1, 2, 2), (2, 3, 3, 3, 3)):
        run(lambda x, free=free: [kernel(free), output(nl.load(x))][1], X)
    with pytest.raises(NkiValidationError, match="5 free dimensions after merging contiguous"):
        run(lambda x: kernel((2, 2, 2, 2, 2)), X)


STARTS = [
    (1, [0, 32, 64, 96], [1, 16, 127]),
    (32, [0, 32, 64, 96], [31, 48]),
    (33, [0, 64], [32, 95]),
    (64, [0, 64], [32, 1]),
    (65, [0], [32, 63]),
]


@pytest.mark.parametrize(("count", "allowed", "refused"), STARTS)
def test_where_engines_start(count: int, allowed: list[int], refused: list[int]) -> None:
    def kernel(start):
        def body(x):
            tile, part = nl.load(x), nl.ndarray((count, 12), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_scalar(part, tile[start : start + count], nl.multiply, 2.0)
            return output(part)

        return body

    for start in allowed:
        np.testing.assert_array_equal(run(kernel(start), X), 2 * X[start : start + count])
    named = ", ".join(map(str, allowed))
    for start in refused:
        message = f"data starts at partition {start} of sbuf .* {count} partitions from {named}"
        with pytest.raises(NkiValidationError, match=message):
            run(kernel(start), X)


def test_the_address_counts() -> None:
    def kernel(first):
        def body(x):
            tile = nl.ndarray((72, 12), dtype=x.dtype, buffer=nl.sbuf, address=(first, 0))
            nisa.dma_copy(tile, x[0:72])
            part = nl.ndarray((33, 12), dtype=x.dtype, buffer=nl.sbuf)
            nisa.tensor_copy(part, tile[32:65])
            return output(part)

        return body

    np.testing.assert_array_equal(run(kernel(32), X), X[32:65])
    with pytest.raises(NkiValidationError, match="src starts at partition 48 of sbuf"):
        run(kernel(16), X)


def test_dma_starts_anywhere() -> None:
    def kernel(x):
        tile, part = nl.load(x), nl.ndarray((40, 12), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(part, 0)
        nisa.dma_copy(part[7:12], tile[50:55])
        part[3] = tile[9]  # an assignment is whatever copy can do it
        return output(part)

    got = run(kernel, X)
    np.testing.assert_array_equal(got[7:12], X[50:55])
    np.testing.assert_array_equal(got[3], X[9])


def test_more_partitions_than_there_are_fit_nowhere() -> None:
    def kernel(x):
        tile = nl.load(x)
        nisa.memset(tile.ap([[0, 129], [1, 12]], offset=32 * 12), 1)
        return output(tile)

    with pytest.raises(NkiValidationError, match="129 partitions from nowhere"):
        run(kernel, X)
