"""How other people's evaluators start kernels and ask for times."""

from __future__ import annotations

import json
import logging
import os

import numpy as np
import pytest

import nki_dist
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.cli import main
from nki_dist.compat import beta1, framework, measured
from nki_dist.compat.simulator import simulate_kernel
from nki_dist.errors import LaunchError
from tests.compat.test_install import fresh
from tests.programs import said


def doubled(a, times=2):
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nisa.tensor_scalar(tile, tile, nl.multiply, float(times * nl.num_programs(0)))
    nisa.dma_copy(out, tile)
    return out


def beta1_copy(a):
    out = beta1.language.ndarray(a.shape, dtype=a.dtype, buffer=beta1.language.shared_hbm)
    beta1.language.store(out, beta1.language.load(a))
    return out


A = np.arange(15, dtype=np.float32).reshape(3, 5)


@pytest.mark.parametrize("kernel", [doubled, nki_dist.jit(doubled)])
def test_simulate_kernel_takes_arguments_as_a_sequence_and_by_name(kernel):
    np.testing.assert_array_equal(simulate_kernel(kernel, [A]), 2 * A)
    np.testing.assert_array_equal(simulate_kernel(kernel, (), {"a": A, "times": 3}, lnc=2), 6 * A)


def test_simulate_kernel_refuses_an_array_for_the_arguments():
    with pytest.raises(LaunchError, match="args is a ndarray; allowed: a tuple or list"):
        simulate_kernel(doubled, A)


def test_compile_kernel_runs_and_leaves_a_measurement(tmp_path):
    made = framework.CompileKernel(func=doubled, artifacts_dir=tmp_path / "new", _any_option=True)
    np.testing.assert_array_equal(made(A), 2 * A)
    np.testing.assert_array_equal(made[2](A, times=1), 2 * A)
    (numbers,) = measured.read_measurement(tmp_path / "new" / "kernel.neff").values()
    assert numbers["hbm_write_bytes"] == 2 * A.nbytes  # of two cores, the last call
    np.testing.assert_array_equal(framework.CompileKernel(doubled, lnc=2)(A), 4 * A)
    with pytest.raises(LaunchError, match="compile_kernel_to_nir is for hardware: AWS's compiler"):
        framework.compile_kernel_to_nir(made, inputs={"a": A})


@pytest.mark.parametrize("decorator", [beta1.baremetal, beta1.benchmark, beta1.profile])
def test_decorators_write_the_files_they_are_asked_for(tmp_path, monkeypatch, decorator):
    monkeypatch.setenv("NKI_DIST_HOST", "inprocess")
    kernel = decorator(
        beta1_copy, working_directory=tmp_path, save_neff_name="k.neff", save_trace_name="k.ntff"
    )
    np.testing.assert_array_equal(kernel(A), A)
    neff, ntff = (measured.read_measurement(tmp_path / name) for name in ("k.neff", "k.ntff"))
    profile = nki_dist.profile(beta1.jit(beta1_copy), host="inprocess")(A).profile
    assert neff == ntff == profile.summary()


def test_nothing_is_measured_unasked(tmp_path, monkeypatch):
    monkeypatch.setenv("NKI_DIST_HOST", "inprocess")
    monkeypatch.chdir(tmp_path)
    np.testing.assert_array_equal(beta1.baremetal(beta1_copy)(A), A)
    assert not list(tmp_path.iterdir())


