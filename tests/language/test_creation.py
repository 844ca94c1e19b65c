"""Allocation, constants and transfers: what is made, and what can't be."""

import ml_dtypes
import numpy as np
import pytest

import nki_dist.language as nl
from nki_dist.errors import LaunchError, NkiError, NkiValidationError, OutOfMemoryError
from tests.language.run import on_tiles, run

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def values(make):
    """Contents of the tensor that `make()` gives inside a kernel."""

    def kernel(x):
        tensor = make()
        if nl.is_hbm(tensor.buffer):
            tensor = nl.load(tensor)
        elif nl.is_psum(tensor.buffer):
            tensor = nl.copy(tensor)
        out = nl.ndarray(tensor.shape, tensor.dtype, buffer=nl.shared_hbm)
        nl.store(out, tensor)
        return out

    return run(kernel, X)


@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum, nl.hbm, nl.shared_hbm], ids=str)
def test_filled_tensors_in_every_memory(buffer):
    np.testing.assert_array_equal(
        values(lambda: nl.zeros((3, 5), nl.float32, buffer)), np.zeros((3, 5))
    )
    np.testing.assert_array_equal(
        values(lambda: nl.ones((3, 5), nl.bfloat16, buffer)), np.ones((3, 5))
    )
    got = values(lambda: nl.full((3, 2, 5), -2.5, nl.float32, buffer=buffer, name="x"))
    np.testing.assert_array_equal(got, np.full((3, 2, 5), -2.5))


def test_full_takes_infinities_and_integers():
    assert values(lambda: nl.full((2, 2), float("-inf"), nl.float32)).max() == -np.inf
    assert values(lambda: nl.full((2, 2), 2**30 + 1, nl.int32)).max() == 2**30 + 1


def test_like(trace):
    x = nl.ndarray((3, 7), nl.bfloat16, buffer=nl.psum)
    for make in (nl.empty_like, nl.zeros_like):
        same = make(x)
        assert (same.shape, same.dtype, same.buffer) == ((3, 7), nl.bfloat16, nl.psum)
        other = make(x, dtype=nl.int32, buffer=nl.sbuf, name="y")
        assert (other.dtype, other.buffer, other.name) == (nl.int32, nl.sbuf, "y")


def test_zeros_like_is_zero():
    np.testing.assert_array_equal(on_tiles(nl.zeros_like, X), np.zeros_like(X))


def test_ndarray(trace):
    tile = nl.ndarray((5, 6), nl.float32)
    assert (tile.buffer, tile.shape, tile.dtype) == (nl.sbuf, (5, 6), nl.float32)
    assert nl.ndarray([5, np.int64(6)], np.float32).shape == (5, 6)
    assert nl.ndarray((7,), nl.int8, buffer=nl.hbm).shape == (7,)
    assert nl.ndarray((64, 8), nl.float32, address=(64, 256)).storage.address == (64, 256)
    assert "ndarray" in repr(nl.ndarray)
    assert nl.ndarray | None is not None


@pytest.mark.parametrize(
    ("make", "message", "kind"),
    [
        (lambda: nl.ndarray((5, 0), nl.float32), "size must be at least 1", NkiError),
        (lambda: nl.ndarray((5, 2.5), nl.float32), "a tuple of positive ints", NkiError),
        (lambda: nl.ndarray((), nl.float32, nl.hbm), "size must be at least 1", NkiError),
        (lambda: nl.ndarray((5, 6), "float31"), "float31", NkiError),
        (lambda: nl.ndarray((5, 6), nl.float32, buffer="dram"), "dram", NkiError),
        (lambda: nl.ndarray((5, 4097), nl.float32, nl.psum), "has 16384", OutOfMemoryError),
        (lambda: nl.ndarray((65, 4), nl.float32, address=(64, 0)), "partition 127", NkiError),
    ],
)  # fmt: skip
def test_ndarray_refuses(make, message, kind):
    with pytest.raises(kind, match=message) as caught:
        values(make)
    assert caught.value.instruction == "nl.ndarray"
    assert "test_creation.py" in caught.value.location


