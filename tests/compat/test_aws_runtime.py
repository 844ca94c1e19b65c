"""AWS's runtime by its own names: `spike`, `nkipy.runtime`, kernels that take tensors by name."""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import nki_dist
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.compat import nkipy_runtime, spike
from nki_dist.compat.nkipy_runtime import DeviceKernel, DeviceTensor
from nki_dist.errors import LaunchError, NkiError, OutOfBoundsError
from tests import programs

REF = Path(os.environ.get("NKI_REF", "checkouts"), "nkipy").absolute()


@nki_dist.jit
def scaled_sum(a_input, b_input, factor=1.0):
    """factor * (a + b), and the sum of the first rows, in one row."""
    a = nl.load(a_input)
    nisa.tensor_tensor(dst=a, data1=a, data2=nl.load(b_input), op=nl.add)
    nisa.tensor_scalar(dst=a, data=a, op0=nl.multiply, operand0=factor)
    out = nl.ndarray(a.shape, dtype=a_input.dtype, buffer=nl.shared_hbm)
    first = nl.ndarray((1, a.shape[1]), dtype=a_input.dtype, buffer=nl.shared_hbm)
    nl.store(out, a)
    nl.store(first, a[0:1])
    return out, first


@nki_dist.jit
def put_row(cache, row, kept):
    """Write a row of a cache; return its double, and the cache."""
    tile = nl.load(row)
    nl.store(cache[1:2], tile)
    nl.store(kept[0:1], tile)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    out = nl.ndarray(row.shape, dtype=row.dtype, buffer=nl.shared_hbm)
    nl.store(out, tile)
    return out, cache


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch):
    monkeypatch.setenv("NKI_DIST_HOST", "inprocess")


def tensors(*arrays: np.ndarray) -> list[DeviceTensor]:
    return [DeviceTensor.from_numpy(a) for a in arrays]


# ---- kernels ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("host", "cores"), [("inprocess", 1), ("inprocess", 2), ("ray", 2)])
def test_a_kernel_takes_and_fills_tensors_by_name(monkeypatch, host, cores):
    monkeypatch.setenv("NKI_DIST_HOST", host)
    rng = np.random.default_rng(cores)
    a, b = (rng.integers(-9, 9, (5, 7)).astype(ml_dtypes.bfloat16) for _ in range(2))
    kernel = DeviceKernel.compile_and_load(scaled_sum[cores], a, b_input=a, factor=3.0, name="sum3")
    assert kernel.name == "sum3" and kernel.model_ref is not None
    assert kernel.input_tensors_info == {
        name: spike.TensorMetadata(70, "bfloat16", [5, 7]) for name in ("a_input", "b_input")
    }
    assert list(kernel.output_tensors_info) == ["output0", "output1"]
    assert kernel.output_tensors_info["output1"].shape == [1, 7]
    x, y, out, first = tensors(a, b, np.zeros_like(a), np.zeros_like(a[:1]))
    want = 3 * (a.astype(np.float32) + b.astype(np.float32))
    assert kernel({"a_input": x, "b_input": y}, {"output1": first, "output0": out}) is None
    np.testing.assert_array_equal(out.numpy().astype(np.float32), want)
    np.testing.assert_array_equal(first.numpy().astype(np.float32), want[:1])
    made = kernel(inputs={"b_input": y, "a_input": x})
    assert made is not None and list(made) == ["output0", "output1"]
    np.testing.assert_array_equal(made["output0"].numpy(), out.numpy())
    kernel({"a_input": x, "b_input": x}, outputs={"output0": x})  # an output that is an input
    np.testing.assert_array_equal(x.numpy().astype(np.float32), 6 * a.astype(np.float32))


