"""What the release notes of NKI in SDK 2.28 announce and repair, one test per note.

docs/releases.md lists them, and those that other tests cover or that can't apply.
"""

from __future__ import annotations

import functools
import inspect

import ml_dtypes
import numpy as np
import pytest

import nki_dist
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.errors import LaunchError, NkiValidationError
from tests.compiler.compiling import line_of
from tests.isa.helpers import numbers, output, run

pytestmark = pytest.mark.filterwarnings("ignore::nki_dist.errors.ReleaseWarning")

BF16 = ml_dtypes.bfloat16


def default(function, name):
    return inspect.signature(function).parameters[name].default


# ---- 2.28: features -----------------------------------------------------------------------------


def test_2_28_private_hbm():
    def kernel(x):
        mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)
        nisa.dma_copy(dst=mine, src=x)
        return output(nl.load(mine))

    x = numbers(15, (4, 4))
    assert np.array_equal(run(kernel, x, lnc=2), x)


def test_2_28_callable_objects():
    class Scale(nl.NKIObject):
        by: float = 3.0

        def __call__(self, tile):
            dst = nl.ndarray(tile.shape, dtype=tile.dtype)
            nisa.tensor_scalar(dst, tile, nl.multiply, self.by)
            return dst

    x = numbers(16, (3, 4))
    assert np.array_equal(run(lambda x: output(Scale()(nl.load(x))), x), x * np.float32(3))


def test_2_28_view_reinterprets():
    x = numbers(17, (3, 4))
    assert np.array_equal(run(lambda x: output(nl.load(x).view(nl.int32)), x), x.view(np.int32))


def test_2_28_shared_constants_by_path(tmp_path):
    values = numbers(18, (6, 5))
    path = str(tmp_path / "constant.npy")
    np.save(path, values)

    def kernel(x, path):
        return output(nl.load(nl.shared_constant(path)))

    assert np.array_equal(run(kernel, numbers(0, (1, 1)), path), values)


def test_2_28_a_register_starts_with_a_tensors_value():
    x, at = numbers(19, (9, 4)), np.array([[6]], np.int32)

    def kernel(x, at):
        register = nisa.register_alloc(nl.load(at))
        tile = nl.ndarray((1, 4), dtype=nl.float32)
        nisa.dma_copy(dst=tile, src=x.ap([[4, 1], [1, 4]], scalar_offset=register, indirect_dim=0))
        return output(tile)

    assert np.array_equal(run(kernel, x, at), x[6:7])


@pytest.mark.parametrize("name", ["psumAccumulateFlag", "is_moving_zero"])
def test_2_28_matmul_parameters_that_went_or_were_renamed(name):
    def kernel(x):
        tile, dst = nl.load(x), nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst, tile, tile, **{name: True})
        return output(nl.copy(dst))

    with pytest.raises(NkiValidationError, match="is_moving_onezero"):
        run(kernel, numbers(20, (4, 4)))


# ---- 2.28: bug fixes ----------------------------------------------------------------------------


def test_2_28_range_select_fills_with_the_lowest_number_by_default():
    def kernel(x):
        tile, dst = nl.load(x), nl.ndarray(x.shape, dtype=nl.float32)
        low, high = nl.full((3, 1), 1.0, nl.float32), nl.full((3, 1), 2.0, nl.float32)
        nisa.range_select(dst, tile, nl.greater_equal, nl.less, low, high)
        return output(dst)

    x = numbers(21, (3, 4))
    want = np.full((3, 4), np.finfo(np.float32).min)
    want[:, 1] = x[:, 1]
    assert np.array_equal(run(kernel, x), want)


def test_2_28_arguments_by_keyword_have_defaults():
    def kernel(x, factor=2.0, rows=3):
        return output(nl.multiply(nl.load(x[0:rows]), factor))

    x = numbers(22, (5, 4))
    assert np.array_equal(run(kernel, x), x[:3] * 2)
    simulated = nki_dist.simulate(nki_dist.jit(kernel))
    assert np.array_equal(simulated(x, rows=1, factor=4.0), x[:1] * 4)


def test_2_28_activation_leaves_its_registers_alone_by_default():
    x = numbers(23, (4, 8))

    def kernel(x):
        tile, other = nl.load(x), nl.ndarray(x.shape, dtype=nl.float32)
        sums = nl.ndarray((4, 1), dtype=nl.float32)
        add = {"reduce_op": nl.add}
        nisa.activation(other, nl.copy, tile, reduce_cmd=nisa.reduce_cmd.reset_reduce, **add)
        nisa.activation(other, nl.exp, tile)
        nisa.activation(
            other, nl.copy, tile, reduce_res=sums, reduce_cmd=nisa.reduce_cmd.reduce, **add
        )
        return output(sums)

    assert default(nisa.activation, "reduce_cmd") is nisa.reduce_cmd.idle
    want = 2 * x.astype(np.float64).sum(axis=1, keepdims=True)
    assert np.allclose(run(kernel, x), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("op", "operand", "reference"),
    [
        (nl.rsqrt, None, lambda x: 1 / np.sqrt(x)),
        (nl.abs, None, np.abs),
        (nl.power, 1.5, lambda x: x**1.5),
    ],
)
def test_2_28_operators_of_tensor_scalar(op, operand, reference):
    x = np.abs(numbers(24, (4, 6))) + np.float32(0.5)

    def kernel(x):
        dst = nl.ndarray(x.shape, dtype=nl.float32)
        nisa.tensor_scalar(dst, nl.load(x), op, operand)
        return output(dst)

    assert np.allclose(run(kernel, x), reference(x.astype(np.float64)), rtol=1e-6)


