"""Uses of registers, loops and branches that are refused."""

import pytest

import nki_dist.language as nl
from nki_dist.errors import CompileError, NkiError
from tests.language.run import line_of, run
from tests.language.test_control import COUNT, load_register

# ---- refused ------------------------------------------------------------------------------------


def register_and(n):
    register = load_register(n)
    while register and n is not None:  # wrong
        pass


def int_of_register(n):
    return int(load_register(n))  # wrong


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


def float_bound(n):
    nl.fori_loop(0, 2.5, lambda i: None)  # wrong


def tensor_bound(n):
    nl.fori_loop(0, nl.load(n), lambda i: None)  # wrong


def while_int(n):
    nl.while_loop(3, lambda r: r)  # wrong


@pytest.mark.parametrize(
    ("kernel", "kind", "message"),
    [
        (register_and, CompileError, "Python can't branch on a register"),
        (int_of_register, CompileError, r"int\(\) of a register"),
        (register_comparison, CompileError, "comparison of a register"),
        (break_out, CompileError, "left a dynamic loop by break, return"),
        (return_out, CompileError, "left a dynamic loop by break, return"),
        (break_while, CompileError, "left a dynamic loop by break, return"),
        (float_bound, CompileError, "loop stop 2.5; allowed: an int or a register"),
        (tensor_bound, CompileError, "loop stop NkiTensor.*; allowed: an int or a register"),
        (while_int, CompileError, "needs a register as condition, got 3"),
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