def test_what_a_kernel_writes_is_an_aliased_input():
    rng = np.random.default_rng(0)
    cache, row, kept = (rng.standard_normal((n, 6)).astype(np.float32) for n in (4, 1, 3))
    kernel = DeviceKernel.compile_and_load(put_row, cache, row, kept)
    names = ["cache.must_alias_input", "row", "kept.must_alias_input"]
    assert list(kernel.input_tensors_info) == names
    assert list(kernel.output_tensors_info) == ["output0", "cache", "kept"]
    c, r, k = tensors(cache, row, kept)
    kernel(dict(zip(names, (c, r, k))), outputs={"cache": c, "kept": k, "output0": r})
    np.testing.assert_array_equal(c.numpy(), [cache[0], row[0], *cache[2:]])
    np.testing.assert_array_equal(k.numpy(), [row[0], *kept[1:]])
    np.testing.assert_array_equal(r.numpy(), 2 * row)
    (other,) = tensors(np.zeros_like(cache))
    kernel(dict(zip(names, (c, r, k))), outputs={"cache": other})
    np.testing.assert_array_equal(other.numpy(), [cache[0], 2 * row[0], *cache[2:]])


def test_a_benchmark_and_a_trace_are_of_simulated_time(tmp_path):
    from nki_dist.compat.measured import read_measurement

    a = np.ones((3, 5), np.float32)
    x, out = tensors(a, np.zeros_like(a))
    kernel = DeviceKernel.compile_and_load(scaled_sum, a, a, build_dir=tmp_path / "build")
    given = {"a_input": x, "b_input": x}
    found = kernel.benchmark(given, {"output0": out}, warmup_iter=2, benchmark_iter=3)
    want = nki_dist.profile(scaled_sum)(a, a).profile.device_us / 1e3
    assert found.mean_ms == found.min_ms == found.max_ms == pytest.approx(want)
    assert (found.std_dev_ms, found.iterations, found.warmup_iterations) == (0, 3, 2)
    assert found.durations_ms == [found.mean_ms] * 3
    np.testing.assert_array_equal(out.numpy(), 2 * a)
    kernel(given, save_trace=True)
    kernel(given, save_trace=True, ntff_name=tmp_path / "mine.ntff")
    measured = read_measurement(tmp_path / "build" / "scaled_sum.ntff")
    assert measured and measured == read_measurement(tmp_path / "mine.ntff")
    with pytest.raises(LaunchError, match=r"mode='host'.*allowed: 'device'"):
        kernel.benchmark(given, mode="host")


def test_a_function_that_calls_a_kernel_and_a_platform():
    def wrapper(a, b):
        return scaled_sum(a, b, factor=float(nisa.get_nc_version()))[1]

    a = np.ones((2, 3), np.float32)
    kernel = DeviceKernel.compile_and_load(wrapper, a, a, target="trn3")
    (x,) = tensors(a)
    made = kernel({"a": x, "b": x})
    np.testing.assert_array_equal(made["output0"].numpy(), 4 * 2 * a[:1])  # NeuronCore-v4
    with pytest.raises(LaunchError, match="unknown platform: got 'trn9'"):
        DeviceKernel.compile_and_load(wrapper, a, a, target="trn9")


def test_wrong_names_shapes_and_kinds_are_named():
    a = np.ones((2, 3), np.float32)
    kernel = DeviceKernel.compile_and_load(scaled_sum, a, a)
    x, tall, half = tensors(a, np.ones((3, 2), np.float32), np.ones((2, 3), np.float16))
    given = {"a_input": x, "b_input": x}
    for inputs, outputs, message in (
        ({"a_input": x}, None, r"input b_input of scaled_sum is missing"),
        ({**given, "c": x}, None, r"input c of scaled_sum is .*; compiled, it is not there"),
        ({**given, "b_input": tall}, None, r"input b_input .*\[3, 2\].*compiled.*\[2, 3\]"),
        ({**given, "b_input": half}, None, r"input b_input .*'float16'.*compiled.*'float32'"),
        ({**given, "b_input": a}, None, r"input b_input of scaled_sum is a ndarray"),
        (given, {"output2": x}, r"output output2 .*not there\n.*\n.*called output0, output1"),
        (given, {"output1": x}, r"output output1 .*\[2, 3\].*compiled.*\[1, 3\]"),
    ):
        with pytest.raises(LaunchError, match=message) as caught:
            kernel(inputs, outputs)
        assert isinstance(caught.value, ValueError)  # as AWS's
        assert Path(__file__).name in caught.value.location
    np.testing.assert_array_equal(x.numpy(), a)


