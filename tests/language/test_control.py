"""Loops, registers and regions: what runs, and what is refused with the kernel's line."""

from __future__ import annotations

import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import CompileError
from tests.language.run import run

pytestmark = [
    pytest.mark.filterwarnings("ignore::nki_dist.errors.CompilerMayRejectWarning"),
    pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning"),
]

COUNT = np.array([[5]], np.int32)


def load_register(tensor):
    register = nisa.register_alloc()
    nisa.register_load(register, nl.load(tensor))
    return register


def result(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def decrement(count, one):
    nisa.tensor_tensor(dst=count, data1=count, data2=one, op=nl.subtract)


def double_columns(data, loop):
    """2 * data where the loop visits the column, 0 elsewhere."""
    tile = nl.load(data)
    out = nl.zeros(tile.shape, tile.dtype)

    def body(i):
        column = tile[:, nl.ds(i, 1)]
        nisa.tensor_tensor(out[:, nl.ds(i, 1)], column, column, nl.add)

    loop(body)
    return result(out)


DATA = np.arange(28, dtype=np.float32).reshape(4, 7) + 1


@pytest.mark.parametrize(("start", "stop", "step"), [(0, 7, 1), (1, 6, 2), (3, 3, 1), (5, 2, 1)])
def test_loops_with_static_bounds_visit_what_range_visits(start, stop, step):
    expected = np.zeros_like(DATA)
    expected[:, start:stop:step] = 2 * DATA[:, start:stop:step]

    def with_fori(data):
        return double_columns(data, lambda body: nl.fori_loop(start, stop, body, step))

    def with_range(data):
        def loop(body):
            for i in nl.dynamic_range(start, stop, step):
                body(i)

        return double_columns(data, loop)

    np.testing.assert_array_equal(run(with_fori, DATA), expected)
    np.testing.assert_array_equal(run(with_range, DATA), expected)


@pytest.mark.parametrize("count", [0, 1, 5, 7])
def test_loops_with_register_bounds_read_them_at_run_time(count):
    def kernel(data, n):
        upper = load_register(n)

        def loop(body):
            for i in nl.dynamic_range(upper):
                body(i)

        return double_columns(data, loop)

    expected = np.where(np.arange(7) < count, 2 * DATA, 0)
    np.testing.assert_array_equal(run(kernel, DATA, np.array([[count]], np.int32)), expected)


WRITES = {
    "register_load": lambda r: nisa.register_load(r, nl.full((1, 1), 100, nl.int32)),
    "register_move": lambda r: nisa.register_move(r, 100),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("loop", ["fori_loop", "dynamic_range", "nested"])
def test_writing_the_induction_register_is_refused(write, loop):
    def kernel(data):
        def body(i):
            if loop == "nested":
                nl.fori_loop(0, 2, lambda j: WRITES[write](i))
            else:
                WRITES[write](i)

        if loop == "dynamic_range":
            for i in nl.dynamic_range(0, 6):
                body(i)
        else:
            nl.fori_loop(0, 6, body)

    with pytest.raises(CompileError, match="induction register of a dynamic loop") as caught:
        run(kernel, DATA)
    assert caught.value.instruction == f"nisa.{write}"
    assert caught.value.location.startswith(__file__)


def test_a_copy_of_the_induction_register_may_be_written():
    def kernel(data):
        seen, one = nl.zeros((1, 1), nl.float32), nl.ones((1, 1), nl.float32)
        copy = nisa.register_alloc()

        def body(i):
            nisa.register_move(copy, i)
            nisa.register_move(copy, 100)
            nisa.tensor_tensor(seen, seen, one, nl.add)

        nl.fori_loop(0, 6, body)
        return result(seen)

    assert run(kernel, DATA) == 6


@pytest.mark.parametrize("count", [0, 1, 5])
def test_while_loop_runs_until_its_body_returns_zero(count):
    def kernel(n):
        left, one = nl.load(n), nl.ones((1, 1), nl.int32)
        rounds = nl.zeros((1, 1), nl.int32)
        register = nisa.register_alloc()
        nisa.register_load(register, left)

        def body(r):
            nisa.tensor_tensor(rounds, rounds, one, nl.add)
            decrement(left, one)
            nisa.register_load(r, left)
            return r

        nl.while_loop(register, body)
        return result(rounds)

    assert run(kernel, np.array([[count]], np.int32)) == count


@pytest.mark.parametrize("count", [0, 1, 5])
def test_while_register(count):
    def kernel(n):
        left, one = nl.load(n), nl.ones((1, 1), nl.int32)
        rounds = nl.zeros((1, 1), nl.int32)
        register = nisa.register_alloc()
        nisa.register_load(register, left)
        while register:
            nisa.tensor_tensor(rounds, rounds, one, nl.add)
            decrement(left, one)
            nisa.register_load(register, left)
        return result(rounds)

    assert run(kernel, np.array([[count]], np.int32)) == count


def test_while_register_in_a_function_with_text_at_column_0():
    def kernel(n):
        text = """
not indented
"""
        assert text
        left, one = nl.load(n), nl.ones((1, 1), nl.int32)
        register = nisa.register_alloc()
        nisa.register_load(register, left)
        while register:
            decrement(left, one)
            nisa.register_load(register, left)
        return result(left)

    assert run(kernel, COUNT) == 0


def test_while_register_without_source_says_what_to_use_instead():
    names = {"load_register": load_register}
    exec("def kernel(n):\n    r = load_register(n)\n    while r: pass\n", names)
    with pytest.raises(CompileError, match=r"use nl.while_loop instead"):
        run(names["kernel"], COUNT)


def test_loops_nest_in_every_order():
    """5 rounds of a `while`, each with 3 fori rounds of 2 dynamic_range rounds: 30 additions."""

    def kernel(n):
        left, one = nl.load(n), nl.ones((1, 1), nl.int32)
        total = nl.zeros((1, 1), nl.int32)
        register = nisa.register_alloc()
        nisa.register_load(register, left)

        def body(i):
            for _ in nl.dynamic_range(2):
                nisa.tensor_tensor(total, total, one, nl.add)

        while register:
            nl.fori_loop(0, 3, body)
            decrement(left, one)
            nisa.register_load(register, left)
        return result(total)

    assert run(kernel, COUNT) == 30


def test_while_inside_while():
    def kernel(n):
        one, total = nl.ones((1, 1), nl.int32), nl.zeros((1, 1), nl.int32)
        outer, inner = nl.load(n), nl.ndarray((1, 1), nl.int32)
        a, b = nisa.register_alloc(), nisa.register_alloc()
        nisa.register_load(a, outer)
        while a:
            nisa.tensor_copy(inner, outer)
            nisa.register_load(b, inner)
            while b:
                nisa.tensor_tensor(total, total, one, nl.add)
                decrement(inner, one)
                nisa.register_load(b, inner)
            decrement(outer, one)
            nisa.register_load(a, outer)
        return result(total)

    assert run(kernel, COUNT) == 5 + 4 + 3 + 2 + 1


def test_unrolled_ranges_are_pythons():
    for make in (nl.affine_range, nl.sequential_range, nl.static_range, nl.range):
        assert list(make(4)) == list(range(4))
        assert list(make(1, 9, 3)) == list(range(1, 9, 3))


def test_static_loops_are_allowed_inside_no_reorder():
    def kernel(n):
        total, one = nl.zeros((1, 1), nl.int32), nl.ones((1, 1), nl.int32)
        with nl.no_reorder():
            for _ in nl.static_range(3):
                nisa.tensor_tensor(total, total, one, nl.add)
        return result(total)

    assert run(kernel, COUNT) == 3
