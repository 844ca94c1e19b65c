"""Decorators, grids, outputs by argument and by return."""

from __future__ import annotations

import numpy as np
import pytest

from nki_dist.compat import beta1 as nki
from nki_dist.compat.beta1 import compiler as ncc
from nki_dist.compat.beta1 import language as nl
from nki_dist.errors import CompileError, LaunchError, OutOfBoundsError
from tests.beta1.helpers import close, normal, run


@pytest.fixture(autouse=True)
def in_process(monkeypatch):
    monkeypatch.setenv("NKI_DIST_HOST", "inprocess")


def double(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.load(a) * 2.0)
    return out


def rows(a):
    """One row block per program instance."""
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    n = a.shape[0] // nl.num_programs(0)
    i = nl.program_id(0) * n + nl.arange(n)[:, None]
    j = nl.arange(a.shape[1])[None, :]
    nl.store(out[i, j], nl.load(a[i, j]) + 1.0 * nl.program_id(0))
    return out


@pytest.mark.parametrize(
    "made",
    [
        nki.jit(double),
        nki.jit(mode="simulation", platform_target="trn2")(double),
        nki.jit(nki.jit(double), mode="trace"),
        nki.baremetal(double),
        nki.baremetal(artifacts_dir="x", additional_compile_opt="-O1")(double),
        ncc.skip_middle_end_transformations(nki.baremetal()(double)),
        ncc.enable_stack_allocator(log_level=20)(nki.jit(double)),
        nki.benchmark(warmup=2, iters=3)(double),
        nki.profile(working_directory="x", profile_nth=2)(double),
    ],
)
def test_every_decorator_runs(made):
    a = normal(9, 5)
    close(made(a), 2 * a)


def test_a_grid_of_0_is_none_for_baremetal():
    def instances(a):
        out = nl.ndarray((1, 1), dtype=np.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(a[0:1, 0:1]) * 0.0 + float(nl.program_ndim()))
        return out

    a = normal(9, 5)
    close(nki.baremetal(double)[0](a), 2 * a)
    assert nki.baremetal(instances)[0](a) == 0 and nki.baremetal(instances)[1](a) == 1
    with pytest.raises(LaunchError, match="positive"):
        nki.baremetal(double)[(0,)](a)


def test_benchmarks_measure_simulated_time():
    made = nki.benchmark(double)
    assert made.profile is made.benchmark_result.profile is None
    made(normal(9, 5))
    latency = made.benchmark_result.nc_latency
    assert latency.get_latency_percentile(50) == latency.get_latency_percentile(99) > 0
    made[2](normal(9, 5))
    assert made.benchmark_result.nc_latency.get_latency_percentile(50) > 0


def test_benchmarks_take_descriptions_of_inputs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = nki.benchmark(save_neff_name="file.neff")(double)
    assert made(nki.tensor[[130 - 2, 6], nl.bfloat16]).shape == (128, 6)


@pytest.mark.parametrize(
    "grid", [3, (3,), (nl.spmd_dim(3, 1),), nl.nc(2) * 3, nl.spmd_dim(3, nl.nc(2)), 6]
)
def test_grids_count_program_instances(grid):
    a = normal(12, 5)
    n = {3: 3, 6: 6}.get(grid, 6) if not isinstance(grid, tuple) else 3
    wanted = a + np.repeat(np.arange(n), 12 // n)[:, None]
    close(run(rows, a, grid=grid), wanted)


def test_outputs_by_argument():
    def kernel(a, out):
        nl.store(out, nl.load(a) - 1.0)

    a, out = normal(9, 5), np.zeros((9, 5), np.float32)
    assert nki.simulate_kernel(nki.trace(kernel), a, out) is None
    close(out, a - 1)
    out[...] = 0
    nki.simulate_kernel(kernel, a, out)
    close(out, a - 1)


def test_trees_are_returned_and_tiles_come_out():
    def kernel(a):
        tile = nl.load(a)
        return {"twice": double(a), "tile": tile[:, 1:3]}, [a]

    a = normal(9, 5)
    found, (same,) = run(kernel, a)
    close(found["twice"], 2 * a)
    close(found["tile"], a[:, 1:3])
    close(same, a)


def test_kernels_call_kernels():
    inner = nki.jit(double)

    def kernel(a):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(inner(a)) + 1.0)
        return out

    a = normal(9, 5)
    close(run(kernel, a), 2 * a + 1)


def test_the_same_kernel_with_other_shapes_and_values():
    made = nki.jit(lambda a, n: double(a) if n else a)
    for shape in ((3, 4), (5, 2)):
        a = normal(*shape)
        close(made(a, 1), 2 * a)
        close(made(a, 0), a)


def test_errors_carry_the_kernels_line():
    def kernel(a):
        i, j = nl.mgrid[0:9, 0:5]
        return nl.load(a[i, j + 1])

    with pytest.raises(OutOfBoundsError) as caught:
        run(kernel, normal(9, 5))
    assert "test_launch.py" in str(caught.value)


def test_refused_launches():
    with pytest.raises(LaunchError, match="a kernel is a function"):
        nki.jit(3)
    with pytest.raises(LaunchError, match="only inside a kernel"):
        nl.load(3) if False else nl.store.__globals__["lower"].state()
    with pytest.raises(LaunchError, match="positive ints"):
        run(rows, normal(4, 4), grid=0)


def test_blocks_cannot_be_returned():
    def kernel(a):
        return nl.zeros((2, nl.par_dim(9), 5), dtype=a.dtype)

    with pytest.raises(CompileError, match="block dimensions"):
        run(kernel, normal(9, 5))