def test_what_needs_a_neff_says_so():
    calls = (
        ("SpikeModel.load_from_neff", lambda: spike.SpikeModel.load_from_neff("k.neff")),
        ("DeviceKernel.load_from_neff", lambda: DeviceKernel.load_from_neff("k.neff", name="k")),
        ("SpikeModel", lambda: spike.SpikeModel(None, "k", "k.neff")),
        ("SystemTraceSession", lambda: spike.SystemTraceSession(0)),
        ("SpikeProfiler", lambda: spike.SpikeProfiler()),
        ("a model of spike", lambda: spike.Spike().load_model("k.neff")),
        ("a model of spike", lambda: spike.Spike().execute(None, {}, {})),
        ("CompiledKernel", lambda: nkipy_runtime.CompiledKernel(scaled_sum, "k.neff")),
        ("BaremetalExecutor", lambda: nkipy_runtime.BaremetalExecutor()),
        ("nkipy's baremetal_jit", lambda: nkipy_runtime.baremetal_jit(lambda a: a)),
    )
    for what, call in calls:
        with pytest.raises(spike.NrtError, match=f"{what} is for hardware") as caught:
            call()
        assert isinstance(caught.value, LaunchError) and "DeviceKernel" in caught.value.hint
        assert (caught.value.code, caught.value.location is None) == ("not-simulated", False)


def test_collectives_over_processes_are_for_worlds():
    a = np.ones((2, 3), np.float32)
    for options in ({"cc_enabled": True}, {"world_size": 2}):
        with pytest.raises(LaunchError, match=r"write nki.World\(ranks=...\).run"):
            DeviceKernel.compile_and_load(scaled_sum, a, a, **options)
    DeviceKernel.compile_and_load(scaled_sum, a, a, cc_enabled=False, world_size=1, rank_id=0)


# ---- memory -------------------------------------------------------------------------------------


def test_memory_is_written_and_read_by_bytes():
    runtime = spike.Spike()
    tensor = runtime.allocate_tensor(size=10, core_id=3, name="t")
    assert (tensor.size, tensor.name, tensor.core_id) == (10, "t", 3)
    assert runtime.tensor_read(tensor) == bytes(10)
    runtime.tensor_write(tensor, b"abc", 2)
    part = runtime.slice_from_tensor(tensor, 3, 4, "part")
    assert (part.size, part.name, runtime.tensor_read(part)) == (4, "part", b"bc\0\0")
    runtime.tensor_write_from_pybuffer(part, np.array([1.5], ml_dtypes.bfloat16), 2)
    assert runtime.tensor_read(tensor, 2, 5) == b"abc\xc0\x3f"
    into = np.zeros((1, 3), ml_dtypes.bfloat16)
    runtime.tensor_read_to_pybuffer(tensor, into, offset=5, size=2)
    assert into.tolist() == [[1.5, 0, 0]]
    into = bytearray(3)
    runtime.tensor_read_to_pybuffer(tensor, into, 2)
    assert into == b"abc"
    for call in (
        lambda: runtime.tensor_write(tensor, b"abc", 8),
        lambda: runtime.tensor_read(tensor, 8, 3),
        lambda: runtime.tensor_read(tensor, 11),
        lambda: runtime.tensor_read(tensor, -1),
        lambda: runtime.slice_from_tensor(part, 0, 5),
    ):
        with pytest.raises(OutOfBoundsError, match=r"bytes -?\d+ to \d+ of tensor (t|part), which"):
            call()
    runtime.free_tensor(tensor)
    with pytest.raises(LaunchError, match="tensor t was freed"):
        runtime.tensor_read(tensor)
    assert runtime.tensor_read(part, 2) == b"\xc0\x3f"
    assert runtime.close() == 0
    with pytest.raises(LaunchError, match="tensor part was freed, or its runtime closed"):
        runtime.tensor_read(part)


def test_the_runtime_is_one_and_is_configured_before_it_is_used(monkeypatch):
    monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", "5")  # put back afterwards
    spike.reset()
    spike.configure(visible_cores=[0, 2, 3])
    assert spike.Spike.get_visible_neuron_core_count() == 3
    runtime = spike.get_spike_singleton()
    tensor = runtime.allocate_tensor(1, name="t")
    assert spike.get_spike_singleton() is runtime
    with pytest.raises(LaunchError, match=r"while the runtime is in use; call spike\.reset"):
        spike.configure(visible_cores=range(2))
    with pytest.warns(UserWarning, match="freed what the runtime allocated"):
        spike.reset()
    with pytest.raises(NkiError, match="its runtime closed"):
        runtime.tensor_read(tensor)
    spike.configure(visible_cores=range(2))
    assert spike.Spike.get_visible_neuron_core_count() == 2


