"""Slips in what launches are given, and what the message must tell; prints of failed launches."""

import os
import re

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist import errors
from nki_dist.errors import LaunchError, NkiValidationError, NoSuchAttribute, OutOfBoundsError
from tests.newcomers import X, copied, here, one_fails, one_waits, output, refused


@pytest.fixture(scope="module", params=("inprocess", "ray"))
def world(request):
    with nki.World(lnc=2, host=request.param) as made:
        yield made


# ---- arguments ----------------------------------------------------------------------------------

FOREIGN = {
    "float64": (
        X.astype(np.float64),
        r"float64, which (?s:.*)hint: pass x\.astype\(np\.float32\)$",
    ),
    "number": (np.array(3.0), r"pass x\.astype\(np\.float32\), or float\(x\) for a number"),
    "big endian of 64 bits": (
        X.astype(">i8"),
        r"pass x\.astype\(np\.int32\) \(values must fit in 32",
    ),
    "long double": (X.astype(np.longdouble), r"pass x\.astype\(np\.float32\)$"),
    "complex": (X.astype(np.complex64), r"pass x\.real and x\.imag as two arguments"),
    "big endian": (X.astype(">f4"), r"pass x\.astype\(x\.dtype\.newbyteorder\('='\)\)"),
    "objects": (X.astype(object), r"pass np\.array\(x, dtype=np\.float32\): .* Python objects"),
    "text": (np.array(["a"]), r"pass numbers: x holds text"),
    "dates": (np.array(["2020-01-01"], "M8[D]"), r"x\.astype\(np\.int64\)\.astype\(np\.int32\)"),
    "fields": (np.zeros(3, [("a", "f4")]), r"an argument of its own: x\['a'\]"),
}


@pytest.mark.parametrize("case", FOREIGN)
def test_a_foreign_dtype_says_what_to_pass_at_the_callers_line(case):
    array, message = FOREIGN[case]
    with pytest.raises(NkiValidationError, match="argument x of copied has dtype") as caught:
        nki.simulate(copied)(array)  # call
    assert re.search(message, str(caught.value))
    assert caught.value.location == here(
        "call", test_a_foreign_dtype_says_what_to_pass_at_the_callers_line
    )
    assert "bfloat16" in str(caught.value)


def test_what_to_pass_is_taken():
    for array in (X.astype(np.float64), X.astype(">f4")):
        assert np.array_equal(nki.simulate(copied)(array.astype(np.float32)), X)
    swapped = X.astype(">f4")
    assert nki.simulate(copied)(swapped.astype(swapped.dtype.newbyteorder("="))).tobytes()


def test_foreign_dtypes_of_torch_have_torchs_names():
    torch = pytest.importorskip("torch")
    for dtype, words in ((torch.float64, r"x\.float\(\)$"),):
        with pytest.raises(NkiValidationError, match=words):
            nki.simulate(copied)(torch.ones(4, 4, dtype=dtype))


SRC = r"src is a list of 2 tensors.*nki\.per_rank"


def test_a_list_for_ranks_points_to_per_rank():
    with nki.World(ranks=2, host="inprocess") as world:
        for several in ([X, X], (X, X)):
            with pytest.raises(
                NoSuchAttribute, match=r"x is a .* of 2 tensors.*nki\.per_rank"
            ) as e:
                world.run(copied, several)
            assert e.value.location.startswith(output.__code__.co_filename)  # asks for .shape
        with pytest.raises(NkiValidationError, match=SRC):
            world.run(lambda x: nl.load(x), [X, X])
        with pytest.raises(NkiValidationError, match=SRC):
            world.run(lambda x: nisa.dma_copy(dst=output(x[0]), src=x), [X, X])
        for out in world.run(copied, nki.per_rank([X, X])):
            assert np.array_equal(out, X)
        assert len(world.run(lambda x: [copied(one) for one in x], [X, X])[0]) == 2


NUMBERS = [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize(
    ("uses", "python"),
    [
        (lambda x: x[0:4, :], "list indices must be"),
        (lambda x: nl.load(x[None]), "list indices must be"),
        (lambda x: x * 2.0, "can't multiply sequence by non-int"),
        (lambda x: x + nl.load(x), None),
    ],
)
@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        (
            NUMBERS,
            r"x is \[\[1\.0, 2\.0\].* list, .*pass np\.array\(x, dtype=np\.float32\)",
        ),
        ([X, X], "x is a list of 2 tensors: the kernel can take one"),
        ([[X], [X]], "x is .*only arrays"),
    ],
)
def test_a_list_used_as_a_tensor_says_what_to_pass(uses, python, given, remedy):
    if python:
        error = refused(uses, NkiValidationError, f"argument {remedy}.*{python}", given)
        assert error.code == "argument-no-tensor" and error.location.startswith(__file__)
    else:
        refused(uses, NkiValidationError, "src is .*(Lists stay lists|Take one)", given)