def test_neuron_profile_captures_and_shows(tmp_path, capsys):
    neff, ntff = str(tmp_path / "k.neff"), str(tmp_path / "k.ntff")
    profile = nki_dist.profile(doubled, host="inprocess")(A).profile
    measured.write_measurement(neff, profile)
    capture = ["neuron-profile", "capture", "-n", neff, "-s", ntff]
    assert main([*capture, "--num-exec", "5", "--profile-nth-exec", "2"]) == 0
    names = {"k.neff", "k.ntff", "k_exec_2.ntff", "k_exec_4.ntff"}
    assert {p.name for p in tmp_path.iterdir()} == names
    view = ["neuron-profile", "view", "-n", neff, "-s", str(tmp_path / "k_exec_4.ntff")]
    assert main([*view, "--output-format=summary-json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    (numbers,) = json.loads(line).values()
    assert numbers["total_time"] == pytest.approx(profile.device_us * 1e-6)
    assert main(view) == 0
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["total_time", str(numbers["total_time"])] in shown


@pytest.mark.parametrize("content", [None, b"\x7fELF\x90", b"{}", b"[1]"])
def test_files_of_other_tools_are_refused(tmp_path, capsys, content):
    path = tmp_path / "k.neff"
    if content is not None:
        path.write_bytes(content)
    assert main(["neuron-profile", "capture", "-n", str(path), "-s", str(path)]) == 1
    said = "No such file" if content is None else "wasn't written by the simulator"
    assert said in capsys.readouterr().err


def test_programs_of_run_find_neuron_profile_and_the_level_off(tmp_path):
    script = tmp_path / "evaluate.py"
    script.write_text(
        "import logging, subprocess\n"
        "import numpy as np\n"
        "import neuronxcc.nki as nki, neuronxcc.nki.language as nl\n"
        "logging.disable(logging.OFF)\n"
        "def kernel(a):\n"
        "    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)\n"
        "    nl.store(out, nl.load(a))\n"
        "    return out\n"
        "nki.benchmark(save_neff_name='k.neff')(kernel)(np.ones((3, 5), np.float32))\n"
        "command = ['neuron-profile', 'capture', '-n', 'k.neff', '-s', 'k.ntff']\n"
        "subprocess.run(command, check=True)\n"
    )
    here = os.path.dirname(os.path.dirname(nki_dist.__file__))
    said("-m", "nki_dist", "run", "--host", "inprocess", script, folder=tmp_path, PYTHONPATH=here)
    assert measured.read_measurement(tmp_path / "k.ntff")


def test_install_leaves_another_level_off_alone():
    code = "import logging\nfrom nki_dist import compat\n{}\ncompat.install()\nprint(logging.OFF)\n"
    assert fresh(code.format("")).stdout == f"{logging.CRITICAL + 10}\n"
    assert fresh(code.format("logging.OFF = 99")).stdout == "99\n"


def test_benchmark_is_a_decorator_that_keeps_the_latency():
    made = nki_dist.benchmark(warmup=2, iters=10)(doubled)
    with pytest.raises(LaunchError, match=r"(?s)the kernel wasn't called yet.*\[not-measured\]"):
        _ = made.benchmark_result.nc_latency
    run = made(A)
    np.testing.assert_array_equal(run.outputs, 2 * A)
    latency = made.benchmark_result.nc_latency
    assert latency.get_latency_percentile(99) == run.profile.device_us > 0
    two = made[2](A, times=3)  # the grid makes a copy, which measures for the same benchmark
    assert made.benchmark_result.profile is two.profile is not run.profile
    assert latency.get_latency_percentile(50) == run.profile.device_us
    with pytest.raises(LaunchError, match=r"(?s)'99'.*from 0 to 100.*\[benchmark-option\]"):
        latency.get_latency_percentile("99")


def test_other_launches_of_a_benchmark_are_not_measured():
    made = nki_dist.benchmark(nki_dist.jit(doubled))
    np.testing.assert_array_equal(nki_dist.simulate(made)(A), 2 * A)
    np.testing.assert_array_equal(nki_dist.debug(made)(A), 2 * A)
    assert nki_dist.estimate(made)(A).total_us > 0
    assert made.benchmark_result.profile is None


@pytest.mark.parametrize("wrong", [{"warmup": -1}, {"iters": 0}, {"iters": "10"}, {"warmup": True}])
def test_counts_of_a_benchmark_are_checked(wrong):
    with pytest.raises(LaunchError, match=r"(?s)is an int of at least [01].*\[benchmark-option\]"):
        nki_dist.benchmark(**wrong)
