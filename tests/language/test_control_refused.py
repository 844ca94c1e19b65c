"""Uses of registers, loops and branches that are refused."""

from __future__ import annotations

import pytest

import nki_dist.language as nl
from nki_dist.errors import CompileError, NkiError, NkiValidationError
from tests.language.run import line_of, run
from tests.language.test_control import COUNT, load_register

# ---- refused ------------------------------------------------------------------------------------


def if_register(n):
    register = load_register(n)
    if register:  # wrong
        nl.zeros((1, 1), nl.float32)


def register_and(n):
    register = load_register(n)
    while register and n is not None:  # wrong
        pass


def assert_register(n):
    register = load_register(n)
    assert register  # wrong


def int_of_register(n):
    return int(load_register(n))  # wrong


def range_of_register(n):
    for _ in range(load_register(n)):  # wrong
        pass


def register_arithmetic(n):
    return load_register(n) + 1  # wrong


def register_comparison(n):
    return load_register(n) < 3  # wrong


def break_out(n):
    for _ in nl.dynamic_range(3):  # wrong
        nl.zeros((1, 1), nl.float32)
        break


def return_out(n):
    for _ in nl.dynamic_range(3):  # wrong
        return


def break_while(n):
    register = load_register(n)
    while register:  # wrong
        break


def loop_in_no_reorder(n):
    with nl.no_reorder():
        for _ in nl.dynamic_range(3):  # wrong
            pass


def fori_in_no_reorder(n):
    with nl.no_reorder():
        nl.fori_loop(0, 3, lambda i: None)  # wrong


def step_register(n):
    nl.fori_loop(0, 3, lambda i: None, load_register(n))  # wrong


def step_zero(n):
    nl.fori_loop(0, 3, lambda i: None, 0)  # wrong


def float_bound(n):
    nl.fori_loop(0, 2.5, lambda i: None)  # wrong


def tensor_bound(n):
    nl.fori_loop(0, nl.load(n), lambda i: None)  # wrong


def while_int(n):
    nl.while_loop(3, lambda r: r)  # wrong


def while_without_result(n):
    register = load_register(n)
    nl.while_loop(register, lambda r: None)  # wrong


def branch_on_tensor(n):
    tile = nl.load(n)
    if tile[0:1, 0:1]:  # wrong
        pass


def bad_view(n):
    tile = nl.load(n)
    tile.reshape((2, 2))  # wrong


def bad_program_axis(n):
    nl.program_id(1)  # wrong


@pytest.mark.parametrize(
    ("kernel", "kind", "message"),
    [
        (if_register, CompileError, "Python can't branch on a register"),
        (register_and, CompileError, "Python can't branch on a register"),
        (assert_register, CompileError, "Python can't branch on a register"),
        (int_of_register, CompileError, r"int\(\) of a register"),
        (range_of_register, CompileError, "use as a Python index of a register"),
        (register_arithmetic, CompileError, "arithmetic of a register"),
        (register_comparison, CompileError, "comparison of a register"),
        (break_out, CompileError, "left a dynamic loop by break, return"),
        (return_out, CompileError, "left a dynamic loop by break, return"),
        (break_while, CompileError, "left a dynamic loop by break, return"),
        (loop_in_no_reorder, CompileError, "aren't supported inside nl.no_reorder"),
        (fori_in_no_reorder, CompileError, "aren't supported inside nl.no_reorder"),
        (step_register, CompileError, "loop step .*; must be a positive int"),
        (step_zero, CompileError, "loop step 0; must be a positive int"),
        (float_bound, CompileError, "loop stop 2.5; allowed: an int or a register"),
        (tensor_bound, CompileError, "loop stop NkiTensor.*; allowed: an int or a register"),
        (while_int, CompileError, "needs a register as condition, got 3"),
        (while_without_result, CompileError, "must return the next condition register, got None"),
        (branch_on_tensor, NkiValidationError, "Python can't branch on the tensor"),
        (bad_view, NkiValidationError, "4 elements, it has 1"),
        (bad_program_axis, NkiValidationError, "axis 1 of a launch grid with 0 axes"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_refused_with_the_kernels_line(kernel, kind, message):
    with pytest.raises(kind, match=message) as caught:
        run(kernel, COUNT)
    assert isinstance(caught.value, NkiError)
    assert caught.value.location == line_of(kernel, "# wrong")
    assert caught.value.core == 0


def test_an_exception_of_the_kernel_inside_a_loop_reaches_the_caller_unchanged():
    class Mine(Exception):
        pass

    def kernel(n):
        for _ in nl.dynamic_range(3):
            raise Mine("own")

    with pytest.raises(Mine, match="own"):
        run(kernel, COUNT)
