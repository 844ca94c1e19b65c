"""Every kind of bad input: the error's type, kernel line, instruction, core and numbers."""

import traceback

import numpy as np
import pytest

import nki_dist as nki
from nki_dist import errors
from nki_dist.launcher.session import session
from tests import bad_kernels as B

HOSTS = ("inprocess", "ray")
X = np.zeros((128, 128), np.float32)


@pytest.fixture(scope="module", params=HOSTS)
def worlds(request):
    """One-rank worlds of one and two cores; refusals leave them usable."""
    with (
        nki.World(lnc=1, host=request.param) as one,
        nki.World(lnc=2, host=request.param) as two,
    ):
        yield {1: one, 2: two}


def refused(run, kernel, error, *args, words=(), instruction=None, core=0):
    """Run a kernel that must be refused; checks everything an error promises."""
    with pytest.raises(errors.NkiError) as caught:
        run(kernel, *args)
    found = caught.value
    assert type(found) is error, str(found)
    assert found.location == B.bad_line(kernel)
    assert found.instruction == instruction
    assert found.core == core
    for word in words:
        assert word in str(found)
    assert found.location in str(found)
    return found


V = errors.NkiValidationError
WRONG_STATEMENTS = [
    (B.misspelt_keyword, V, "nisa.memset", ("'valeu'", "(dst, value")),
    (B.too_few_arguments, V, "nisa.tensor_copy", ("missing", "'src'", "(dst, src")),
    (B.too_many_arguments, V, "nisa.reciprocal", ("7 were given", "(dst, data")),
    (B.not_a_tensor, V, "nisa.tensor_copy", ("[1, 2, 3] of type list", "allowed: a tensor")),
    (B.branches_on_comparison, V, None, ("a comparison", "4x4 float32", "nl.where")),
    (B.equates_register, errors.CompileError, None, ("comparison of a register", "while_loop")),
    (B.single_index_out_of_bounds, errors.OutOfBoundsError, None, ("index 128", "size 128")),
    (B.wrong_in_a_loop, V, "nisa.tensor_copy", ("dst 6", "src 4")),
    (B.returns_a_numpy_array, errors.CompileError, None, ("ndarray", "allowed: a tensor")),
]


@pytest.mark.parametrize(
    "kernel, error, instruction, words", WRONG_STATEMENTS, ids=lambda v: getattr(v, "__name__", "")
)
def test_wrong_statement(worlds, kernel, error, instruction, words):
    for world in worlds.values():
        refused(world.run, kernel, error, X, words=words, instruction=instruction)


def test_wrong_arity_of_the_kernel(worlds):
    with pytest.raises(errors.LaunchError, match=r"'y'; its parameters are \(x, y\)") as caught:
        worlds[1].run(B.needs_two, X)
    file, line = caught.value.location.rsplit(":", 1)
    assert (file, int(line)) == (B.__file__, B.needs_two.fn.__code__.co_firstlineno)
    with pytest.raises(errors.LaunchError, match="'z'"):
        worlds[1].run(B.needs_two, X, X, z=X)
    with pytest.raises(errors.LaunchError, match="too many positional"):
        worlds[1].run(B.needs_two, X, X, X)


def test_exceptions_of_the_kernels_own_are_untouched(worlds):
    for world in worlds.values():
        with pytest.raises(B.OwnComplaint) as caught:
            world.run(B.raises_its_own, X)
        assert caught.value is B.OWN
        assert caught.value.__cause__ is None
        lines = [
            f"{f.filename}:{f.lineno}" for f in traceback.extract_tb(caught.value.__traceback__)
        ]
        assert lines[-1] == B.bad_line(B.helper_that_raises)


def test_an_exception_of_the_second_core(worlds):
    with pytest.raises(ZeroDivisionError, match="from core 1"):
        worlds[2].run(B.own_exception_on_core_one, X)
    x = np.ones((128, 128), np.float32)
    np.testing.assert_array_equal(worlds[1].run(B.own_exception_on_core_one, x)[0], x)


def test_uninitialised_output(worlds):
    with pytest.raises(errors.UninitializedReadError, match="1024 of 1024 elements") as caught:
        worlds[1].run(B.reads_what_nobody_wrote, X)
    assert caught.value.instruction == "nisa.dma_copy"


@pytest.fixture(scope="module", autouse=True)
def close_implicit_worlds():
    yield
    session().close()
