"""Identity, lookup, comparison and NumPy behaviour of the NKI data types."""

from __future__ import annotations

import copy
import io
import pickle
import typing

import ml_dtypes
import numpy as np
import pytest

from nki_dist import dtypes
from nki_dist.errors import NkiValidationError
from tests.programs import said

ALL = dtypes.ALL
# The types NumPy (with ml_dtypes) has too: NKI's name and NumPy's scalar type.
NUMPY = {
    "bool_": np.bool_,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "uint8": np.uint8,
    "uint16": np.uint16,
    "uint32": np.uint32,
    "float16": np.float16,
    "float32": np.float32,
    "bfloat16": ml_dtypes.bfloat16,
    "float8_e4m3": ml_dtypes.float8_e4m3,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu,
}
OWN = ["tfloat32", "float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4"]


def test_the_types_are_these():
    assert sorted(d.name for d in ALL) == sorted([*NUMPY, *OWN])


@pytest.mark.parametrize("dt", ALL, ids=str)
def test_one_object_per_name(dt):
    assert dtypes.of(dt) is dt is dtypes.of(dt.name) is getattr(dtypes, dt.name)
    assert dtypes.of(f"nki.language.{dt.name}") is dt
    assert pickle.loads(pickle.dumps({"a": [dt, dt]}))["a"][1] is dt
    assert copy.copy(dt) is copy.deepcopy([dt])[0] is dt
    assert getattr(dtypes, str(dt).split(".")[-1]) is dt
    assert dt.name in repr(dt) and f"{dt}" == dt.name and f"{dt:>20}".strip() == dt.name


@pytest.mark.parametrize("dt", ALL, ids=str)
def test_storage_facts_agree(dt):
    sizes = {dt.itemsize, dt.dtype.itemsize, dt.storage.itemsize, dt.raw.itemsize}
    assert sizes == {dt.itemsize} and dt.bits == 8 * dt.itemsize
    assert dt.raw.kind == "u" and dt.storage == (dt.raw if dt.is_mx else dt.dtype)
    assert [dt.is_float, dt.is_integer, dt.is_mx, dt.kind == "bool"].count(True) == 1
    if dt.name.endswith("_x4"):
        assert dt.itemsize == (2 if "float4" in dt.name else 4)


@pytest.mark.parametrize("name", [n for n, t in NUMPY.items() if n != "bool_"])
def test_ranges_agree_with_numpy(name):
    dt = dtypes.of(name)
    info = np.iinfo(dt.dtype) if dt.is_integer else ml_dtypes.finfo(dt.dtype)
    assert float(dt.max) == float(info.max) and float(dt.min) == float(info.min)
    assert dtypes.tfloat32.max == float(np.uint32(0x7F7FE000).view(np.float32))


@pytest.mark.parametrize("name", NUMPY)
def test_numpy_names_the_same_type_on_either_side(name):
    dt, scalar = dtypes.of(name), NUMPY[name]
    for other in (scalar, np.dtype(scalar), name, f"nl.{name}"):
        assert dt == other and other == dt
        assert [dt != other, other != dt] == [False, False]
        assert dtypes.of(other) is dt
    for other_name, other in NUMPY.items():
        if other_name != name:
            assert dt != other and other != dt
            assert dt != np.dtype(other) and np.dtype(other) != dt
    assert dt in (None, scalar) and np.dtype(scalar) in [dt]


@pytest.mark.parametrize("name", OWN)
def test_types_numpy_does_not_know_only_equal_themselves(name):
    dt = dtypes.of(name)
    assert dt == name and name == dt and dt == dt
    others = (dt.storage, dt.storage.type, dt.dtype.type, "float32", dtypes.float32, dtypes.uint32)
    for other in (*others, 1, None):
        assert dt != other
    assert dt.dtype.type != dt


@pytest.mark.parametrize("dt", ALL, ids=str)
def test_numpy_takes_them_as_dtypes(dt):
    assert np.dtype(dt) == dt.dtype
    assert np.zeros((2, 3), dt).dtype == dt.dtype
    assert np.ones(3, np.float32).astype(dt).dtype == dt.dtype
    assert np.asarray([1, 1], dtype=dt).dtype == dt.dtype


PACKED = [dt for dt in ALL if dt.is_mx]


def saved(array):
    with io.BytesIO() as file:
        np.save(file, array)
        file.seek(0)
        return np.load(file, allow_pickle=False)


