"""Kernels of nki-samples that no runnable test of it covers, against NumPy in float64.

`python -m bench.real_kernels.checks CHECKOUT` prints one JSON object per kernel and shape.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from nki_dist import compat

ATTENTION = "src/nki_samples/tutorials/attention_fwd_performance/attention_kernels.py"


class Check(NamedTuple):
    """A call, what it must give, and how far off it may be, relative to the largest value."""

    file: str
    test: str
    call: Callable[[], Any]
    want: np.ndarray
    tolerance: float


def checks(checkout: Path) -> Iterator[Check]:
    """Every kernel with its sizes."""
    rng = np.random.default_rng(0)
    attention = _imported(checkout / ATTENTION)
    for name in sorted(n for n in dir(attention) if n.startswith("attn_fwd_v")):
        for rows in [128] if name in ("attn_fwd_v1", "attn_fwd_v2") else [512, 1024]:
            q, k, v = (rng.uniform(-1, 1, (128, rows)).astype(np.float32) for _ in range(3))
            kernel = getattr(attention, name)
            call = lambda kernel=kernel, q=q, k=k, v=v: kernel(q, k, v)  # noqa: E731
            # From v7 on the kernels compute in bfloat16.
            tolerance = 1e-5 if name[10:] in "123456" else 1e-2
            yield Check(ATTENTION, f"{name} {rows}", call, _attention(q, k, v), tolerance)
    path = "contributed/matmul.py"
    jit = importlib.import_module("neuronxcc.nki").jit
    multiply = jit(_imported(checkout / path).matmul)
    for m, n, dtype in ((512, 2048, np.float16), (1024, 2048, np.float32)):
        a, b = (rng.uniform(-1, 1, (1024, size)).astype(dtype) for size in (m, n))
        call = lambda a=a, b=b: multiply(a, b)  # noqa: E731
        want = a.astype(np.float64).T @ b.astype(np.float64)
        yield Check(path, f"matmul {m}x{n}", call, want, 1e-3 if dtype is np.float16 else 1e-5)


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = q.T.astype(np.float64) @ k
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return weights / weights.sum(1, keepdims=True) @ v.T


def _imported(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(found: Iterator[Check]) -> None:
    """Print what comes of each, as the other records are."""
    from bench.real_kernels.record import Recorder

    recorder = Recorder()
    recorder.install()
    for check in found:
        start, outcome, reason = time.monotonic(), "passed", ""
        recorder.take()
        try:
            got = np.asarray(check.call()).astype(np.float64)
            error = float(np.abs(got - check.want).max() / np.abs(check.want).max())
            if not error <= check.tolerance:
                outcome, reason = "failed", f"off by {error:.2g} of the largest value"
        except Exception as error:
            outcome, reason = "failed", f"{type(error).__name__}: {error}"[:300]
        row = {"file": check.file, "test": check.test, "outcome": outcome, "reason": reason}
        row |= {"seconds": time.monotonic() - start, "kernels": recorder.take()}
        print(json.dumps(row), flush=True)


def main() -> None:
    compat.install()
    run(checks(Path(sys.argv[1]).resolve()))


if __name__ == "__main__":
    main()
