"""The helper packages: conversions against ml_dtypes, packing against hand-made codes."""

import ml_dtypes
import numpy as np
import pytest

from nki_dist import dtypes, isa, jit, simulate
from nki_dist import language as nl
from nki_dist.compat import neuron_dtypes as dt
from nki_dist.compat.starfish_util import allclose
from nki_dist.errors import NkiValidationError

VALUES = np.array([[0.1, -3.7, 239.0, 1e-3, 17.3, -0.0, 2.5]], np.float32)


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float8_e4m3", "float8_e5m2"])
def test_static_cast_rounds_as_ml_dtypes_does(name):
    target = np.dtype(getattr(ml_dtypes, name, name))
    for spelling in (getattr(nl, name), target, target.type, name):
        got = dt.static_cast(VALUES, spelling)
        assert got.dtype == target
        np.testing.assert_array_equal(got, VALUES.astype(target))
    back = dt.static_cast(VALUES.astype(target), np.float32)
    np.testing.assert_array_equal(back, VALUES.astype(target).astype(np.float32))


def test_static_cast_of_integers_and_64_bit_types():
    wide = np.array([[-5, 70000]], np.int64)
    assert dt.static_cast(wide, nl.int32).dtype == np.int32
    assert dt.static_cast(wide, np.float64).tolist() == [[-5.0, 70000.0]]
    assert dt.static_cast(wide, np.float64).dtype == np.float64
    given = np.ones(3, np.float32)
    assert not np.shares_memory(dt.static_cast(given, np.float32), given)


def test_static_cast_packs_and_unpacks_four_values():
    values = np.array([[1.0, -2.0, 0.5, 448.0, 0, 1e9, -1, 2]], np.float32)
    packed = dt.static_cast(values, dt.float8_e4m3fn_x4)
    assert packed.shape == (1, 2) and packed.dtype == dt.float8_e4m3fn_x4
    assert dtypes.of(packed.dtype) is nl.float8_e4m3fn_x4
    want = np.array([[1, -2, 0.5, 448, 0, 448, -1, 2]], ml_dtypes.float8_e4m3fn)
    assert packed.tobytes() == want.tobytes()
    np.testing.assert_array_equal(dt.static_cast(packed, np.float32), want.astype(np.float32))
    assert dt.static_cast(packed, nl.float8_e4m3fn).dtype == ml_dtypes.float8_e4m3fn
    assert dt.static_cast(values, nl.float4_e2m1fn_x4).dtype.itemsize == 2
    with pytest.raises(NkiValidationError, match="fours along the last axis"):
        dt.static_cast(values[:, :6], nl.float8_e5m2_x4)


def test_packed_arrays_are_tensors_of_the_packed_type():
    @jit
    def copy(a):
        assert a.dtype == nl.float8_e5m2_x4
        out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
        isa.dma_copy(out, a)
        return out

    packed = dt.static_cast(np.arange(24.0).reshape(3, 8), nl.float8_e5m2_x4)
    assert simulate(copy)(packed).tobytes() == packed.tobytes()


def test_packed_inputs_are_written_in_place():
    @jit
    def fill(a, b):
        isa.dma_copy(a, b)

    b = dt.static_cast(np.arange(24.0).reshape(3, 8), nl.float4_e2m1fn_x4)
    a = np.zeros_like(b)
    simulate(fill)(a, b)
    assert a.tobytes() == b.tobytes()


def test_facts_about_types():
    assert dt.finfo(nl.bfloat16).max == ml_dtypes.finfo(ml_dtypes.bfloat16).max
    assert dt.finfo(np.float64).bits == 64 and dt.iinfo(nl.int8).max == 127
    assert [dt.sizeinbytes(t) for t in (nl.bfloat16, dt.float8_e4m3fn_x4, np.int64)] == [2, 4, 8]
    floats = (np.float32, ml_dtypes.float8_e4m3, nl.bfloat16, np.dtype(np.float64))
    assert all(dt.is_float_type(t) for t in floats)
    assert not any(dt.is_float_type(t) for t in (np.int32, bool, np.int64, dt.float8_e4m3fn_x4))
    with pytest.raises(NkiValidationError, match="not a data type"):
        dt.sizeinbytes("nonsense")


def test_allclose_is_relative_to_the_largest_value(capsys):
    b = np.array([[100.0, 0.0, np.nan, np.inf]])
    assert allclose(b + np.array([0, 0.9, 0, 0]), b, rtol=1e-2, atol=0)
    assert not allclose(b + np.array([0, 1.1, 0, 0]), b, rtol=1e-2, atol=0, verbose=1)
    assert "Mismatched elements: 1 / 4" in capsys.readouterr().out
    assert not allclose(-b, b) and not allclose(b[:, :2], b)
    assert not allclose([np.inf], [1.0], rtol=10)