@pytest.mark.parametrize("dt", PACKED, ids=str)
def test_packed_arrays_know_their_type_whatever_numpy_does(dt):
    """Nothing of this gives the words a dtype that would pass for numbers."""
    words = np.random.default_rng(3).integers(0, 1 << dt.bits, (6, 8)).astype(dt.raw)
    a = words.view(dt)
    assert np.dtype(dt) == dt and dt == np.dtype(dt) and np.dtype(dt) != dt.raw
    cases = [
        (np.zeros_like(a), np.zeros_like(words)),
        (a[1:, ::3], words[1:, ::3]),
        (a.T.reshape(4, 12).copy(), words.T.reshape(4, 12)),
        (np.concatenate([a, np.zeros((2, 8), dt)]), np.pad(words, ((0, 2), (0, 0)))),
        (
            np.where(words > words.mean(), a, a[::-1]),
            np.where(words > words.mean(), words, words[::-1]),
        ),
        (np.stack([a, a])[:, [2, 1]], np.stack([words, words])[:, [2, 1]]),
        (np.broadcast_to(a[0], (3, 8)), np.broadcast_to(words[0], (3, 8))),
        (np.frombuffer(words.tobytes(), dt), words.reshape(-1)),
        (np.asarray(words, dt), words),
        (words.astype(dt), words),
        (pickle.loads(pickle.dumps(a, protocol=5)), words),
        (saved(a), words),
    ]
    for array, want in cases:
        assert dtypes.of(array.dtype) is dt
        np.testing.assert_array_equal(np.ascontiguousarray(array).view(dt.raw), want)
    np.testing.assert_array_equal(a, saved(a))
    for compute in (lambda: a + a, lambda: a.sum(), lambda: a == words):
        with pytest.raises(TypeError):
            compute()


def test_dtypes_of_arrays_are_recognised():
    assert dtypes.of(np.zeros(1, ml_dtypes.bfloat16).dtype) is dtypes.bfloat16
    assert dtypes.bfloat16 == np.zeros(1, ml_dtypes.bfloat16).dtype
    assert dtypes.of(bool) is dtypes.of("bool") is dtypes.bool_
    assert dtypes.of(int) is dtypes.int32 and dtypes.of(float) is dtypes.float32


def test_torch_dtypes_go_by_name():
    torch = pytest.importorskip("torch")
    for name in ("bfloat16", "float16", "float32", "int8", "uint8", "int32", "float8_e4m3fn"):
        assert dtypes.of(getattr(torch, name)) is dtypes.of(name)
        assert dtypes.of(name) == getattr(torch, name)
    assert dtypes.of(torch.bool) is dtypes.bool_ and dtypes.of(torch.half) is dtypes.float16
    with pytest.raises(NkiValidationError, match=r"torch\.float64"):
        dtypes.of(torch.float64)


def test_objects_that_carry_a_numpy_dtype_are_recognised_unless_they_are_arrays():
    class Framework:  # as jax.numpy.float32 does
        dtype = np.dtype("float32")

    assert dtypes.of(Framework()) is dtypes.float32
    assert dtypes.find(np.zeros(3, np.float32)) is None
    assert dtypes.find(np.float32(1)) is None


@pytest.mark.parametrize(
    "bad",
    ["float64", np.float64, np.dtype("c8"), ">f4", np.dtype(">f4"), complex, "", None, 32, []],
    ids=repr,
)
def test_other_types_are_refused_with_the_allowed_ones(bad):
    with pytest.raises(NkiValidationError, match=r"allowed bool_, int8, .*float4_e2m1fn_x4") as e:
        dtypes.of(bad)
    assert repr(bad) in str(e.value)
    assert dtypes.find(bad) is None and dtypes.float32 != bad


def test_immutable_hashable_and_usable_in_annotations():
    with pytest.raises(AttributeError, match="float32 is immutable"):
        dtypes.float32.name = "float64"
    with pytest.raises(AttributeError, match="immutable"):
        del dtypes.float32.name
    with pytest.raises(AttributeError):
        dtypes.float32.other = 1
    assert len({*ALL, *ALL}) == len(ALL)
    assert {dtypes.int8: 1}["int8"] == 1 and {"int8": 1}[dtypes.int8] == 1
    assert (dtypes.float32 | None) is typing.Any and (None | dtypes.float32) is typing.Any


def test_no_framework_is_imported():
    code = "import sys, nki_dist.dtypes.casts, nki_dist.dtypes.mx as m; print(sorted(sys.modules))"
    names = said("-c", code)
    assert "'torch'" not in names and "'jax'" not in names
