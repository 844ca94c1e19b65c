"""Kernels of other authors: which function of which file, and what it is given.

A kernel is named `path:function` below the root of the checkouts. autocomp keeps its candidates in
a trace, an expression of objects that hold their parent: `path#n:function` is the n-th, from the
first. Spilling is allowed, since most were written for a compiler that spills.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import MappingProxyType, ModuleType
from typing import Any, Final

import ml_dtypes
import numpy as np

from bench.accuracy import checkouts
from bench.accuracy.library import Launch, zeros

# autocomp's harness puts such lines above a candidate.
_IMPORTS: Final = """\
import math
import numpy as np
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
from neuronxcc.nki.language import par_dim
"""
_GIVEN = tuple[tuple[Any, ...], dict[str, Any]]


def _matrices(*shapes: tuple[int, ...], dtype: Any = np.float32) -> Callable[[], _GIVEN]:
    return lambda: (tuple(zeros(*shape, dtype=dtype) for shape in shapes), {})


# What the harnesses of autocomp and nki-autotune pass.
INPUTS: Final = MappingProxyType(
    {
        "gemm": _matrices((8192, 4096), (8192, 8192), dtype=ml_dtypes.bfloat16),
        "mamba": _matrices(*[(1, 256, 2048)] * 2, (256, 16), *[(1, 16, 2048)] * 2),
        "square": _matrices(*[(2048, 2048)] * 2, dtype=ml_dtypes.bfloat16),
    }
)


def made(kernel: str, inputs: str) -> Launch:
    """The launch of a row."""
    path, _, function = kernel.partition(":")
    kind, _, file = inputs.partition(":")
    args, kwargs = _benchmark(file) if kind == "nkibench" else INPUTS[kind]()
    return Launch(getattr(_module(path), function), args, kwargs, check="spill")


def _benchmark(file: str) -> _GIVEN:
    """NKIBench's own inputs of a problem; it draws them at random."""
    np.random.seed(0)
    task = checkouts.from_file(file)
    return tuple(task.transform_to_nki_inputs(task.get_inputs())), {}


def _module(path: str) -> ModuleType:
    file, _, number = path.partition("#")
    if not number:
        return checkouts.from_file(file)
    candidates = trace((checkouts.root() / file).read_text())
    return checkouts.from_text(_IMPORTS + candidates[int(number)], path)


def trace(text: str) -> list[str]:
    """The candidates of an autocomp trace, the first one first."""
    statement = ast.parse(text).body[0]
    node: Any = statement.value if isinstance(statement, ast.Expr) else None
    found = []
    while isinstance(node, ast.Call):
        fields = {keyword.arg: keyword.value for keyword in node.keywords}
        found.append(ast.literal_eval(fields["code"]))
        node = fields["parent"]
    return found[::-1]
