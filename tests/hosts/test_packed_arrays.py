"""Arrays of packed types keep them on the way into kernels, out of them, and to the next one."""

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
from nki_dist import dtypes
from nki_dist import language as nl
from nki_dist.compat.neuron_dtypes import static_cast
from tests.hosts import packed_kernels as K

FP8 = [nl.float8_e4m3fn_x4, nl.float8_e5m2_x4]
PACKED = [*FP8, nl.float4_e2m1fn_x4]


@pytest.fixture(scope="module", params=["inprocess", "ray"])
def world(request):
    with nki.World(ranks=1, platform="trn3", host=request.param) as made:
        yield made


def quantized(world, dtype, x):
    """What `K.quantize` leaves in arrays made by NumPy."""
    data = np.zeros((x.shape[0], x.shape[1] // 4), dtype)
    scales = np.zeros((x.shape[0] // 8, data.shape[1]), np.uint8)
    returned = world.run(K.quantize, x, data, scales)[0]
    assert returned.dtype == data.dtype == dtype
    np.testing.assert_array_equal(returned, data)
    return data, scales


def values_of(data, scales):
    """float64 values, with the scale of each 8 rows and 4 columns."""
    factors = 2.0 ** (scales.astype(np.float64) - 127)
    return static_cast(data, np.float32) * factors.repeat(8, 0).repeat(4, 1)


@pytest.mark.parametrize("dtype", FP8, ids=str)
def test_results_of_one_kernel_are_operands_of_the_next(world, dtype):
    rng = np.random.default_rng(5)
    x, y = (rng.normal(size=(32, n)).astype(ml_dtypes.bfloat16) for n in (64, 96))
    a, b = quantized(world, dtype, x), quantized(world, dtype, y)
    groups = np.abs(x.astype(np.float64)).reshape(4, 8, 16, 4).max(axis=(1, 3))
    error = np.abs(values_of(*a) - x.astype(np.float64)).reshape(4, 8, 16, 4).max(axis=(1, 3))
    assert (error <= groups / (16 if dtype is nl.float8_e4m3fn_x4 else 8)).all()

    product = world.run(K.multiply, *a, *b)[0]
    u, v = (values_of(*pair).reshape(32, -1, 4) for pair in (a, b))
    np.testing.assert_allclose(product, np.einsum("kmi,kni->mn", u, v), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", PACKED, ids=str)
def test_views_of_packed_arrays_and_saved_ones(world, dtype, tmp_path, monkeypatch, capsys):
    """Strided input, a constant from a file, and what device_print saves."""
    monkeypatch.setenv("NEURON_RT_DEBUG_OUTPUT_DIR", str(tmp_path))
    bits = np.random.default_rng(6).integers(0, 1 << dtype.bits, (8, 12)).astype(dtype.raw)
    part = bits.view(dtype)[1::2, 3:].T
    path = str(tmp_path / "constant.npy")
    np.save(path, bits.view(dtype))
    same, constant = world.run(K.show_and_return, part, path)[0]
    saved = np.load(tmp_path / "packed" / "core_0" / "0" / "tensor.npy")
    for array, want in ((same, bits[1::2, 3:].T), (saved, bits[1::2, 3:].T), (constant, bits)):
        assert dtypes.of(array.dtype) is dtype
        np.testing.assert_array_equal(array.view(dtype.raw), want)
    assert str(bits[1, 3]) in capsys.readouterr().out


def test_torch_has_the_words_of_packed_results():
    torch = pytest.importorskip("torch")
    x = torch.arange(64.0).reshape(32, 2).repeat(1, 2).to(torch.bfloat16)
    with nki.World(ranks=1, platform="trn3", host="inprocess") as world:
        data, scales = np.zeros((32, 1), nl.float8_e5m2_x4), np.zeros((4, 1), np.uint8)
        returned = world.run(K.quantize, x, data, scales)[0]
    assert returned.dtype == torch.uint32
    np.testing.assert_array_equal(returned.numpy(), data.view(np.uint32))
