"""Arrays of NumPy, torch and jax: bits survive both ways, memory is shared, refusals say why."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from nki_dist import frameworks
from nki_dist.errors import LaunchError, NkiValidationError
from tests.programs import said

NATIVE = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "float16", "float32"]
EXTENSION = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"]


def every_pattern(dtype: Any, shape: tuple[int, ...] = (16, 16)) -> np.ndarray:
    """An array that holds many bit patterns, NaN payloads among them."""
    dtype = np.dtype(dtype)
    bits = np.arange(np.prod(shape), dtype=np.uint64).reshape(shape)
    if dtype == np.bool_:
        return bits % 3 == 0
    raw = (bits * np.uint64(0x01010101 if dtype.itemsize == 4 else 257)).astype(
        f"u{dtype.itemsize}"
    )
    return raw.view(dtype)


def raw(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.itemsize}")


def test_importing_pulls_in_no_framework() -> None:
    code = "import sys, nki_dist.frameworks; print({'torch', 'jax'} & set(sys.modules))"
    result = said("-c", code)
    assert result.strip() == "set()"


@pytest.mark.parametrize("value", [1, None, "x", np.float32(1), [1], np.ndarray, np.dtype("int8")])
def test_values_that_are_not_arrays(value: Any) -> None:
    assert frameworks.describe(value) is None
    with pytest.raises(LaunchError, match="expected an array of numpy, torch, jax, got a"):
        frameworks.to_numpy(value)
    with pytest.raises(LaunchError, match="expected an array"):
        frameworks.write_back(value, np.zeros(1))


@pytest.mark.parametrize("name", NATIVE + EXTENSION + ["float8_e4m3", "float64", "int64"])
def test_numpy_passes_through(name: str) -> None:
    array = every_pattern(getattr(ml_dtypes, name, name))
    framework = frameworks.describe(array)
    assert framework is not None and framework.name == "numpy"
    assert frameworks.to_numpy(array) is array
    assert frameworks.like(framework, array) is array
    target = np.zeros_like(array)
    frameworks.write_back(target, array)
    np.testing.assert_array_equal(raw(target), raw(array))


def test_no_framework_means_numpy() -> None:
    array = np.zeros((3, 5))
    assert frameworks.like(None, array) is array


def test_numpy_write_back_keeps_strides_and_neighbours() -> None:
    memory = np.full((6, 10), -1, np.int16)
    frameworks.write_back(memory[1::2, ::-3], np.arange(12, dtype=np.int16).reshape(3, 4))
    expected = np.full((6, 10), -1, np.int16)
    expected[1::2, ::-3] = np.arange(12).reshape(3, 4)
    np.testing.assert_array_equal(memory, expected)


def test_numpy_write_back_of_a_scalar_array() -> None:
    target = np.zeros((), np.float32)
    frameworks.write_back(target, np.array([2.5], np.float32))
    assert target == 2.5


def test_numpy_write_back_refusals() -> None:
    frozen = np.zeros((2, 3), np.float32)
    frozen.flags.writeable = False
    with pytest.raises(LaunchError, match=r"read-only array of shape \(2, 3\)"):
        frameworks.write_back(frozen, np.zeros((2, 3), np.float32))
    with pytest.raises(LaunchError, match=r"float32 and shape .* can't take back float64"):
        frameworks.write_back(np.zeros(3, np.float32), np.zeros(3))
    with pytest.raises(LaunchError, match=r"shape \(3,\) can't take back float32 data of shape"):
        frameworks.write_back(np.zeros(3, np.float32), np.zeros((2, 3), np.float32))
    overlapping = np.lib.stride_tricks.as_strided(np.zeros(3), (2, 3), (0, 8))
    with pytest.raises(LaunchError, match="share memory"):
        frameworks.write_back(overlapping, np.zeros((2, 3)))


# torch ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.parametrize("name", NATIVE + EXTENSION)
def test_torch_round_trip(torch: Any, name: str) -> None:
    array = every_pattern(getattr(ml_dtypes, name, name))
    tensor = frameworks.like(frameworks.describe(torch.zeros(1)), array)
    assert isinstance(tensor, torch.Tensor) and str(tensor.dtype) == f"torch.{name}"
    assert tuple(tensor.shape) == array.shape
    again = frameworks.to_numpy(tensor)
    assert again.dtype == array.dtype
    np.testing.assert_array_equal(raw(again), raw(array))


@pytest.mark.parametrize("name", ["float32", *EXTENSION])
def test_torch_shares_memory(torch: Any, name: str) -> None:
    """Transposed, sliced, expanded and scalar tensors included."""
    base = torch.zeros((4, 6, 5), dtype=getattr(torch, name))
    for view in (
        base,
        base.permute(2, 0, 1),
        base[1::2, :, 2:],
        base[0, 0, 0],
        base[:1].expand(3, 6, 5),
    ):
        array = frameworks.to_numpy(view)
        assert array.shape == tuple(view.shape)
        assert array.__array_interface__["data"][0] == view.data_ptr()


def test_torch_64_bit_is_not_converted(torch: Any) -> None:
    assert frameworks.to_numpy(torch.zeros(3, dtype=torch.float64)).dtype == np.float64
    assert frameworks.to_numpy(torch.zeros(3, dtype=torch.int64)).dtype == np.int64


@pytest.mark.parametrize("name", ["int32", "float32", *EXTENSION])
def test_torch_write_back(torch: Any, name: str) -> None:
    array = every_pattern(getattr(ml_dtypes, name, name), (3, 7))
    base = torch.zeros((7, 6), dtype=getattr(torch, name))
    version = base._version
    frameworks.write_back(base[:, ::2].T, array)
    found = frameworks.to_numpy(base)
    np.testing.assert_array_equal(raw(found[:, ::2].T), raw(array))
    assert not raw(found[:, 1::2]).any()
    assert base._version > version


def test_torch_parameters(torch: Any) -> None:
    parameter = torch.nn.Parameter(torch.ones(2, 3))
    framework = frameworks.describe(parameter)
    assert framework is not None and framework.name == "torch"
    fours = np.full((2, 3), 4, np.float32)
    with pytest.raises(LaunchError, match=r"requires gradients, .* torch\.no_grad"):
        frameworks.write_back(parameter, fours)
    with torch.no_grad():
        frameworks.write_back(parameter, fours)
    assert parameter.detach().sum() == 24 and parameter.requires_grad


def test_torch_lazily_negated(torch: Any) -> None:
    lazy = torch.tensor([1 + 2j, 3 - 4j]).conj().imag
    assert lazy.is_neg()
    np.testing.assert_array_equal(frameworks.to_numpy(lazy), [-2, 4])
    with pytest.raises(LaunchError, match="lazily negated"):
        frameworks.write_back(lazy, np.zeros(2, np.float32))


@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning")
def test_torch_refusals(torch: Any) -> None:
    with pytest.raises(
        LaunchError, match=r"dense CPU tensors, got a tensor of shape \(2, 3\) on meta"
    ):
        frameworks.to_numpy(torch.zeros(2, 3, device="meta"))
    with pytest.raises(LaunchError, match="sparse_coo"):
        frameworks.to_numpy(torch.eye(3).to_sparse())
    with pytest.raises(LaunchError, match="share memory"):
        frameworks.write_back(torch.zeros(1, 3).expand(2, 3), np.zeros((2, 3), np.float32))
    with pytest.raises(NkiValidationError, match="quint8"):
        quantized = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8)
        frameworks.to_numpy(quantized)


def test_torch_has_no_ieee_float8(torch: Any) -> None:
    framework = frameworks.describe(torch.zeros(1))
    with pytest.raises(LaunchError, match="torch has no dtype for float8_e4m3;"):
        frameworks.like(framework, np.zeros((2, 3), ml_dtypes.float8_e4m3))


def test_torch_results_of_any_layout(torch: Any) -> None:
    framework = frameworks.describe(torch.zeros(1))
    array = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    frozen = array.copy()
    frozen.flags.writeable = False
    for each in (array.T, array[:, ::-1], frozen, array[0, 0, 0:1].reshape(())):
        tensor = frameworks.like(framework, each)
        assert tuple(tensor.shape) == each.shape
        np.testing.assert_array_equal(tensor.numpy(), each)
    frameworks.like(framework, frozen).add_(1)
    np.testing.assert_array_equal(frozen, array)


# jax -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def jax() -> Any:
    return pytest.importorskip("jax")


@pytest.mark.parametrize("name", [*NATIVE, "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_jax_round_trip(jax: Any, name: str) -> None:
    array = every_pattern(getattr(ml_dtypes, name, name))
    framework = frameworks.describe(jax.numpy.zeros(1))
    assert framework is not None and framework.name == "jax"
    value = frameworks.like(framework, array)
    assert isinstance(value, jax.Array) and value.dtype == array.dtype
    np.testing.assert_array_equal(raw(frameworks.to_numpy(value)), raw(array))


def test_jax_arrays_never_change(jax: Any) -> None:
    framework = frameworks.describe(jax.numpy.zeros(1))
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    value = frameworks.like(framework, array)
    array[:] = 0
    assert value[1, 2] == 5
    with pytest.raises(LaunchError, match=r"shape \(2, 3\), dtype float32, that is a jax array"):
        frameworks.write_back(value, array)


def test_jax_refusals(jax: Any) -> None:
    def traced(x: Any) -> Any:
        return frameworks.to_numpy(x)

    with pytest.raises(LaunchError, match="inside a jax transformation"):
        jax.jit(traced)(np.zeros((2, 3), np.float32))
    with pytest.raises(LaunchError, match="jax turns float64 into float32"):
        frameworks.like(frameworks.describe(jax.numpy.zeros(1)), np.zeros(3))