def test_2_28_power_of_tensor_tensor():
    x, y = np.abs(numbers(25, (4, 6))) + np.float32(0.5), numbers(26, (4, 6))

    def kernel(x, y):
        dst = nl.ndarray(x.shape, dtype=nl.float32)
        nisa.tensor_tensor(dst, nl.load(x), nl.load(y), nl.power)
        return output(dst)

    assert np.allclose(run(kernel, x, y), x.astype(np.float64) ** y, rtol=1e-5)


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 7)])
def test_2_28_float8_e4m3fn_inputs_and_outputs(shape):
    x = numbers(27, shape, ml_dtypes.float8_e4m3fn)

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        return out

    got = run(kernel, x, platform="trn3")
    assert got.dtype == x.dtype
    assert np.array_equal(got.view(np.uint8), x.view(np.uint8))


def test_2_28_dynamic_loops_advance():
    def kernel(stop):
        bound, total = nisa.register_alloc(nl.load(stop)), nl.zeros((1, 1), dtype=nl.int32)
        for _ in nl.dynamic_range(1, bound, 2):
            nisa.tensor_scalar(dst=total, data=total, op0=nl.add, operand0=1.0)
        return output(total)

    for stop in (0, 1, 2, 8):
        assert run(kernel, np.array([[stop]], np.int32)) == len(range(1, stop, 2))


@pytest.mark.parametrize("region", ["hbm", "shared_hbm", "private_hbm"])
def test_2_28_reshape_in_every_hbm(region):
    x = numbers(28, (6, 8))

    def kernel(x):
        t = nl.ndarray((6, 8), dtype=nl.float32, buffer=getattr(nl, region))
        nisa.dma_copy(dst=t, src=x)
        return output(nl.load(t.reshape((2, 24))))

    assert np.array_equal(run(kernel, x), x.reshape(2, 24))


def test_2_28_bias_is_one_column():
    def kernel(x, bias):
        dst = nl.ndarray(x.shape, dtype=nl.float32)
        nisa.activation(dst, nl.copy, nl.load(x), bias=nl.load(bias))
        return output(dst)

    x = numbers(29, (8, 4))
    assert np.array_equal(run(kernel, x, x[:, :1]), x + x[:, :1])
    with pytest.raises(NkiValidationError, match=r"bias.*\(8, 2\).*\(8, 1\)"):
        run(kernel, x, x[:, :2])


def test_2_28_errors_name_the_line():
    def kernel(x):
        tile = nl.load(x)
        wrong = nl.ndarray((3, 3), dtype=nl.float32)
        nisa.tensor_copy(dst=wrong, src=tile)
        return output(tile)

    with pytest.raises(NkiValidationError) as caught:
        run(kernel, numbers(30, (4, 4)))
    assert caught.value.location == line_of(kernel, "tensor_copy")


def test_2_28_unknown_keywords_are_refused():
    def kernel(x):
        tile = nl.load(x)
        nisa.tensor_copy(dst=tile, source=tile)
        return output(tile)

    with pytest.raises(NkiValidationError, match="unexpected keyword argument 'source'"):
        run(kernel, numbers(31, (4, 4)))


def test_2_28_jit_without_mode_runs_the_kernel(monkeypatch):
    monkeypatch.setenv("NKI_DIST_HOST", "inprocess")

    @nki_dist.jit
    def kernel(x):
        return output(nl.load(x))

    x = numbers(32, (3, 3))
    assert np.array_equal(kernel(x), x)


def test_2_28_traces_share_nothing():
    """Other shapes, then the first again: same names, same numbers."""

    def kernel(x):
        tile = nl.ndarray(x.shape, dtype=x.dtype, name="tile")
        nisa.dma_copy(dst=tile, src=x)
        return output(tile)

    for shape in ((4, 4), (3, 5), (4, 4)):
        x = numbers(33, shape)
        assert np.array_equal(run(kernel, x), x)


def test_2_28_a_kernel_without_its_arguments_says_so():
    def kernel(x, rows):
        return output(nl.load(x))

    with pytest.raises(LaunchError, match="missing a required argument: 'x'"):
        run(kernel)


def test_2_28_nested_decorators():
    def wrapper(function):
        @functools.wraps(function)
        def inner(*args, **kwargs):
            return function(*args, **kwargs)

        return inner

    @wrapper
    def plain(x):
        return output(nl.square(nl.load(x)))

    x = numbers(34, (3, 4))
    assert np.array_equal(run(plain, x), x * x)
    outside = wrapper(nki_dist.simulate(nki_dist.jit(plain)))
    assert np.array_equal(outside(x), x * x)
    assert np.array_equal(run(lambda x: nki_dist.jit(nki_dist.jit(plain))(x), x), x * x)
