"""Names that unmodified programs import, and what happens when the real packages are there."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pytest

import nki_dist
import nki_dist.language as nl
from nki_dist import arch, compat
from nki_dist.errors import LaunchError
from tests.programs import python


def fresh(code: str, **variables: str) -> subprocess.CompletedProcess[str]:

    return python("-c", code, **variables)


def test_every_alias_imports_and_is_the_module_it_stands_for():
    code = (
        "import importlib, importlib.util, sys\n"
        "from nki_dist import compat\n"
        "compat.install()\n"
        "compat.install()\n"  # a second time changes nothing
        "for table in (compat.ALIASES, compat.HELPERS):\n"
        "    for name, target in table.items():\n"
        "        assert importlib.import_module(name) is importlib.import_module(target), name\n"
        "import nki, nki_cpu_simulator.nki.isa, builtins\n"
        "from nki_cpu_simulator import nki as other\n"
        "import nki.language as nl, nki.isa.constants as c, nki.dtype as nt\n"
        "from neuronxcc.starfish.support.dtype import static_cast\n"
        "from neuron_dtypes import static_cast as again\n"
        "assert other is nki and again is static_cast and nt.bfloat16 is nl.bfloat16\n"
        "assert builtins.builtin.sbuf is builtins.sbuf\n"
        "found = importlib.util.find_spec('torch') is not None\n"
        "assert ('torch_xla' in sys.modules) == found\n"
        "print('good')\n"
    )
    done = fresh(code)
    assert done.stdout == "good\n", done.stderr


def test_prebuilt_kernels_are_where_beta_1_programs_look_for_them():
    """With grids of program instances, the decorators of Beta 1, and results as arguments."""
    code = """
import numpy as np
from nki_dist import compat
compat.install()
compat.install_devices()
import neuronxcc.nki.language as nl
from neuronxcc.nki import baremetal, benchmark, simulate_kernel
from neuronxcc.nki.kernels import allocated_fused_rms_norm_qkv
from neuronxcc.nki.kernels.attention import FlashConfig, flash_attn_bwd, flash_fwd
from neuronxcc.nki.kernels.attention import fused_self_attn_for_SD_small_head_size as small
from neuronxcc.nki.kernels.vision import resize_nearest_fixed_dma_kernel as resize
from torch_neuronx.xla_impl.ops import nki_jit

rng = np.random.default_rng(0)
q, k, v = (rng.standard_normal((3, 4, 8, 130)).astype(np.float32) for _ in range(3))
config = FlashConfig(should_transpose_v=True)
out, lse = flash_fwd[3, 4](q, k, v, config=config)
per_core, _ = flash_fwd[3, nl.nc(2) * 2](q, k, v, config=config)
assert np.array_equal(out, per_core)
turned = np.ascontiguousarray(out.swapaxes(2, 3))
grads = simulate_kernel(baremetal(flash_attn_bwd)[3, 4], q, k, v, turned, q, lse)
assert [g.shape for g in grads] == [q.shape] * 3

