"""Every example in examples/spmd: values, both LNC degrees, both hosts, repeated bits, scripts."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import nki_dist as nki
from tests.examples.scripts import SPMD, load, run_script
from tests.programs import python
from tests.timing.traces import read_trace

common: Any = load("_common")

EXAMPLES = {path.stem: load(path.stem).EXAMPLE for path in sorted(SPMD.glob("[!_]*.py"))}
KERNELS = {kernel.fn.__name__: (e, kernel) for e in EXAMPLES.values() for kernel in e.kernels}

each_kernel = pytest.mark.parametrize("name", KERNELS)
each_lnc = pytest.mark.parametrize("lnc", [1, 2])


def small_inputs(example: Any, seed: int = 7) -> tuple[np.ndarray, ...]:
    return example.inputs(np.random.default_rng(seed), True)


def check(result: np.ndarray, expected: np.ndarray) -> None:
    assert result.shape == expected.shape
    assert common.error(result, expected) <= common.allowed_error(result.dtype)


def test_the_promised_examples_are_there() -> None:
    promised = {
        "attention_block",
        "average_pool",
        "flash_attention",
        "layer_norm",
        "matmul",
        "rms_norm",
        "selective_scan",
        "shared_reduction",
        "softmax",
        "split_k_matmul",
        "transpose2d",
        "vector_add",
    }
    assert promised <= set(EXAMPLES)
    assert len(EXAMPLES["matmul"].kernels) == 3


@each_lnc
@each_kernel
def test_agrees_with_numpy_and_repeats(name: str, lnc: int) -> None:
    example, kernel = KERNELS[name]
    arrays = small_inputs(example)
    first = nki.simulate(kernel[lnc])(*arrays)
    again = nki.simulate(kernel[lnc])(*arrays)
    check(first, example.reference(*arrays))
    assert first.tobytes() == again.tobytes()


@each_lnc
@each_kernel
def test_bfloat16(name: str, lnc: int) -> None:
    example, kernel = KERNELS[name]
    arrays = tuple(a.astype(ml_dtypes.bfloat16) for a in small_inputs(example))
    check(nki.simulate(kernel[lnc])(*arrays), example.reference(*arrays))


@each_kernel
def test_strict_world_of_two_ranks_on_another_platform(name: str) -> None:
    """Nothing reads what it didn't write, no rank disturbs the other, trn3 gives trn2's bits."""
    example, kernel = KERNELS[name]
    first, second = small_inputs(example, 1), small_inputs(example, 2)
    shards = [nki.per_rank(pair) for pair in zip(first, second, strict=True)]
    with nki.World(
        ranks=2, lnc=2, platform="trn3", host="inprocess", check="unwritten=strict"
    ) as world:
        results = world.run(kernel, *shards)
    for result, arrays in zip(results, (first, second), strict=True):
        assert result.tobytes() == nki.simulate(kernel[2])(*arrays).tobytes()


@each_lnc
@each_kernel
def test_ray_gives_the_same_bits(name: str, lnc: int) -> None:
    example, kernel = KERNELS[name]
    arrays = small_inputs(example)
    here = nki.simulate(kernel[lnc])(*arrays)
    assert kernel[lnc](*arrays).tobytes() == here.tobytes()
    assert kernel[lnc](*arrays).tobytes() == here.tobytes()


SHAPES = {
    "vector_add": [((1,), (1,)), ((2047,), (2047,))],
    "softmax": [((1, 5),), ((129, 1),)],
    "transpose2d": [((1, 3),), ((130, 1),), ((600, 129),)],
    "average_pool": [((1, 2, 2),), ((130, 4, 6),)],
    "shared_reduction": [((1, 3),), ((2, 4097),)],
    "matmul_blocked": [((1, 1), (1, 1)), ((129, 1), (129, 513))],
    "flash_attention": [((1, 1, 1), (1, 1, 1), (1, 1, 1)), ((1, 7, 513), (1, 7, 513), (1, 513, 7))],
}


@each_lnc
@pytest.mark.parametrize(
    ("name", "shapes"), [(name, shapes) for name, some in SHAPES.items() for shapes in some]
)
def test_edge_shapes(name: str, shapes: tuple, lnc: int) -> None:
    """Less than a tile, one more than a tile, fewer units of work than cores."""
    example, kernel = KERNELS[name]
    rng = np.random.default_rng(3)
    arrays = tuple(rng.standard_normal(shape, dtype=np.float32) for shape in shapes)
    check(nki.simulate(kernel[lnc])(*arrays), example.reference(*arrays))


def test_matmul_levels_compute_the_same_bits() -> None:
    example = EXAMPLES["matmul"]
    arrays = small_inputs(example)
    results = {nki.simulate(kernel)(*arrays).tobytes() for kernel in example.kernels}
    assert len(results) == 1


def test_matmul_levels_get_faster_in_simulated_time() -> None:
    """In bfloat16: in float32 the Tensor engine bounds all three."""
    rng = np.random.default_rng(1)
    shapes = ((512, 512), (512, 1024))
    arrays = [rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in shapes]
    kernels = EXAMPLES["matmul"].kernels
    times = [nki.profile(k, host="inprocess")(*arrays).profile.total_us for k in kernels]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == len(times)


def test_transpose_keeps_not_a_number() -> None:
    x = np.full((130, 3), np.nan, np.float32)
    x[:, 1] = np.inf
    result = nki.simulate(EXAMPLES["transpose2d"].kernels[0])(x)
    assert result.tobytes() == x.T.tobytes()


def test_script(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    done = run_script(
        "softmax.py", "--small", "--lnc", "2", "--host", "inprocess", "--trace", str(trace)
    )
    assert done.returncode == 0, done.stderr
    for expected in ("softmax", "error against NumPy", "identical bits", "simulated time"):
        assert expected in done.stdout
    assert trace.stat().st_size > 0


def test_script_refuses_a_core_too_many() -> None:
    done = run_script("softmax.py", "--small", "--lnc", "3", "--host", "inprocess")
    assert done.returncode != 0
    assert "LNC" in done.stderr


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    """On a small shape, but with Ray and two actors, as `make demo` runs it."""
    report, trace = tmp_path / "new" / "report.html", tmp_path / "trace.json"
    done = run_script("../demo.py", "--small", "--report", str(report), "--trace", str(trace))
    assert done.returncode == 0, done.stderr
    for expected in (
        "starting Ray",
        "Result: right",
        "the same on Ray, again, and in process",
        "between cores   4 messages",  # one sendrecv and one barrier on each core
        "us simulated",
        "for a launch once compiled",
        f"  {report}\n  {trace}\n",
        "Try next",
    ):
        assert expected in done.stdout
    assert "attention_block" in report.read_text()
    assert read_trace(trace)
    assert [line for line in done.stdout.split("\n") if len(line) > 80 and "/" not in line] == []


@pytest.mark.slow
def test_what_the_demo_suggests(tmp_path: Path) -> None:
    """The command runs, and the change gives the error that is promised."""
    done = run_script("softmax.py", "--host", "inprocess", "--profile")
    assert done.returncode == 0 and "us simulated" in done.stdout
    copy = Path(shutil.copytree(SPMD.parent, tmp_path / "examples"))
    kernel = copy / "spmd" / "attention_block.py"
    lines = kernel.read_text().split("\n")
    kernel.write_text("\n".join(line for line in lines if "nisa.core_barrier" not in line))
    done = python(copy / "demo.py", "--small", folder=tmp_path, NKI_DIST_HOST="inprocess")
    assert done.returncode == 1 and "RaceError" in done.stderr
    assert done.stderr.count("attention_block.py") >= 1 and "core_barrier" in done.stderr
