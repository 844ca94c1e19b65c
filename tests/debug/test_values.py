"""What a debugged kernel sees: values of tensors and registers, and what nobody has written."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors

X = np.random.default_rng(1).standard_normal((5, 7)).astype(np.float32)


def ran(kernel, *arrays, **options):
    """A debugged launch of a plain function."""
    return nki.debug(kernel, **options)(*arrays)


def test_values_are_those_of_the_moment():
    seen = []

    def kernel(x):
        tile, out = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        seen.append(tile.numpy())
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=3.0)
        seen.append(tile.numpy())
        assert (tile.numpy() != seen[0]).all()
        nl.store(out, tile)
        seen.append(out.numpy()[1:3, 2])
        seen.append(tile[1:3, 2].numpy())
        seen[1][0, 0] = 99.0  # a copy
        assert tile.numpy()[0, 0] == X[0, 0] * np.float32(3)
        return out

    out = ran(kernel, X)
    np.testing.assert_array_equal(seen[0], X)
    np.testing.assert_array_equal(out, X * np.float32(3))
    np.testing.assert_array_equal(seen[2], out[1:3, 2])
    np.testing.assert_array_equal(seen[3], out[1:3, 2:3])


def test_numpy_takes_tensors_and_its_comparisons_work():
    def kernel(x):
        tile, out = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        np.testing.assert_allclose(tile, X)
        assert np.asarray(tile, np.float64).dtype == np.float64
        with pytest.raises(AssertionError):
            np.testing.assert_allclose(tile, X + 1)
        nl.store(out, tile)
        return out

    ran(kernel, X)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16, np.int32, np.uint8])
def test_values_have_the_dtype_that_results_have(dtype):
    x, seen = np.arange(12).reshape(3, 4).astype(dtype), []

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        seen.append(x.numpy())
        nisa.dma_copy(dst=out, src=x)
        return out

    out = ran(kernel, x)
    assert seen[0].dtype == out.dtype == x.dtype
    assert seen[0].tobytes() == x.tobytes()


def test_views_by_another_type_and_by_registers():
    def kernel(x, at):
        tile, index = nl.load(x), nisa.register_alloc()
        nisa.register_load(index, nl.load(at))
        assert tile.view(nl.int32).numpy().tobytes() == X.tobytes()
        np.testing.assert_array_equal(tile[:, nl.ds(index, 2)].numpy(), X[:, 3:5])
        np.testing.assert_array_equal(x.select(0, index).numpy(), X[3])
        nisa.register_move(index, 6)
        with pytest.raises(errors.OutOfBoundsError, match=r"run-time index 6 is outside \[0, 6\)"):
            tile[:, nl.ds(index, 2)].numpy()
        return x

    ran(kernel, X, np.full((1, 1), 3, np.int32))


def test_a_view_by_many_indices_has_to_be_copied():
    def kernel(x, rows):
        return x.vector_select(0, nl.load(rows)).numpy()

    with pytest.raises(errors.NkiValidationError, match="copy it to a tile") as caught:
        ran(kernel, X, np.array([[1], [3]], np.int32))
    assert caught.value.code == "debug-view"


def test_print_shows_values_and_what_nobody_has_written(capsys):
    def kernel(x):
        tile = nl.ndarray((2, 3), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile[:, :2], src=x[:2, :2])
        print(tile)
        print(tile[:, :2])
        whole = nl.ndarray((2, 3), dtype=nl.int8, buffer=nl.sbuf)
        nisa.memset(whole[:, 1:], 0x7B)  # what memory holds at first, but written
        print(whole)
        assert np.isnan(tile.numpy()[:, 2]).all()
        out = nl.ndarray((2, 2), dtype=x.dtype, buffer=nl.shared_hbm)
        print(repr(out))
        nl.store(out, tile[:, :2])
        return out

    ran(kernel, np.array([[1.23456, -2], [3e-9, 0]], np.float32))
    text = capsys.readouterr().out
    partly, _, small, unstored = text.split("NkiTensor")[1:]
    assert "-- marks 2 elements that nobody has written" in partly
    assert partly.count("--]") == 2
    assert "1.23" in partly and "3e-09" in partly
    assert "marks" not in text.split("NkiTensor")[2]
    assert "marks 2 elements" in small and small.count("123") == 4
    assert "marks 4 elements" in unstored and "core=0" in unstored


def test_what_was_written_at_run_time_addresses_is_known():
    def kernel(x):
        out = nl.ndarray((4, 3), dtype=nl.int8, buffer=nl.shared_hbm)
        like_new = nl.ndarray((1, 3), dtype=nl.int8, buffer=nl.sbuf)
        nisa.memset(like_new, 0x7B)  # what memory holds at first

        def body(n):
            row = out.ap([[3, 1], [1, 3]], scalar_offset=n, indirect_dim=0)
            nisa.dma_copy(dst=row, src=like_new)

        nl.fori_loop(1, 3, body)
        text = str(out)
        assert "-- marks 6 elements" in text and text.count("123") == 6
        nisa.dma_copy(dst=out[0:1], src=like_new)
        nisa.dma_copy(dst=out[3:4], src=like_new)
        assert "--" not in str(out)
        return out

    ran(kernel, X)


@pytest.mark.parametrize("kept", [1, 2])
def test_what_a_shuffle_leaves_is_known(kept):
    def kernel(x):
        like_new = nl.ndarray((2, 3), dtype=nl.int8, buffer=nl.sbuf)
        moved = nl.ndarray((2, 3), dtype=nl.int8, buffer=nl.sbuf)
        nisa.memset(like_new, 0x7B)  # what memory holds at first
        mask = [1, 0] * 16
        mask[kept] = 255
        nisa.nc_stream_shuffle(dst=moved, src=like_new, shuffle_mask=mask)
        assert ("--" in str(moved)) is (kept < 2)
        return nl.zeros((2, 3), dtype=x.dtype, buffer=nl.shared_hbm)

    ran(kernel, X)


def test_zeros_where_memory_is_to_hold_zeros():
    def kernel(x):
        tile = nl.ndarray((2, 3), dtype=nl.float32, buffer=nl.sbuf)
        assert not tile.numpy().any() and "--" not in str(tile)
        out = nl.ndarray((2, 3), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    assert not ran(kernel, X, check="unwritten=zero").any()


def test_elsewhere_an_error_and_the_text_say_where_values_are():
    texts = []

    def kernel(x):
        tile = nl.load(x)
        texts.append(repr(tile))
        return tile.numpy()

    with pytest.raises(errors.CompileError, match=r"nki\.debug\(kernel\)") as caught:
        nki.simulate(kernel)(X)
    assert caught.value.code == "values-unknown"
    line = kernel.__code__.co_firstlineno + 3
    assert caught.value.location == f"{__file__}:{line}" and caught.value.core == 0
    assert "values: nki.debug" in texts[0]


def test_registers_have_values():
    def kernel(x, at):
        register = nisa.register_alloc(5)
        assert int(register) == 5 and register == 5 and register != 4
        assert register < 6 and register >= 5 and not register > 5 and register <= 5.5
        assert float(register) == 5.0 and repr(register).endswith("=5")
        if not register:
            raise AssertionError
        nisa.register_load(register, nl.load(at))
        assert register == -2 and [10, 20, 30][register] == 20
        with pytest.raises(errors.CompileError, match="arithmetic of a register"):
            register + 1
        return x

    ran(kernel, X, np.full((1, 1), -2, np.int32))


def test_a_register_without_value_names_debug():
    def kernel(x):
        return int(nisa.register_alloc(5))

    with pytest.raises(errors.CompileError, match=r"nki\.debug"):
        nki.simulate(kernel)(X)


def test_a_tensor_of_another_launch_has_no_values():
    kept = []

    def kernel(x):
        kept.append(nl.load(x))
        return kept[0].numpy() and x if len(kept) > 1 else x

    ran(kernel, X)
    with pytest.raises(errors.CompileError, match="another launch or core"):
        ran(kernel, X)
    with pytest.raises(errors.LaunchError, match="only inside a kernel"):
        kept[0].numpy()


def test_an_error_of_an_instruction_is_raised_where_it_is_called():
    def kernel(x, at):
        index = nisa.register_alloc()
        nisa.register_load(index, nl.load(at))
        tile = nl.load(x)
        try:
            nl.copy(tile[:, nl.ds(index, 2)])
        except errors.OutOfBoundsError as error:
            raise KeyError(error.location) from None
        return x

    with pytest.raises(KeyError, match=f"test_values.py:{kernel.__code__.co_firstlineno + 5}"):
        ran(kernel, X, np.full((1, 1), 6, np.int32))


def test_what_the_passes_find_is_found():
    def kernel(x):
        tile, out = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        other = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=other[:, :3], src=tile[:, :3])
        nl.store(out, other)
        return out

    for host in (nki.simulate, nki.debug):
        with pytest.raises(errors.UninitializedReadError, match="20 of 35 elements of output"):
            host(kernel)(X)

    def large(x):
        tiles = [nl.ndarray((128, 8192), dtype=nl.float32, buffer=nl.sbuf) for _ in range(8)]
        for tile in tiles:
            nisa.memset(tile, 0.0)
        for tile in tiles[1:]:
            nisa.tensor_tensor(dst=tiles[0], data1=tiles[0], data2=tile, op=nl.add)
        return x

    for host in (nki.simulate, nki.debug):
        with pytest.raises(errors.OutOfMemoryError, match="SBUF"):
            host(large)(X)