measured = benchmark(warmup=2, iters=3)(small)
rows = np.ascontiguousarray(k[0].swapaxes(1, 2))
assert measured[4](q[0], rows, rows).shape == (4, 130, 8)
assert measured.benchmark_result.nc_latency.get_latency_percentile(50) > 1
assert simulate_kernel(allocated_fused_rms_norm_qkv, rows, rows[0, :8, :5]).shape == (4, 130, 5)
into = np.empty((3, 8, 2, 130), np.float32)
nki_jit(resize)[3](q, into)  # three instances; three cores would be refused
assert np.array_equal(into, q[:, np.arange(8) // 2][:, :, [0, 4]])
print('good')
"""
    done = fresh(code, NKI_DIST_HOST="inprocess")
    assert done.stdout == "good\n", done.stderr


def test_a_real_wheel_is_left_alone_unless_asked(tmp_path):
    (tmp_path / "nki").mkdir()
    (tmp_path / "nki" / "__init__.py").write_text("real = True\n")
    code = "from nki_dist import compat\ncompat.install(force={})\nimport nki\nprint(nki.__name__)"
    refused = fresh(code.format(False), PYTHONPATH=str(tmp_path))
    assert "LaunchError: a real nki package is installed at" in refused.stderr
    asked = fresh(code.format(True), PYTHONPATH=str(tmp_path))
    assert asked.stdout == "nki_dist\n", asked.stderr


def test_an_imported_wheel_is_refused_by_name(monkeypatch):
    module = type(sys)("neuronxcc")
    module.__file__ = "/somewhere/neuronxcc/__init__.py"
    monkeypatch.setitem(sys.modules, "neuronxcc", module)
    with pytest.raises(LaunchError, match="neuronxcc has been imported already from /somewhere"):
        compat.install()


def test_a_real_helper_package_is_used_as_it_is(tmp_path):
    (tmp_path / "neuron_dtypes.py").write_text("real = True\n")
    code = "from nki_dist import compat\ncompat.install()\nimport neuron_dtypes as d\nprint(d.real)"
    assert fresh(code, PYTHONPATH=str(tmp_path)).stdout == "True\n"


def test_a_directory_called_nki_is_no_wheel(tmp_path):
    (tmp_path / "nki" / "docs").mkdir(parents=True)
    code = "from nki_dist import compat\ncompat.install()\nimport nki\nprint(nki.__name__)"
    assert fresh(code, PYTHONPATH=str(tmp_path)).stdout == "nki_dist\n"


# ---- nki.cpu_simulate ---------------------------------------------------------------------------


def generations(a):
    """A plain function, not a kernel: harnesses pass those, too."""
    nl, nisa = nki_dist.language, nki_dist.isa
    out = nl.ndarray(a.shape, nl.float32, buffer=nl.shared_hbm)
    tile = nl.load(a)
    nisa.tensor_scalar(tile, tile, nl.add, float(nisa.get_nc_version()))
    nisa.tensor_scalar(tile, tile, nl.add, 100.0 * nl.num_programs(0))
    nisa.dma_copy(out, tile)
    return out


@pytest.mark.parametrize(("version", "number"), [("gen3", 3), ("gen4", 4), (None, 3)])
@pytest.mark.parametrize("lnc", [1, 2])
def test_cpu_simulate_runs_functions_for_the_generation_of_the_environment(
    monkeypatch, version, number, lnc
):
    monkeypatch.delenv("NKI_NC_VERSION", raising=False)
    if version:
        monkeypatch.setenv("NKI_NC_VERSION", version)
    a = np.arange(6, dtype=np.float32).reshape(2, 3)
    got = nki_dist.cpu_simulate(generations)[lnc](a=a)
    np.testing.assert_array_equal(got, a + number + 100 * lnc)


def test_the_decorators_platform_is_stronger_than_the_simulators_variable(monkeypatch):
    monkeypatch.setenv("NKI_NC_VERSION", "gen4")
    kernel = nki_dist.jit(generations, platform_target="trn1")
    a = np.zeros((1, 1), np.float32)
    assert nki_dist.cpu_simulate(kernel)[1](a) == 102


def test_a_wrong_version_names_the_variable():
    assert arch.from_environment({"NKI_NC_VERSION": "gen2"}).generation == 2
    both = {"NKI_NC_VERSION": "gen2", "NEURON_PLATFORM_TARGET_OVERRIDE": "trn3"}
    assert arch.from_environment(both).generation == 4
    with pytest.raises(LaunchError, match="NKI_NC_VERSION: unknown platform: got 'gen9'"):
        arch.from_environment({"NKI_NC_VERSION": "gen9"})


def test_compiler_classes_say_that_they_need_hardware():
    module = importlib.import_module(compat.ALIASES["nki.compiler.ncc_driver"])
    with pytest.raises(LaunchError, match="CompileOptions is for hardware: AWS's compiler"):
        module.CompileOptions(1)
    frontend = module.ParserFrontend()  # harnesses make one while they're imported
    assert isinstance(frontend, module.NKIFrontend)
    with pytest.raises(LaunchError, match=r"ParserFrontend\.compile is for hardware"):
        frontend.compile(generations, inputs={"a": np.zeros((1, 1), np.float32)})
    with pytest.raises(LaunchError, match=r"CompiledKernel\.from_frontend is for hardware"):
        module.CompiledKernel.from_frontend(None)


def test_a_front_end_reports_what_is_wrong_in_a_kernel():
    frontend = importlib.import_module(compat.ALIASES["nki.compiler.frontend"]).ParserFrontend()

    @nki_dist.jit
    def wrong(x):
        assert x.shape == (2, 3), "x has another shape"
        return nl.load(x)

    inputs = {"x": np.zeros((4, 5), np.float32)}
    with pytest.raises(AssertionError, match="x has another shape"):
        frontend.compile(wrong, inputs=inputs, target="trn2", lnc=2, artifacts_dir="none")
    with pytest.raises(LaunchError, match="unknown platform: got 'trn9'"):
        frontend.compile(wrong, inputs=inputs, target="trn9")
