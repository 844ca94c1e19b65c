"""Dynamic loops under debug go round in Python, and refuse what they refuse elsewhere."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.UnwrittenOutputWarning"),
]

X = np.random.default_rng(2).standard_normal((4, 9)).astype(np.float32)
COUNT = np.full((1, 1), 3, np.int32)


def both(kernel, *arrays):
    """The result of both hosts, which is the same."""
    here = nki.simulate(kernel)(*[a.copy() for a in arrays])
    stepped = nki.debug(kernel)(*[a.copy() for a in arrays])
    assert here.tobytes() == stepped.tobytes()
    return stepped


def loaded(array):
    register = nisa.register_alloc()
    nisa.register_load(register, nl.load(array))
    return register


def doubled(tile):
    nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)


def stored(x, tile):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def test_a_new_register_holds_0():
    def kernel(x):
        cell = nl.ndarray((1, 1), nl.int32, buffer=nl.sbuf)
        nisa.register_store(cell, nisa.register_alloc())
        return stored(x, cell)

    assert both(kernel, np.ones((1, 1), np.int32)).tolist() == [[0]]


def test_dynamic_range_with_values_in_every_round():
    rounds = []

    def kernel(x, count):
        tile, stop = nl.load(x), loaded(count)
        for i in nl.dynamic_range(1, stop):
            nisa.tensor_scalar(
                dst=tile[:, nl.ds(i, 2)],
                data=tile[:, nl.ds(i, 2)],
                op0=nl.multiply,
                operand0=2.0,
            )
            if isinstance(rounds, list) and "r" in repr(i) and "=" in repr(i):
                rounds.append((int(i), tile.numpy()))
        return stored(x, tile)

    got = both(kernel, X, COUNT + 1)
    want = X.copy()
    for n, (i, values) in enumerate(rounds, 1):
        want[:, i : i + 2] *= 2
        assert i == n
        np.testing.assert_array_equal(values, want)
    assert len(rounds) == 3
    np.testing.assert_array_equal(got, want)


def test_fori_loop_and_nesting():
    def kernel(x, count):
        tile, stop = nl.load(x), loaded(count)

        def outer(i):
            def inner(j):
                nisa.tensor_scalar(
                    dst=tile[:, nl.ds(j, 1)],
                    data=tile[:, nl.ds(i, 1)],
                    op0=nl.add,
                    operand0=1.0,
                )

            nl.fori_loop(0, stop, inner, 2)

        nl.fori_loop(1, 5, outer)
        return stored(x, tile)

    want = X.copy()
    for i in range(1, 5):
        for j in range(0, 3, 2):
            want[:, j] = want[:, i] + np.float32(1)
    np.testing.assert_array_equal(both(kernel, X, COUNT), want)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_while_register_and_while_loop(count):
    def countdown(register, left):
        tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.register_store(tile, register)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract, operand0=1)
        nisa.register_load(register, tile)

    def by_statement(x, count):
        tile, left = nl.load(x), loaded(count)
        while left:
            doubled(tile)
            countdown(left, tile)
        return stored(x, tile)

    def by_function(x, count):
        tile, left = nl.load(x), loaded(count)

        def body(now):
            doubled(tile)
            countdown(now, tile)
            return now

        nl.while_loop(left, body)
        return stored(x, tile)

    for kernel in (by_statement, by_function):
        got = both(kernel, X, np.full((1, 1), count, np.int32))
        np.testing.assert_array_equal(got, X * np.float32(2**count))


def test_sums_in_psum_over_rounds():
    w = np.random.default_rng(5).standard_normal((4, 6)).astype(np.float32)

    def kernel(x, w, count):
        moving, stationary, stop = nl.load(x), nl.load(w), loaded(count)
        total = nl.ndarray((6, 9), dtype=nl.float32, buffer=nl.psum)
        for _ in nl.dynamic_range(stop):
            nisa.nc_matmul(dst=total[:, :5], stationary=stationary, moving=moving[:, :5])
            nisa.nc_matmul(dst=total[:, 3:], stationary=stationary, moving=moving[:, 3:])
        tile = nl.ndarray((6, 9), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(dst=tile, src=total)
        out = nl.ndarray((6, 9), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    wide = w.astype(np.float64).T @ X
    times = np.where((np.arange(9) >= 3) & (np.arange(9) < 5), 6, 3)
    np.testing.assert_allclose(both(kernel, X, w, COUNT), wide * times, rtol=1e-5)


def refused(kernel, match, code):
    for host in (nki.simulate, nki.debug):
        with pytest.raises(errors.CompileError, match=match) as caught:
            host(kernel)(X, COUNT)
        assert caught.value.code == code, host


def test_a_name_that_hands_on_a_tensor_is_refused():
    def kernel(x, count):
        total = nl.load(x)
        for _ in nl.dynamic_range(loaded(count)):
            total = nl.add(total, total)
        return stored(x, total)

    refused(kernel, "gives this name another", "loop-carries-name")


def test_rounds_have_no_order_to_keep():
    def kernel(x, count):
        with nl.no_reorder():
            for _ in nl.dynamic_range(loaded(count)):
                pass
        return x

    refused(kernel, "aren't supported inside nl.no_reorder", "loop-in-no-reorder")


def test_a_tensor_of_the_body_ends_with_its_loop():
    def kernel(x, count):
        made = []

        def body(i):
            made.append(nl.load(x))

        nl.fori_loop(0, 2, body)
        return stored(x, made[-1])

    refused(kernel, "made inside the dynamic loop", "loop-made-inside")


def test_a_tensor_of_the_body_ends_with_its_round():
    def kernel(x, count):
        made = []
        for _ in nl.dynamic_range(3):
            if made:
                assert "of another launch or round" in repr(made[0])
                made[0].numpy()
            made.append(nl.load(x))
        return x

    with pytest.raises(errors.CompileError, match="made inside the dynamic loop"):
        nki.debug(kernel)(X, COUNT)


def test_break_is_refused():
    def kernel(x, count):
        for _ in nl.dynamic_range(loaded(count)):
            break
        return x

    refused(kernel, "left a dynamic loop by break", "loop-left")


def test_a_body_that_never_runs_leaves_outputs_to_the_run():
    """Whether an output is stored depends on data: a warning, as on the other host."""

    def kernel(x, count):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for _ in nl.dynamic_range(loaded(count)):
            nl.store(out, nl.load(x))
        return out

    for host in (nki.simulate, nki.debug):
        with pytest.warns(errors.UnwrittenOutputWarning, match="36 of 36"):
            assert np.isnan(host(kernel)(X, COUNT * 0)).all()


def test_python_may_ask_registers_and_tensors():
    def kernel(x, count):
        tile, left = nl.load(x), loaded(count)
        if left > 2 and tile.numpy()[0, 0] == X[0, 0]:
            doubled(tile)
        if left:
            doubled(tile)
        return stored(x, tile)

    np.testing.assert_array_equal(nki.debug(kernel)(X, COUNT), 4 * X)
    with pytest.raises(errors.CompileError, match="comparison of a register"):
        nki.simulate(kernel)(X, COUNT)


def test_an_index_that_nobody_wrote_is_told_as_such():
    def kernel(x, count):
        index = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        register = nisa.register_alloc()
        tile = nl.load(x)
        nisa.tensor_copy(dst=tile[:, 0:1], src=tile.select(1, index))
        nisa.register_load(register, nl.load(count))
        return x

    for host in (nki.simulate, nki.debug):
        with pytest.raises(errors.UninitializedReadError, match="index"):
            host(kernel)(X, COUNT)


def test_a_kernel_may_raise_stop_iteration():
    def kernel(x):
        next(iter(()))

    with pytest.raises(StopIteration):
        nki.debug(kernel)(X)
