"""nki_dist against triton-viz's interpreter of NKI kernels, on the kernels that triton-viz brings.

    python -m bench.interpreters CHECKOUT

The checkout of triton-viz must be importable (its set-up writes triton_viz/version.py), which
takes triton, torch, anytree, cairocffi, flask, flask_cloudflared, tqdm, pyarrow and z3-solver.
Where its interpreter wants names of `nki`, it gets ours. Both sides run in one process and thread,
in turn, on the same arrays; results are compared with NumPy before anything is measured. Figures
are processor time, the least of all turns, as others may use the machine.

triton-viz is measured twice: with the client "tracer", as its examples run it, and with none, which
leaves the bare interpreter. Ours is a launch in the caller's process with all checks. A first
launch finds no kernel compiled or linked in its process; it is measured in each turn.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

import nki_dist as nki
from bench.harness import show
from nki_dist import compat
from nki_dist.launcher.session import CompileCache, session

TURNS = 7

Array = np.ndarray


class Case(NamedTuple):
    """A kernel of triton-viz: file, name, inputs, shape of its output, parameters, NumPy's."""

    file: str
    kernel: str
    inputs: tuple[Array, ...]
    output: tuple[int, ...]
    parameters: tuple[Any, ...]
    expected: Callable[..., Array]


def cases(rng: np.random.Generator) -> Iterator[Case]:
    def normal(*shape: int, scale: float = 1.0) -> Array:
        return (scale * rng.standard_normal(shape)).astype(np.float32)

    yield Case("softmax", "softmax_kernel", (normal(4096, 2048),), (4096, 2048), (), _softmax)
    rows = (normal(4096, 1024), np.broadcast_to(normal(1024), (4096, 1024)).copy())
    yield Case("rmsnorm", "rmsnorm_kernel", rows, (4096, 1024), (), _rms_norm)
    product = (normal(1024, 1024), normal(1024, 1024))
    yield Case("matmul", "matmul_kernel", product, (1024, 1024), (), lambda a, b: a.T @ b)
    layers = (normal(512, 512), normal(512, 1024, scale=0.04), normal(1024, 512, scale=0.03))
    yield Case("mlp", "mlp_kernel", layers, (512, 512), (), _mlp)
    heads = tuple(normal(1, 2, 512, 128, scale=0.1) for _ in range(3))
    sizes = (1, 2, 2, 2, 512, 512, 128, 128)
    yield Case(
        "tiled_attention", "tiled_attention_kernel", heads, (1, 2, 512, 128), sizes, _attention
    )


def _softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def _rms_norm(x: Array, gamma: Array) -> Array:
    return x / np.sqrt(np.mean(x * x, axis=1, keepdims=True) + 1e-6) * gamma


def _mlp(x: Array, first: Array, second: Array) -> Array:
    return np.maximum(x.T @ first, 0) @ second


def _attention(q: Array, k: Array, v: Array) -> Array:
    scores = q @ k.swapaxes(-1, -2)
    return _softmax(scores / np.sqrt(q.shape[-1])) @ v


def measure(case: Case, trace: Callable[..., Any]) -> tuple[float, float, float, float]:
    """Seconds of the processor: our first launch, a later one, triton-viz's bare interpreter, with
    its tracer.

    Raises:
        AssertionError: a result isn't NumPy's.
    """
    function = getattr(__import__(case.file), case.kernel)
    expected = case.expected(*(x.astype(np.float64) for x in case.inputs))
    out = np.zeros(case.output, np.float32)
    arguments = (*case.inputs, out, *case.parameters)
    ours = nki.simulate(nki.jit(function))
    traced = trace("tracer", frontend="nki_beta2")(function)
    bare = trace("tracer", frontend="nki_beta2")(function)
    bare.client_manager.clients.clear()

    def first() -> None:
        session().cache = CompileCache()
        ours(*arguments)

    sides = (
        first,
        lambda: ours(*arguments),
        lambda: bare[(1,)](*arguments, pre_trace=False),
        lambda: traced[(1,)](*arguments, pre_trace=False),
    )
    for side in sides:
        out[...] = np.nan
        side()
        np.testing.assert_allclose(out, expected, rtol=2e-3, atol=2e-3)
    turns = [[processor_seconds(side) for side in sides] for _ in range(TURNS)]
    return tuple(np.min(turns, axis=0))


def row(case: Case, trace: Callable[..., Any]) -> tuple[str, ...]:
    first, ours, bare, traced = measure(case, trace)
    return (
        f"{case.file} {', '.join('x'.join(map(str, x.shape)) for x in case.inputs)}",
        f"{1e3 * first:.1f} ms ({first / bare:.2f})",
        f"{1e3 * ours:.1f} ms ({ours / bare:.2f})",
        f"{1e3 * bare:.1f} ms",
        f"{1e3 * traced:.0f} ms ({traced / ours:.1f}x a launch)",
    )


def processor_seconds(side: Callable[[], object]) -> float:
    """What a call takes of the processor."""
    start = time.process_time()
    side()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.interpreters", description=__doc__)
    parser.add_argument("checkout", type=Path)
    checkout = parser.parse_args().checkout.resolve()
    sys.path[:0] = [str(checkout), str(checkout / "examples/nki_beta2")]
    compat.install()
    import triton_viz

    heads = ("kernel", "first launch (of bare)", "launch", "triton-viz, bare", "with its tracer")
    with threadpool_limits(1):
        show(heads, (row(case, triton_viz.trace) for case in cases(np.random.default_rng(0))))


if __name__ == "__main__":
    main()
