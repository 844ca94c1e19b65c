"""What Python can't carry out of a dynamic loop, or from round to round."""

import numpy as np
import pytest

import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import CompileError
from tests.language.run import line_of, run

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning")

DATA = np.arange(28, dtype=np.float32).reshape(4, 7) + 1
TWO = np.array([[2]], np.int32)


def row(data, i):
    return nl.load(data[nl.ds(i, 1)])


def result(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


def count_down(register, left):
    nisa.tensor_scalar(left, left, op0=nl.subtract, operand0=1)
    nisa.register_load(register, left)


# ---- a tensor of the body, used after the loop -----------------------------------------------


def after_a_range(data, n):
    for i in nl.dynamic_range(nisa.register_alloc(nl.load(n))):  # loop
        tile = row(data, i)
    return result(tile)


def after_a_range_of_none(data, n):
    for i in nl.dynamic_range(0):  # loop
        tile = row(data, i)
    return result(tile)


def after_a_while(data, n):
    left = nl.load(n)
    register = nisa.register_alloc(left)
    while register:  # loop
        tile = nl.load(data)
        count_down(register, left)
    return result(tile)


def after_a_body(data, n):
    tiles = []
    nl.fori_loop(0, 2, lambda i: tiles.append(row(data, i)))  # loop
    return result(tiles[0])


def as_an_address(data, n):
    offsets = []
    nl.fori_loop(0, 2, lambda i: offsets.append(nl.load(n)))  # loop
    return result(nl.load(data.select(0, offsets[0])))


@pytest.mark.parametrize(
    "kernel",
    [after_a_range, after_a_range_of_none, after_a_while, after_a_body, as_an_address],
)
def test_a_tensor_made_in_a_body_ends_with_the_loop(kernel):
    with pytest.raises(CompileError, match=r"made inside the dynamic loop at .* and is used after"):
        run(kernel, DATA, TWO)


def test_the_message_names_both_lines():
    with pytest.raises(CompileError) as caught:
        run(after_a_range, DATA, TWO)
    assert f"the dynamic loop at {line_of(after_a_range, '# loop')} and" in caught.value.message
    assert caught.value.location == line_of(result, "nl.store")
    assert caught.value.core == 0


def test_a_range_that_surely_runs_leaves_its_last_round():
    def kernel(data):
        for i in nl.dynamic_range(3):
            tile = row(data, i)
        return result(tile)

    np.testing.assert_array_equal(run(kernel, DATA), DATA[2:3])


# ---- a variable that means another tensor in the next round ----------------------------------


def sum_by_range(data, n):
    acc = nl.zeros((1, 7), nl.float32)
    for i in nl.dynamic_range(4):  # loop
        acc = nl.add(acc, row(data, i))
    return result(acc)


def sum_by_while(data, n):
    acc, left = nl.zeros((4, 7), nl.float32), nl.load(n)
    register = nisa.register_alloc(left)
    while register:  # loop
        acc = nl.add(acc, nl.load(data))
        count_down(register, left)


def sum_by_body(data, n):
    acc = nl.zeros((1, 7), nl.float32)

    def body(i):
        nonlocal acc
        acc = nl.add(acc, row(data, i))

    nl.fori_loop(0, 4, body)  # loop


def turns(data, n):
    acc, other = nl.zeros((1, 7), nl.float32), nl.ones((1, 7), nl.float32)
    for _ in nl.dynamic_range(4):  # loop
        nisa.tensor_tensor(acc, acc, other, nl.add)
        acc, other = other, acc


@pytest.mark.parametrize("kernel", [sum_by_range, sum_by_while, sum_by_body, turns])
def test_a_variable_cant_carry_a_tensor_to_the_next_round(kernel):
    with pytest.raises(CompileError, match="uses acc and then gives this name another") as caught:
        run(kernel, DATA, TWO)
    assert caught.value.location == line_of(kernel, "# loop")


def test_names_that_are_set_before_they_are_used_are_free():
    """`tile` and `weights` are one tensor at first; the body uses it by its other name."""

    def kernel(data):
        tile = weights = nl.load(data[0:1])
        acc = nl.zeros((1, 7), nl.float32)
        for i in nl.dynamic_range(1, 4):
            tile = row(data, i)
            tile = nl.multiply(tile, weights)
            nisa.tensor_tensor(acc, acc, tile, nl.add)
        return result(acc)

    np.testing.assert_array_equal(run(kernel, DATA), (DATA[1:] * DATA[0]).sum(0, keepdims=True))


def test_branches_that_arent_taken_dont_count():
    """The branch is the first use of `last` in the code, but the body doesn't run through it."""

    def kernel(data, combine=False):
        last = nl.zeros((1, 7), nl.float32)
        acc = nl.zeros((1, 7), nl.float32)
        for i in nl.dynamic_range(4):
            if combine:
                nisa.tensor_tensor(acc, acc, last, nl.add)
            last = row(data, i)
            nisa.tensor_tensor(acc, acc, last, nl.add)
        return result(acc)

    np.testing.assert_array_equal(run(kernel, DATA), DATA.sum(0, keepdims=True))


def test_a_body_may_be_one_instruction():
    def kernel(data):
        tile = nl.load(data)
        nl.fori_loop(0, 4, lambda i: nisa.tensor_scalar(tile, tile, op0=nl.add, operand0=1.0))
        return result(tile)

    np.testing.assert_array_equal(run(kernel, DATA), DATA + 4)