@pytest.mark.parametrize(("text", "cores"), [(None, 1), ("7", 1), ("0-3,8", 5), ("0-3,2-5", 6)])
def test_visible_cores_are_counted(monkeypatch, text, cores):
    monkeypatch.delenv("NEURON_RT_VISIBLE_CORES", raising=False)
    if text:
        monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", text)
    assert spike.Spike.get_visible_neuron_core_count() == cores
    assert nkipy_runtime.is_neuron_compatible()


def test_visible_cores_that_are_no_list(monkeypatch):
    for text in ("all", "0-", "-1", ""):
        monkeypatch.setenv("NEURON_RT_VISIBLE_CORES", text)
        with pytest.raises(LaunchError, match=r"NEURON_RT_VISIBLE_CORES=.*such as 0-3,8"):
            nkipy_runtime.is_neuron_compatible()


# ---- names --------------------------------------------------------------------------------------

NAMES = """
from nki_dist import compat
compat.install()
compat.install()
import importlib, importlib.util, sys
for name, target in compat.RUNTIME.items():
    assert importlib.import_module(name) is importlib.import_module(target), name
import nki_dist, spike
from nkipy.runtime import DeviceTensor
from spike._spike import Spike
from spike.spike_tensor import SpikeTensor
assert SpikeTensor is DeviceTensor is nki_dist.DeviceTensor and Spike is spike.Spike
for line in ("import nkipy.core", "from nkipy import core", "from nkipy.core.trace import X"):
    try:
        exec(line)
    except ModuleNotFoundError as error:
        assert "stands for its nkipy.runtime only" in str(error), (line, error)
    else:
        raise AssertionError(line)
try:
    import no_such_package.core
except ModuleNotFoundError as error:
    assert "nkipy" not in str(error)
assert [type(f).__name__ for f in sys.meta_path].count("RuntimeOnly") == 1
print("good")
"""

BESIDE = """
from nki_dist import compat
compat.install({force})
import importlib
for name in ("spike", "nkipy"):
    try:
        found = importlib.import_module(name).__file__
    except ModuleNotFoundError:
        found = "none"
    print(name, "real" if found.startswith({folder!r}) else found)
"""


def python(code: str, path: Path | None = None) -> str:
    paths = [str(path)] * (path is not None) + os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return programs.said("-c", code, PYTHONPATH=os.pathsep.join(filter(None, paths)))


def test_programs_find_the_names():
    assert python(NAMES) == "good\n"


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize(("real", "other"), [("spike", "nkipy"), ("nkipy", "spike")])
def test_a_real_runtime_is_left_alone(tmp_path, real, other, force):
    (tmp_path / real).mkdir()
    (tmp_path / real / "__init__.py").write_text("")
    found = python(BESIDE.format(force=force, folder=str(tmp_path)), tmp_path).splitlines()
    assert sorted(found) == sorted([f"{real} real", f"{other} none"])


@pytest.mark.skipif(not REF.is_dir(), reason="needs a checkout of nkipy in NKI_REF")
@pytest.mark.parametrize(
    ("file", "tests"),
    [("tests/integration/test_write_from.py", 6), ("spike/tests/test_spike_core_api.py", 4)],
)
def test_awss_own_tests_of_tensors_pass(tmp_path, file, tests):
    shutil.copy(REF / file, tmp_path)  # alone: its conftest needs other plugins
    torch = importlib.util.find_spec("torch") is not None
    chosen = [] if torch else ["-k", "not WriteFromTorch"]
    count = 12 if torch and tests == 6 else tests
    plugins = ["-p", "nki_dist.pytest_plugin", "-p", "no:cacheprovider"]
    done = programs.python("-m", "pytest", "-q", *plugins, *chosen, tmp_path, folder=tmp_path)
    assert f"{count} passed" in done.stdout and not done.returncode, done.stdout + done.stderr
    assert "skipped" not in done.stdout
