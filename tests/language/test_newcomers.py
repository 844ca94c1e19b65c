"""What people who know arrays write first: each is refused, with the way to write it here."""

import functools
import threading

import numpy as np
import pytest

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import CompileError, LaunchError, NkiValidationError, NoSuchAttribute
from tests.language.run import line_of, run

X = np.arange(24, dtype=np.float32).reshape(4, 6)
LOCAL = threading.local()


def result(tile):
    out = nl.ndarray(tile.shape, tile.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out


# ---- tensors aren't arrays ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "advice"),
    [
        ("T", "nisa.nc_transpose"),
        ("astype", r"nl.copy\(tile, dtype=...\)"),
        ("sum", r"nl.sum\(tile, axis=...\)"),
        ("mean", r"nl.mean\(tile, axis=...\)"),
        ("exp", r"nl.exp\(tile\)"),
        ("item", "nl.device_print"),
        ("broadcast_to", r".broadcast\(dim, size\)"),
        ("brodcast", "its attributes are ap, broadcast, "),
    ],
)
def test_attributes_of_arrays(name, advice):
    def kernel(x):
        getattr(nl.load(x), name)  # here

    with pytest.raises(NoSuchAttribute, match=rf"tensors have no \.{name}; .*{advice}") as caught:
        run(kernel, X)
    assert caught.value.location == line_of(kernel, "# here")
    assert caught.value.core == 0


def test_functions_that_are_advised_exist():
    for name in ("sum", "mean", "max", "min", "prod", "var", "all", "exp", "sqrt", "abs", "sin"):
        assert callable(getattr(nl, name))
    for name in ("tanh", "sigmoid", "copy", "load_transpose2d", "device_print"):
        assert callable(getattr(nl, name))
    for name in ("permute", "expand_dim", "squeeze_dim", "broadcast", "flatten_dims", "reshape"):
        assert callable(getattr(nl.NkiTensor, name))


def test_asking_for_an_attribute_is_allowed():
    def kernel(x):
        tile = nl.load(x)
        assert not hasattr(tile, "T") and not hasattr(tile, "__array_interface__")
        assert getattr(tile, "layout", "rows") == "rows"
        return result(tile)

    np.testing.assert_array_equal(run(kernel, X), X)


WRONG = {
    "array": (lambda x: nl.load(X), r"src is a numpy ndarray of shape \(4, 6\); allowed: a tensor"),
    "list": (lambda x: nl.load([1.0, 2.0]), r"src is \[1.0, 2.0\] of type list; allowed: a tensor"),
    "None": (lambda x: nl.load_transpose2d(None), "src is None; allowed: a tensor in HBM"),
    "mask": (
        lambda x: x[X[:, 0] > 3],
        r"index array\(.*of type ndarray on dimension 0 of x ",
    ),
    "rows": (lambda x: x[np.array([0, 2])], r"index array\(\[0, 2\]\) of type ndarray"),
    "half": (lambda x: nl.affine_range(4 / 2), r"nl.affine_range\(2.0\); .* must be ints"),
    "step": (lambda x: nl.static_range(0, 4, 2.0), r"nl.static_range\(0, 4, 2.0\); .* ints"),
    "address": (
        lambda x: nl.ndarray((4, 4), nl.float32, address="0"),
        r"address '0'; allowed: \(partition, byte\)",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_values(case):
    kernel, message = WRONG[case]
    with pytest.raises(NkiValidationError, match=message) as caught:
        run(kernel, X)
    assert caught.value.location.startswith(__file__)
    assert caught.value.core == 0


def test_misspelt_keyword_of_ndarray_names_the_function():
    with pytest.raises(TypeError, match=r"^nl.ndarray\(\) got an unexpected keyword .*'memory'"):
        run(lambda x: nl.ndarray((4, 4), nl.float32, memory=nl.sbuf), X)


# ---- kernels are plain functions ---------------------------------------------------------------


class Holder:
    @functools.partial(nki.jit)
    @staticmethod
    def copied(x):
        return result(nl.load(x))


def test_a_static_method_below_jit_gets_no_instance():
    for owner in (Holder, Holder()):
        np.testing.assert_array_equal(nki.simulate(owner.copied)(X), X)


def test_a_masked_array_is_refused():
    with pytest.raises(LaunchError, match="argument x is a masked array"):
        run(lambda x: result(nl.load(x)), np.ma.masked_array(X, X > 3))


def add_local(x):
    tile = nl.load(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.add, operand0=LOCAL.value)
    return result(tile)


def test_a_kernel_may_read_a_thread_local():
    for value in (1.0, 2.0):
        LOCAL.value = value
        np.testing.assert_array_equal(run(add_local, X), X + value)


# ---- what the cores return ---------------------------------------------------------------------


def returned(x, first, second):
    """Tensor 0, tensor 1 or nothing, from each core."""
    made = [nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm, name=f"out{n}") for n in range(2)]
    for out in made:
        nl.store(out, nl.load(x))
    choice = second if nl.program_id(0) else first
    return None if choice is None else made[choice]


def two(first, second):
    return nki.simulate(nki.jit(returned)[2])(X, first, second)


def test_cores_that_return_different_tensors_are_refused():
    with pytest.raises(CompileError, match=r"core 0 returns out0 .*, core 1 returns out1 ") as e:
        two(0, 1)
    assert e.value.core == 1 and e.value.location == line_of(returned, "made =")
    with pytest.raises(CompileError, match="core 0 returns nothing, core 1 returns out0"):
        two(None, 0)


def test_the_other_core_may_return_nothing():
    np.testing.assert_array_equal(two(1, 1), X)
    np.testing.assert_array_equal(two(1, None), X)


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod", "mean", "all", "var"])
def test_a_reduction_is_called_by_its_own_name(name):
    def kernel(x):
        getattr(nl, name)(nl.load(x), axis=0)

    with pytest.raises(NkiValidationError, match="dimension 0 counts partitions") as caught:
        run(kernel, X)
    assert caught.value.instruction == f"nl.{'mean' if name == 'var' else name}"
