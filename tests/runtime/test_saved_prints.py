"""What `nl.device_print` saves: files that `np.load` gives back with their type."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
import nki_dist.language as nl
from nki_dist.dtypes.npy import save_array
from tests.programs import python

TYPES = (
    *(ml_dtypes.bfloat16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2),
    *(np.float16, np.float32, np.int8, np.uint32),
)


@nki.jit
def shown(x):
    out, tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm), nl.load(x)
    nl.device_print("tile", tile)
    nl.store(out, tile)
    return out


@pytest.mark.parametrize("dtype", TYPES, ids=lambda t: np.dtype(t).name)
def test_a_saved_print_loads_with_its_type(dtype, tmp_path, monkeypatch):
    monkeypatch.setenv("NEURON_RT_DEBUG_OUTPUT_DIR", str(tmp_path))
    x = (np.arange(15).reshape(3, 5) / 4).astype(dtype)
    nki.simulate(shown)(x)
    saved = np.load(tmp_path / "tile" / "core_0" / "0" / "tensor.npy")
    assert saved.dtype == x.dtype and saved.shape == (3, 5)
    assert saved.tobytes() == x.tobytes()


@pytest.mark.parametrize("shape", [(), (0, 3), (4, 1, 2)])
@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float32], ids=["bfloat16", "float32"])
def test_shapes_and_orders(shape, dtype, tmp_path):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    for n, view in enumerate(
        (array, np.asfortranarray(array), array.T, array[..., ::-1] if shape else array)
    ):
        save_array(tmp_path / f"{n}.npy", view)
        loaded = np.load(tmp_path / f"{n}.npy")
        assert loaded.dtype == view.dtype and loaded.shape == view.shape
        np.testing.assert_array_equal(loaded.astype(np.float32), view.astype(np.float32))


def test_files_of_numpys_own_types_are_numpys(tmp_path):
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    save_array(tmp_path / "ours.npy", array)
    np.save(tmp_path / "numpys.npy", array)
    assert (tmp_path / "ours.npy").read_bytes() == (tmp_path / "numpys.npy").read_bytes()


def test_another_process_needs_ml_dtypes_only(tmp_path: Path):
    save_array(tmp_path / "a.npy", np.array([1.5, -2.0], ml_dtypes.bfloat16))
    program = "import numpy as np, sys; {}; print(np.load(sys.argv[1]).dtype)"
    results = []
    for first in ("import ml_dtypes", "pass"):
        results.append(python("-c", program.format(first), tmp_path / "a.npy"))
    assert results[0].stdout == "bfloat16\n"
    assert "bfloat16" in results[1].stderr  # says what it doesn't know