def test_outside_a_kernel():
    with pytest.raises(LaunchError, match="only inside a kernel"):
        nl.ndarray((5, 6), nl.float32)


def test_memory_predicates():
    assert [nl.is_hbm(b) for b in (nl.sbuf, nl.psum, nl.hbm, nl.private_hbm, nl.shared_hbm)] == [
        False, False, True, True, True,
    ]  # fmt: skip
    assert [nl.is_on_chip(b) for b in (nl.sbuf, nl.psum, nl.hbm)] == [True, True, False]
    assert [nl.is_sbuf(b) for b in (nl.sbuf, nl.psum)] == [True, False]
    assert [nl.is_psum(b) for b in (nl.sbuf, nl.psum)] == [False, True]


def test_an_input_is_shared_and_equals_the_generic_name():
    def kernel(x):
        assert x.buffer == nl.shared_hbm and x.buffer == nl.hbm and x.buffer != nl.sbuf

    run(kernel, X)


# ---- constants ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.float32, np.int8, np.uint32, ml_dtypes.bfloat16, np.float16])
def test_shared_constant_keeps_its_contents(kind):
    constant = (np.arange(20) - 4).astype(kind).reshape(4, 5)
    np.testing.assert_array_equal(values(lambda: nl.shared_constant(constant)), constant)


def test_shared_constant_from_a_file_that_goes_away(tmp_path):
    path = tmp_path / "constant.npy"
    np.save(path, X)

    def kernel(x):
        constant = nl.shared_constant(str(path))
        path.unlink()
        return nl_store(nl.load(constant))

    np.testing.assert_array_equal(run(kernel, X), X)


def nl_store(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def test_shared_constant_refuses_what_isnt_numbers():
    with pytest.raises(NkiValidationError, match="data type must be one of NKI's: got dtype"):
        values(lambda: nl.shared_constant(np.array([[None, 1]])))


def test_shared_identity_matrix():
    for n, kind in ((7, nl.float32), (128, nl.bfloat16)):
        got = values(lambda n=n, kind=kind: nl.shared_identity_matrix(n, kind))
        np.testing.assert_array_equal(got.astype(np.float32), np.eye(n))
    assert values(lambda: nl.shared_identity_matrix(5)).dtype == np.uint8

    def into():
        tile = nl.ndarray((6, 6), nl.float32)
        assert id(nl.shared_identity_matrix(6, nl.float32, dst=tile)) == id(tile)
        return tile

    np.testing.assert_array_equal(values(into), np.eye(6))


# ---- transfers ----------------------------------------------------------------------------------


def test_load_and_store_convert():
    got = on_tiles(lambda x: nl.load(nl_store(x), dtype=nl.bfloat16), X)
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(got.astype(np.float32), X)


def test_load_of_one_dimension_is_a_column():
    def kernel(x):
        tile = nl.load(x)
        assert tile.shape == (5, 1)
        return nl_store(tile)

    np.testing.assert_array_equal(run(kernel, np.arange(5.0, dtype=np.float32))[:, 0], range(5))


def test_load_of_more_rows_than_partitions():
    with pytest.raises(NkiValidationError, match=r"src has 129 rows.* at most 128 partitions"):
        run(lambda x: nl.load(x), np.zeros((129, 4), np.float32))


def test_assignment_copies():
    def kernel(x):
        tile = nl.ndarray((3, 4), nl.float32)
        tile[...] = nl.load(x)
        tile[:, 1:3] = 7
        tile[1] = nl.load(x)[2]
        out = nl.ndarray((3, 4), nl.float32, buffer=nl.shared_hbm)
        out[...] = tile
        return out

    expected = X.copy()
    expected[:, 1:3] = 7
    expected[1] = X[2]
    np.testing.assert_array_equal(run(kernel, X), expected)


def test_grid_markers():
    assert nl.nc(2) * 4 == nl.spmd_dim(nl.nc(2), 4)
    assert 4 * nl.nc(2) == nl.spmd_dim(4, nl.nc(2))
    for bad in (0, -1, 1.5, True, "2"):
        with pytest.raises(LaunchError, match="allowed: a positive int"):
            nl.nc(bad)