def test_a_type_error_about_something_else_is_left_alone():
    unrelated = refused(lambda x: len(3), TypeError, "has no len", [X, X])
    assert type(unrelated) is TypeError

    def kernel(x):
        other = NUMBERS
        return other[0:1, 2]

    elsewhere = refused(kernel, TypeError, "list indices", [X, X])
    assert type(elsewhere) is TypeError


def test_arguments_that_are_no_arrays():
    def kernel(x, other=None):
        if other is not None:
            raise AttributeError("of the kernel itself", name="shape", obj=other)
        return x.shape

    asked = "asks its argument x for .shape"
    as_array = r".*known when the kernel is compiled; pass np\.array\(x, dtype=np\.float32\)"
    refused(kernel, NoSuchAttribute, asked + as_array, [1.0, 2.0])
    for value in (None, 3, "words", {"a": X}):
        refused(kernel, NoSuchAttribute, asked + ".*only arrays .* become tensors", value)
    plain = refused(lambda x: x.shapes, AttributeError, "'list' object has no attribute", [X])
    assert type(plain) is AttributeError  # not what tensors have
    own = refused(lambda x: [X].shape, AttributeError, "'list' object has no attribute", X)
    assert type(own) is AttributeError  # not an argument


# ---- launches -----------------------------------------------------------------------------------


def test_results_and_arguments_in_the_place_of_kernels(world):
    wrong = [
        lambda: world.run(X),
        lambda: nki.simulate(X),
        lambda: nki.profile(X),
        lambda: nki.jit(X),
    ]
    for call in wrong:
        with pytest.raises(LaunchError, match=r"got a numpy ndarray of shape .*; was the kernel"):
            call()
    with pytest.raises(LaunchError, match=r"nki\.simulate\(kernel\)\(x, \.\.\.\)"):
        nki.simulate(copied, X)
    with pytest.raises(LaunchError, match=r"nki\.profile\(kernel\)\(x, \.\.\.\)"):
        nki.profile(copied, X)


def test_a_function_for_ranks_is_called_with_the_rank():
    with nki.World(ranks=2, host="inprocess") as world:
        with pytest.raises(LaunchError, match=r"called with the rank, as in per_rank\(lambda"):
            world.run(copied, nki.per_rank(lambda: X))

        def broken(rank):
            raise TypeError("of the function itself")

        with pytest.raises(LaunchError, match="raised TypeError for rank 0") as caught:
            world.run(copied, nki.per_rank(broken))
        assert isinstance(caught.value.__cause__, TypeError)
        assert np.array_equal(world.run(copied, nki.per_rank(lambda rank: X + rank))[1], X + 1)


@nki.jit
def printed(x):
    nl.device_print("x", x[0:1, 0:2])
    return x


def test_a_debug_directory_that_cant_be_made(world, monkeypatch, tmp_path):
    taken = tmp_path / "file"
    taken.write_text("")
    monkeypatch.setenv("NEURON_RT_DEBUG_OUTPUT_DIR", str(taken))
    with pytest.raises(LaunchError, match=r"NEURON_RT_DEBUG_OUTPUT_DIR='.*file': .* can't be writ"):
        world.run(printed, X)
    monkeypatch.setenv("NEURON_RT_DEBUG_OUTPUT_DIR", str(tmp_path / "made"))
    world.run(printed, X)
    assert os.listdir(tmp_path / "made") == ["x"]


# ---- prints before the end ----------------------------------------------------------------------


def test_what_cores_print_is_shown_if_the_launch_fails(world, capsys):
    with pytest.raises(errors.DeadlockError):
        world.run(one_waits, X)
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "[core 0] before [[0.]]",
        "[core 1] before [[1.]]",
    ]
    with pytest.raises(OutOfBoundsError, match="of out "):
        world.run(one_fails, X, np.full((1, 1), 64, np.int32))
    assert "[core 1] before [[1.]]" in capsys.readouterr().out
