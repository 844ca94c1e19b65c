"""Grades a softmax kernel: a course's exercise, or the loop of a program that writes kernels.

python examples/grader.py [FILE] [--json]

FILE defines `softmax(x)`, an NKI kernel over rows; without one, the kernel of this file is graded.
It has to be right for odd shapes, in float32 and bfloat16, on one core and on two, within 60
simulated microseconds. Prints the report, as JSON if asked, and exits with 1 if something is wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import Any

import numpy as np

import nki_dist as nki
import nki_dist.isa as nisa
import nki_dist.language as nl
from nki_dist.testing import Case, Limits, Report, check_kernel, odd_shapes


@nki.jit
def softmax(x):
    rows, columns = x.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    step = nl.tile_size.pmax * nl.num_programs(0)
    for start in range(nl.tile_size.pmax * nl.program_id(0), rows, step):
        stop = min(start + nl.tile_size.pmax, rows)
        height = stop - start
        tile = nl.ndarray((height, columns), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start:stop, :])
        # exp(x - max) and its sum in one pass; the bias is subtracted before the function.
        top = nl.ndarray((height, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=top, op=nl.maximum, data=tile, axis=1, negate=True)
        powers = nl.ndarray((height, columns), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(dst=powers, op=nl.exp, data=tile, bias=top)
        total = nl.ndarray((height, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=total, op=nl.add, data=powers, axis=1)
        nisa.reciprocal(dst=total, data=total)
        nisa.tensor_scalar(dst=tile, data=powers, op0=nl.multiply, operand0=total)
        nisa.dma_copy(dst=out[start:stop, :], src=tile)
    return out


def reference(x: Any) -> Any:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def grade(kernel: Any) -> Report:
    cases = [Case({"x": shape}) for shape in odd_shapes((256, 200))]
    cases += [Case({"x": shape}, dtypes="bfloat16") for shape in ((256, 200), (129, 77))]
    return check_kernel(
        kernel, reference, cases, lnc=(1, 2), limits=Limits(time_us=60), raises=False
    )


def handed_in(file: Path) -> Any:
    """The kernel of a file."""
    spec = importlib.util.spec_from_file_location(file.stem, file)
    if spec is None or spec.loader is None:
        raise SystemExit(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.softmax


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--json", action="store_true")
    chosen = parser.parse_args()
    report = grade(handed_in(chosen.file) if chosen.file else softmax)
    print(report.to_json() if chosen.json else report)
    return 0 if report.ok else 1


if __name__ == "__main__":
    sys.exit(main())
